"""Run the callbacks of a group consumer in the caller's thread, inside its `poll()`.

In: callbacks that rebalances and commits have queued. Out: calls of the user's functions in the
queue's order. No lock is held during a call, so a function may use the consumer; after the call,
the rebalance or commit continues. While a callback is due, no records are returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from odradek.clients.caller_flow import CallerFlow, Do
from odradek.common.errors import IllegalStateError
from odradek.common.types import Lock, TopicPartition
from odradek.network.flow import Completion

ON_ASSIGNED, ON_REVOKED, ON_LOST = "on_assigned", "on_revoked", "on_lost"
COMMIT_CALLBACK = "a commit's callback"


class PendingCallback:
    """One callback that is due."""

    __slots__ = ("action", "begun", "called", "done", "over", "partitions", "what")

    def __init__(
        self, what: str, action: Callable[[], object], partitions: list[TopicPartition]
    ) -> None:
        """Set `partitions`, the argument of the callback."""
        self.what = what
        self.action = action
        self.partitions = partitions
        self.done: Completion[None] = Completion()
        self.begun = False
        """Whether the callback is about to be called, so that it can't be withdrawn any more."""
        self.called = False
        self.over = False
        """Whether the callback has ended.

        It remains queued if an exception interrupted the caller before `ended` was called.
        """

    def call(self) -> object:
        """Mark the callback as called, then call it."""
        action, self.called = self.action, True
        return action()

    @property
    def due(self) -> bool:
        """Whether the callback has to be called, or its end has to be reported."""
        return self.over or not self.begun


class PendingCallbacks:
    """The callbacks that wait for the caller, in order."""

    def __init__(self, lock: Lock) -> None:
        """Set `lock`, held while a callback is chosen and during each step of the engine."""
        self.waiting: deque[PendingCallback] = deque()
        """Callbacks that haven't ended; loops over a consumer check this queue for each record."""
        self._lock = lock
        self.running: str | None = None
        """Name of the callback that is running; None if none is."""

    def __bool__(self) -> bool:
        try:
            # The usual case. Copying the queue for each callback would take quadratic time.
            if self.waiting[0].due:
                return True
        except IndexError:
            return False
        # Iterates over a copy, because the engine's thread may add a callback meanwhile.
        return any(pending.due for pending in list(self.waiting))

    def put(self, pending: PendingCallback) -> None:
        """Add a callback."""
        self.waiting.append(pending)

    def withdraw(self, pending: PendingCallback) -> None:
        """Cancel a callback that hasn't begun; its rebalance or commit continues without it."""
        if pending in self.waiting and not pending.begun:
            self.waiting.remove(pending)
            pending.done.complete(None)

    def unannounced(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Remove partitions from pending on_assigned calls; return those that were removed.

        The caller was never notified of these partitions, so it isn't notified of their loss.
        """
        found = set()
        for pending in [t for t in self.waiting if t.what == ON_ASSIGNED and not t.begun]:
            gone = set(partitions).intersection(pending.partitions)
            if gone:
                found |= gone
                pending.partitions[:] = [p for p in pending.partitions if p not in gone]
                if not pending.partitions:
                    self.waiting.remove(pending)
        return found

    def clear(self) -> None:
        """Drop all callbacks except those of commits, because the group has been left."""
        for pending in [t for t in self.waiting if t.what != COMMIT_CALLBACK]:
            self.waiting.remove(pending)

    def check(self, what: str) -> None:
        """Raise if a callback is running, in which `what` mustn't be called."""
        if self.running is not None:
            raise IllegalStateError(f"{what} can't be called inside {self.running}")

    def take(
        self, ended: Callable[[PendingCallback], None], only: str | None = None
    ) -> CallerFlow[None]:
        """Run all callbacks in the caller; raise the first error when all have ended.

        With `only`, only callbacks of this name run. `ended` is called for each one, perhaps twice.
        If the caller is interrupted before a callback is called, the next `take` calls it. If the
        caller is interrupted later, the next `take` only calls `ended`.
        """
        first: Exception | None = None
        while self:
            pending, outer = None, self.running
            try:
                with self._lock:
                    pending = self._next(only)
                    if pending is None:  # the callback was withdrawn after `while self`
                        break
                    pending.begun = True
                if not pending.over:
                    self.running = pending.what
                    yield Do(pending.call)
            except Exception as error:
                if first is None:
                    first = error
                else:
                    first.add_note(f"{pending and pending.what} failed as well: {error!r}")
            finally:  # Python handles no signal during the assignments that follow
                self.running = outer
                if pending is not None:
                    pending.begun = pending.over = pending.called
                    if pending.over:
                        self._finish(pending, ended)
        if first is not None:
            raise first

    def _next(self, only: str | None) -> PendingCallback | None:
        return next((t for t in self.waiting if t.due and only in (None, t.what)), None)

    def _finish(self, pending: PendingCallback, ended: Callable[[PendingCallback], None]) -> None:
        """Notify the rebalance or commit that waits for a callback, then remove the callback."""
        ended(pending)
        with self._lock:
            if pending in self.waiting:
                self.waiting.remove(pending)
