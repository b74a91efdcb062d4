"""Allow only one thread at a time in a consumer's calls that return records (R-HO-3).

In: the beginning of such a call, which claims the consumer, and its end. Out: an error that names
both threads, before any record is returned. Must not: block the consumer after an exception: a
claim is only valid while its call is on the stack.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from odradek.common.errors import IllegalStateError
from odradek.common.types import FREE_THREADS
from odradek.runtime.locks import new_lock

if TYPE_CHECKING:
    from odradek.clients.calls.consumer_calls import ConsumerCalls

A = TypeVar("A")
T = TypeVar("T")
NAME = "claim"
"""Name of the local variable in which a call stores its claim."""
NO_READER = -1
"""A value that isn't the id of any thread."""


class ReaderCall:
    """The claim on a consumer by one thread's call."""

    __slots__ = ("ident", "iterates")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.iterates = self.ident
        """Id of the thread that may continue to iterate; `NO_READER` after a `wake`."""

    @property
    def thread(self) -> str:
        """The name of the thread that made the call."""
        there = (t.name for t in threading.enumerate() if t.ident == self.ident)
        return next(there, f"{self.ident}")

    @property
    def is_active(self) -> bool:
        """Whether the call is still running; after an interruption, its claim may remain.

        Free-threaded CPython can't inspect a running thread. There, a claim of another thread
        counts as active until that thread has ended or calls again.
        """
        frame: FrameType | None = sys._current_frames().get(self.ident)  # noqa: SLF001
        if FREE_THREADS and frame is not None and self.ident != threading.get_ident():
            return True
        while frame is not None:
            if frame.f_locals.get(NAME) is self:
                return True
            frame = frame.f_back
        return False


class OneReader:
    """The thread that may read records from one consumer now."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._held: ReaderCall | None = None
        self._last: ReaderCall | None = None
        self.woken = False
        """Whether the current iteration, or else the next one, must end without a record."""

    def wake(self) -> None:
        """End iterations before their next record; any thread or signal handler may call this."""
        self.woken = True
        last = self._last
        if last is not None:
            last.iterates = NO_READER

    def claim(self, what: str, callback: Callable[[], str | None] | None = None) -> ReaderCall:
        """Return a claim, or raise; the caller must store it in a local variable named `claim`.

        `callback` returns the name of the user's function that is running, or None.
        """
        mine = ReaderCall()
        with self._lock:
            held = self._held
            if held is None or not held.is_active:
                self._held = self._last = mine
                return mine
        if held.ident == mine.ident:
            running = callback and callback()
            raise IllegalStateError(f"{what} can't be called inside {running or what}")
        raise IllegalStateError(
            f"thread {mine.thread!r} called {what} while thread {held.thread!r} was using it: a "
            "consumer returns records to one thread at a time. Other threads may call pause(), "
            "seek(), commit() and close()"
        )

    def leave(self, claim: ReaderCall) -> None:
        """Release a claim, unless the consumer has another one by now."""
        if self._held is claim:
            self._held = None

    def inside(
        self, what: str, callback: Callable[[], str | None], run: Callable[[A], T], call: A
    ) -> T:
        """Run a call; while it runs, calls of other threads raise."""
        claim = self.claim(what, callback)
        try:
            return run(call)
        finally:
            if self._held is claim:  # `leave`, inlined
                self._held = None

    def records(
        self, more: Callable[[], Iterator[T] | None], calls: ConsumerCalls, now: Callable[[], float]
    ) -> Iterator[T]:
        """Iterate over records until `more` returns None.

        After each record, note the time for the group, and run its waiting callbacks.
        """
        while found := more():
            calls.engine.delivery.handed_over()
            group = calls.engine.group
            if group is None:
                yield from self.each(found, "records()")
                continue
            came_back, waiting = group.given.append, group.callbacks.waiting
            for record in self.each(found, "records()"):
                yield record
                came_back(now())
                if waiting:
                    break

    @staticmethod
    def batches(more: Callable[[], T | None], calls: ConsumerCalls) -> Iterator[T]:
        """Iterate over large results; drop each reference before the next result is requested."""
        while (one := more()) is not None:
            calls.engine.delivery.handed_over()
            yield one
            del one

    def each(self, found: Iterator[T], what: str) -> Iterator[T]:
        """Iterate over records; release the claim while the caller processes a record.

        No function is called between `next(found)` and `yield`, so no signal handler runs there.
        """
        claim = self.claim(what)
        for one in self._giving_back(found) if FREE_THREADS else found:
            self._held = None
            yield one
            # With the GIL, no other thread runs between this check and the assignment.
            if FREE_THREADS:
                with self._lock:
                    if back := threading.get_ident() == claim.iterates and self._held is None:
                        self._held = claim
            elif back := threading.get_ident() == claim.iterates and self._held is None:
                self._held = claim
            if not back:
                if self.woken:
                    return
                claim = self.claim(what)
        self.leave(claim)

    def _giving_back(self, found: Iterator[T]) -> Iterator[T]:
        """Iterate, and release the claim if the iteration raises an error.

        Without a GIL, `is_active` can't detect that the call has ended. There is no `finally`,
        which would also run when the user's loop ends early, where an exception would be lost.
        """
        try:
            yield from found
        except GeneratorExit:
            raise
        except BaseException:
            held = self._held
            if held is not None and held.ident == threading.get_ident():
                self._held = None
            raise
