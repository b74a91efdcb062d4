from __future__ import annotations

import pytest

from odradek.simulation import StuckError, VirtualTime, derived_rng
from odradek.simulation.world import virtual_time


def test_planned_actions_run_by_time_and_those_of_one_time_in_planning_order() -> None:
    time = VirtualTime()
    seen: list[tuple[str, float]] = []
    for name, when in (("late", 2.0), ("a", 1.0), ("b", 1.0), ("first", 0.5)):
        time.at(when, lambda name=name: seen.append((name, time.now)))  # type: ignore[misc]
    time.run_until(1.0)
    assert seen == [("first", 0.5), ("a", 1.0), ("b", 1.0)]
    assert time.now == 1.0
    assert time.fire_next()
    assert seen[-1] == ("late", 2.0)
    assert not time.fire_next()


def test_an_action_planned_for_a_past_time_runs_at_the_current_time() -> None:
    time = VirtualTime(5.0)
    seen: list[float] = []
    time.at(1.0, lambda: seen.append(time.now))
    time.run_until(3.0)
    assert seen == []
    time.run_until(5.0)
    assert seen == [5.0]
    assert time.now == 5.0


def test_a_cancelled_action_does_not_run_and_is_removed() -> None:
    time = VirtualTime()
    timer = time.after(1.0, lambda: pytest.fail("cancelled"))
    timer.cancel()
    assert time.next_at() is None
    time.run_until(2.0)


def test_actions_that_plan_each_other_endlessly_at_one_time_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_time, "MAX_ACTIONS_AT_ONCE", 100)
    time = VirtualTime()

    def again() -> None:
        time.after(0.0, again)

    again()
    with pytest.raises(StuckError, match="more than 100 actions"):
        time.run_until(1.0)


def test_a_derived_random_generator_depends_only_on_its_seed_and_name() -> None:
    first = [derived_rng(1, "producer").random() for _ in range(2)]
    assert first[0] == first[1]
    assert derived_rng(1, "consumer").random() != first[0]
    assert derived_rng(2, "producer").random() != first[0]
