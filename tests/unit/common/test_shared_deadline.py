"""One time limit for several questions: who shares it, and for how long."""

from __future__ import annotations

from contextvars import copy_context

from odradek.common.shared_deadline import one_patience, shared


def test_the_first_questions_time_is_all_that_there_is() -> None:
    assert shared(5.0) == 5.0
    with one_patience():
        assert [shared(10.0), shared(30.0), shared(2.0)] == [10.0, 10.0, 2.0]
        with one_patience():
            assert shared(30.0) == 10.0
        assert shared(30.0) == 10.0
    assert shared(30.0) == 30.0


def test_what_was_begun_inside_and_lasts_longer_has_its_own_time() -> None:
    """A task or a timer keeps a copy of the context: for as long as it lives it was too late."""
    with one_patience():
        assert shared(10.0) == 10.0
        kept = copy_context()
        assert kept.run(shared, 30.0) == 10.0

    def asks() -> tuple[float, float]:
        with one_patience():
            return shared(50.0), shared(60.0)

    assert kept.run(shared, 40.0) == 40.0
    assert kept.run(asks) == (50.0, 50.0)
