"""Add topics that are recreated and grow again to random schedules of classic groups.

In: a random schedule of a group of members, its seed. Out: the same schedule, or one in which the
members are mostly cooperative and their topics are recreated with fewer partitions several times,
and get partitions again soon after, while members are stopped, leave, die or rejoin: a leader has
to notice each added partition, also if its number was assigned in an earlier incarnation of the
topic. A separate generator draws them, so that the rest of a schedule doesn't depend on
it. Must not: run anything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from odradek.simulation.faults.fault_table import Fault
from odradek.simulation.runs.schedule import TOPIC, Schedule
from odradek.simulation.world.virtual_time import derived_rng

RENEWED = 0.15
"""Share of the schedules of classic groups that have recreated topics which grow again."""
COOPERATIVE = 0.8
"""Share of schedules with such topics in which the members use the cooperative protocol."""
LEFT_OUT = {"quiet", "release", "zombie_leader"}
"""Faults that exclude a recreated topic from a schedule.

`release`: brokers before OffsetCommit 10 identify topics by name. `zombie_leader`: the broker still
has the deleted topic's metadata, whose id clients can't tell from a newer one. `quiet`: the group
must be idle."""
GONE = (0.0, 0.0, 0.05, 1.0, 4.0, 8.0)
"""Seconds from the deletion of a topic until the topic is recreated."""
AWAY = (2.0, 5.0, 9.0, 20.0)
"""Seconds for which a member is stopped or doesn't poll; sessions are 6 to 10 s."""


def with_renewals(schedule: Schedule, seed: int, *, short: bool) -> Schedule:
    """Return the schedule with the additions that the seed chooses."""
    rng = derived_rng(seed, f"schedule/renewals/{short}")
    verbs = {f.verb for f in schedule.faults}
    suits = schedule.group_protocol == "classic" and not verbs & LEFT_OUT
    if rng.random() >= RENEWED or not suits:
        return schedule
    more: dict[str, Any] = {"metadata.max.age.ms": 2000}
    if rng.random() < COOPERATIVE:
        more["partition.assignment.strategy"] = "cooperative-sticky"
    schedule = schedule.with_config(more)
    at, faults = rng.uniform(1.0, 4.0), list[Fault]()
    for _ in range(rng.choice((1, 2, 3) if short else (2, 4))):
        at = _renewal(rng, schedule, at, faults)
    faults = [*schedule.faults, *faults]
    return replace(
        schedule,
        faults=tuple(sorted(faults, key=lambda f: f.at)),
        heal_at=max(schedule.heal_at, round(at + rng.uniform(0.5, 8.0), 3)),
    )


def _renewal(rng: random.Random, schedule: Schedule, at: float, faults: list[Fault]) -> float:
    """Recreate a topic at this time and let it grow; return the time when it has grown."""
    topic = rng.choice((TOPIC, *schedule.topics))
    named = {} if topic == TOPIC else {"topic": topic}
    before = rng.choice((0.0, 1.0, 4.0, 12.0))
    fewer = rng.randint(1, schedule.partitions)
    gone = rng.choice(GONE)
    again: dict[str, Any] = {"partitions": fewer, **({"after": gone} if gone else {}), **named}
    faults.append(Fault(round(at + before, 3), "recreate_topic", again))
    grows = at + before + gone + rng.choice((0.0, 0.5, 3.0, 6.0, 12.0)) + rng.uniform(0.01, 1.0)
    faults.append(Fault(round(grows, 3), "grow_topic", {"count": rng.choice((1, 1, 2)), **named}))
    for _ in range(rng.choice((0, 1, 2))):
        client = rng.choice(schedule.clients).name
        when = round(max(0.5, rng.uniform(at + before - 4.0, grows + 1.0)), 3)
        verb = rng.choice(("freeze", "freeze", "stop_polling", "leave", "die", "rejoin"))
        given: dict[str, Any] = {"client": client}
        if verb in ("freeze", "stop_polling"):
            given["seconds"] = rng.choice(AWAY)
        elif verb != "rejoin":
            given["back"] = rng.choice((0.1, 1.0, 4.0))
        faults.append(Fault(when, verb, given))
    return grows
