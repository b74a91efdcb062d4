"""Admin clients under random faults: each call ends in time with a true result or a typed error.

A result must have been true at a moment of the call. `ODRADEK_OPERATOR_SEEDS=5000 pytest …` runs
5000 seeds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.spoilt_answers import spoil_answers
from tests.volume import WHOLE, part

from odradek.clients.admin import groups
from odradek.clients.batched_calls import _RemainingItems
from odradek.common.errors.kafka import GroupIdNotFoundError
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.runs.explore import RunOutcome, explore
from odradek.simulation.runs.operator_workload import GroupBook, OperatorDriver

SEEDS = int(os.environ.get("ODRADEK_OPERATOR_SEEDS", part(800)))


def operators(seeds: range) -> Iterator[RunOutcome]:
    return explore(seeds, family="operators")


def test_results_of_admin_calls_are_true_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls may also fail with an error, but most return a result."""
    ends: Counter[str] = Counter()
    usual = OperatorDriver._carry_out

    def counted(self: OperatorDriver, what: str, call: Any, timeout: float, check: Any) -> None:
        def then(results: Any, errors: Any) -> None:
            ends["results" if results else "nothing"] += 1
            ends["with errors"] += bool(errors and results)
            check(results, errors)

        usual(self, what, call, timeout, then)

    monkeypatch.setattr(OperatorDriver, "_carry_out", counted)
    for outcome in operators(range(SEEDS)):
        assert outcome.ok, f"{outcome.violation}\n{outcome.schedule}"
    assert ends["results"] > 2 * ends["nothing"] > 0
    assert ends["with errors"] > 0


def lie(text: str, seeds: range = range(30)) -> None:
    """Assert that one of these runs reports a violation with these words."""
    said: list[str] = []
    for outcome in operators(seeds):
        said.append(outcome.violation or "")
        if "was never so" in said[-1] and text in said[-1]:
            return
    raise AssertionError(said)


def test_an_offset_that_was_never_committed_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = StoredGroupOffsets.commit

    def further(self: StoredGroupOffsets, partition: Any, committed: Any) -> None:
        commit(self, partition, type(committed)(committed.offset + 50))

    monkeypatch.setattr(StoredGroupOffsets, "commit", further)
    lie("committed offsets: operator-1.")


def test_a_missing_group_description_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(answer: Any) -> None:
        for group in answer.groups:
            group.error_code = GroupIdNotFoundError.code

    spoil_answers(monkeypatch, DescribeGroupsRequest.API_KEY, deny)
    lie("description of groups: operator-1.")


def test_the_description_of_another_group_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    right = groups._led

    def swapped(found: Any) -> Any:
        led = right(found)
        names, told = [*led.results], [*led.results.values()]
        led.results.update(zip(names, reversed(told), strict=True))
        return led

    monkeypatch.setattr(groups, "_led", swapped)
    lie("description of groups: operator-1.")


def test_an_unlisted_group_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_answers(monkeypatch, ListGroupsRequest.API_KEY, lambda answer: answer.groups.clear())
    lie("list of groups: operator-1.")


def test_a_missing_group_is_detected_while_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, loading = _RemainingItems._error, (14, 15)

    def denied(self: Any, item: Any, code: int, reason: str | None) -> Any:
        return right(self, item, GroupIdNotFoundError.code if code in loading else code, reason)

    monkeypatch.setattr(_RemainingItems, "_error", denied)
    lie("description of groups: operator-", range(60, 160))


def test_a_wrong_log_end_offset_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def shift(answer: Any) -> None:
        for part_ in (p for t in answer.topics for p in t.partitions):
            part_.offset += 1

    spoil_answers(monkeypatch, ListOffsetsRequest.API_KEY, shift)
    lie("list of offsets: t-")


def test_a_topic_list_that_omits_a_topic_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def hide(answer: Any) -> None:
        answer.topics = [t for t in answer.topics if t.name != "t"]

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, hide)
    lie("list of topics: ")


def test_wrong_coordinators_do_not_lead_to_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong broker responds NOT_COORDINATOR, and the coordinator is looked up again."""
    turn = 0

    def mislead(answer: Any) -> None:
        nonlocal turn
        for found in answer.coordinators:
            turn += 1
            if turn % 3 == 0:
                found.node_id = found.node_id % 3 + 1

    spoil_answers(monkeypatch, FindCoordinatorRequest.API_KEY, mislead)
    seeds = 60 if WHOLE else 24
    for outcome in operators(range(seeds)):
        if outcome.schedule.brokers == 3:
            assert outcome.ok, f"{outcome.violation}\n{outcome.schedule}"
    assert turn > seeds


def test_the_checker_accepts_old_and_new_values_during_a_change() -> None:
    book = GroupBook()
    early = book.look()
    book.begin(1)
    assert early == {None, 1}, "the change may happen while another client looks"
    book.ended(1, done=True, once=True)
    late = book.look()
    assert (early, late) == ({None, 1}, {1})
    book.looked(early)
    book.begin(2)
    book.ended(2, done=False, once=True)
    book.begin(3)
    book.ended(3, done=True, once=True)
    assert book.possible == {2, 3}, "a failed call may still have an effect"
    assert (early, late) == ({None, 1}, {1, 2, 3})
    book.begin(4)
    book.ended(4, done=True, once=False)
    book.begin(None)
    book.ended(None, done=True, once=True)
    assert book.possible == {None, 2, 4}, "a retried call may have its effect twice"
