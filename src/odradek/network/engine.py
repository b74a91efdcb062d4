"""Run the engine's loop: recorded inputs in, effects out, and state that changes in `step` alone.

In: a host's inputs, flows that the clients start. Out: a queue of effects and the next deadline.
Components (the network client, the sender, the fetcher …) advance in a fixed order after the flows,
until nothing changes any more. Must not: do I/O, read a clock, call user code. An exception that
escapes a step marks the engine broken and ends every future with it; an exception from outside, as
from a signal handler, is also raised in the caller.
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
"""Maximum number of turns of one step; more mean an endless loop, which is a bug."""


class Component(Protocol):
    """A part of a client that advances in each step of the engine."""

    resting: bool
    """Whether the component has nothing to do; then the engine doesn't advance it."""

    def advance(self, now: float) -> bool:
        """Do everything that is possible now; return whether anything changed."""

    def next_deadline(self, now: float) -> float | None:
        """Return when the component must be advanced again if no input arrives."""

    def abort(self, error: KafkaError, now: float) -> None:
        """Complete all open futures with this error, because the client ends."""


class Engine:
    """Runs flows and components; it doesn't know about connections."""

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.now = 0.0
        self.effects: deque[Effect] = deque()
        self.components: list[Component] = []
        self.ended: KafkaError | None = None
        """Why the client can't continue: closed, failed fatally or broken."""
        self.ended_at: float | None = None
        self.torn = False
        """Whether an exception from outside (not a bug) interrupted a step."""
        self._from_outside: Callable[[BaseException], bool] = _no_exception
        self.inputs: deque[Callable[[float], None]] = deque()
        """Functions to run in the next step; while there are any, a step is due at once."""
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
        """Set the host's function that tells whether an exception came from outside the engine."""
        self._from_outside = from_outside

    # Inputs

    def start(self, flow: Flow[T]) -> Completion[T]:
        """Start a flow in the next step and return its completion."""
        task: Task[T] = Task(flow, self._ready.append)
        self.post(partial(self._begin, task))
        return task.completion

    def cancel(self, completion: Completion[Any], error: KafkaError) -> None:
        """End a flow with `error` in the next step, unless it has ended by then."""
        self.post(lambda now: self.cancel_now(completion, error))

    def called(self, token: int, result: Any, error: BaseException | None) -> None:
        """Note the end of a `Call`."""
        self.post(lambda now: self._call_ended(token, result, error))

    # Steps

    @property
    def flows(self) -> int:
        """Number of running flows."""
        return len(self._tasks)

    def step(self, now: float) -> float | None:
        """Change state; return when to step again if no input arrives (None: only on input)."""
        self.now = now
        try:
            return self._step(now)
        except BaseException as error:  # a bug must not let callers wait for ever
            self.torn = self.ended is None and self._from_outside(error)
            broken = ClientBrokenError(f"internal error: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self.end(broken, "broken", error=repr(error))
            if self._from_outside(error):
                # An exception from outside, such as Ctrl-C: the state is half changed, so the
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
        """Cancel a flow from within a step; its code doesn't run again."""
        for task in self._tasks:
            if task.completion is completion:
                task.cancel(error)
                return
        if not completion.done:  # started in this step: it won't begin
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
        """Let the host run a function in the caller's thread or in a worker thread.

        At the deadline the completion fails with `TimeoutError`; the function may continue to run.
        """
        token = self.new_token()
        completion: Completion[T] = Completion()
        self._calls[token] = completion
        self.effects.append(Call(token, function, tuple(arguments), where, deadline))
        return completion

    def new_token(self) -> int:
        """Return a number that the host returns with its answer."""
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

    # End of the engine

    def end(self, why: KafkaError, kind: str, /, **fields: Any) -> None:
        """End the client for good: all flows and futures fail with `why` (R-RB-5, R-CS-4)."""
        if self.ended is not None:
            return
        self.ended, self.ended_at = why, self.now
        self._ready.clear()
        self._timers.clear()
        _quietly(self.events.emit, self.now, kind, **fields)
        for component in self.components:
            _quietly(component.abort, why, self.now)
        for task in list(self._tasks):
            if task.running:  # this flow ends the client: close it when it yields
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
        """Close the generators of an ended engine here, rather than in the garbage collector.

        The collector would swallow an exception from outside that occurs during a `finally`. Here
        it is raised, and another call continues with the remaining flows.
        """
        for task in list(self._tasks):
            try:
                task.flow.close()
            except Exception as error:
                if self._from_outside(error):
                    raise
                logger.debug("an internal task of a replaced client failed", exc_info=True)


def _no_exception(error: BaseException) -> bool:
    """Return whether an exception comes from outside; used unless a host sets its function."""
    return not isinstance(error, Exception)


def _quietly(action: Callable[..., object], *arguments: Any, **fields: Any) -> None:
    """Run an action and log its error, which mustn't prevent the other actions of the end."""
    try:
        action(*arguments, **fields)
    except Exception:
        logger.exception("closing a client failed with an internal error")
