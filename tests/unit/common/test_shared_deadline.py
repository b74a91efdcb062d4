"""Test a deadline that several calls share."""

from __future__ import annotations

from contextvars import copy_context

from odradek.common.shared_deadline import one_patience, shared


def test_the_first_call_sets_the_deadline_for_all() -> None:
    assert shared(5.0) == 5.0
    with one_patience():
        assert [shared(10.0), shared(30.0), shared(2.0)] == [10.0, 10.0, 2.0]
        with one_patience():
            assert shared(30.0) == 10.0
        assert shared(30.0) == 10.0
    assert shared(30.0) == 30.0


def test_a_task_started_inside_that_lasts_longer_has_its_own_deadline() -> None:
    """A task keeps a copy of the context; it must not keep a deadline that has passed."""
    with one_patience():
        assert shared(10.0) == 10.0
        kept = copy_context()
        assert kept.run(shared, 30.0) == 10.0

    def asks() -> tuple[float, float]:
        with one_patience():
            return shared(50.0), shared(60.0)

    assert kept.run(shared, 40.0) == 40.0
    assert kept.run(asks) == (50.0, 50.0)
