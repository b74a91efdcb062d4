"""Add faults to random schedules of groups in which a member's identity is replaced.

In: a random schedule of a group, its seed. Out: the same schedule, usually with additions: members
that hold records while they are stopped or cut off for longer than a session, topics that are
deleted and recreated, members that begin at the ends of idle partitions. A separate random
generator draws them, so the rest of a schedule doesn't depend on it. Must not run anything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from odradek.simulation.faults.fault_table import Fault
from odradek.simulation.runs.application_behaviour import BY_HAND
from odradek.simulation.runs.schedule import PROCESSOR, TOPIC, Schedule, ScheduledClient
from odradek.simulation.world.virtual_time import derived_rng

HELD, RECREATED, LATEST, DELETED = 0.4, 0.35, 0.1, 0.1
"""Shares of schedules with held records, recreated topics, latest offset reset, deleted records."""
KEPT = 0.3
"""Share of schedules with held records whose applications commit them after the next poll."""
BEYOND_A_SESSION = (8.0, 11.0, 16.0, 25.0)
"""Seconds for which a member is stopped; sessions are 6 to 10 s."""
MISSING = (0.0, 0.0, 0.05, 1.0, 4.0, 8.0)
"""Seconds from the deletion of a topic until the topic is recreated."""
RELEASED = 0.2
OLDER = {"consumer": ("3.9", "newest"), "classic": ("3.5", "3.9", "newest")}
"""Releases of brokers by protocol: 3.9 is the first of them with KIP-848 groups, and 2.4 has no
group metadata in transactions (KIP-447)."""
BY_NAME = "release"
"""A fault that lets brokers identify topics by name only. Then a client that doesn't know that a
topic was recreated may commit an old offset for the new topic, and no broker refuses it."""


BEHIND = 0.5
"""Share of deleted or recreated topics whose change one broker shows later than others."""

WITH_IDS = 2
"""First transaction.version with topic ids in transactions."""


def with_identities(schedule: Schedule, seed: int, *, short: bool) -> Schedule:
    """Return the schedule with the additions that the seed chooses."""
    rng = derived_rng(seed, f"schedule/identities/{short}")
    writes = schedule.clients[0].kind == PROCESSOR
    shares = (HELD, RECREATED, LATEST, DELETED)
    holds, recreates, latest, deletes = (rng.random() < share for share in shares)
    if holds:
        schedule = _held(rng, schedule, writes=writes)
    if recreates and not _keeps_topics(schedule, writes=writes):
        schedule = _recreated(rng, schedule, writes=writes)
    elif latest and not writes:
        schedule = schedule.with_config({"auto.offset.reset": "latest"})
    elif deletes and not writes:
        schedule = _with_deleted_records(rng, schedule)
    if not recreates and rng.random() < RELEASED:
        schedule = _with_other_releases(rng, schedule, writes=writes)
    faults = (*schedule.faults, *lagging_brokers(schedule))
    return replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)))


def _keeps_topics(schedule: Schedule, *, writes: bool) -> bool:
    """Return whether no topic of this group may be recreated.

    Below transaction.version 2, transactions identify topics by name only, as in `BY_NAME`.
    """
    return writes and schedule.cluster["transaction_version"] < WITH_IDS


def _with_other_releases(rng: random.Random, schedule: Schedule, *, writes: bool) -> Schedule:
    """Run another release on some brokers, if it supports the group and its transactions."""
    protocol = schedule.group_protocol
    patterns = protocol == "consumer" and any(c.habits.get("pattern") for c in schedule.clients)
    if patterns or (writes and schedule.cluster["transaction_version"]):
        return schedule  # 3.9 has no patterns; transaction.version differs by release
    faults = [
        Fault(
            round(rng.uniform(0.5, schedule.heal_at), 3),
            "release",
            {"i": rng.randint(1, schedule.brokers), "name": rng.choice(OLDER[protocol])},
        )
        for _ in range(rng.choice((1, 2)))
    ]
    return replace(schedule, faults=(*schedule.faults, *faults))


def _with_deleted_records(rng: random.Random, schedule: Schedule) -> Schedule:
    """Add deletions of records, by retention or DeleteRecords, including unread ones."""
    faults = [
        Fault(
            round(rng.uniform(0.5, schedule.heal_at), 3),
            "delete_records",
            {"partition": rng.randrange(schedule.partitions), "share": round(rng.random(), 2)},
        )
        for _ in range(rng.choice((1, 2, 3)))
    ]
    return replace(schedule, faults=(*schedule.faults, *faults))


def _held(rng: random.Random, schedule: Schedule, *, writes: bool) -> Schedule:
    """Let members commit held records explicitly, and stop or disconnect the members meanwhile."""
    clients = schedule.clients
    if not writes:
        clients = tuple(_holder(rng, c) if rng.random() < 0.8 else c for c in clients)
        if derived_rng(schedule.seed, "schedule/keeps").random() < KEPT:
            more = {"keeps": True, "by": "record"}
            clients = tuple(
                replace(c, habits={**c.habits, **more}) if c.habits.get("holds") else c
                for c in clients
            )
    faults: list[Fault] = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = round(rng.uniform(0.5, schedule.heal_at), 3)
        faults += _away(rng, schedule, rng.choice(clients).name, at)
    return replace(schedule, clients=clients, faults=(*schedule.faults, *faults))


def _holder(rng: random.Random, client: ScheduledClient) -> ScheduledClient:
    config = {k: v for k, v in client.config.items() if not k.startswith("auto.commit")}
    habits = {
        **client.habits,
        "commits": True,
        "holds": rng.choice((0.2, 1.0, 4.0)),
        "by": rng.choice(BY_HAND),
        "most": rng.choice((5, 20, 500)),
        "retries": rng.choice((0.0, 0.0, 0.2)),
        "pauses": rng.random() < 0.25,
    }
    return replace(client, config={**config, "enable.auto.commit": False}, habits=habits)


def _away(rng: random.Random, schedule: Schedule, client: str, at: float) -> list[Fault]:
    """Stop a member's process, or disconnect it, for longer than a session."""
    seconds = round(rng.choice(BEYOND_A_SESSION) * rng.uniform(0.8, 1.2), 3)
    if rng.random() < 0.7:
        return [Fault(at, "freeze", {"client": client, "seconds": seconds})]
    brokers = range(1, schedule.brokers + 1)
    back = round(at + seconds, 3)
    return [
        Fault(at, "stop_polling", {"client": client, "seconds": round(seconds + 3.0, 3)}),
        *(Fault(at, "partition", {"i": i, "client": client}) for i in brokers),
        *(Fault(back, "repair", {"i": i}) for i in brokers if back < schedule.heal_at),
    ]


def lagging_brokers(schedule: Schedule) -> list[Fault]:
    """Return faults of brokers whose metadata lags about deleted and recreated topics.

    Only one broker lags at a time, and none in a schedule with a zombie leader: after 10 s clients
    believe most of the brokers.
    """
    if any(f.verb == "zombie_leader" for f in schedule.faults):
        return []
    rng = derived_rng(schedule.seed, "schedule/lagging")
    found: list[Fault] = []
    until = 0.0
    for fault in sorted(schedule.faults, key=lambda f: f.at):
        if fault.verb not in ("delete_topic", "recreate_topic") or rng.random() >= BEHIND:
            continue
        begins = round(max(0.0, fault.at - rng.uniform(0.0, 1.0)), 3)
        ends = round(fault.at + fault.arguments.get("after", 0.0) + rng.uniform(0.05, 8.0), 3)
        if begins < until or schedule.brokers < 2:
            continue
        until, broker = ends, {"i": rng.randint(1, schedule.brokers)}
        found.append(Fault(begins, "stale_metadata", {**broker, "on": True, "deleted": True}))
        if ends < schedule.heal_at:
            found.append(Fault(ends, "stale_metadata", {**broker, "on": False}))
    return found


def _recreated(rng: random.Random, schedule: Schedule, *, writes: bool) -> Schedule:
    """Delete and recreate topics; for processors, their input topics."""
    topics = list(schedule.topics) if writes else [TOPIC, *schedule.topics]
    faults = [f for f in schedule.faults if f.verb != BY_NAME]
    for _ in range(rng.choice((1, 1, 2))):
        topic = rng.choice(topics)
        arguments: dict[str, Any] = {} if topic == TOPIC else {"topic": topic}
        verb = "delete_topic"
        if rng.random() < 0.85:
            verb, after = "recreate_topic", rng.choice(MISSING)
            arguments |= {"after": after} if after else {}
        faults.append(Fault(round(rng.uniform(0.5, schedule.heal_at), 3), verb, arguments))
    return replace(schedule, faults=tuple(faults))
