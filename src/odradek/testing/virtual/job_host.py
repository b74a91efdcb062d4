"""A simulated I/O host whose client may also be called in jobs of the simulation's event loop.

In: calls in the simulation's own thread, and in threads that work for its `VirtualLoop`
(`to_thread`, executors, anyio's). Out: the loop carries out the calls of its jobs, whose threads
wait in real time; calls in other threads raise an error. Must not: let two threads run at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from odradek.common.errors import IllegalStateError
from odradek.network.flow import Completion
from odradek.runtime.locks import new_lock
from odradek.simulation.world.environment import HostEnvironment
from odradek.simulation.world.host import SimulatedHost
from odradek.simulation.world.virtual_time import Timer
from odradek.testing.virtual.virtual_loop import VirtualLoop

T = TypeVar("T")

ONE_THREAD = (
    "kafka_simulation works in one thread, and in jobs of an event loop in virtual time "
    "(asyncio.to_thread). This call comes from another thread, which virtual time can't wait for. "
    "Use the fixture kafka_cluster for such code."
)


def loop_of_this_job(world: HostEnvironment) -> VirtualLoop:
    """Return the loop whose job this thread runs; raise `IllegalStateError` if there is none."""
    loop = world.driver
    if not isinstance(loop, VirtualLoop) or not loop.has_job_here():
        raise IllegalStateError(ONE_THREAD)
    return loop


def in_loop(world: HostEnvironment, action: Callable[[], T]) -> T:
    """Run an action in the loop's thread, on behalf of a job, and wait for the result."""
    ended: Future[T] = Future()

    def do() -> None:
        try:
            ended.set_result(action())
        except BaseException as error:  # for the job to raise
            ended.set_exception(error)

    loop_of_this_job(world).call_soon_threadsafe(do)
    return ended.result()


class JobHost(SimulatedHost):
    """Runs one client's engine in a simulation, for calls from several threads."""

    def __init__(self, world: HostEnvironment, *rest: Any, **options: Any) -> None:
        super().__init__(world, *rest, **options)
        self.lock = new_lock()
        self._own = threading.get_ident()

    @property
    def _here(self) -> bool:
        return threading.get_ident() == self._own

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Advance the simulation until the completion is done or the deadline has passed."""
        if self._here:
            return super().run(completion, deadline)
        ended: Future[None] = Future()
        in_loop(self._world, lambda: self._wait_for(completion, deadline, ended))
        ended.result()
        return completion.done

    def _wait_for(
        self, completion: Completion[Any], deadline: float | None, ended: Future[None]
    ) -> None:
        """Begin a call in the loop's thread, which ends with the completion or at the deadline."""
        timer: Timer | None = None

        def over(_: object = None) -> None:
            if not ended.done():
                self._in_call -= 1
                if timer is not None:
                    timer.cancel()
                completion.forget(over)
                ended.set_result(None)

        self._in_call += 1
        self._step_if_due()
        if deadline is not None and not completion.done:
            timer = self._time.at(deadline, over)
        completion.when_done(over)

    def drive(self) -> None:
        """Run what is due at this virtual time."""
        if self._here:
            super().drive()
        else:
            in_loop(self._world, super().drive)

    def wake(self) -> None:
        """Schedule a step for new inputs at this virtual time, but not in the calling code."""
        if self._here:
            super().wake()
        else:
            loop_of_this_job(self._world).call_soon_threadsafe(super().wake)

    def close(self, deadline: float) -> None:
        """Carry out pending effects and close all links; the engine takes no more steps."""
        if self._here:
            super().close(deadline)
        else:
            in_loop(self._world, lambda: SimulatedHost.close(self, deadline))

    def enter(self, *, closing: bool = False) -> float:
        """Begin a coroutine's call; raises `IllegalStateError` in another thread."""
        if not self._here:
            raise IllegalStateError(ONE_THREAD)
        return super().enter(closing=closing)
