"""Queue the callers that wait for memory (`buffer.memory`): first come, first served.

In: callers whose record or rows didn't fit. Out: bytes reserved for them (`granted` in the
accumulator), for the first waiter as soon as there are enough: so small records can't keep a large
one waiting. A grant is as large as a batch if that much is freed soon; otherwise every record of a
full buffer would be a separate batch. Must not: leave bytes with a caller that doesn't wait any
more.

If no memory is released for a second, the first caller takes all free memory, and batches stop
lingering: most of the memory may belong to the batches of a dead leader. With a tenth of a second
instead, batches were half as large if a broker took 0.3 s for a response.
"""

from __future__ import annotations

from collections import OrderedDict

from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import ClientClosedError, KafkaError
from odradek.network.flow import START, Completion, Flow, Wait

NO_RELEASE_S = 1.0
"""Seconds without released memory after which the first waiter gets all free memory.

The free memory must be enough for its record, and batches stop lingering then. Batches of a dead
leader may hold the rest for minutes; a leader that is only slow releases some memory sooner.
"""


class _Waiting:
    __slots__ = ("owner", "size", "turn", "wanted")

    def __init__(self, owner: object, size: int, wanted: int) -> None:
        self.owner = owner
        self.size = size
        self.wanted = wanted
        self.turn: Completion[None] = Completion()


class MemoryWaiters:
    """The engine component with the queue; it advances after all components that free memory."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self.resting = True
        """Whether no caller waits."""
        self._accumulator = accumulator
        self._share = min(accumulator.batch_size, accumulator.limit // 8)
        self._line: OrderedDict[object, _Waiting] = accumulator.waiters
        """Waiters by owner, in order; a dict, so that removing one takes constant time."""
        self._first: _Waiting | None = None
        self._released = 0
        self._patient_until = 0.0
        self._hope = accumulator.limit
        """Bytes that were free when a wait took too long: a caller that wants more gets these."""

    def room(self, owner: object, size: int, deadline: float, wanted: int = 0) -> Flow[bool]:
        """Wait until `wanted` bytes are reserved, or at least `size`; return whether they are.

        With more bytes at once, the caller needn't be woken for each batch that ends.
        """
        now = yield START
        waiting = _Waiting(owner, size, max(size, wanted, self._share))
        self._line[owner] = waiting
        self.resting = False
        try:
            while not waiting.turn.done and now < deadline:
                now = yield Wait((waiting.turn,), deadline)
            if waiting.turn.done:
                waiting.turn.result()
                return True
            return self._front is waiting and self._accumulator.grant(owner, size)
        except BaseException:
            self._accumulator.waive(owner)
            raise
        finally:
            if self._line.get(owner) is waiting:
                del self._line[owner]

    @property
    def _front(self) -> _Waiting:
        return next(iter(self._line.values()))

    def leave(self, owner: object) -> Flow[None]:
        """Stop a caller's wait, and release its reserved bytes.

        A generator, so that it runs after a `room` generator that was started in the same step.
        """
        yield START
        waiting = self._line.pop(owner, None)
        if waiting is not None:
            waiting.turn.fail(ClientClosedError("the caller no longer waits for this memory"))
        self._accumulator.waive(owner)

    def advance(self, now: float) -> bool:
        """Reserve memory for the first waiter, and then for the next."""
        moved, accumulator = False, self._accumulator
        while self._line:
            first = self._front
            if first is not self._first or accumulator.released != self._released:
                self._first, self._released = first, accumulator.released
                self._patient_until = now + NO_RELEASE_S
                accumulator.starve(starved=False)
            if not self._grant(first):
                if now < self._patient_until or accumulator.starved:
                    break
                self._hope = accumulator.limit - accumulator.used
                accumulator.starve(starved=True)
                moved = True  # the sender then takes lingering batches
                continue
            self._line.popitem(last=False)[1].turn.complete(None)
            moved = True
        self.resting = not self._line
        return moved

    def _grant(self, first: _Waiting) -> bool:
        grant = self._accumulator.grant
        if grant(first.owner, first.wanted):
            self._hope = self._accumulator.limit
            return True
        return self._hope < first.wanted and grant(first.owner, max(first.size, self._hope))

    def next_deadline(self, now: float) -> float | None:
        """Return when the first waiter gets all memory that is free (`NO_RELEASE_S`)."""
        return self._patient_until if self._line and now < self._patient_until else None

    def abort(self, error: KafkaError, now: float) -> None:
        """Do nothing at the client's end, because the engine ends the waits in `room` itself."""
