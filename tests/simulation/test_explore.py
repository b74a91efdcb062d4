"""Random schedules of faults with all checkers: deterministic, and shrunk if they fail."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.volume import WHOLE, part, some

from odradek.clients.cluster_check import ClusterCheck
from odradek.clients.producer.batch_completion import BatchCompletion
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.transaction_requests import TransactionRequests
from odradek.metadata.bootstrap import UnexpectedBrokers
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.simulation.faults.fault_table import VERBS, Fault
from odradek.simulation.faults.response_faults import TRANSACTION_APIS
from odradek.simulation.runs.application_behaviour import BY_HAND
from odradek.simulation.runs.explore import RunOutcome, explore, run_schedule
from odradek.simulation.runs.random_groups import GROUP_APIS
from odradek.simulation.runs.random_ownership import RETENTION
from odradek.simulation.runs.random_schedules import (
    FAMILIES,
    SHARES,
    Family,
    random_family,
    random_schedule,
)
from odradek.simulation.runs.schedule import (
    KINDS,
    Schedule,
    ScheduledClient,
    from_json,
    load,
    settings,
)
from odradek.simulation.runs.shrink import kind, shrunk
from odradek.simulation.world.link import Mode
from odradek.simulation.world.trace import assert_same

MODES: tuple[Mode, ...] = ("messages", "bytes")
SHORT, LONG, PARTS = (4_000, 64, 8) if WHOLE else (60, 2, 2)
LATE, CHUNKS = (1600, 4) if WHOLE else (66, 1)
REGRESSIONS = Path(__file__).parent / "schedules"


def tell(outcome: RunOutcome, *, short: bool) -> str:
    seed = outcome.schedule.seed
    command = f"odradek simulate replay --seed {seed}{'' if short else ' --long'}"
    return f"{outcome.violation}\nreplay it: {command}\n{outcome.schedule}"


@pytest.mark.parametrize("part", range(PARTS))
def test_short_schedules_violate_no_rule(part: int) -> None:
    size = SHORT // PARTS
    for outcome in explore(range(part * size, (part + 1) * size)):
        assert outcome.ok, tell(outcome, short=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_long_schedules_violate_no_rule(part: int) -> None:
    size = LONG // PARTS
    for outcome in explore(range(part * size, (part + 1) * size), short=False):
        assert outcome.ok, tell(outcome, short=False)


def test_schedules_with_misrouted_connections_violate_no_rule() -> None:
    for short, seeds in ((True, range(part(400))), (False, range(part(64, 3)))):
        for outcome in explore(seeds, short=short, family="misled"):
            assert outcome.ok, tell(outcome, short=short)


def test_schedules_with_exhausted_resources_violate_no_rule() -> None:
    """R-TI-1, R-TI-2: slow links, quotas, no free descriptors or memory, also with old releases."""
    drawn: Counter[str] = Counter()
    for outcome in explore(range(part(120)), family="shortages"):
        assert outcome.ok, tell(outcome, short=True)
        drawn.update(f.verb for f in outcome.schedule.faults)
        drawn[str(outcome.schedule.cluster.get("release", "newest"))] += 1
    assert min(drawn[w] for w in ("exhaust", "trickle", "quota", "2.4", "3.5", "3.9", "newest")) > 0


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_transactions_are_exact_although_requests_arrive_late(chunk: int) -> None:
    """R-TX-1, R-TX-2: at each transaction.version some requests arrive after their retries."""
    late: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for outcome in explore(range(chunk, LATE, CHUNKS), family="transactions"):
        assert outcome.ok, f"{outcome.violation}\n{outcome.schedule}"
        late[outcome.schedule.cluster["transaction_version"] < 2].update(outcome.late)
    assert min(late[True]["EndTxn"], late[True]["TxnOffsetCommit"]) > 0
    assert any(late[False][api] for api in TRANSACTION_APIS)


def test_random_groups_use_both_protocols_and_faults_of_their_apis() -> None:
    families = [f for f in FAMILIES if f not in SHARES and f != "operators"]
    found = [random_schedule(n, family=f) for n in range(300) for f in families]
    protocols = {c.config.get("group.protocol", "classic") for s in found for c in s.clients}
    assert protocols == {"classic", "consumer"}
    answers = [f.arguments for s in found for f in s.faults if f.verb == "answer_error"]
    assert {a["api"] for a in answers} >= {*GROUP_APIS, *TRANSACTION_APIS}
    assert any(f.arguments.get("topic") for s in found for f in s.faults)
    late = [f.arguments["seconds"] for s in found for f in s.faults if f.verb == "slow_api"]
    assert min(late) < 1.0
    assert max(late) >= 25.0


def test_random_groups_include_cases_that_could_lose_partitions_or_offsets() -> None:
    found = [random_schedule(n, family="groups") for n in range(300)]
    classic = [s for s in found if "group.protocol" not in s.clients[0].config]
    static = [s for s in classic if any("group.instance.id" in c.config for c in s.clients)]
    strategies = {c.config.get("partition.assignment.strategy") for s in static for c in s.clients}
    assert strategies >= {"range", "roundrobin", "sticky", "cooperative-sticky"}
    assert any(f.verb == "grow_topic" for s in static for f in s.faults)
    quiet = [f.arguments["seconds"] for s in found for f in s.faults if f.verb == "quiet"]
    assert max(quiet) > RETENTION > min(quiet)
    assert any(c.habits.get("besides") for s in found for c in s.clients)
    late = {f.arguments["api"] for s in found for f in s.faults if f.verb == "slow_api"}
    assert late >= {"DescribeGroups", "JoinGroup", "OffsetCommit", "SyncGroup"}


def test_random_groups_include_recreated_topics_and_members_that_rejoin() -> None:
    for family in ("groups", "read-process-write"):
        found = [random_schedule(n, family=family) for n in range(300)]
        verbs = [f for s in found for f in s.faults]
        assert any(f.arguments.get("after") for f in verbs if f.verb == "recreate_topic")
        assert any(f.verb == "freeze" and f.arguments["seconds"] > 20.0 for f in verbs)
        assert any(f.verb == "release" for f in verbs)
    habits = [c.habits for n in range(300) for c in random_schedule(n, family="groups").clients]
    assert {h["by"] for h in habits if "by" in h} == set(BY_HAND)
    assert any(h.get("pauses") for h in habits)
    assert any(h.get("retries") for h in habits)


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.json")), ids=lambda p: p.stem)
def test_schedules_that_once_failed_pass(path: Path) -> None:
    outcome = run_schedule(load(path))
    assert outcome.ok, outcome.violation


def test_random_schedules_contain_all_kinds_of_clients_and_faults() -> None:
    found = [random_schedule(seed) for seed in range(2_000)]
    found += [random_schedule(n, family=f) for n in range(300) for f in FAMILIES if f not in SHARES]
    assert {c.kind for s in found for c in s.clients} == set(KINDS)
    assert {random_family(seed) for seed in range(100)} == set(SHARES)
    assert {f.verb for s in found for f in s.faults} == set(VERBS)
    assert {s.mode for s in found} == {"bytes", "messages"}


@pytest.mark.parametrize("short", some([True, False], 1))
def test_a_schedule_produces_the_same_trace_each_time_and_in_both_modes(short: bool) -> None:
    compared = 0
    for seed in range(0, part(6_400), 40) if short else range(0, part(320), 10):
        schedule = random_schedule(seed, short=short)
        if any(f.arguments.get("bandwidth") for f in schedule.faults):
            continue  # in mode "messages" a bandwidth has no effect
        runs = [
            list(run_schedule(from_json(schedule.to_json()), mode=mode, trace=True).trace)
            for mode in ("messages", "messages", "bytes")
        ]
        assert_same(runs[0], runs[1], ("first run", f"second run of seed {seed}"))
        assert_same(runs[0], runs[2], ("messages", f"bytes of seed {seed}"))
        compared += 1
    assert compared > (1 if WHOLE else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_of_schedules_produces_the_same_trace_in_both_modes(family: Family) -> None:
    for seed in some(range(0, 200, 20), 1):
        schedule = random_schedule(seed, family=family)
        assert schedule == from_json(schedule.to_json())
        if any(f.arguments.get("bandwidth") for f in schedule.faults):
            continue
        runs = [list(run_schedule(schedule, mode=m, trace=True).trace) for m in MODES]
        assert_same(runs[0], runs[1], ("messages", f"bytes of seed {seed} of {family}"))


def test_hundreds_of_buffered_polls_need_no_deep_stack() -> None:
    """Hypothesis raises the recursion limit, so other tests of this module wouldn't fail."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    try:
        schedule = random_schedule(20, short=False)
        clients = tuple(c for c in schedule.clients if c.name in ("producer-5", "consumer-4"))
        assert run_schedule(replace(schedule, clients=clients, faults=())).ok
    finally:
        sys.setrecursionlimit(before)


def is_found(words: str, seeds: range, *, short: bool = True, family: Family = "plain") -> bool:
    """Run schedules until one fails; return whether its violation contains these words."""
    outcomes = explore(seeds, short=short, family=family)
    return any(words in (outcome.violation or "") for outcome in outcomes)


@pytest.mark.parametrize(
    ("kind", "method", "says"),
    [
        (ClusterCheck, "passed", "bystander-"),  # topics of a wrong cluster are requested
        (UnexpectedBrokers, "starts_again", "after the last one"),
    ],
)
def test_a_client_that_accepts_a_wrong_cluster_or_rebootstraps_too_often_is_detected(
    kind: type, method: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, lambda *_: True)
    assert is_found(says, range(300), family="misled")


def test_a_backoff_that_ends_too_early_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ClusterConnectionStates.failed

    def wrong(self: ClusterConnectionStates, address, now, error, *, connecting):  # type: ignore[no-untyped-def]
        self.state(address).failures = 0
        return right(self, address, now, error, connecting=connecting)

    monkeypatch.setattr(ClusterConnectionStates, "failed", wrong)
    assert is_found("allowed are", range(200))


def test_a_retry_with_a_new_sequence_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = BatchCompletion._retry_later

    def wrong(self: BatchCompletion, queue: Any, batch: Any, *rest: Any, **more: Any) -> Any:
        batch.sequence = -1
        return right(self, queue, batch, *rest, **more)

    monkeypatch.setattr(BatchCompletion, "_retry_later", wrong)
    assert is_found(" and at ", range(60), short=False)


def test_late_offsets_of_the_same_transaction_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TX-2: late offsets are detected even if later transactions replace them before the end."""
    monkeypatch.setattr(TransactionRequests, "_refuse_others", lambda *_: None)
    found = next(iter(explore([81], family="transactions"))).violation
    assert found is not None
    assert "is committed at 9 after 4; transactions have sent [2, 4, 10, 12] last" in found


def test_memory_that_is_never_released_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordAccumulator, "release", lambda self, batch: None)
    small = ScheduledClient(
        "producer",
        "producer",
        200,
        config={"buffer.memory": 2048, "max.request.size": 1024, "max.block.ms": 500},
    )
    outcome = run_schedule(Schedule(1, (small,)))
    assert outcome.violation is not None
    assert "not back" in outcome.violation


def test_a_failing_schedule_shrinks_to_the_faults_it_needs() -> None:
    """A schedule counts as failing if it contains a silent broker and a move."""
    schedule = random_schedule(5, short=False)
    schedule = replace(
        schedule,
        faults=(
            *schedule.faults,
            Fault(3.0, "go_silent", {"i": 1}),
            Fault(4.0, "move", {"after": 1.0, "old": "refused"}),
        ),
    )
    tried = 0

    def fails(one: Schedule) -> bool:
        nonlocal tried
        tried += 1
        return {"go_silent", "move"} <= {f.verb for f in one.faults}

    small = shrunk(schedule, fails)
    assert sorted(f.verb for f in small.faults) == ["go_silent", "move"]
    assert len(small.clients) == small.brokers == small.partitions == 1
    assert small.clients[0].operations == 0
    assert all(set(f.arguments) <= {"i", "after"} for f in small.faults)
    assert tried < 500
    assert from_json(small.to_json()) == small


def test_irrelevant_settings_of_clients_and_brokers_are_removed() -> None:
    schedule = random_schedule(5, family="groups")

    def fails(one: Schedule) -> bool:
        return any(c.habits.get("most") for c in one.clients)

    small = shrunk(schedule, fails)
    assert [list(c.habits) for c in small.clients] == [["most"]]
    assert not small.cluster
    assert not small.faults
    assert from_json(small.to_json()) == small


def test_shrinking_tries_valid_combinations_of_options_only() -> None:
    """group.remote.assignor without group.protocol=consumer is refused when a client is created."""
    kept = {"group.protocol": "consumer", "group.remote.assignor": "uniform"}
    schedule = random_schedule(9477, family="groups")
    clients = tuple(replace(c, config={**c.config, **kept}) for c in schedule.clients)

    def fails(one: Schedule) -> bool:
        return any("group.remote.assignor" in settings(c).given for c in one.clients)

    small = shrunk(replace(schedule, clients=clients), fails)
    assert [c.config for c in small.clients] == [kept]


def test_shrinking_ends_when_its_time_is_up() -> None:
    schedule = random_schedule(5, short=False)
    left = iter(range(3))
    small = shrunk(schedule, lambda _: True, lambda: next(left, None) is not None)
    assert small != schedule


def test_violations_that_differ_only_in_numbers_are_of_the_same_kind() -> None:
    assert kind("Violation: 1.5: 10.0.0.2:9092 is connected 0.1 s too soon") == kind(
        "Violation: 22.0: 10.0.0.7:9092 is connected 0.333 s too soon"
    )
    assert kind("Violation: 1.5: a hot loop") != kind("Violation: 1.5: a lost record")
    assert kind(None) is None
