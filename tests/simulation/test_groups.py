"""Whole groups under random faults, with every checker on.

`ODRADEK_GROUP_SEEDS=5000 pytest tests/simulation/test_groups.py` tries so many seeds.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from odradek.clients.consumer.auto_commit import AutoCommit
from odradek.clients.consumer.consumer_group import ConsumerGroup
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow
from odradek.record import BatchBuilder
from odradek.simulation.committed_offsets import CommittedOffsets
from odradek.simulation.group_runs import (
    GROUP_ID,
    GroupRun,
    GroupSchedule,
    MemberPlan,
    random_group,
    run_group,
)
from odradek.simulation.group_workload import Habits, MemberDriver
from odradek.simulation.partition_log import check_batch
from odradek.simulation.schedule import Client
from odradek.simulation.workload import TOPIC

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("ODRADEK_GROUP_SEEDS", "300"))
CHUNKS = 10
STAY = 0.6
"""Seconds between two records of a partition that stays, where one is written each 0.1 s."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_groups_share_all_partitions_and_lose_nothing(chunk: int) -> None:
    bad = []
    handed = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        outcome = run_group(random_group(seed))
        handed += outcome.handed
        if not outcome.ok:
            bad.append(f"{outcome.violation}\n{outcome.schedule}")
    assert not bad, "\n".join(bad)
    assert handed


@pytest.mark.parametrize("seed", [176, 218, 648, 1049, 3594, 17448, 18252])
def test_seeds_that_once_failed(seed: int) -> None:
    outcome = run_group(random_group(seed))
    assert outcome.ok, f"{outcome.violation}\n{outcome.schedule}"


def test_a_seed_gives_the_same_run_each_time_and_in_both_modes() -> None:
    for seed in (3, 8):
        schedule = random_group(seed)
        first = run_group(schedule, mode="messages", trace=True)
        assert first.generation > 0
        assert first.trace == run_group(schedule, mode="messages", trace=True).trace
        other = run_group(schedule, mode="bytes", trace=True)
        assert (first.ok, first.handed, first.generation) == (
            other.ok,
            other.handed,
            other.generation,
        )


PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "range": {"partition.assignment.strategy": "range"},
}


def members(count: int, protocol: str, **config: Any) -> tuple[MemberPlan, ...]:
    """Members that come one after the other, two seconds apart."""
    common = {"group.id": GROUP_ID, "auto.offset.reset": "earliest", **PROTOCOLS[protocol]}
    if protocol != "consumer":
        common |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 6000}
    return tuple(
        MemberPlan(
            Client(f"member-{i}", "consumer", 0, 2.0 * i, {**common, **config}),
            Habits(poll=0.5, work=0.01, most=100),
        )
        for i in range(count)
    )


class SteadyRun(GroupRun):
    """One record per partition each tenth of a second; notes when which was handed out."""

    def __post_init__(self) -> None:
        GroupRun.__post_init__(self)
        self.seen: dict[tuple[str, int], list[float]] = {}
        record = self.ledger.record

        def noted(member: Any, place: TopicPartition, offset: int, value: bytes | None) -> None:
            self.seen.setdefault((member.name, place.partition), []).append(self.world.now)
            record(member, place, offset, value)

        self.ledger = Noting(self.ledger, noted)  # type: ignore[assignment]

    def write(self, rng: Any) -> None:
        if self.world.now >= self.schedule.heal_at:
            return
        for partition in self._stage.cluster.topics[TOPIC].partitions:
            builder = BatchBuilder(1 << 16, None)
            builder.append(None, b"%r" % self.world.now, (), 0)
            data = bytes(builder.build())
            stored = partition.log.append(data, check_batch(data), partition.leader_epoch)
            partition.log.commit(stored)
        self.world.after(0.1, lambda: self.write(rng))


class Noting:
    """A ledger that tells somebody of each record."""

    def __init__(self, ledger: Any, record: Any) -> None:
        self._ledger = ledger
        self.record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def longest_pause(times: list[float]) -> float:
    """Between two records."""
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_partitions_that_stay_are_read_on_through_every_rebalance(protocol: str) -> None:
    schedule = GroupSchedule(5, members(4, protocol), partitions=4, heal_at=12.0)
    run = SteadyRun(schedule)
    run.play()
    first = run.drivers[0].name
    stayed = [p for p in range(4) if (first, p) in run.seen and run.seen[first, p][-1] > 11.5]
    assert len(stayed) == 1
    for partition in stayed:
        times = run.seen[first, partition]
        assert longest_pause(times) < STAY
        assert times[0] < 1.0
    assert run.ledger.again == 0
    generations = max(d.newest_generation for d in run.drivers)
    assert 1 < generations <= 8, "each coming and going costs two at the most"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_faults_nothing_is_handed_out_twice(protocol: str) -> None:
    plans = members(3, protocol, **{"auto.commit.interval.ms": 60000})
    schedule = GroupSchedule(6, plans, partitions=5, heal_at=9.0)
    run = GroupRun(schedule)
    run.play()
    assert run.ledger.handed > 50
    assert run.ledger.again == 0


# What is broken on purpose must be found


def test_a_coordinator_that_gives_one_partition_to_two_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from odradek.simulation import consumer_protocol_group as group

    everything = {"uniform": lambda subscriptions, _: _all_to_all(subscriptions)}
    monkeypatch.setattr(group, "ASSIGNORS", everything)
    monkeypatch.setattr(group.ConsumerGroup, "_held", lambda _: frozenset())
    outcome = run_group(GroupSchedule(1, members(2, "consumer"), heal_at=6.0))
    assert "which member-0 has" in str(outcome.violation)


def _all_to_all(subscriptions: Any) -> Any:
    return {
        member: frozenset((t, i) for t, count in topics.items() for i in range(count))
        for member, topics in subscriptions.items()
    }


def test_offsets_that_are_committed_too_far_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = CommittedOffsets.commit

    def further(self: CommittedOffsets, partition: Any, committed: Any) -> None:
        commit(self, partition, type(committed)(committed.offset + 5))

    monkeypatch.setattr(CommittedOffsets, "commit", further)
    outcome = run_group(GroupSchedule(1, members(2, "range"), heal_at=8.0))
    assert "is the end of what was handed out" in str(outcome.violation)


def test_a_client_that_gives_nothing_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    revoked = MemberDriver._told

    def deaf(self: MemberDriver, note: Any, partitions: list[TopicPartition]) -> None:
        if note == self.ledger.assigned:  # the application never hears that something goes
            revoked(self, note, partitions)

    monkeypatch.setattr(MemberDriver, "_told", deaf)
    outcome = run_group(GroupSchedule(1, members(2, "range"), heal_at=8.0))
    assert "which it has" in str(outcome.violation)


def _dropped(self: ConsumerGroup, partitions: Any, now: float) -> Flow[float]:
    now = yield START
    self._drop(self._states(partitions))
    return now


def _not_awaited(self: ConsumerGroup, partitions: Any, now: float) -> Flow[float]:
    now = yield START
    self.engine.start(REVOKE(self, partitions, now))
    return now


def _in_hand(self: AutoCommit, states: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    return {s.partition: OffsetAndMetadata(s.position) for s in states if s.position}


REVOKE = ConsumerGroup.revoke
BREAKAGES = {
    "nobody is told before a partition goes": (ConsumerGroup, "revoke", _dropped),
    "the membership goes on before on_revoked has": (ConsumerGroup, "revoke", _not_awaited),
    "what is in the caller's hands is committed": (AutoCommit, "_due", _in_hand),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_client_that_breaks_a_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKAGES[name])
    found = (run_group(random_group(seed)).violation for seed in range(40))
    assert next((violation for violation in found if violation), None)


def test_a_client_that_forgets_to_commit_what_goes_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgotten(_: AutoCommit, __: Any, ___: float) -> Flow[float]:
        return (yield START)

    monkeypatch.setattr(AutoCommit, "before_revocation", forgotten)
    plans = members(2, "range", **{"auto.commit.interval.ms": 60000})
    outcome = run_group(GroupSchedule(6, plans, partitions=5, heal_at=9.0))
    assert "records were handed out twice" in str(outcome.violation)
