"""Test rebalance callbacks that wait for the caller's thread: order, errors, withdrawal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from odradek.clients.caller_flow import CallerFlow, Do
from odradek.clients.consumer.group.pending_callbacks import (
    ON_ASSIGNED,
    ON_LOST,
    PendingCallback,
    PendingCallbacks,
)
from odradek.common.errors import IllegalStateError
from odradek.common.types import NullLock, TopicPartition

P = [TopicPartition("t", n) for n in range(4)]


class Calls:
    """Rebalance callbacks that wait, a log of their calls, and the names of ended callbacks."""

    def __init__(self) -> None:
        self.callbacks = PendingCallbacks(NullLock())
        self.log: list[str] = []
        self.ended: list[str] = []

    def put(self, what: str, *numbers: int, error: BaseException | None = None) -> PendingCallback:
        partitions = [P[n] for n in numbers]

        def action() -> None:
            self.log.append(
                f"{what} {[p.partition for p in partitions]} in {self.callbacks.running}"
            )
            if error is not None:
                raise error

        pending = PendingCallback(what, action, partitions)
        self.callbacks.put(pending)
        return pending

    def take(self) -> None:
        carried_out(self.callbacks.take(lambda pending: self.ended.append(pending.what)))


def carried_out(flow: CallerFlow[None]) -> None:
    """Run a generator of calls on the caller's thread, and the actions that it yields."""
    with suppress(StopIteration), closing(flow):
        wanted = next(flow)
        while True:
            assert isinstance(wanted, Do)
            try:
                wanted.action()
            except BaseException as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(0.0)


def test_callbacks_run_in_order_and_the_end_of_each_is_reported() -> None:
    calls = Calls()
    calls.put(ON_ASSIGNED, 0, 1)
    calls.put(ON_LOST, 0)
    assert calls.callbacks
    calls.take()
    assert calls.log == ["on_assigned [0, 1] in on_assigned", "on_lost [0] in on_lost"]
    assert calls.ended == [ON_ASSIGNED, ON_LOST]
    assert not calls.callbacks
    assert calls.callbacks.running is None


def test_the_first_error_is_raised_after_the_last_callback() -> None:
    calls = Calls()
    calls.put("a", error=ValueError("one"))
    calls.put("b", error=ZeroDivisionError("two"))
    calls.put("c")
    with pytest.raises(ValueError, match="one") as caught:
        calls.take()
    assert caught.value.__notes__ == ["b failed as well: ZeroDivisionError('two')"]
    assert calls.ended == ["a", "b", "c"]


def test_an_interrupted_callback_ends_and_the_following_callbacks_remain_queued() -> None:
    calls = Calls()
    calls.put("a", error=KeyboardInterrupt())
    calls.put("b")
    with pytest.raises(KeyboardInterrupt):
        calls.take()
    assert calls.ended == ["a"]
    assert calls.callbacks


class InterruptedLock(NullLock):
    """A lock that raises KeyboardInterrupt when it is released for the n-th time."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __exit__(self, *error: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_callback_interrupted_before_its_call_is_called_later() -> None:
    calls = Calls()
    calls.callbacks = PendingCallbacks(InterruptedLock(1))
    pending = calls.put(ON_ASSIGNED, 0)
    calls.put("b")
    with pytest.raises(KeyboardInterrupt):
        calls.take()
    assert (calls.log, calls.ended) == ([], [])
    assert calls.callbacks
    assert calls.callbacks.running is None
    assert not pending.begun
    calls.take()
    assert calls.log == ["on_assigned [0] in on_assigned", "b [] in b"]
    assert calls.ended == [ON_ASSIGNED, "b"]
    assert not calls.callbacks.waiting


def test_a_callback_interrupted_after_its_call_is_not_called_again() -> None:
    calls = Calls()
    calls.put("a")

    def interrupted(pending: PendingCallback) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carried_out(calls.callbacks.take(interrupted))
    assert calls.callbacks, "the waiter hasn't been told"
    assert calls.callbacks.running is None
    calls.take()
    assert len(calls.log) == 1
    assert calls.ended == ["a"]
    assert not calls.callbacks.waiting


def test_a_running_callback_is_neither_called_again_nor_withdrawn() -> None:
    calls = Calls()

    def inside() -> None:
        calls.log.append("inside")
        assert not calls.callbacks
        assert calls.callbacks.unannounced(P) == set()
        calls.callbacks.withdraw(pending)
        assert not pending.done.done
        calls.take()
        assert calls.callbacks.running == ON_ASSIGNED

    pending = PendingCallback(ON_ASSIGNED, inside, P)
    calls.callbacks.put(pending)
    calls.take()
    assert calls.log == ["inside"]
    assert calls.ended == [ON_ASSIGNED]


def test_waiting_on_assigned_callbacks_omit_partitions_that_were_taken_away_meanwhile() -> None:
    calls = Calls()
    calls.put(ON_ASSIGNED, 0, 1)
    calls.put(ON_ASSIGNED, 2)
    calls.put(ON_LOST, 3)
    assert calls.callbacks.unannounced(P[1:]) == {P[1], P[2]}
    calls.take()
    assert [line.split(" in")[0] for line in calls.log] == ["on_assigned [0]", "on_lost [3]"]


def test_a_withdrawn_callback_is_not_called() -> None:
    calls = Calls()
    pending = calls.put("a")
    calls.callbacks.withdraw(pending)
    calls.callbacks.withdraw(pending)
    calls.take()
    assert calls.log == []


def test_poll_inside_a_rebalance_callback_raises() -> None:
    calls = Calls()
    calls.callbacks.check("poll()")
    calls.callbacks.put(PendingCallback("on_lost", lambda: calls.callbacks.check("poll()"), []))
    with pytest.raises(IllegalStateError, match=r"poll\(\) can't be called inside on_lost"):
        calls.take()
    calls.callbacks.check("poll()")


class Counting(deque[PendingCallback]):
    """A deque that counts how many elements loops over it have read."""

    seen = 0

    def __iter__(self) -> Iterator[PendingCallback]:
        for one in super().__iter__():
            self.seen += 1
            yield one


def test_running_many_callbacks_takes_linear_time() -> None:
    calls, number = Calls(), 300
    waiting = calls.callbacks.waiting = Counting()
    for _ in range(number):
        calls.put(ON_ASSIGNED, 0)
    calls.take()
    assert len(calls.ended) == number
    assert not calls.callbacks
    assert waiting.seen <= 4 * number
