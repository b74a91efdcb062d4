"""Let clients start while brokers' metadata lags about a recreated topic.

In: a random schedule, perhaps with brokers whose metadata lags. Out: the same schedule, or one in
which clients start or are restarted during the lag and refresh their metadata often, so that they
know the new topic's id first and hear of the deleted topic's id afterwards (R-ID-3). More brokers
may lag at the same time, even most of them. A separate generator draws all this, so that the rest
of a schedule doesn't depend on it. Must not: run anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from odradek.simulation.faults.fault_table import Fault
from odradek.simulation.runs.schedule import GROUPED, Schedule
from odradek.simulation.world.virtual_time import derived_rng

RECREATED = 0.2
"""Share of hostile and misled schedules in which a topic is recreated for this purpose."""
LEFT_OUT = {"delete_topic", "recreate_topic", "swap", "zombie_leader"}
"""A schedule with one of these faults gets no recreated topic here.

A lagging broker's metadata also has the brokers' former addresses. After a swap, clients attribute
its response to the broker that it swapped with, and assume that this broker has changed to the
older topic id.
"""
NEWCOMERS = 0.7
"""Share of schedules with a lag in which clients start during it."""
MOST = 0.7
"""Share of schedules with clients that start during a lag in which most brokers lag."""
DECIDED = 9.0
"""Maximum number of seconds for which most brokers may lag: after 10 s, clients believe them."""
AGES = (100, 300, 1000)
"""`metadata.max.age.ms` of clients that start during a lag: each refresh may ask another broker."""


class Lag(NamedTuple):
    """A time in which the metadata of one broker names a deleted topic."""

    broker: int
    begins: float
    created: float
    """Time when the topic is created again."""
    ends: float


def with_recreated_topic(schedule: Schedule) -> Schedule:
    """Recreate the first topic in some schedules, while a broker's metadata lags."""
    rng = derived_rng(schedule.seed, "schedule/lags/recreated")
    verbs = {f.verb for f in schedule.faults}
    if rng.random() >= RECREATED or verbs & LEFT_OUT:
        return schedule
    at = round(rng.uniform(0.3, max(0.4, schedule.heal_at - 0.2)), 3)
    after = rng.choice((0.0, 0.0, 0.05, 1.0))
    ends = round(at + after + rng.uniform(1.0, 8.5), 3)
    brokers = max(schedule.brokers, rng.choice((2, 3, 3, 5)))
    lags = {"i": rng.randint(1, brokers), "on": True, "deleted": True}
    faults = [
        Fault(round(max(0.0, at - rng.uniform(0.0, 1.0)), 3), "stale_metadata", lags),
        Fault(at, "recreate_topic", {"after": after} if after else {}),
    ]
    return replace(
        schedule,
        brokers=brokers,
        faults=_sorted([*schedule.faults, *faults]),
        heal_at=max(schedule.heal_at, ends),
    )


def with_newcomers(schedule: Schedule) -> Schedule:
    """Let clients start while brokers lag, in most schedules with such a lag."""
    rng = derived_rng(schedule.seed, "schedule/lags/newcomers")
    lags = list(_lags(schedule))
    if not lags or rng.random() >= NEWCOMERS:
        return schedule
    schedule = schedule.with_config({"metadata.max.age.ms": rng.choice(AGES)})
    lag = rng.choice(lags)
    faults: list[Fault] = []
    length = lag.ends - lag.created
    early = rng.random() < MOST and len(lags) == 1 and length < DECIDED
    if early:
        faults += _of_most(rng, schedule, lag)
    clients = list(schedule.clients)
    for number, client in enumerate(clients):
        begins = round(lag.created + rng.uniform(0.0, 0.5 if early else 0.9) * length, 3)
        if rng.random() < 0.3 or begins >= schedule.heal_at:
            continue
        if client.kind not in GROUPED or rng.random() < 0.2:
            clients[number] = replace(client, start=begins)
        else:
            back = round(rng.uniform(0.05, 0.5), 3)
            leaves = max(client.start + 0.1, begins - back)
            given = {"client": client.name, "back": back}
            faults.append(Fault(round(leaves, 3), rng.choice(("leave", "die")), given))
    faults = [*schedule.faults, *faults]
    return replace(schedule, clients=tuple(clients), faults=_sorted(faults))


def _of_most(rng: random.Random, schedule: Schedule, lag: Lag) -> Iterator[Fault]:
    """Yield faults that let all brokers except one or two lag together with this one."""
    others = [i for i in range(1, schedule.brokers + 1) if i != lag.broker]
    for i in others[: len(others) - rng.choice((1, 1, 2))]:
        yield Fault(lag.begins, "stale_metadata", {"i": i, "on": True, "deleted": True})
        ends = round(lag.ends - rng.uniform(0.0, 0.5), 3)
        yield Fault(max(lag.created, ends), "stale_metadata", {"i": i, "on": False})


def _lags(schedule: Schedule) -> Iterator[Lag]:
    """Yield the lags of a schedule that end only after the deleted topic is recreated."""
    for fault in schedule.faults:
        if fault.verb != "stale_metadata" or not fault.arguments.get("deleted"):
            continue
        broker = fault.arguments["i"]
        ends = [
            f.at
            for f in schedule.faults
            if f.verb == "stale_metadata" and f.arguments["i"] == broker and f.at > fault.at
        ]
        end = min((*ends, schedule.heal_at))
        made = [
            f.at + f.arguments.get("after", 0.0)
            for f in schedule.faults
            if f.verb == "recreate_topic" and fault.at <= f.at < end
        ]
        if made and min(made) < end:
            yield Lag(broker, fault.at, min(made), end)


def _sorted(faults: list[Any]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda f: f.at))
