"""Draw random schedules of groups: of members, or of processors (read, process, write).

In: a seed. Out: a `Schedule`. Both protocols, each assignor, static members, several topics; faults
of applications (`application_faults`) and of brokers, and hostile ones in the APIs of groups and
transactions. Faults after which no result can be right are left out: truncated logs, other
clusters, releases without the group's protocol. Must not run anything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odradek.simulation.faults.fault_table import (
    APPLICATION,
    HOSTILE,
    PLAIN,
    Fault,
    FaultKind,
    draw,
)
from odradek.simulation.faults.response_faults import TRANSACTION_APIS, late_transaction_requests
from odradek.simulation.runs.random_identities import with_identities
from odradek.simulation.runs.random_lags import with_newcomers
from odradek.simulation.runs.random_ownership import with_ownership
from odradek.simulation.runs.random_renewals import with_renewals
from odradek.simulation.runs.random_topic_names import with_topic_names
from odradek.simulation.runs.sasl_runs import random_session
from odradek.simulation.runs.schedule import (
    CUTS,
    MEMBER,
    PROCESSOR,
    TOPIC,
    Schedule,
    ScheduledClient,
)
from odradek.simulation.world.link import LinkProfile
from odradek.simulation.world.virtual_time import derived_rng

STRATEGIES = (
    None, "range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky,range"
)  # fmt: skip
BROKERS: dict[str, int] = {
    "crash": 3, "bounce": 4, "restart": 2, "stop": 2, "pause": 3, "blackhole": 2, "repair": 5,
    "move_leader": 8, "go_silent": 1, "half_open": 2, "partition": 3, "accept_then_reset": 1,
    "throttle": 1, "move": 1, "stale_metadata": 1, "change_link": 1, "slow_handshake": 1,
    "answer_empty_brokers": 1, "answer_129": 1, "close_front_door": 1, "dns_change": 1,
    "dns_silence": 1, "clock_jump": 1, "ready_then_close": 1, "zombie_leader": 6,
}  # fmt: skip
"""Faults of brokers, with weights: coordinators die and move more often than in other families."""
GROUP_APIS = (
    "ConsumerGroupHeartbeat", "FindCoordinator", "Heartbeat", "JoinGroup", "LeaveGroup",
    "ListOffsets", "OffsetCommit", "OffsetFetch", "SyncGroup",
)  # fmt: skip
GROUP_CODES = (7, 14, 15, 16, 22, 25, 27, 30, 82, 88, 110, 111, 113)
"""Error codes that coordinators of groups return."""
REMOVALS = (25, 69, 110)
"""Error codes that tell a KIP-848 member that the group has removed it. The member joins again with
its id and, if the error was false, with its old epoch: then its old records can't be distinguished
from new ones, and no transaction can be exact. Other members may get records again."""
OTHER_PROTOCOL = {"consumer": ("Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup")}
STATIC = 0.25
"""Share of static members."""
IN_TRANSACTIONS = 0.25
"""Share of schedules whose input records are written in transactions."""
AIMED = 0.7
"""Share of hostile faults that are moved to the APIs of groups and transactions."""
WRITES: tuple[dict[str, Any], ...] = (
    {"linger.ms": 0, "transaction.timeout.ms": 10000},
    {"linger.ms": 5, "transaction.timeout.ms": 5000, "request.timeout.ms": 3000},
    {"linger.ms": 0, "batch.size": 100, "transaction.timeout.ms": 20000},
)


def random_group(seed: int, *, short: bool, writes: bool) -> Schedule:
    """Draw the whole schedule of a seed; with `writes`, its members are processors."""
    rng = derived_rng(seed, f"schedule/{'processing' if writes else 'groups'}/{short}")
    heal_at = round(rng.uniform(4.0, 14.0) if short else rng.uniform(20.0, 45.0), 3)
    topics = {f"in-{n}": rng.randint(1, 3) for n in range(rng.choice((1, 2)) if writes else 0)}
    if not writes and rng.random() < 0.4:
        topics["u"] = rng.randint(1, 3)
    common = _common(rng)
    grows = rng.random() < 0.2
    if grows:  # else the default of five minutes, which may be too long
        common["metadata.max.age.ms"] = rng.choice([2000, 20000])
    raises = rng.random() < 0.1
    count = rng.choice((1, 2, 2, 3)) if short else rng.randint(2, 5)
    isolation = derived_rng(seed, "isolation")
    clients = []
    for number in range(1, count + 1):
        client = _client(rng, number, common, heal_at, writes=writes)
        config, habits = dict(client.config), dict(client.habits)
        if writes:  # both isolation levels return all inputs: none is aborted
            config["isolation.level"] = isolation.choice(["read_committed", "read_uncommitted"])
        if rng.random() < STATIC:
            config["group.instance.id"] = f"instance-{number}"
        if raises:
            habits["raises"] = True
        elif not writes and rng.random() < 0.1:
            habits["pattern"] = "t|u"
        clients.append(replace(client, config=config, habits=habits))
    schedule = Schedule(
        seed,
        tuple(clients),
        (),
        rng.choice((1, 3, 3)),
        rng.randint(1, 4),
        "bytes" if rng.random() < 0.1 else "messages",
        heal_at,
        LinkProfile(
            latency=rng.choice((0.0005, 0.0005, 0.02)), loss=rng.choice((0.0,) * 5 + (0.002,))
        ),
        random_session(seed),
        topics,
        _cluster(rng, writes=writes),
    )
    schedule = replace(schedule, faults=_faults(rng, schedule, short=short, grows=grows))
    schedule = _with_source_transactions(schedule, seed)
    schedule = with_identities(schedule, seed, short=short)
    schedule = with_newcomers(schedule)
    if writes:
        return schedule
    schedule = with_ownership(schedule, seed, short=short)
    schedule = with_renewals(schedule, seed, short=short)
    return with_topic_names(schedule, seed, short=short)


def _with_source_transactions(schedule: Schedule, seed: int) -> Schedule:
    """Let some schedules have input records in transactions, whose markers other leaders write."""
    rng = derived_rng(seed, "schedule/source transactions")
    if rng.random() >= IN_TRANSACTIONS:
        return schedule
    cluster = {**schedule.cluster, "source_transactions": rng.choice((0.1, 1.0, 3.0))}
    if all("isolation.level" not in c.config for c in schedule.clients):
        level = rng.choice(("read_committed", "read_uncommitted"))
        schedule = schedule.with_config({"isolation.level": level})
    moves = [
        Fault(round(rng.uniform(0.5, schedule.heal_at), 3), "move_leader", {"partition": p})
        for p in range(schedule.partitions)
    ]
    faults = sorted((*schedule.faults, *moves), key=lambda f: f.at)
    return replace(schedule, cluster=cluster, faults=tuple(faults))


def _common(rng: random.Random) -> dict[str, Any]:
    """Draw the settings that all members of a group share."""
    common: dict[str, Any] = {}
    if rng.random() < 0.45:
        common["group.protocol"] = "consumer"
        if rng.random() < 0.5:
            common["group.remote.assignor"] = rng.choice(["uniform", "range"])
    else:
        common["session.timeout.ms"] = rng.choice([6000, 7000, 10000])
        common["heartbeat.interval.ms"] = rng.choice([300, 1000, 2000])
        strategy = rng.choice(STRATEGIES)
        if strategy is not None:
            common["partition.assignment.strategy"] = strategy
    common["max.poll.interval.ms"] = rng.choice([10000, 15000, 60000])
    common["request.timeout.ms"] = rng.choice([3000, 5000, 30000])
    common["fetch.max.wait.ms"] = rng.choice([500, 2000])
    return common


def _client(
    rng: random.Random, number: int, common: Mapping[str, Any], heal_at: float, *, writes: bool
) -> ScheduledClient:
    config = dict(common)
    habits: dict[str, Any] = {
        "poll": rng.choice([0.2, 1.0, 3.0]),
        "work": rng.choice([0.05, 0.3, 2.0]),
        "most": rng.choice([1, 10, 500]),
    }
    given: dict[str, Any] = {}
    if writes:
        habits["regrets"] = rng.choice((0.0, 0.1, 0.5))
        habits["parts"] = rng.choice((1, 1, 2, 3))
        given = dict(rng.choice(WRITES))
    elif rng.random() < 0.3:
        config["enable.auto.commit"], habits["commits"] = False, True
    else:
        config["auto.commit.interval.ms"] = rng.choice([300, 1000, 5000])
    late = number > 1 and rng.random() < 0.7
    start = round(rng.uniform(0.0, heal_at / 2), 3) if late else 0.0
    kind = PROCESSOR if writes else MEMBER
    return ScheduledClient(f"{kind}-{number}", kind, 0, start, config, 0, habits, given)


def _cluster(rng: random.Random, *, writes: bool) -> dict[str, float]:
    found: dict[str, float] = {
        "coordinators": 2,
        "initial_rebalance_delay": rng.choice((0.0, 0.0, 0.5, 3.0)),
        "strict_epochs": rng.random() < 0.5,
    }
    if writes:
        found["transaction_version"] = rng.choice((0, 1, 2, 2))
        found["marker_delay"] = rng.choice((0.001, 0.02, 0.5))
    return found


def _faults(
    rng: random.Random, schedule: Schedule, *, short: bool, grows: bool
) -> tuple[Fault, ...]:
    scope, heal_at = schedule.scope, schedule.heal_at
    writes = schedule.clients[0].kind == PROCESSOR
    few, many = ((0, 1, 2, 3), (0, 1, 2, 4)) if short else ((2, 4, 8), (2, 5, 10))
    found = []
    for verbs, counts in ((_brokers(), few), (APPLICATION, many), (_hostile(schedule), few)):
        for _ in range(rng.choice(counts)):
            at = round(rng.uniform(0.5, heal_at), 3)
            found.append(_aimed(rng, draw(rng, at, scope, verbs), schedule))
    found += [f for zombie in found for f in _beside(zombie, rng, schedule)]
    if grows:
        count, topic = rng.randint(1, 3), rng.choice((*schedule.topics, TOPIC))
        more: dict[str, Any] = {"count": count} | ({} if topic == TOPIC else {"topic": topic})
        found.append(Fault(round(rng.uniform(0.5, heal_at), 3), "grow_topic", more))
    if rng.random() < 0.3 and not writes:  # no member fails: no record is returned twice
        found = [f for f in found if f.verb in ("leave", "grow_topic")]
    if writes:
        found = [f for f in found if not _removes(f)]
        found += late_transaction_requests(rng, heal_at, short=short)
    return tuple(sorted(found, key=lambda f: f.at))


def _beside(fault: Fault, rng: random.Random, schedule: Schedule) -> list[Fault]:
    """Restart members while a zombie answers, because only new members accept its answers."""
    if fault.verb != "zombie_leader":
        return []
    given = fault.arguments
    begins = fault.at + max(given.get("frozen", 0.0), given.get("fenced", 2.0))
    found = []
    for client in schedule.clients:
        at, back = round(begins + rng.uniform(0.3, 3.0), 3), round(rng.uniform(0.05, 1.0), 3)
        if at < schedule.heal_at:
            found.append(Fault(at, "leave", {"client": client.name, "back": back}))
    return found


def _removes(fault: Fault) -> bool:
    said = fault.arguments
    return said.get("api") == "ConsumerGroupHeartbeat" and said.get("code") in REMOVALS


def _brokers() -> dict[str, FaultKind]:
    return {name: replace(PLAIN[name], weight=weight) for name, weight in BROKERS.items()}


def _hostile(schedule: Schedule) -> dict[str, FaultKind]:
    """Return the hostile faults that a group can survive, so without truncated logs.

    Brokers without KIP-848 can't have such groups, and no broker may be older than the finalized
    `transaction.version`.
    """
    first = schedule.clients[0]
    newer = first.kind == PROCESSOR or first.config.get("group.protocol") == "consumer"
    left_out = {*CUTS, "grow_topic"} - ({"release"} if not newer else set())
    return {name: verb for name, verb in HOSTILE.items() if name not in left_out}


def _aimed(rng: random.Random, fault: Fault, schedule: Schedule) -> Fault:
    """Move most faults of APIs to an API of groups or transactions."""
    if fault.verb not in ("answer_error", "late_requests", "slow_api") or rng.random() >= AIMED:
        return fault
    writes = schedule.clients[0].kind == PROCESSOR
    protocol = schedule.clients[0].config.get("group.protocol")
    apis = [api for api in GROUP_APIS if api not in OTHER_PROTOCOL.get(protocol or "", ())]
    arguments = {**fault.arguments, "api": rng.choice((*apis, *(TRANSACTION_APIS * writes)))}
    if "code" in arguments and rng.random() < AIMED:
        arguments["code"] = rng.choice(GROUP_CODES)
    aimed = Fault(fault.at, fault.verb, arguments)
    return aimed if HOSTILE[fault.verb].sound(arguments) else fault
