"""Test a deadline that several calls share."""

from __future__ import annotations

from contextvars import copy_context

from odradek.common.shared_deadline import effective_deadline, share_deadline


def test_the_first_call_sets_the_deadline_for_all_calls() -> None:
    assert effective_deadline(5.0) == 5.0
    with share_deadline():
        assert [effective_deadline(10.0), effective_deadline(30.0), effective_deadline(2.0)] == [
            10.0,
            10.0,
            2.0,
        ]
        with share_deadline():
            assert effective_deadline(30.0) == 10.0
        assert effective_deadline(30.0) == 10.0
    assert effective_deadline(30.0) == 30.0


def test_a_task_that_outlasts_the_shared_deadlines_context_has_its_own_deadline() -> None:
    """A task keeps a copy of the context, but must not keep a deadline that has passed."""
    with share_deadline():
        assert effective_deadline(10.0) == 10.0
        kept = copy_context()
        assert kept.run(effective_deadline, 30.0) == 10.0

    def asks() -> tuple[float, float]:
        with share_deadline():
            return effective_deadline(50.0), effective_deadline(60.0)

    assert kept.run(effective_deadline, 40.0) == 40.0
    assert kept.run(asks) == (50.0, 50.0)
