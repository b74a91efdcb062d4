"""Test the engine's generator-based coroutines (flows): cancelling, deadlines, bugs, shutdown."""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.common.errors import (
    ClientBrokenError,
    ClientClosedError,
    DisconnectedError,
    IllegalStateError,
    KafkaError,
)
from odradek.common.events import Event, EventLog
from odradek.network.effects import Call
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Signal, Task, Wait


@pytest.fixture
def e() -> Engine:
    return Engine(EventLog("test"))


def waits(*on: Any, deadline: float | None = None) -> Flow[float]:
    yield START
    return (yield Wait(tuple(on), deadline))


def raises(error: Exception) -> Flow[None]:
    yield START
    raise error


def test_callbacks_of_a_completion_run_in_order_and_in_linear_time() -> None:
    number = 1000
    done: Completion[None] = Completion()
    callbacks = done._callbacks = Counting()
    calls: list[int] = []

    def call(n: int) -> None:
        calls.append(n)
        done.when_done(lambda _: calls.append(-n))  # this callback runs at once

    for n in range(1, number + 1):
        done.when_done(lambda _, n=n: call(n))  # type: ignore[misc]
    done.complete(None)
    assert calls == [sign * n for n in range(1, number + 1) for sign in (1, -1)]
    assert callbacks.moved <= 2 * number


class TestCompletion:
    def test_a_completion_ends_once_with_a_result_or_an_error(self) -> None:
        done: Completion[int] = Completion()
        with pytest.raises(IllegalStateError):
            done.result()
        done.complete(3)
        with pytest.raises(RuntimeError, match="twice"):
            done.complete(4)
        with pytest.raises(RuntimeError, match="twice"):
            done.fail(KafkaError())
        assert done.done
        assert done.result() == 3

    def test_callbacks_run_once_if_added_before_after_or_by_a_callback(self) -> None:
        done: Completion[int] = Completion()
        calls: list[int | str] = []
        done.when_done(lambda c: calls.append(c.result()))
        done.when_done(lambda _: done.when_done(lambda _: calls.append("inner")))
        done.complete(1)
        done.when_done(lambda c: calls.append(c.result() + 1))
        assert calls == [1, "inner", 2]

    def test_a_callback_that_another_callback_removes_does_not_run(self) -> None:
        done: Completion[None] = Completion()
        calls: list[str] = []

        def last(_: object) -> None:
            calls.append("last")

        done.when_done(lambda _: done.forget(last))
        done.when_done(lambda _: calls.append("second"))
        done.when_done(last)
        done.complete(None)
        assert calls == ["second"]


class Counting(list[Any]):
    """A list that counts how many elements its methods move or compare."""

    moved = 0

    def pop(self, at: Any = -1) -> Any:
        self.moved += 1 if at == -1 else len(self) - at
        return super().pop(at)

    def remove(self, one: Any) -> None:
        self.moved += len(self)
        super().remove(one)

    def reverse(self) -> None:
        self.moved += len(self)
        super().reverse()


class TestWaits:
    def test_a_coroutine_gets_the_time_from_its_engine(self, e: Engine) -> None:
        done = e.start(waits(deadline=5.0))
        assert e.step(1.0) == 5.0
        assert not done.done
        assert e.step(4.9) == 5.0
        e.step(5.25)
        assert done.result() == 5.25

    def test_notifying_a_signal_object_wakes_each_waiting_coroutine_once(self, e: Engine) -> None:
        signal = Signal()
        both = [e.start(waits(signal)) for _ in range(2)]
        e.step(1.0)
        signal.notify()
        signal.notify()
        e.step(2.0)
        assert [c.result() for c in both] == [2.0, 2.0]

    def test_a_coroutine_that_waits_for_several_events_is_woken_by_the_first(
        self, e: Engine
    ) -> None:
        signal, other = Signal(), Signal()
        done = e.start(waits(signal, other, deadline=9.0))
        e.step(1.0)
        other.notify()
        assert e.step(2.0) is None
        assert done.result() == 2.0
        assert not signal._waiters

    def test_a_wait_for_a_done_completion_or_a_past_time_returns_at_once(self, e: Engine) -> None:
        reply: Completion[int] = Completion()
        reply.complete(1)
        both = [e.start(waits(reply)), e.start(waits(deadline=1.0))]
        assert e.step(3.0) is None
        assert [done.result() for done in both] == [3.0, 3.0]

    def test_a_kafka_error_in_a_coroutine_is_its_result_and_does_not_end_the_engine(
        self, e: Engine
    ) -> None:
        done = e.start(raises(DisconnectedError("gone")))
        e.step(1.0)
        with pytest.raises(DisconnectedError, match="gone"):
            done.result()
        assert e.ended is None

    def test_a_coroutine_that_is_woken_often_leaves_few_timers(self, e: Engine) -> None:
        def restless() -> Flow[None]:
            yield START
            while True:
                yield Wait((signal,), 1e9)

        signal = Signal()
        e.start(restless())
        for turn in range(2000):
            e.step(float(turn))
            signal.notify()
        assert len(e._timers) < 200
        assert e.step(3000.0) == 1e9


class TestCancel:
    def test_a_cancelled_coroutine_ends_in_the_next_step_and_cleans_up(self, e: Engine) -> None:
        cleaned: list[bool] = []

        def tidy() -> Flow[None]:
            yield START
            try:
                yield Wait((signal,), 100.0)
            finally:
                cleaned.append(True)

        signal = Signal()
        done = e.start(tidy())
        e.step(1.0)
        e.cancel(done, ClientClosedError("no longer wanted"))
        assert not done.done
        assert e.step(2.0) is None
        assert isinstance(done.error, ClientClosedError)
        assert cleaned == [True]
        assert not signal._waiters

    def test_a_coroutine_can_be_cancelled_before_its_first_step_and_after_its_end(
        self, e: Engine
    ) -> None:
        early, late = (e.start(waits(deadline=1.0)) for _ in range(2))
        e.cancel(early, ClientClosedError())
        e.step(1.0)
        assert isinstance(early.error, ClientClosedError)
        e.cancel(late, ClientClosedError())
        e.step(2.0)
        assert late.result() == 1.0

    def test_a_coroutine_that_is_started_and_cancelled_in_one_step_never_runs(
        self, e: Engine
    ) -> None:
        ran: list[float] = []

        def never() -> Flow[None]:
            ran.append((yield START))

        def both() -> Flow[Completion[None]]:
            yield START
            inner = e.start(never())
            for _ in range(2):
                e.cancel_now(inner, ClientClosedError())
                assert isinstance(inner.error, ClientClosedError)
            return inner

        done = e.start(both())
        e.step(1.0)
        assert done.done
        assert (ran, e.flows) == ([], 0)


class Part:
    """A component of the engine whose methods the test defines."""

    resting = False

    def __init__(
        self,
        advance: Callable[[float], bool] = lambda now: False,
        abort: Callable[[KafkaError], object] = lambda error: None,
    ) -> None:
        self.advance = advance
        self.aborted: list[KafkaError] = []
        self._abort = abort

    def next_deadline(self, now: float) -> float | None:
        return None

    def abort(self, error: KafkaError, now: float) -> None:
        self.aborted.append(error)
        self._abort(error)


def fails(error: BaseException) -> Callable[[object], bool]:
    def action(_: object) -> bool:
        raise error

    return action


class TestTheEnd:
    def test_an_unexpected_exception_in_a_coroutine_fails_every_future(self, e: Engine) -> None:
        part, seen = Part(), list[Event]()
        e.events.listen(seen.append)
        e.components.append(part)
        other = e.start(waits(Signal()))
        e.step(1.0)
        bad = e.start(raises(ZeroDivisionError("oops")))
        e.step(2.0)
        for future in (bad, other):
            assert isinstance(future.error, ClientBrokenError)
            assert isinstance(future.error.__cause__, ZeroDivisionError)
        assert part.aborted == [e.ended]
        late = e.start(waits(deadline=1.0))
        e.step(3.0)
        assert isinstance(late.error, ClientBrokenError)
        assert [ev.kind for ev in seen] == ["broken"]

    def test_an_unexpected_exception_in_an_engines_component_fails_every_future(
        self, e: Engine
    ) -> None:
        e.components.append(Part(fails(KeyError("oops"))))
        future = e.start(waits(Signal()))
        e.step(1.0)
        assert isinstance(future.error, ClientBrokenError)

    def test_a_component_that_requests_steps_endlessly_is_reported_as_a_bug(
        self, e: Engine
    ) -> None:
        e.components.append(Part(lambda now: True))
        e.step(1.0)
        assert isinstance(e.ended, ClientBrokenError)
        assert "turns" in str(e.ended)

    def test_an_interrupt_during_a_step_ends_the_client_and_is_raised(self, e: Engine) -> None:
        e.components.append(Part(fails(KeyboardInterrupt())))
        future = e.start(waits(Signal()))
        with pytest.raises(KeyboardInterrupt):
            e.step(1.0)
        assert isinstance(future.error, ClientBrokenError)

    def test_a_coroutine_can_end_the_client_but_only_once(self, e: Engine) -> None:
        def ends() -> Flow[None]:
            yield START
            e.end(ClientClosedError("first"), "closed")
            e.end(ClientBrokenError("second"), "broken")
            yield Wait((Signal(),))

        other = e.start(waits(Signal()))
        e.step(1.0)
        ending = e.start(ends())
        e.step(2.0)
        assert [str(future.error) for future in (other, ending)] == ["first", "first"]

    def test_if_a_components_abort_raises_all_futures_still_end(self, e: Engine) -> None:
        tidy = Part()
        e.components += [Part(abort=fails(ValueError("oops"))), tidy]
        future = e.start(waits(Signal()))
        called = e.call(len, ("x",), deadline=9.0)
        e.step(1.0)
        e.end(ClientClosedError(), "closed")
        assert tidy.aborted
        assert isinstance(future.error, ClientClosedError)
        assert isinstance(called.error, ClientClosedError)


def test_functions_for_the_io_host_become_effects_and_end_when_it_reports_their_results(
    e: Engine,
) -> None:
    done, failing = e.call(pow, (2, 3), deadline=4.0), e.call(int, ("x",), deadline=4.0)
    call, other = e.effects.popleft(), e.effects.popleft()
    assert isinstance(call, Call)
    assert isinstance(other, Call)
    assert (call.function(*call.arguments), call.where, call.deadline) == (8, "caller", 4.0)
    e.called(call.token, 8, None)
    e.called(other.token, None, ValueError("x"))
    assert not done.done
    e.step(1.0)
    assert isinstance(failing.error, ValueError)
    e.called(call.token, 9, None)  # a second result is ignored
    e.step(2.0)
    assert done.result() == 8


def test_a_finished_coroutine_ignores_wake_ups() -> None:
    ready: list[Task[Any]] = []
    task: Task[float] = Task(waits(deadline=1.0), ready.append)
    task.wake()
    task.wake()
    assert ready == [task]
    task.resume(0.0)
    task.resume(1.0)
    assert task.completion.result() == 1.0
    task.wake()
    assert ready == [task]
