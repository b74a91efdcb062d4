"""Draw random schedules of operators: admin clients, with brokers that fail, move or refuse.

In: a seed. Out: a `Schedule`. Brokers have the faults of schedules of groups; hostile responses are
late, or errors that any broker may return, in the APIs of operators. Faults that remove committed
offsets, or that deny that something exists, are left out: no result would be right then. Must not
run anything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from odradek.simulation.faults.fault_table import PLAIN, Fault, draw
from odradek.simulation.runs.random_groups import BROKERS
from odradek.simulation.runs.sasl_runs import random_session
from odradek.simulation.runs.schedule import OPERATOR, Schedule, ScheduledClient
from odradek.simulation.world.link import LinkProfile
from odradek.simulation.world.virtual_time import derived_rng

APIS = (
    *("ConsumerGroupDescribe", "DeleteGroups", "DescribeGroups", "FindCoordinator", "ListGroups"),
    *("ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch"),
)
CODES = (-1, 7, 14, 15, 16, 30)
"""Error codes, temporary and permanent ones, after which the state is unknown."""
LATE = (0.5, 3.0)
"""Delays of slow responses in seconds."""
SLOW_FOR = 6.0
"""Maximum number of seconds for which responses are slow."""
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"request.timeout.ms": 2000},
    {"metadata.max.age.ms": 500, "request.timeout.ms": 3000},
    {"connections.max.idle.ms": 200},
)


def random_operators(seed: int, *, short: bool) -> Schedule:
    """Draw the whole schedule of a seed."""
    rng = derived_rng(seed, f"schedule/operators/{short}")
    heal_at = round(rng.uniform(2.0, 10.0) if short else rng.uniform(20.0, 45.0), 3)
    clients = tuple(
        ScheduledClient(
            f"{OPERATOR}-{number}",
            OPERATOR,
            rng.randint(3, 15) if short else rng.randint(15, 40),
            0.0 if rng.random() < 0.8 else round(rng.uniform(0.0, heal_at), 3),
            rng.choice(CONFIGS),
        )
        for number in range(1, (rng.choice((1, 1, 2)) if short else rng.randint(2, 4)) + 1)
    )
    latency, loss = rng.choice((0.0005, 0.0005, 0.02)), rng.choice((0.0,) * 5 + (0.002,))
    schedule = Schedule(
        seed,
        clients,
        (),
        rng.choice((1, 2, 3, 3)),
        rng.randint(1, 3),
        "bytes" if rng.random() < 0.1 else "messages",
        heal_at,
        LinkProfile(latency=latency, loss=loss),
        random_session(seed),
        {},
        {"coordinators": rng.randint(1, 4)},
    )
    return replace(schedule, faults=_faults(rng, schedule, short=short))


def _faults(rng: random.Random, schedule: Schedule, *, short: bool) -> tuple[Fault, ...]:
    verbs = {name: replace(PLAIN[name], weight=weight) for name, weight in BROKERS.items()}
    most = 4 if short else 12
    found = [
        draw(rng, _moment(rng, schedule), schedule.scope, verbs)
        for _ in range(rng.randint(0, most))
    ]
    for _ in range(rng.randint(0, most)):
        at, api = _moment(rng, schedule), rng.choice(APIS)
        if rng.random() < 0.4:
            found.append(Fault(at, "slow_api", {"api": api, "seconds": rng.choice(LATE)}))
            # The requests of calls that have timed out remain in the broker's queue for some time.
            end = min(at + rng.uniform(1.0, SLOW_FOR), schedule.heal_at)
            found.append(Fault(round(end, 3), "slow_api", {"api": api, "seconds": 0.0}))
        else:
            said = {"api": api, "code": rng.choice(CODES), "count": rng.randint(1, 4)}
            done = {"done": True} if rng.random() < 0.5 else {}
            found.append(Fault(at, "answer_error", {**said, **done}))
    return tuple(sorted(found, key=lambda fault: fault.at))


def _moment(rng: random.Random, schedule: Schedule) -> float:
    return round(rng.uniform(0.0, schedule.heal_at), 3)
