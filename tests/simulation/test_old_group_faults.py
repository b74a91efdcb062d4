"""Recorded schedules detect fixed bugs of groups if the old code is restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.test_explore import REGRESSIONS

from odradek.clients.consumer.group.auto_commit import AutoCommit
from odradek.clients.consumer.group.classic_leader import Leader
from odradek.clients.consumer.group.classic_membership import ClassicMembership
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.network.flow import START, Flow
from odradek.simulation.checkers.auto_commit_checkers import OwnCommits
from odradek.simulation.runs.explore import run_schedule
from odradek.simulation.runs.schedule import load


def _nothing(*_: Any) -> Flow[None]:
    yield START


def _forget_debts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembership, "_look_for_unowned", _nothing)
    patch.setattr(Leader, "_note_withheld", lambda *_: None)


def _cancel_joins(patch: pytest.MonkeyPatch) -> None:
    def hold(self: ClassicMembership) -> None:
        self._stop()
        self._running = self._engine.start(self._hold())

    patch.setattr(ClassicMembership, "hold", hold)


def _renew_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AutoCommit, "_renewals", lambda *_: {})
    closes = OwnCommits.closes  # the check of the last renewal would end the run earlier
    patch.setattr(
        OwnCommits, "closes", lambda commits, member, **_: closes(commits, member, renews=False)
    )


def _renew_beside_doubt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionState, "commit_in_doubt", lambda *_: None)
    patch.setattr(
        PartitionState, "forget_reported_commit", lambda state, *_, **__: state._said.clear()
    )


def _warn_only_after_a_commit(patch: pytest.MonkeyPatch) -> None:
    def at_the_end(self: AutoCommit, deadline: float, now: float) -> Flow[float]:
        states = list(self._all())
        now = yield from self._commit(self._last(states), deadline, now)
        self.warn_of_repeats(states)
        return now

    patch.setattr(AutoCommit, "at_the_end", at_the_end)


def _read_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SubscriptionState, "look_up_again", lambda *_: False)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "each_partition_of_a_stable_group_has_an_owner": (_forget_debts, "has had no owner for"),
    "an_orderly_close_beside_a_join_commits": (_cancel_joins, "has closed in order"),
    "no_offset_of_an_idle_partition_expires": (_renew_nothing, "has expired"),
    "a_close_without_a_commit_warns": (_warn_only_after_a_commit, "has closed in order"),
    "the_offset_of_a_recreated_topic_is_looked_up_again": (
        _read_from_the_beginning,
        "at 0; 39 is committed",
    ),
    "a_renewal_never_lowers_an_offset": (_renew_beside_doubt, "by itself after it has begun"),
}
"""By schedule: the old code, and the violation that the checkers report."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_recorded_schedule_detects_the_former_bug(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the current code the schedule passes: `test_explore.py` runs all schedules."""
    broken, words = FAULTS[name]
    broken(monkeypatch)
    outcome = run_schedule(load(REGRESSIONS / f"{name}.json"))
    assert words in str(outcome.violation)
