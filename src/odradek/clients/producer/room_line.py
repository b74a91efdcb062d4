"""The line of those who wait for room in `buffer.memory`: first come, first served.

In: callers whose record or rows found no room. Out: bytes that are theirs (`granted` in the
accumulator), to whoever is first, as soon as there are enough: a large record gets its turn however
many small ones others send. It is at least what a batch may hold where so much comes free soon, or
every record of a full buffer would go in a batch of its own. Must not: leave bytes with anybody who
waits no longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import ClientClosedError, KafkaError
from odradek.network.flow import START, Completion, Flow, Wait

WISH_S = 0.1
"""Seconds for which the first in line waits for more than it needs, and batches may linger all the
same. What isn't freed in that time may stay taken for minutes (a leader that is gone), and healthy
partitions mustn't wait for it."""


@dataclass(slots=True, eq=False)
class _Waiting:
    owner: object
    size: int
    wanted: int
    first_since: float | None = None
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
        waiting = _Waiting(owner, size, max(size, wanted, self._share))
        accumulator = self._accumulator
        self._line.append(waiting)
        accumulator.waiters += 1
        try:
            while not waiting.turn.done and now < deadline:
                now = yield Wait((waiting.turn,), deadline)
            if waiting.turn.done:
                waiting.turn.result()
                return True
            return self._line[0] is waiting and accumulator.grant(owner, size)
        except BaseException:
            accumulator.waive(owner)
            raise
        finally:
            if waiting in self._line:
                self._line.remove(waiting)
                accumulator.waiters -= 1

    def leave(self, owner: object) -> Flow[None]:
        """Whoever it is waits no longer, or never takes what was granted: others have it.

        A flow, so that it comes after that of `room`, which may have been started in this step.
        """
        yield START
        for waiting in self._line:
            if waiting.owner is owner:
                self._line.remove(waiting)
                self._accumulator.waiters -= 1
                waiting.turn.fail(ClientClosedError("nobody waits for this room any more"))
                break
        self._accumulator.waive(owner)

    def advance(self, now: float) -> bool:
        """Give to the first what it waits for, and then to the next."""
        moved = False
        while self._line:
            first, grant = self._line[0], self._accumulator.grant
            if first.first_since is None:
                first.first_since = now
                self._accumulator.starved = False
            patient = now < first.first_since + WISH_S
            if not grant(first.owner, first.wanted) and (
                patient or not grant(first.owner, first.size)
            ):
                if not patient and not self._accumulator.starved:
                    self._accumulator.starved = moved = True  # what lingers has to go
                break
            self._accumulator.waiters -= 1
            self._line.pop(0).turn.complete(None)
            moved = True
        return moved

    def next_deadline(self, now: float) -> float | None:
        """When the first is content with what it needs; all else comes with what others do."""
        since = self._line[0].first_since if self._line else None
        return None if since is None or now >= since + WISH_S else since + WISH_S

    def abort(self, error: KafkaError, now: float) -> None:
        """The client ends: the engine closes the flows."""
