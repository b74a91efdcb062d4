"""Draw random schedules of every family.

In: a seed, and a family if the caller wants one. Out: a `Schedule` that depends on the seed and the
family only. Must not run anything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Literal, get_args

from odradek.common.config import ADMIN, CONSUMER, PRODUCER
from odradek.simulation.faults.fault_table import (
    HOSTILE,
    MISROUTING_FAULTS,
    SHORT,
    UNUSED_ADDRESS,
    Fault,
    draw,
)
from odradek.simulation.faults.misrouting_faults import OLDER
from odradek.simulation.faults.response_faults import late_transaction_requests
from odradek.simulation.runs.random_groups import random_group
from odradek.simulation.runs.random_identities import lagging_brokers
from odradek.simulation.runs.random_lags import with_newcomers, with_recreated_topic
from odradek.simulation.runs.random_operators import random_operators
from odradek.simulation.runs.sasl_runs import random_session
from odradek.simulation.runs.schedule import (
    CUTS,
    KINDS,
    METADATA,
    PATIENCE,
    PLAIN_KINDS,
    SERVERS,
    TRANSACTIONAL,
    Schedule,
    ScheduledClient,
)
from odradek.simulation.world.link import LinkProfile, Mode
from odradek.simulation.world.virtual_time import derived_rng

TWO_SERVERS = f"{UNUSED_ADDRESS}:9092,{SERVERS}"
"""Bootstrap servers of which the first one doesn't exist."""
_SHORT_CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    PRODUCER: (
        {"linger.ms": 0, "request.timeout.ms": 1500, "delivery.timeout.ms": 20000},
        {"linger.ms": 5, "request.timeout.ms": 3000, "delivery.timeout.ms": 4000},
        {"linger.ms": 5, "batch.size": 200, "request.timeout.ms": 2000},
        {
            "linger.ms": 50,
            "buffer.memory": 2048,
            "max.request.size": 1024,
            "max.block.ms": 800,
            "request.timeout.ms": 3000,
        },
        {"linger.ms": 0, "max.in.flight.requests.per.connection": 1},
        {"linger.ms": 0, "batch.size": 100, "request.timeout.ms": 700, "delivery.timeout.ms": 1500},
        {"bootstrap.servers": TWO_SERVERS, "request.timeout.ms": 2000},
        {"connections.max.idle.ms": 400, "metadata.max.age.ms": 700, "request.timeout.ms": 3000},
    ),
    CONSUMER: (
        {"request.timeout.ms": 3000},
        {"request.timeout.ms": 2000, "fetch.max.wait.ms": 100},
        {"request.timeout.ms": 5000, "max.partition.fetch.bytes": 100, "fetch.max.bytes": 200},
        {"bootstrap.servers": TWO_SERVERS, "request.timeout.ms": 2000},
        {"metadata.max.age.ms": 300, "retry.backoff.ms": 10, "isolation.level": "read_committed"},
        {},
    ),
    ADMIN: (
        {"request.timeout.ms": 2000},
        {"metadata.max.age.ms": 500, "request.timeout.ms": 1500},
        {"reconnect.backoff.ms": 100, "request.timeout.ms": 3000},
        {"metadata.recovery.rebootstrap.trigger.ms": 1000},
        {"connections.max.idle.ms": 200, "reconnect.backoff.max.ms": 3000},
        {"socket.connection.setup.timeout.ms": 300, "socket.connection.setup.timeout.max.ms": 900},
    ),
}
_LONG_CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    PRODUCER: (
        {},
        {"delivery.timeout.ms": 10000, "request.timeout.ms": 5000},
        {"linger.ms": 0, "batch.size": 100, "delivery.timeout.ms": 4000, "request.timeout.ms": 900},
    ),
    CONSUMER: ({}, {"metadata.max.age.ms": 2000, "connections.max.idle.ms": 1500}),
    ADMIN: ({}, {"metadata.max.age.ms": 5000}, {"bootstrap.servers": TWO_SERVERS}),
}

_BUSY_CONFIGS: tuple[dict[str, Any], ...] = (
    {"linger.ms": 0, "batch.size": 100},
    {"linger.ms": 0, "batch.size": 100, "request.timeout.ms": 1500},
    {"linger.ms": 0, "batch.size": 64, "request.timeout.ms": 700, "delivery.timeout.ms": 1500},
    {"linger.ms": 0, "batch.size": 200, "delivery.timeout.ms": 4000, "request.timeout.ms": 3000},
    {"linger.ms": 5, "batch.size": 600, "request.timeout.ms": 3000},
    {
        "linger.ms": 1,
        "batch.size": 128,
        "buffer.memory": 2048,
        "max.request.size": 1024,
        "max.block.ms": 3000,
    },
)
"""Options of producers whose five batches in flight and whose buffers are soon full."""
_SLOW_CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    PRODUCER: ({}, {"linger.ms": 0}),
    CONSUMER: ({}, {"fetch.max.wait.ms": 100}, {"isolation.level": "read_committed"}),
    ADMIN: ({},),
    METADATA: ({},),
    TRANSACTIONAL: ({"linger.ms": 0},),
}
SLOW_APIS = {
    PRODUCER: ("InitProducerId", "Metadata", "Produce"),
    CONSUMER: ("ListOffsets", "Metadata", "Fetch", "OffsetForLeaderEpoch"),
    ADMIN: ("Metadata", "DescribeCluster", "CreateTopics"),
    METADATA: ("Metadata",),
    TRANSACTIONAL: (
        "InitProducerId",
        "EndTxn",
        "FindCoordinator",
        "TxnOffsetCommit",
        "AddPartitionsToTxn",
    ),
}
_TRANSACTIONAL_CONFIGS: tuple[dict[str, Any], ...] = (
    {"linger.ms": 0, "transaction.timeout.ms": 5000},
    {"linger.ms": 5, "transaction.timeout.ms": 10000, "request.timeout.ms": 1500},
    {"linger.ms": 0, "batch.size": 100, "transaction.timeout.ms": 2000, "delivery.timeout.ms": 1500,
     "request.timeout.ms": 700},
    {"linger.ms": 20, "batch.size": 100, "transaction.timeout.ms": 60000},
)  # fmt: skip
LARGE = 0.15
"""Of the schedules of shortages, the share with large responses, which therefore take long."""
Family = Literal[
    "plain",
    "hostile",
    "slow",
    "transactions",
    "misled",
    "groups",
    "read-process-write",
    "operators",
    "shortages",
]
FAMILIES: tuple[Family, ...] = get_args(Family)
SHARES: dict[Family, float] = {"plain": 0.4, "hostile": 0.75, "slow": 0.85, "transactions": 1.0}
"""For the families that a seed can draw, the upper bound of their interval in [0, 1). Other
families must be requested: a run of a group costs as much as ten to twenty other runs, and old
seeds must keep their schedules."""


def random_schedule(seed: int, *, short: bool = True, family: Family | None = None) -> Schedule:
    """Return a schedule that depends on the seed alone.

    Short schedules are made to be run by the million: one or two clients, at most three brokers, a
    few faults within some seconds. Long ones have more of everything and take half a minute. Each
    family has both. The seed also chooses the family, unless it is given.
    """
    family = family or random_family(seed)
    if family in ("groups", "read-process-write"):
        return random_group(seed, short=short, writes=family != "groups")
    if family == "operators":
        return random_operators(seed, short=short)
    if family in ("hostile", "transactions"):
        drawn = _hostile(seed, short=short, transactions=family == "transactions")
        faults = sorted((*drawn.faults, *lagging_brokers(drawn)), key=lambda f: f.at)
        drawn = replace(drawn, faults=tuple(faults))
        return with_newcomers(with_recreated_topic(drawn)) if family == "hostile" else drawn
    if family == "slow":
        return _slow(seed, short=short)
    if family == "misled":
        return with_newcomers(with_recreated_topic(_misled(seed, short=short)))
    if family == "shortages":
        return _with_large_responses(_shortages(seed, short=short))
    return _usual(seed, short=short)


def _usual(seed: int, *, short: bool) -> Schedule:
    """Draw a schedule in which brokers die, hang and move."""
    rng = derived_rng(seed, "schedule/short" if short else "schedule/long")
    brokers = rng.choice((1, 1, 2, 2, 3) if short else (1, 2, 3, 4, 5, 7))
    partitions = rng.randint(1, 2 if short else 6)
    heal_at = round(rng.uniform(0.5, 4.0), 3) if short else round(rng.uniform(20.0, 40.0), 3)
    clients = _random_clients(rng, heal_at, short=short)
    link = LinkProfile(
        latency=rng.choice((0.0002, 0.0005, 0.002, 0.02)),
        jitter=rng.choice((0.0, 0.0002, 0.003)),
        loss=rng.choice((0.0, 0.0, 0.0, 0.0, 0.002, 0.02)),
    )
    mode: Mode = "bytes" if rng.random() < (0.05 if short else 0.3) else "messages"
    session = random_session(seed)
    schedule = Schedule(seed, clients, (), brokers, partitions, mode, heal_at, link, session)
    count = rng.randint(1, 4) if short else rng.randint(5, 25)
    times = sorted(round(rng.uniform(0.0, heal_at), 3) for _ in range(count))
    faults = tuple(draw(rng, at, schedule.scope) for at in times)
    return replace(schedule, faults=faults)


def random_family(seed: int) -> Family:
    """Return the family of runs that a seed chooses."""
    found = derived_rng(seed, "schedule/family").random()
    return next(family for family, end in SHARES.items() if found < end)


def _hostile(seed: int, *, short: bool, transactions: bool) -> Schedule:
    """Draw a schedule with wrong or late responses, truncated logs and recreated topics.

    Producers are busy. With transactions, logs aren't truncated at the end: the outcome of a
    transaction with a lost marker can't be judged.
    """
    plain = _usual(seed, short=short)
    rng = derived_rng(seed, "schedule/hostile")
    clients = []
    for client in plain.clients:
        if client.kind == PRODUCER or rng.random() < 0.4:
            config = rng.choice(_BUSY_CONFIGS)
            volume = rng.choice((0, 6, 20, 60) if short else (20, 60, 200))
            kept = client.kind == PRODUCER and rng.random() < 0.3
            client = replace(
                client,
                name=client.name.replace(client.kind, PRODUCER),
                kind=PRODUCER,
                volume=volume,
                config=client.config if kept else config,
            )
        clients.append(client)
    verbs = HOSTILE
    if transactions:
        clients = [
            ScheduledClient(
                f"{TRANSACTIONAL}-{number}",
                TRANSACTIONAL,
                rng.choice((1, 2, 4, 12)) if short else rng.randint(5, 20),
                client.start,
                rng.choice(_TRANSACTIONAL_CONFIGS),
                rng.choice((0, 0, 20)),
                {"work": rng.choice((0.0, 0.3, 1.0)), "parts": rng.choice((1, 2, 3))},
            )
            for number, client in enumerate(clients, 1)
        ]
        left_out = set(CUTS) - {"delete_records"}
        verbs = {name: verb for name, verb in HOSTILE.items() if name not in left_out}
    schedule = replace(plain, clients=tuple(clients))
    count = rng.randint(1, 3) if short else rng.randint(3, 12)
    times = sorted(round(rng.uniform(0.0, plain.heal_at * 0.8), 3) for _ in range(count))
    faults = [draw(rng, at, schedule.scope, verbs) for at in times]
    if rng.random() < 0.5:
        old = [f for f in plain.faults if rng.random() < 0.6]
        scope = schedule.scope
        faults += [f for f in old if f.arguments.get("client", "") in ("", *scope.clients)]
    if transactions:
        faults = [f for f in faults if f.verb != "replace_with_foreign"]
        faults += late_transaction_requests(rng, plain.heal_at, short=short)
        schedule = replace(schedule, cluster=_random_transactions(rng))
    return replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)))


def _random_transactions(rng: random.Random) -> dict[str, float]:
    """Draw the brokers' `transaction.version`; with 0, some brokers are older than KIP-360."""
    found: dict[str, float] = {
        "transaction_version": rng.choice((0, 0, 1, 2)),
        # Twice this delay must be less than a probe's wait for committed records.
        "marker_delay": rng.choice((0.001, 0.02, 0.1)),
    }
    if not found["transaction_version"]:
        found |= rng.choice(({}, {}, {"release": 2.4}, {"release": 3.9}))
    return found


def _misled(seed: int, *, short: bool) -> Schedule:
    """Draw a schedule in which addresses connect to other brokers, or to another cluster."""
    plain = _usual(seed, short=short)
    rng = derived_rng(seed, "schedule/misled")
    schedule = replace(plain, brokers=max(2, plain.brokers))
    count = rng.randint(1, 3) if short else rng.randint(3, 12)
    times = sorted(round(rng.uniform(0.0, plain.heal_at * 0.9), 3) for _ in range(count))
    faults = [draw(rng, at, schedule.scope, MISROUTING_FAULTS) for at in times]
    # If a DNS name changed, clients would bootstrap from the other cluster, which is not tested
    # here.
    faults += [f for f in plain.faults if rng.random() < 0.5 and f.verb != "dns_change"]
    # Brokers of most clusters don't know KIP-1242 yet, so they don't report misrouted clients.
    older = {"release": float(OLDER)} if seed % 3 == 0 else {}
    return replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)), cluster=older)


def _shortages(seed: int, *, short: bool) -> Schedule:
    """Draw a hostile schedule with trickles, quotas and exhausted clients, on any release."""
    rng = derived_rng(seed, "schedule/shortages")
    plain = _hostile(seed, short=short, transactions=rng.random() < 0.3)
    count = rng.randint(1, 4) if short else rng.randint(4, 15)
    times = [round(rng.uniform(0.0, plain.heal_at * 0.9), 3) for _ in range(count)]
    faults = [draw(rng, at, plain.scope, SHORT) for at in times]
    faults += [f for f in plain.faults if rng.random() < 0.5]
    cluster = dict(plain.cluster)
    if not cluster.get("transaction_version"):
        cluster |= rng.choice(({}, {"release": 2.4}, {"release": 3.5}, {"release": 3.9}))
    trickles = any(f.verb == "trickle" for f in faults)  # a trickle needs byte mode
    mode = "bytes" if trickles and rng.random() < 0.5 else plain.mode
    faults.sort(key=lambda f: f.at)
    return replace(plain, faults=tuple(faults), mode=mode, cluster=cluster)


def _with_large_responses(schedule: Schedule) -> Schedule:
    """Let some responses take longer than `request.timeout.ms`, at 160 to 2,000 bytes a second.

    Those with fewer than `LEAST_BYTES` in 2 s end at the timeout; the others are waited for.
    """
    rng = derived_rng(schedule.seed, "schedule/shortages/large responses")
    if rng.random() >= LARGE:
        return schedule
    begins = round(rng.uniform(0.5, 2.0), 3)
    verb, given = "trickle", {"seconds": round(rng.uniform(0.0025, 0.006), 4)}
    if rng.random() < 0.5:
        verb, given = "change_link", {"bandwidth": rng.choice((700, 1000, 2000))}
    writes = {"linger.ms": 100, "request.timeout.ms": 2000}
    reads = {"request.timeout.ms": rng.choice((1500, 2000, 3000))}
    clients = (
        ScheduledClient(f"{PRODUCER}-1", PRODUCER, 3, 0.0, writes, 300),
        ScheduledClient(f"{CONSUMER}-2", CONSUMER, 4, round(begins + 0.1, 3), reads),
    )
    faults = [f for f in schedule.faults if "client" not in f.arguments]
    faults.append(Fault(begins, verb, given))
    return replace(
        schedule,
        clients=clients,
        faults=tuple(sorted(faults, key=lambda f: f.at)),
        mode="bytes",
        heal_at=max(schedule.heal_at, begins + 12.0),
    )


def _slow(seed: int, *, short: bool) -> Schedule:
    """Draw a schedule in which one API is slow: every call must succeed (R-RB-9)."""
    rng = derived_rng(seed, "schedule/slow")
    brokers = rng.choice((1, 1, 3))
    clients = []
    for number in range(1, (1 if short else rng.randint(1, 3)) + 1):
        kind = rng.choice((*PLAIN_KINDS, TRANSACTIONAL))
        clients.append(
            ScheduledClient(f"{kind}-{number}", kind, 1, 0.0, rng.choice(_SLOW_CONFIGS[kind]))
        )
    api = rng.choice(SLOW_APIS[rng.choice([c.kind for c in clients])])
    seconds = rng.choice((3.0, 10.0, 25.0))
    fault = Fault(0.0, "slow_api", {"api": api, "seconds": seconds})
    return Schedule(
        seed,
        tuple(clients),
        (fault,),
        brokers,
        rng.randint(1, 2),
        # A client with two coordinators makes two calls, each of which may take PATIENCE.
        heal_at=PATIENCE * (2 if any(c.kind == TRANSACTIONAL for c in clients) else 1) + 5.0,
    )


def _random_clients(
    rng: random.Random, heal_at: float, *, short: bool
) -> tuple[ScheduledClient, ...]:
    kinds = rng.choices(PLAIN_KINDS, (5, 4, 1, 2), k=rng.choice((1, 1, 2) if short else (2, 3, 5)))
    clients = []
    for number, kind in enumerate(kinds, 1):
        options = _SHORT_CONFIGS if short else _LONG_CONFIGS
        config = rng.choice(options[KINDS[kind]])
        operations = rng.randint(1, 4) if short else rng.randint(20, 80)
        start = 0.0 if rng.random() < 0.8 else round(rng.uniform(0.0, heal_at), 3)
        clients.append(ScheduledClient(f"{kind}-{number}", kind, operations, start, config))
    return tuple(clients)
