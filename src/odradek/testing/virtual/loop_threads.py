"""Pass calls from other threads, and the ends of their jobs, to a loop in virtual time.

In: calls from other threads, jobs of executors, anyio's worker threads. Out: the calls, once the
loop is idle; whether a job is running, so that virtual time must not advance; a wait in real time
for the next call. Must not: run a job, or advance time.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

from odradek.simulation.world.virtual_time import StuckError

PATIENCE = 60.0
"""Real seconds for which a loop waits for running jobs before the run counts as stuck."""
GRACE = 1.0
"""Real seconds for which the loop waits for other threads if no event is left to wait for."""
FIRST_LOOK = 0.001
LONGEST_LOOK = 0.02
"""First and maximum interval in real seconds for checking whether a job waits for the loop."""
LOOKED_UP_TO = 6
"""Number of innermost frames to search for `Future.result`, which waits in functions it calls."""


class Job:
    """A function that runs in an executor, and the thread in which it runs."""

    __slots__ = ("executor", "function", "thread")

    def __init__(self, function: Callable[..., Any], executor: Executor | None = None) -> None:
        self.function = function
        self.executor = executor
        self.thread: int | None = None

    def __call__(self, *arguments: Any) -> Any:
        self.thread = threading.get_ident()
        return self.function(*arguments)


class JobExecutor(Executor):
    """Submits one job to an executor, and keeps the job's future."""

    def __init__(self, job: Job, executor: Executor) -> None:
        self._job = job
        self._executor = executor
        self.future: Future[Any] | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit the job; a process pool gets the plain function, as a job can't be pickled."""
        call = self._job if isinstance(self._executor, ThreadPoolExecutor) else function
        self.future = self._executor.submit(call, *args, **kwargs)
        return self.future


class LoopThreads:
    """The threads that run jobs of one loop, and the calls that they make to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.patience = PATIENCE
        self.arrived: deque[asyncio.Handle] = deque()
        """Calls that wait until the loop is idle, so that the order of calls doesn't depend on how
        fast threads are."""
        self._loop = loop
        self._jobs: dict[Job, None] = {}
        self._bell = threading.Lock()
        self._bell.acquire()

    # Jobs

    def begun(self, job: Job) -> None:
        """Note that a job is running, until `ended`."""
        self._jobs[job] = None

    def ended(self, job: Job) -> None:
        """Note that a job's result has arrived or was discarded; thread-safe."""
        self._jobs.pop(job, None)
        self.ring()

    def at_work(self) -> list[str]:
        """Return the names of running jobs: virtual time must not advance before they end.

        Jobs that wait for a result of the loop (`run_coroutine_threadsafe`) don't count, because
        the loop must run for them.
        """
        jobs = list(self._jobs)
        others = _anyio_workers(self._loop)
        if not jobs and not others:
            return []
        frames = sys._current_frames()  # noqa: SLF001 - its documented name
        working = [n for n, thread in others if not _awaits(frames.get(thread))]
        busy: dict[Executor | None, set[int]] = {}
        for job in jobs:
            if job.thread is not None:
                busy.setdefault(job.executor, set()).add(job.thread)
                if not _awaits(frames.get(job.thread)):
                    working.append(_name(job.function))
        del frames
        for job in jobs:  # a queued job is about to run if a thread is free
            full = len(busy.get(job.executor, ())) >= getattr(
                job.executor, "_max_workers", math.inf
            )
            if job.thread is None and not full:
                working.append(_name(job.function))
        return working

    def knows(self, thread: int) -> bool:
        """Return whether this thread runs one of the loop's jobs."""
        return any(job.thread == thread for job in list(self._jobs)) or any(
            number == thread for _, number in _anyio_workers(self._loop)
        )

    # Calls from other threads

    def ring(self) -> None:
        """Wake the loop up; safe in signal handlers."""
        try:
            self._bell.release()
        except RuntimeError:  # the loop is being woken up already
            return

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait in real time until a condition holds or no job is running.

        Raises `StuckError` if jobs run for longer than `patience` seconds.
        """
        look, waited = FIRST_LOOK, 0.0
        while not until() and (jobs := self.at_work()):
            if waited >= self.patience:
                raise StuckError(
                    f"virtual time has not advanced for {waited:.0f} real seconds, because these "
                    f"executor jobs didn't finish: {', '.join(jobs)}"
                )
            if not self._bell.acquire(timeout=look):
                waited += look
                look = min(2 * look, LONGEST_LOOK)

    def wait_for_strangers(self, until: Callable[[], bool]) -> bool:
        """Wait briefly for threads without jobs; return whether the condition holds.

        Called only if no other event is left: such a thread may be about to call the loop.
        """
        waited = 0.0
        while not until() and waited < GRACE and threading.active_count() > 1:
            if not self._bell.acquire(timeout=LONGEST_LOOK):
                waited += LONGEST_LOOK
        return until()


def _anyio_workers(loop: asyncio.AbstractEventLoop) -> list[tuple[str, int]]:
    """Return names and ids of anyio's busy threads for this loop: anyio doesn't use executors."""
    if "anyio" not in sys.modules:
        return []
    return [
        ("a call in a thread of anyio", thread.ident or 0)
        for thread in threading.enumerate()
        if getattr(thread, "loop", None) is loop
        and not getattr(thread, "stopping", True)
        and thread not in getattr(thread, "idle_workers", ())
    ]


def _awaits(frame: FrameType | None) -> bool:
    """Return whether a thread is in `result()` or `exception()` of a future that isn't done."""
    for _ in range(LOOKED_UP_TO):
        if frame is None:
            return False
        code = frame.f_code
        if code.co_name in ("result", "exception") and "concurrent" in code.co_filename:
            future = frame.f_locals.get("self")
            return isinstance(future, Future) and not future.done()
        frame = frame.f_back
    return False


def _name(function: Any) -> str:
    """Return the name of a job's function, which `to_thread` wraps in partials."""
    for _ in range(LOOKED_UP_TO):
        inner = getattr(function, "args", None) if hasattr(function, "func") else None
        if not inner or not callable(inner[0]):
            break
        function = inner[0]
    return str(getattr(function, "__qualname__", function))
