"""Run the logic of one client: a loop without I/O, whose state only changes in `step`.

In: events that the I/O host (thread or event loop) records; flows (generators) that clients start.
Out: a queue of I/O operations for the host, and the next deadline. A step resumes the flows first,
then components (network client, sender, fetcher …) in a fixed order, until nothing changes any
more. Must not: do I/O, read a clock, call user code. An exception that escapes a step ends the
engine and fails all pending futures; one from outside (as Ctrl-C) is also raised.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from odradek.common.errors import ClientBrokenError, KafkaError
from odradek.common.events import EventLog
from odradek.network.effects import Call, Effect
from odradek.network.flow import Completion, Flow, Task

logger = logging.getLogger("odradek")

T = TypeVar("T")

MAX_TURNS = 100_000
"""Maximum number of loop iterations in one step; more mean an endless loop, which is a bug."""


class Component(Protocol):
    """A part of a client that advances in each step of the engine."""

    resting: bool
    """Whether the component has nothing to do, so that the engine doesn't call `advance`."""

    def advance(self, now: float) -> bool:
        """Do all the work that is possible at the time `now`; return whether anything changed."""

    def next_deadline(self, now: float) -> float | None:
        """Return when `advance` must be called again if no input arrives."""

    def abort(self, error: KafkaError, now: float) -> None:
        """Complete all open futures with this error, because the client ends."""


class Engine:
    """Runner of a client's flows (generators) and components; one of these owns the connections."""

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.now = 0.0
        self.effects: deque[Effect] = deque()
        self.components: list[Component] = []
        self.ended: KafkaError | None = None
        """The error with which the client ended (closed, fatal error, bug); None while it runs."""
        self.ended_at: float | None = None
        self.torn = False
        """Whether an exception from outside, such as Ctrl-C, interrupted a step."""
        self._from_outside: Callable[[BaseException], bool] = _no_exception
        self.inputs: deque[Callable[[float], None]] = deque()
        """Functions to run in the next step; while the queue isn't empty, a step is due at once."""
        # Appending to a deque is atomic, so any thread may post.
        self.post = self.inputs.append
        """Run a function with `now` inside the next step."""
        self._ready: deque[Task[Any]] = deque()
        self._timers: list[tuple[float, int, Task[Any], int]] = []
        self._timer_serial = 0
        self._tasks: dict[Task[Any], None] = {}
        self._calls: dict[int, Completion[Any]] = {}
        self._next_token = 0

    def hosted(self, from_outside: Callable[[BaseException], bool]) -> None:
        """Set the function that returns whether an exception came from outside the engine."""
        self._from_outside = from_outside

    # Inputs

    def start(self, flow: Flow[T]) -> Completion[T]:
        """Start a flow in the next step and return its completion."""
        task: Task[T] = Task(flow, self._ready.append)
        self.post(partial(self._begin, task))
        return task.completion

    def cancel(self, completion: Completion[Any], error: KafkaError) -> None:
        """End a flow with `error` in the next step, unless the flow has ended by then."""
        self.post(lambda now: self.cancel_now(completion, error))

    def called(self, token: int, result: Any, error: BaseException | None) -> None:
        """Record the result of a `Call` for the next step."""
        self.post(lambda now: self._call_ended(token, result, error))

    # Steps

    @property
    def flows(self) -> int:
        """Number of running flows."""
        return len(self._tasks)

    def step(self, now: float) -> float | None:
        """Process inputs; return when to step again if no input arrives (None: no need)."""
        self.now = now
        try:
            return self._step(now)
        except BaseException as error:  # a bug must not let callers wait for ever
            self.torn = self.ended is None and self._from_outside(error)
            broken = ClientBrokenError(f"internal error: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self.end(broken, "broken", error=repr(error))
            if self._from_outside(error):
                # An exception from outside, such as Ctrl-C, may leave half-changed state, so the
                # engine ends.
                raise
            return None

    def _step(self, now: float) -> float | None:
        inputs, ready = self.inputs, self._ready
        for _ in range(MAX_TURNS):
            while inputs:
                inputs.popleft()(now)
            timers = self._timers
            if timers and timers[0][0] <= now:
                self._fire_timers(now)
            if ready:
                while ready:
                    self._resume(ready.popleft(), now)
                continue
            moved = False
            if self.ended is None:
                for component in self.components:
                    if not component.resting:
                        moved = component.advance(now) or moved
            if not moved and not inputs and not ready:
                return self._next_deadline(now)
        raise RuntimeError(f"an engine's step took more than {MAX_TURNS} turns")

    def _next_deadline(self, now: float) -> float | None:
        timers = self._timers
        while timers:  # timers of waits that have ended mustn't wake the host
            _, _, task, serial = timers[0]
            if serial == task.serial and not task.completion.done:
                break
            heapq.heappop(timers)
        earliest = timers[0][0] if timers else None
        if self.ended is None:
            for component in self.components:
                deadline = None if component.resting else component.next_deadline(now)
                if deadline is not None and (earliest is None or deadline < earliest):
                    earliest = deadline
        return earliest

    def _begin(self, task: Task[Any], now: float) -> None:
        if task.completion.done:  # cancelled before it began
            task.flow.close()
            return
        if self.ended is not None:
            task.flow.close()
            task.completion.fail(self.ended)
            return
        self._tasks[task] = None
        task.wake()

    def _resume(self, task: Task[Any], now: float) -> None:
        wait = task.resume(now)
        if wait is None:
            self._tasks.pop(task, None)
        elif wait.deadline is not None:
            self._timer_serial += 1
            heapq.heappush(self._timers, (wait.deadline, self._timer_serial, task, task.serial))
            if len(self._timers) > 64 and len(self._timers) > 4 * len(self._tasks):
                # A flow that is woken before its deadline leaves its timer in the heap.
                self._timers = [t for t in self._timers if t[2].serial == t[3]]
                heapq.heapify(self._timers)

    def _fire_timers(self, now: float) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)
            if not self._stale(timer):
                timer[2].wake()

    @staticmethod
    def _stale(timer: tuple[float, int, Task[Any], int]) -> bool:
        return timer[3] != timer[2].serial or timer[2].completion.done

    def cancel_now(self, completion: Completion[Any], error: KafkaError) -> None:
        """Cancel a flow from within a step; the flow isn't resumed again."""
        for task in self._tasks:
            if task.completion is completion:
                task.cancel(error)
                return
        if not completion.done:  # started in this step: the flow won't run
            completion.fail(error)

    # Calls to user code and slow functions

    def call(
        self,
        function: Callable[..., T],
        arguments: Sequence[Any],
        *,
        deadline: float,
        where: Literal["caller", "worker"] = "caller",
    ) -> Completion[T]:
        """Let the I/O host run a function in the caller's thread or in a worker thread.

        At the deadline the completion fails with `TimeoutError`; the function may continue to run.
        """
        token = self.new_token()
        completion: Completion[T] = Completion()
        self._calls[token] = completion
        self.effects.append(Call(token, function, tuple(arguments), where, deadline))
        return completion

    def new_token(self) -> int:
        """Return a new number, which identifies a task of the host and its result."""
        self._next_token += 1
        return self._next_token

    def _call_ended(self, token: int, result: Any, error: BaseException | None) -> None:
        completion = self._calls.pop(token, None)
        if completion is None or completion.done:
            return
        if error is None:
            completion.complete(result)
        else:
            completion.fail(error)

    # Ending the engine

    def end(self, why: KafkaError, kind: str, /, **fields: Any) -> None:
        """End the client permanently: all flows and futures fail with `why` (R-RB-5, R-CS-4)."""
        if self.ended is not None:
            return
        self.ended, self.ended_at = why, self.now
        self._ready.clear()
        self._timers.clear()
        _quietly(self.events.emit, self.now, kind, **fields)
        for component in self.components:
            _quietly(component.abort, why, self.now)
        for task in list(self._tasks):
            if task.running:  # this flow has called `end`: cancel it later
                task.cancel(why)
            elif not task.completion.done:
                _quietly(task.flow.close)
                _quietly(task.completion.fail, why)
        self._tasks.clear()
        for completion in self._calls.values():
            if not completion.done:
                _quietly(completion.fail, why)
        self._calls.clear()

    def let_go(self) -> None:
        """Close the flows (generators) of an ended engine, before the garbage collector does.

        The collector would swallow an exception from outside (such as Ctrl-C) in a `finally`. This
        method raises it; a repeated call continues with the remaining flows.
        """
        for task in list(self._tasks):
            try:
                task.flow.close()
            except Exception as error:
                if self._from_outside(error):
                    raise
                logger.debug("an internal task of a replaced client failed", exc_info=True)


def _no_exception(error: BaseException) -> bool:
    """Return whether an error, such as Ctrl-C, is no `Exception`; default of `_from_outside`."""
    return not isinstance(error, Exception)


def _quietly(action: Callable[..., object], *arguments: Any, **fields: Any) -> None:
    """Run an action; log its error, which mustn't prevent the other actions of `end`."""
    try:
        action(*arguments, **fields)
    except Exception:
        logger.exception("closing a client failed with an internal error")
