"""Add situations to random schedules in which partitions could remain without an owner.

In: a random schedule of a group of members, its seed. Out: the same schedule, often with additions:
static members whose batches take too long while others join, and that restart meanwhile; topics
that grow or are created while members are away; late responses during joins and closes; an idle
group whose offsets expire. A separate generator draws them, so that the rest of a schedule doesn't
depend on it. Must not: run anything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odradek.common.errors.kafka import (
    GroupAuthorizationError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationError,
)
from odradek.simulation.faults.fault_table import APPLICATION, Fault
from odradek.simulation.runs.schedule import TOPIC, Schedule, ScheduledClient
from odradek.simulation.world.virtual_time import derived_rng

OVERLONG, GROWN, LATE, IDLE, BESIDES = 0.35, 0.25, 0.3, 0.05, 0.15
"""Shares of schedules with overlong batches, with topics that grow, with late responses, with an
idle group, and with commits of the application beside auto-commit."""
UNDESCRIBED = 0.4
"""Of the classic groups with growing topics, the share whose members may not describe the group."""
REFUSED = 0.15
"""Share of schedules in which commits are refused while a member closes."""
REFUSALS = (TopicAuthorizationError.code, OffsetMetadataTooLargeError.code)
MAX_POLL = 10.0
"""`max.poll.interval.ms` of members with overlong batches, in seconds."""
LATE_APIS = {
    "classic": ("JoinGroup", "SyncGroup", "OffsetCommit"),
    "consumer": ("ConsumerGroupHeartbeat", "OffsetCommit"),
}
ASYNC = {"async", "any"}
"""Ways of an application to commit without waiting for the result.

With late responses, the number of such commits in flight isn't limited."""
SOON = (0.3, 1.0, 2.0, 3.0, 5.0)
"""Durations in seconds; an orderly close has 8 s for its last commit."""
QUIET = (60.0, 400.0, 1000.0, 1300.0)
"""Seconds without records.

Offsets are renewed after 30 s at a close, otherwise after 300 to 570 s."""
RETENTION = 900.0
"""`offsets.retention.minutes` of an idle group, in seconds."""
AT_REST = {*APPLICATION, "grow_topic", "move_leader", "recreate_topic"}
"""Faults whose effects end before a group becomes idle."""


def with_ownership(schedule: Schedule, seed: int, *, short: bool) -> Schedule:
    """Return the schedule with the additions that the seed chooses."""
    rng = derived_rng(seed, f"schedule/ownership/{short}")
    overlong, grown, late, idle, besides = (
        rng.random() < share for share in (OVERLONG, GROWN, LATE, IDLE, BESIDES)
    )
    if overlong:
        schedule = _overlong(rng, schedule)
    if grown:
        schedule = _undescribed(_grown(rng, schedule))
    if late:
        schedule = _late(rng, schedule)
    if besides:
        schedule = _with_habits(schedule, {"besides": rng.choice((0.2, 0.6))})
    if idle:
        schedule = _idle(rng, schedule)
    else:
        schedule = _with_refused_commits(schedule)
    return replace(schedule, faults=tuple(sorted(schedule.faults, key=lambda f: f.at)))


def _with_habits(schedule: Schedule, more: Mapping[str, Any]) -> Schedule:
    """Set these fields of `ApplicationBehaviour` for all members that use auto-commit."""
    clients = (
        c
        if c.config.get("enable.auto.commit") is False
        else replace(c, habits={**c.habits, **more})
        for c in schedule.clients
    )
    return replace(schedule, clients=tuple(clients))


def _with_faults(schedule: Schedule, faults: list[Fault], until: float = 0.0) -> Schedule:
    heal_at = max(schedule.heal_at, round(until, 3))
    return replace(schedule, faults=(*schedule.faults, *faults), heal_at=heal_at)


def _static(rng: random.Random, schedule: Schedule) -> Schedule:
    """Make most members static."""
    clients = (
        replace(c, config={**c.config, "group.instance.id": f"instance-{number}"})
        if rng.random() < 0.8
        else c
        for number, c in enumerate(schedule.clients, 1)
    )
    return replace(schedule, clients=tuple(clients))


def _overlong(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let static members exceed `max.poll.interval.ms`, and restart some, while others join."""
    schedule = _static(rng, schedule)
    first = schedule.clients[0]
    if len(schedule.clients) == 1:
        schedule = replace(schedule, clients=(first, _another(schedule, 2)))
    schedule = schedule.with_config({"max.poll.interval.ms": round(MAX_POLL * 1000)})
    busy = rng.choice(schedule.clients)
    begins = busy.start + rng.uniform(1.0, 4.0)
    clients = [
        c if c is busy or rng.random() < 0.3 else replace(c, start=_in(rng, begins, 3.0))
        for c in schedule.clients
    ]
    seconds = round(rng.choice((4.0, MAX_POLL + 3.0, MAX_POLL + 8.0)), 3)
    faults = [
        Fault(round(begins, 3), "stop_polling", {"client": busy.name, "seconds": seconds}),
    ]
    if rng.random() < 0.6:
        ends = {"client": busy.name, "back": round(rng.choice((0.1, 1.0, 3.0)), 3)}
        faults.append(Fault(_in(rng, begins + 1.0, 4.0), rng.choice(("leave", "die")), ends))
    schedule = replace(schedule, clients=tuple(clients))
    return _with_faults(schedule, faults, begins + seconds + 1.0)


def _another(schedule: Schedule, number: int) -> ScheduledClient:
    first = schedule.clients[0]
    config = {k: v for k, v in first.config.items() if k != "group.instance.id"}
    return replace(first, name=f"{first.kind}-{number}", config=config)


def _in(rng: random.Random, begin: float, seconds: float) -> float:
    return round(begin + rng.uniform(0.0, seconds), 3)


def _grown(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let topics grow or be created while a member (perhaps static, perhaps the leader) is away."""
    if rng.random() < 0.7:
        schedule = _static(rng, schedule)
    schedule = schedule.with_config({"metadata.max.age.ms": rng.choice([2000, 20000])})
    away = rng.choice(schedule.clients)
    at = _in(rng, away.start + 1.0, max(1.0, schedule.heal_at - away.start - 4.0))
    back = round(rng.choice((0.5, 2.0, 4.0)), 3)
    topic = rng.choice((TOPIC, *schedule.topics))
    named = {} if topic == TOPIC else {"topic": topic}
    when = round(at + rng.uniform(0.0, back), 3)
    faults = [
        Fault(at, rng.choice(("leave", "leave", "die")), {"client": away.name, "back": back}),
        Fault(when, "grow_topic", {"count": rng.randint(1, 3), **named}),
    ]
    if schedule.group_protocol == "classic" and rng.random() < 0.3:
        slow = {"api": "DescribeGroups", "seconds": rng.choice((3.0, 12.0, 25.0))}
        faults.append(Fault(at, "slow_api", slow))
    return _with_faults(schedule, faults, at + back + 1.0)


def _undescribed(schedule: Schedule) -> Schedule:
    """Refuse descriptions of the group, as by a missing permission, in some classic groups.

    A static member that returns can't look for partitions without an owner then.
    """
    rng = derived_rng(schedule.seed, "schedule/ownership/undescribed")
    if schedule.group_protocol != "classic" or rng.random() >= UNDESCRIBED:
        return schedule
    refused = {"api": "DescribeGroups", "code": GroupAuthorizationError.code, "count": 100}
    return _with_faults(schedule, [Fault(0.0, "answer_error", refused)])


def _with_refused_commits(schedule: Schedule) -> Schedule:
    """Refuse commits while a member closes: a warning must say that records will be read again."""
    rng = derived_rng(schedule.seed, "schedule/ownership/refused commits")
    automatic = [c for c in schedule.clients if c.config.get("enable.auto.commit") is not False]
    if not automatic or rng.random() >= REFUSED:
        return schedule
    client = rng.choice(automatic)
    at = _in(rng, client.start + 1.0, max(1.0, schedule.heal_at - client.start - 2.0))
    refused = {"api": "OffsetCommit", "code": rng.choice(REFUSALS), "count": rng.choice((2, 20))}
    leaves = {"client": client.name, "back": round(rng.choice((0.1, 1.0, 4.0)), 3)}
    faults = [
        Fault(at, "answer_error", refused),
        Fault(_in(rng, at + 0.1, 1.5), "leave", leaves),
    ]
    return _with_faults(schedule, faults, at + 2.0)


def _late(rng: random.Random, schedule: Schedule) -> Schedule:
    """Delay the coordinator's responses while members join and close."""
    protocol = schedule.group_protocol
    at = _in(rng, 0.5, max(1.0, schedule.heal_at - 4.0))
    faults = [
        Fault(at, "slow_api", {"api": api, "seconds": rng.choice(SOON)})
        for api in rng.sample(LATE_APIS[protocol], rng.randint(1, 2))
        if api != "OffsetCommit" or not ASYNC & {c.habits.get("by") for c in schedule.clients}
    ]
    for _ in range(rng.randint(1, 2)):
        joins, closes = rng.choice(schedule.clients), rng.choice(schedule.clients)
        begins = _in(rng, at, 3.0)
        faults.append(Fault(begins, "rejoin", {"client": joins.name}))
        ends: dict[str, Any] = {"client": closes.name}
        if rng.random() < 0.7:
            ends["back"] = round(rng.choice((0.1, 1.0, 4.0)), 3)
        verb = rng.choice(("leave", "leave", "leave", "subscribe_anew"))
        given = ends if verb == "leave" else {"client": closes.name}
        faults.append(Fault(_in(rng, begins, 4.0), verb, given))
    return _with_faults(schedule, faults, at + 6.0)


def _idle(rng: random.Random, schedule: Schedule) -> Schedule:
    """Write no records for a long time during the schedule, so that offsets expire."""
    begins = _in(rng, 1.0, schedule.heal_at - 1.0)
    seconds = rng.choice(QUIET)

    def later(at: float) -> float:
        return round(at + seconds, 3) if at > begins else at

    faults = [
        replace(f, at=later(f.at)) for f in schedule.faults if f.at > begins or f.verb in AT_REST
    ]
    clients = tuple(
        replace(c, start=later(c.start), habits={**c.habits, "poll": 5.0}) for c in schedule.clients
    )
    quiet = Fault(begins, "quiet", {"seconds": seconds})
    ends = later(schedule.heal_at)
    if rng.random() < 0.4:
        schedule, more = _hasty(rng, replace(schedule, clients=clients), begins + seconds)
        clients, faults = schedule.clients, [*faults, *more]
        ends = max(ends, round(begins + seconds + 8.0, 3))
    elif rng.random() < 0.7:  # members leave or are killed when the idle time ends
        verb = rng.choice(("leave", "die"))
        faults += [
            Fault(round(begins + seconds, 3), verb, {"client": c.name, "back": 25.0})
            for c in clients
        ]
        ends = max(ends, round(begins + seconds + 30.0, 3))
    return replace(
        schedule,
        clients=clients,
        faults=(*faults, quiet),
        heal_at=ends,
        session=None,
        link=replace(schedule.link, loss=0.0),
        cluster={**schedule.cluster, "offsets_retention": RETENTION},
    )


def _hasty(rng: random.Random, schedule: Schedule, at: float) -> tuple[Schedule, list[Fault]]:
    """Let applications commit although their clients do, with short timeouts, and close early."""
    schedule = _with_habits(schedule, {"besides": 0.6})
    late = rng.choice((1.0, 2.0, 3.0))
    faults = [Fault(round(at, 3), "slow_api", {"api": "OffsetCommit", "seconds": late})]
    for client in schedule.clients:
        ends = {"client": client.name, "back": 1.0}
        faults.append(Fault(_in(rng, at + 0.5, 3.0), "leave", ends))
    return schedule, faults
