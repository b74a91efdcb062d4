"""Allow one thread at a time in calls that return records (R-HO-3).

In: a claim at the beginning of such a call, its end. Out: an error that names both threads, before
any record is returned. Must not: remain claimed after an exception: a claim is only valid while its
call is on its thread's stack.
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
"""Name of the local variable in which a call holds its claim."""
NO_READER = -1
"""An id that no thread has."""


class ReaderCall:
    """The claim of one thread's call."""

    __slots__ = ("ident", "iterates")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.iterates = self.ident
        """Id of the thread that may continue without a check; `NO_READER` after a `wake`."""

    @property
    def thread(self) -> str:
        """The name of its thread."""
        there = (t.name for t in threading.enumerate() if t.ident == self.ident)
        return next(there, f"{self.ident}")

    @property
    def is_active(self) -> bool:
        """Whether the call is still running; if it was interrupted, its claim may remain.

        Without a GIL, CPython can't inspect a running thread. Then a claim of another thread counts
        as active until that thread has ended or calls again.
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
    """Holds the claim of the call that is running."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._held: ReaderCall | None = None
        self._last: ReaderCall | None = None
        self.woken = False
        """Whether the current reader, or the next one, must return without a record."""

    def wake(self) -> None:
        """End iterations before their next record; may be called anywhere, in any thread."""
        self.woken = True
        last = self._last
        if last is not None:
            last.iterates = NO_READER

    def claim(self, what: str, callback: Callable[[], str | None] | None = None) -> ReaderCall:
        """Claim the consumer, or raise; the caller keeps the claim in a variable called `claim`.

        `callback` returns the name of the user's function that is running, if any.
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
        """Release the claim."""
        if self._held is claim:
            self._held = None

    def inside(
        self, what: str, callback: Callable[[], str | None], run: Callable[[A], T], call: A
    ) -> T:
        """Run a call; other threads' calls raise meanwhile."""
        claim = self.claim(what, callback)
        try:
            return run(call)
        finally:
            if self._held is claim:  # `leave`, inlined
                self._held = None

    def records(
        self, more: Callable[[], Iterator[T] | None], calls: ConsumerCalls, now: Callable[[], float]
    ) -> Iterator[T]:
        """Iterate over records until there are no more.

        After each record, note the time in the group, and run its callbacks before the next record.
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
        """Iterate over large results; release each before the next one is requested."""
        while (one := more()) is not None:
            calls.engine.delivery.handed_over()
            yield one
            del one

    def each(self, found: Iterator[T], what: str) -> Iterator[T]:
        """Iterate over records; release the claim while the caller processes a record.

        There is no call between `next(found)` and `yield`, so that no signal handler runs there.
        """
        claim = self.claim(what)
        for one in self._giving_back(found) if FREE_THREADS else found:
            self._held = None
            yield one
            # With a GIL, no other thread runs between this check and the assignment.
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
        """Iterate, and release the claim if the iteration raises.

        Without a GIL, `is_active` can't detect that. There is no `finally`: it would also run when
        a loop is left, could be interrupted there, and its exception would be lost.
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
