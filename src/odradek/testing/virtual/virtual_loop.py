"""Run asyncio in the virtual time of a simulation: `VirtualLoop`.

In: a simulation (`World`), and the coroutines of a program. Out: a run of the program that can be
repeated exactly and never sleeps: when no callback is ready, time advances to the simulation's next
event or the loop's next timer, whichever comes first. Must not: open a socket or read a real clock.
At each time the order is fixed: first the simulation's events, with callbacks that they make ready;
then timers in the order of creation; then, if nothing else is left, threads' calls.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import re
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

from odradek.simulation.world.virtual_time import StuckError
from odradek.simulation.world.world import World
from odradek.testing.virtual.loop_threads import Job, JobExecutor, LoopThreads
from odradek.testing.virtual.virtual_sockets import Files

HOUR = 3600.0
"""Default limit of a run, in virtual seconds."""
MAX_ROUNDS_AT_ONCE = 1_000_000
"""Maximum number of the loop's iterations at one time before the program counts as stuck."""
RESTLESS_ROUNDS = 100
"""Number of iterations at one time after which calls from threads no longer wait until the loop is
idle."""
TASKS_NAMED = 10
PLACES_NAMED = 10
"""Maximum number of tasks in an error's text (`TASKS_NAMED`), and of code places per task."""
# fmt: off
NOT_HERE = (
    "add_signal_handler", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe",
    "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection",
    "create_unix_server", "getaddrinfo", "getnameinfo", "remove_signal_handler", "sendfile",
    "sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom",
    "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto", "start_tls",
    "subprocess_exec", "subprocess_shell",
)
# fmt: on
"""Methods of other event loops that raise `NotImplementedError` on this loop."""


class _Timer(asyncio.TimerHandle):
    """A scheduled callback; callbacks of the same time are ordered by their creation."""

    _scheduled: bool

    def __init__(self, order: int, *rest: Any) -> None:
        super().__init__(*rest)
        self.order = order

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        return (self.when(), self.order) < (other.when(), other.order)

    def planned(self, on: bool) -> None:
        """Note whether the timer is in the loop's heap; asyncio counts cancelled timers there."""
        self._scheduled = on


class _Task(asyncio.Task[Any]):
    """A task that has the same hash and the same name in each run of the program.

    `asyncio.wait` returns sets, and unfinished tasks are cancelled in the order of a set.
    """

    def __init__(self, serial: int, *rest: Any, **options: Any) -> None:
        self._serial = serial
        if options.get("name") is None:
            options["name"] = f"Task-{serial}"
        super().__init__(*rest, **options)

    def __hash__(self) -> int:
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop in virtual time, created by `KafkaSimulation.new_loop`.

    `asyncio`'s own tools (`sleep`, `timeout`, `TaskGroup`, `Queue`, `to_thread` …) work on it as on
    any other loop, and so do Odradek's clients in its simulation. Sockets, pipes, processes and
    signal handlers raise `NotImplementedError`.
    """

    # Private attributes of the base class that this class and its subclasses use:
    _ready: deque[asyncio.Handle]
    _scheduled: list[_Timer]
    _timer_cancelled_count: int
    _clock_resolution: float
    _stopping: bool
    _thread_id: int | None
    _debug: bool
    _default_executor: Executor | None
    _check_closed: Callable[[], None]
    _check_thread: Callable[[], None]
    _check_callback: Callable[[object, str], None]
    _check_default_executor: Callable[[], None]

    def __init__(self, world: World, *, limit: float = HOUR) -> None:
        """Create an event loop in a simulation.

        A run (`run_until_complete`, `run_forever`) may last `limit` virtual seconds; `math.inf`
        means no limit.
        """
        super().__init__()
        self.limit = limit
        self._world = world
        self._threads = LoopThreads(self)
        self._selector = SimpleNamespace(select=self._go_on)  # called by `_run_once`
        self.files = Files()
        """Simulated sockets that are open in this loop."""
        self._until = math.inf
        self._timers = self._tasks = 0
        self._submitting = False
        self._instant = -math.inf
        self._rounds = self._restless = 0
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Return the virtual time of the simulation, in seconds."""
        return self._world.now

    def run_forever(self) -> None:
        """Run until `stop()`.

        Raises `StuckError` if no event is left, or after `limit` virtual seconds; also raises the
        errors of actions that were scheduled in the simulation.
        """
        self._until = self._world.now + self.limit
        self._instant, self._rounds, self._restless = -math.inf, 0, 0
        with self._world.driven(self):
            super().run_forever()

    # Methods that the base class calls

    def _process_events(self, event_list: object) -> None:
        """Do nothing: the simulation's events have already called the loop."""

    def _write_to_self(self) -> None:
        self._threads.ring()

    def _go_on(self, timeout: float | None) -> None:
        """Wait like a selector, until a callback is ready or the next timer is due."""
        del timeout  # rounded and limited by the base class
        time = self._world.time
        self._count()
        while True:
            timer = self._next_timer()
            if self._ready or self._stopping or timer <= time.now or self.files.any_ready:
                time.run_until(time.now)
                break
            self._restless = 0
            if self._take_calls():
                continue
            self._threads.wait(self._called)
            if self._called():
                continue
            due = time.next_at()
            if due is None and timer == math.inf:
                if self._threads.wait_for_strangers(self._called):
                    continue
                raise StuckError(f"the run is stuck: no event is left, and {self._waiting()}")
            if min(timer, math.inf if due is None else due) > self._until:
                raise StuckError(
                    f"it is still running after {self.limit:g} virtual seconds, and "
                    f"{self._waiting()}"
                )
            if due is not None and due <= timer:
                time.fire_next()
            else:
                time.run_until(timer)
        self._looked()

    def _looked(self) -> None:
        """Add the callbacks of ready sockets to this iteration, before timers that are due."""
        self._ready.extend(self.files.ready())
        # Timers are due at `time() + _clock_resolution`: with the smallest resolution, at their
        # exact time.
        self._clock_resolution = math.ulp(self._world.now)

    def _next_timer(self) -> float:
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled).planned(False)
            self._timer_cancelled_count -= 1
        return scheduled[0].when() if scheduled else math.inf

    def _count(self) -> None:
        """Detect tasks that never wait; if a task keeps the loop busy, take threads' calls."""
        now = self._world.now
        if now != self._instant:
            self._instant, self._rounds = now, 0
        self._rounds += 1
        self._restless += 1
        if self._restless > RESTLESS_ROUNDS:
            self._take_calls()
        if self._rounds > MAX_ROUNDS_AT_ONCE and not self._threads.at_work():
            times = self._rounds - 1
            raise StuckError(
                f"the event loop ran {times} times at {now} s, because a task never waits"
            )

    def _waiting(self) -> str:
        """Return the names of the waiting tasks, with the places in the code where they wait."""
        tasks = sorted(asyncio.all_tasks(self), key=_by_number)
        if not tasks:
            return "there are no tasks"
        lines = [f"  {task.get_name()}: {_place(task)}" for task in tasks[:TASKS_NAMED]]
        if len(tasks) > TASKS_NAMED:
            lines.append(f"  and {len(tasks) - TASKS_NAMED} more")
        return "\n".join(["these tasks are waiting:", *lines])

    # Timers and tasks

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        self._tasks += 1
        return _Task(self._tasks, coro, loop=loop, **options)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a timer; timers of the same time fire in the order of their creation."""
        if when is None:
            raise TypeError("when must be a number")
        self._check_closed()
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
        self._timers += 1
        timer = _Timer(self._timers, when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer.planned(True)
        return timer

    # Simulated sockets

    def _watch(
        self, name: str, fd: int, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._check_closed()
        if fd not in self.files:
            raise _refused(name)
        handle = asyncio.Handle(callback, args, self, None)
        self.files.watch(fd, handle, read=name == "add_reader")

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Watch a simulated socket (`files`) for reading; raises for other sockets."""
        self._watch("add_reader", fd, callback, args)

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Watch a simulated socket for writing."""
        self._watch("add_writer", fd, callback, args)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        """Stop watching a socket for reading; also cancels a callback that is already scheduled."""
        self._check_closed()
        return self.files.unwatch(fd, read=True)

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        """Stop watching a socket for writing."""
        self._check_closed()
        return self.files.unwatch(fd, read=False)

    # Threads

    def has_job_here(self) -> bool:
        """Return whether the calling thread executes a `run_in_executor` job of this loop."""
        return self._threads.knows(threading.get_ident())

    def _called(self) -> bool:
        return bool(self._ready or self._threads.arrived)

    def _take_calls(self) -> bool:
        """Make the calls from other threads ready to run; return whether there were any."""
        arrived, any_of_them = self._threads.arrived, False
        while arrived:
            self._ready.append(arrived.popleft())
            any_of_them = True
        return any_of_them

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback from another thread.

        The callback runs once the loop has nothing left to do at the current virtual time.
        """
        if threading.get_ident() == self._thread_id and not self._submitting:
            return super().call_soon_threadsafe(callback, *args, context=context)
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._threads.arrived.append(handle)
        self._threads.ring()
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a job in another thread or process; virtual time doesn't advance until it ends."""
        if executor is None:
            self._check_default_executor()
            if self._default_executor is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
            executor = self._default_executor
            assert executor is not None  # noqa: S101 - for the type checker
        job = Job(func, executor)
        through = JobExecutor(job, executor)
        self._threads.begun(job)
        # If this were the running loop, Python 3.14 and later would report at once a job that ends
        # at once; but the end of a job must count as a call from another thread.
        self._submitting, running = True, _get_running_loop()
        _set_running_loop(None)
        try:
            heard = super().run_in_executor(through, func, *args)
        except BaseException:
            self._threads.ended(job)
            raise
        finally:
            self._submitting = False
            _set_running_loop(running)
        future = through.future

        def over(heard: asyncio.Future[Any]) -> None:
            if heard.cancelled() and future is not None:  # the job continues
                future.add_done_callback(lambda _: self._threads.ended(job))
            else:
                self._threads.ended(job)

        heard.add_done_callback(over)
        return heard

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Shut the executor down, as in the base class; virtual time doesn't advance meanwhile."""
        job = Job(self.shutdown_default_executor)
        self._threads.begun(job)
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._threads.ended(job)


def _by_number(task: asyncio.Task[Any]) -> list[tuple[str, int]]:
    """Return a key that sorts tasks by name, in the order of creation: Task-9 before Task-10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", task.get_name())]


def _place(task: asyncio.Task[Any]) -> str:
    """Return the places in the code where a task waits, in its coroutine and in those it awaits."""
    places: list[str] = []
    inner: Any = task.get_coro()
    while inner is not None and len(places) < PLACES_NAMED:
        names = ("cr_frame", "gi_frame", "ag_frame")
        frame: Any = next((found for n in names if (found := getattr(inner, n, None))), None)
        if frame is None:
            break
        code = frame.f_code
        places.append(f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})")
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        inner = next((found for n in names if (found := getattr(inner, n, None))), None)
    return " > ".join(places)


def _refused(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name}: an event loop in virtual time has no sockets, pipes, processes or signals, "
        "except for Odradek's clients of the simulation. Replace other servers by fakes, or "
        "use the fixture kafka_cluster."
    )


def _refusal(name: str) -> Callable[..., Never]:
    def refused(self: VirtualLoop, *args: object, **kwargs: object) -> Never:
        raise _refused(name)

    return refused


for _name in NOT_HERE:
    setattr(VirtualLoop, _name, _refusal(_name))
