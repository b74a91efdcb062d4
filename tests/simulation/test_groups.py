"""Groups and their producers under random faults, with all checkers.

`ODRADEK_GROUP_SEEDS=5000 pytest tests/simulation/test_groups.py` runs 5000 seeds.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from tests.volume import WHOLE

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.auto_commit import AutoCommit
from odradek.clients.consumer.group.consumer_group import ConsumerGroup
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow
from odradek.simulation.checkers.history import CallKind
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.runs.explore import RunOutcome, explore, run_schedule
from odradek.simulation.runs.group_runs import GroupRun
from odradek.simulation.runs.group_workload import MemberDriver
from odradek.simulation.runs.schedule import Schedule, ScheduledClient

SEEDS = int(os.environ.get("ODRADEK_GROUP_SEEDS", 800 if WHOLE else 16))
CHUNKS = 10 if WHOLE else 4
STAY = 0.6
"""Allowed seconds between two records of a kept partition; a record is written each 0.1 s."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_groups_read_all_partitions_and_lose_no_record(chunk: int) -> None:
    found = list(explore(range(chunk, SEEDS, CHUNKS), family="groups"))
    assert not [told(o) for o in found if not o.ok]
    assert sum(o.records for o in found)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_transactional_processors_write_their_output_once(chunk: int) -> None:
    found = list(explore(range(chunk, SEEDS // 2, CHUNKS), family="read-process-write"))
    assert not [told(o) for o in found if not o.ok]
    assert sum(o.records for o in found)


def told(outcome: RunOutcome) -> str:
    return f"{outcome.violation}\n{outcome.schedule}"


PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "range": {"partition.assignment.strategy": "range"},
}


def members(count: int, protocol: str, **config: Any) -> tuple[ScheduledClient, ...]:
    """Create members one after the other, two seconds apart."""
    common = PROTOCOLS[protocol]
    if protocol != "consumer":
        common = common | {"heartbeat.interval.ms": 300, "session.timeout.ms": 6000}
    habits = {"poll": 0.5, "work": 0.01, "most": 100}
    return tuple(
        ScheduledClient(f"member-{i}", "member", 0, 2.0 * i, {**common, **config}, habits=habits)
        for i in range(count)
    )


class SteadyRun(GroupRun):
    """A run that writes a record per partition each 0.1 s and notes when each was returned."""

    def prepare(self) -> None:
        super().prepare()
        self.seen: dict[tuple[str, int], list[float]] = {}
        record = self.ledger.record

        def noted(member: Any, place: TopicPartition, offset: int, value: bytes | None) -> None:
            self.seen.setdefault((member.name, place.partition), []).append(self.world.now)
            record(member, place, offset, value)

        self.ledger = Noting(self.ledger, noted)  # type: ignore[assignment]

    def write(self, rng: Any) -> None:
        if self.world.now >= self.schedule.heal_at:
            return
        for partition in range(self.schedule.partitions):
            self.append(TopicPartition("t", partition), 1)
        self.world.after(0.1, lambda: self.write(rng))


class Noting:
    """A wrapper of a run's `ledger` object that replaces its method `record`."""

    def __init__(self, ledger: Any, record: Any) -> None:
        self._ledger = ledger
        self.record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def longest_pause(times: list[float]) -> float:
    """Return the longest time between two records."""
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_kept_partitions_are_read_during_every_rebalance(protocol: str) -> None:
    schedule = Schedule(5, members(4, protocol), partitions=4, heal_at=12.0)
    run = SteadyRun(schedule)
    run.play()
    first = run.members[0].name
    stayed = [p for p in range(4) if (first, p) in run.seen and run.seen[first, p][-1] > 11.5]
    assert len(stayed) == 1
    for partition in stayed:
        times = run.seen[first, partition]
        assert longest_pause(times) < STAY
        assert times[0] < 1.0
    assert run.ledger.again == 0
    generations = max(d.newest_generation for d in run.members)
    assert 1 < generations <= 8, "each coming and going costs two at the most"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_record_is_returned_twice_without_faults(protocol: str) -> None:
    plans = members(3, protocol, **{"auto.commit.interval.ms": 60000})
    schedule = Schedule(6, plans, partitions=5, heal_at=9.0)
    run = GroupRun(schedule)
    run.play()
    assert run.ledger.handed > 50
    assert run.ledger.again == 0


def test_a_coordinator_that_assigns_one_partition_to_two_members_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from odradek.simulation.coordinators import consumer_protocol_group as group

    everything = {"uniform": lambda subscriptions, _: _all_to_all(subscriptions)}
    monkeypatch.setattr(group, "ASSIGNORS", everything)
    monkeypatch.setattr(group.ConsumerProtocolGroup, "_held", lambda _: frozenset())
    outcome = run_schedule(Schedule(1, members(2, "consumer"), partitions=3, heal_at=6.0))
    assert "which member-0 has" in str(outcome.violation)


def _all_to_all(subscriptions: Any) -> Any:
    return {
        member: frozenset((t, i) for t, count in topics.items() for i in range(count))
        for member, topics in subscriptions.items()
    }


def test_committed_offsets_that_are_too_high_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = StoredGroupOffsets.commit

    def further(self: StoredGroupOffsets, partition: Any, committed: Any) -> None:
        commit(self, partition, type(committed)(committed.offset + 5))

    monkeypatch.setattr(StoredGroupOffsets, "commit", further)
    outcome = run_schedule(Schedule(1, members(2, "range"), partitions=3, heal_at=8.0))
    assert "but returned records end at" in str(outcome.violation)


def test_a_client_that_never_revokes_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    revoked = MemberDriver._told

    def deaf(
        self: MemberDriver, call: CallKind, note: Any, partitions: list[TopicPartition]
    ) -> None:
        if call is CallKind.ASSIGNED:  # the application isn't notified of revocations
            revoked(self, call, note, partitions)

    monkeypatch.setattr(MemberDriver, "_told", deaf)
    outcome = run_schedule(Schedule(1, members(2, "range"), partitions=3, heal_at=8.0))
    assert "which it has" in str(outcome.violation)


def _dropped(self: ConsumerGroup, partitions: Any) -> Flow[float]:
    now = yield START
    self._drop(self._states(partitions))
    return now


def _not_awaited(self: ConsumerGroup, partitions: Any) -> Flow[float]:
    now = yield START
    self._engine.start(REVOKE(self, partitions))
    return now


def _in_hand(self: AutoCommit, states: Any) -> AskedCommit:
    offsets = {s.partition: OffsetAndMetadata(s.position) for s in states if s.position}
    return AskedCommit(offsets, {})


REVOKE = ConsumerGroup.revoke
BREAKAGES = {
    "no callback before a revocation": (ConsumerGroup, "revoke", _dropped),
    "the revocation does not wait for on_revoked": (ConsumerGroup, "revoke", _not_awaited),
    "records in progress are committed": (AutoCommit, "_due", _in_hand),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_client_that_breaks_a_rule_is_detected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BREAKAGES[name])
    found = (o.violation for o in explore(range(40), family="groups"))
    assert next((violation for violation in found if violation), None)


def test_a_client_that_does_not_commit_at_a_revocation_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgotten(_: AutoCommit, __: Any, ___: float) -> Flow[float]:
        return (yield START)

    monkeypatch.setattr(AutoCommit, "before_revocation", forgotten)
    plans = members(2, "range", **{"auto.commit.interval.ms": 60000})
    outcome = run_schedule(Schedule(6, plans, partitions=5, heal_at=9.0))
    assert "records were returned twice" in str(outcome.violation)
