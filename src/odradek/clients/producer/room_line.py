"""The line of those who wait for room in `buffer.memory`: first come, first served.

In: callers whose record or rows found no room. Out: bytes that are theirs (`granted` in the
accumulator), to whoever is first, as soon as there are enough: a large record gets its turn however
many small ones others send. It is at least what a batch may hold, or every record of a full buffer
would go in a batch of its own. Must not: leave bytes with anybody who waits no longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Completion, Flow, Wait


@dataclass(slots=True, eq=False)
class _Waiting:
    owner: object
    wanted: int
    turn: Completion[None] = field(default_factory=Completion)


class RoomLine:
    """A component of a producer's engine; it moves after all that frees memory."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._share = min(accumulator.batch_size, accumulator.limit // 8)
        self._line: list[_Waiting] = []

    def room(self, owner: object, size: int, deadline: float, wanted: int = 0) -> Flow[bool]:
        """Wait until `size` bytes are the owner's; False when they aren't by the deadline.

        `wanted`: rather wait for so much, so that not each batch that ends wakes the caller.
        """
        now = yield START
        waiting = _Waiting(owner, max(size, wanted, self._share))
        accumulator = self._accumulator
        granted = False
        self._line.append(waiting)
        accumulator.waiters += 1
        try:
            while not waiting.turn.done and now < deadline:
                now = yield Wait((waiting.turn,), deadline)
            if not waiting.turn.done and self._line[0] is waiting:
                granted = accumulator.grant(owner, size)
            return granted or waiting.turn.done
        except BaseException:
            accumulator.waive(owner)
            raise
        finally:
            if not waiting.turn.done:
                self._line.remove(waiting)
                accumulator.waiters -= 1

    def advance(self, now: float) -> bool:
        """Give to the first what it waits for, and then to the next."""
        moved = False
        while self._line and self._accumulator.grant(self._line[0].owner, self._line[0].wanted):
            self._accumulator.waiters -= 1
            self._line.pop(0).turn.complete(None)
            moved = True
        return moved

    def next_deadline(self, now: float) -> float | None:
        """Never: memory comes with what others do."""
        return None

    def abort(self, error: KafkaError, now: float) -> None:
        """The client ends: the engine closes the flows."""
