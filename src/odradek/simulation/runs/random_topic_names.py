"""Add recreated topics to random schedules of classic groups whose brokers know offsets by name.

In: a random schedule of a group of members, its seed. Out: the same schedule, or one on Kafka 3.9
in which members are away for longer than a session while their topic is recreated, and return while
Metadata responses are late: their offsets are then looked up under the deleted topic's id. A
separate generator draws the additions, so that the rest of a schedule doesn't depend on it. Must
not: run anything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from odradek.simulation.faults.fault_table import Fault
from odradek.simulation.runs.schedule import TOPIC, Schedule
from odradek.simulation.world.virtual_time import derived_rng

BY_NAME = 0.15
"""Share of the schedules of classic groups that run on brokers which know offsets by name."""
RELEASE = 3.9
LEFT_OUT = {"recreate_topic", "delete_topic", "quiet", "release", "zombie_leader"}
"""A schedule that already has one of these faults gets no recreated topic here."""
AWAY = (8.0, 11.0, 16.0)
"""Seconds for which a member is stopped; sessions are 6 to 10 s."""
LATE = (0.5, 2.0, 4.0)
"""Seconds by which Metadata responses are late when the member returns."""


def with_topic_names(schedule: Schedule, seed: int, *, short: bool) -> Schedule:
    """Return the schedule with the additions of its seed."""
    rng = derived_rng(seed, f"schedule/topic names/{short}")
    verbs = {f.verb for f in schedule.faults}
    suits = schedule.group_protocol == "classic" and not verbs & LEFT_OUT
    if rng.random() >= BY_NAME or not suits or "release" in schedule.cluster:
        return schedule
    at, faults = rng.uniform(1.0, 4.0), list[Fault]()
    for _ in range(rng.choice((1, 2) if short else (2, 3))):
        at = _recreation(rng, schedule, at, faults)
    return replace(
        schedule,
        cluster={**schedule.cluster, "release": RELEASE},
        faults=tuple(sorted((*schedule.faults, *faults), key=lambda f: f.at)),
        heal_at=max(schedule.heal_at, round(at, 3)),
    )


def _recreation(rng: random.Random, schedule: Schedule, at: float, faults: list[Fault]) -> float:
    """Add a topic that is recreated while a member is away, and return when that is over."""
    topic = rng.choice((TOPIC, *schedule.topics))
    named: dict[str, Any] = {} if topic == TOPIC else {"topic": topic}
    client, seconds = rng.choice(schedule.clients).name, rng.choice(AWAY)
    late, gone = rng.choice(LATE), rng.choice((0.0, 0.0, 0.5))
    back = at + seconds
    again = {**named, **({"after": gone} if gone else {})}
    recreated = at + rng.uniform(0.0, seconds)
    faults += [
        Fault(round(at, 3), "freeze", {"client": client, "seconds": seconds}),
        Fault(round(recreated, 3), "recreate_topic", again),
        Fault(round(back - 0.2, 3), "slow_api", {"api": "Metadata", "seconds": late}),
        Fault(round(back + 4.0, 3), "slow_api", {"api": "Metadata", "seconds": 0.0}),
    ]
    return back + 4.0 + rng.uniform(0.5, 4.0)
