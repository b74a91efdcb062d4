"""A worker's cache of clients: one for each configuration, and none that has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from odradek.common.errors import KafkaError
from odradek.spark.tasks.worker_clients import IDLE_S, MAX_CLIENTS, ClientCache, Hint


class Made:
    def __init__(self, config: Mapping[str, str], hint: Hint | None) -> None:
        self.config, self.hint, self.closed = config, hint, False
        self.assigned: Any = "something"
        self.ended: KafkaError | None = None

    def assign(self, partitions: Any) -> None:
        self.assigned = partitions

    def close(self) -> None:
        self.closed = True
        raise RuntimeError("a broken client may fail to close")


class Process:
    def __init__(self) -> None:
        self.pid = 1
        self.at = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        cache: Any = ClientCache
        self.cache: ClientCache = cache(Made, lambda: self.pid, self, self.after)

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((self.at + seconds, action))

    def wait(self, seconds: float) -> None:
        self.at += seconds
        for due in [timer for timer in self.timers if timer[0] <= self.at]:
            self.timers.remove(due)
            due[1]()

    def checkout(self, *args: Any, **kwargs: Any) -> Any:
        return self.cache.connect(*args, **kwargs)


@pytest.fixture
def process() -> Process:
    return Process()


def test_tasks_with_the_same_configuration_share_a_client(process: Process) -> None:
    first = process.checkout({"a": "1", "b": "2"}, {"hint": 1})
    assert process.checkout({"b": "2", "a": "1"}) is first
    assert first.hint == {"hint": 1}
    assert process.checkout({"a": "2"}) is not first
    assert len(process.cache) == 2


def test_a_request_for_a_new_client_replaces_and_closes_the_cached_client(process: Process) -> None:
    first = process.checkout({"a": "1"})
    second = process.checkout({"a": "1"}, fresh=True)
    assert second is not first
    assert first.closed
    assert process.checkout({"a": "1"}) is second


@pytest.mark.parametrize("idle", [False, True])
def test_a_forked_child_neither_uses_nor_closes_the_parents_clients(
    process: Process, idle: bool
) -> None:
    parents = process.checkout({"a": "1"})
    if idle:
        process.cache.release(parents)
    process.pid = 2
    child = process.checkout({"a": "1"})
    assert child is not parents
    assert not parents.closed
    assert len(process.cache) == 1
    process.cache.release(child)
    assert len(process.timers) == 1 + idle  # the child needs its own timer


def test_above_the_maximum_number_the_least_recently_used_client_is_closed(
    process: Process,
) -> None:
    made = [process.checkout({"n": str(n)}) for n in range(MAX_CLIENTS)]
    process.checkout({"n": "0"})  # this client is no longer the oldest
    process.checkout({"n": "more"})
    assert [m.closed for m in made] == [False, True, *([False] * (MAX_CLIENTS - 2))]


def test_a_released_client_has_no_assignment_and_is_reused(process: Process) -> None:
    first = process.checkout({"a": "1"})
    process.cache.release(first)
    assert first.assigned == []
    assert process.checkout({"a": "1"}) is first
    process.wait(10 * IDLE_S)  # the client is in use, so the timer doesn't close it
    assert not first.closed


def test_an_idle_client_is_closed_after_a_while(process: Process) -> None:
    first = process.checkout({"a": "1"})
    process.cache.release(first)
    process.wait(IDLE_S - 1)
    assert not first.closed
    process.wait(1)
    assert first.closed
    assert (len(process.cache), process.timers) == (0, [])
    assert process.checkout({"a": "1"}) is not first


def test_one_timer_closes_all_idle_clients(process: Process) -> None:
    first, second = process.checkout({"a": "1"}), process.checkout({"a": "2"})
    process.cache.release(first)
    process.wait(IDLE_S / 2)
    process.cache.release(second)
    assert process.checkout({"a": "1"}) is first
    process.cache.release(first)
    assert len(process.timers) == 1
    process.wait(IDLE_S / 2)
    assert (first.closed, second.closed) == (False, False)
    process.wait(IDLE_S / 2)
    assert (first.closed, second.closed) == (True, True)
    third = process.checkout({"a": "3"})
    process.cache.release(third)
    process.wait(IDLE_S)
    assert third.closed


def test_a_client_that_was_dropped_is_not_cached_when_its_task_ends(process: Process) -> None:
    first = process.checkout({"a": "1"})
    process.cache.drop(first)
    process.cache.release(first)
    assert len(process.cache) == 0
    second = process.checkout({"a": "1"})
    process.cache.release(second)
    process.cache.drop(second)  # an idle client
    assert second.closed
    assert len(process.cache) == 0


def test_above_the_maximum_number_idle_clients_are_closed_before_clients_in_use(
    process: Process,
) -> None:
    made = [process.checkout({"n": str(n)}) for n in range(MAX_CLIENTS)]
    process.cache.release(made[2])
    process.checkout({"n": "more"})
    assert [m.closed for m in made] == [False, False, True, False]


def test_a_client_that_failed_while_idle_is_not_reused(process: Process) -> None:
    first = process.checkout({"a": "1"})
    process.cache.release(first)
    assert process.checkout({"a": "1"}) is first
    process.cache.release(first)
    first.ended = KafkaError("another cluster answered")
    second = process.checkout({"a": "1"})
    assert second is not first
    assert first.closed
    assert process.checkout({"a": "1"}) is second


class Racing(dict[Any, Any]):
    """A dict that runs `meanwhile` once during an access, as if another thread ran then."""

    meanwhile: Callable[[], object] | None = None

    def _race(self) -> None:
        action, self.meanwhile = self.meanwhile, None
        if action is not None:
            action()

    def pop(self, *args: Any) -> Any:
        found = super().pop(*args)
        self._race()
        return found

    def items(self) -> Any:
        found = list(super().items())
        self._race()
        return found


class Pid(int):
    """An int that runs `meanwhile` whenever `!=` compares it with a process id."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __ne__(self, other: object) -> bool:
        self.meanwhile()
        return int(self) != other


def test_a_client_closed_by_the_timer_during_a_checkout_is_not_returned(process: Process) -> None:
    old = process.checkout({"a": "1"})
    process.cache.release(old)
    process.at += IDLE_S
    process.pid = pid = Pid(1)
    pid.meanwhile = process.timers[0][1]
    assert process.checkout({"a": "1"}) is not old
    assert old.closed


def test_a_client_that_the_timer_puts_back_too_late_is_closed_at_the_next_release(
    process: Process,
) -> None:
    """While the timer holds the client, tasks use it, release it, and request it again."""
    first = process.checkout({"a": "1"})
    process.cache.release(first)
    process.at += IDLE_S
    racing = process.cache._idle = Racing(process.cache._idle)
    made: list[Any] = []

    def again() -> None:
        process.cache.release(process.checkout({"a": "1"}))
        racing.meanwhile = lambda: made.append(process.checkout({"a": "1"}))

    racing.meanwhile = again
    process.timers[0][1]()
    (second,) = made
    assert second is not first
    process.cache.release(second)
    assert first.closed
    assert not second.closed


def test_releasing_a_client_never_fails_the_task(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is complete, so an error of the released client doesn't matter."""

    def ended(_: object) -> None:
        raise KafkaError("ended meanwhile")

    def no_more(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    first = process.checkout({"a": "1"})
    monkeypatch.setattr(first, "assign", ended)
    process.cache.release(first)
    assert first.closed
    second = process.checkout({"a": "1"})
    assert second is not first
    monkeypatch.setattr(process.cache, "_later", no_more)
    process.cache.release(second)
    assert process.checkout({"a": "1"}) is second
    monkeypatch.undo()
    process.cache.release(second)
    process.wait(IDLE_S)
    assert second.closed
