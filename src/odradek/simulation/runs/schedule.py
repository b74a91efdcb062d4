"""Schedules: everything that one random run consists of, as data that can be kept in a file.

In: a seed, or a JSON file. Out: a `Schedule`: brokers, links, clients with their settings, faults
with their times. The same schedule gives the same run, each time and in both modes.
Must not: run anything; `explore` does.

A schedule file:

    {"format": 1, "seed": 17, "brokers": 3, "partitions": 2, "mode": "messages", "heal_at": 4.0,
     "link": {"latency": 0.0005, "jitter": 0.0002, "loss": 0.0},
     "clients": [{"name": "producer-1", "kind": "producer", "operations": 8, "start": 0.0,
                  "config": {"linger.ms": 5}}],
     "faults": [{"at": 1.5, "verb": "crash", "arguments": {"i": 1}}]}

Faults end at `heal_at`; then every client must find its way back. Operations are calls at times
that the seed and the client's name give. Only `seed` and `clients` are needed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config
from odradek.common.errors import KafkaError
from odradek.simulation.brokers.disturbances import RELEASES
from odradek.simulation.faults.fault_arguments import TOPIC as TOPIC
from odradek.simulation.faults.misled_verbs import OLDER
from odradek.simulation.faults.verbs import (
    BOOTSTRAP_NAME,
    HOSTILE,
    MISLED,
    NOWHERE,
    Fault,
    ScheduleError,
    Scope,
    check,
    draw,
)
from odradek.simulation.runs.habits import complaint
from odradek.simulation.runs.sasl_runs import random_session
from odradek.simulation.world.link import LinkProfile, Mode
from odradek.simulation.world.virtual_time import derived_rng

FORMAT = 1
METADATA = "metadata"
TRANSACTIONAL = "transactional"
OPERATOR = "operator"
"""An admin client that does everything, with books of what can be true."""
MEMBER = "member"
PROCESSOR = "processor"
GROUPED = (MEMBER, PROCESSOR)
"""Members of the one group of a schedule; the second kind writes what it makes of records, in
transactions."""
GROUP_ID = "g"
KINDS = {
    PRODUCER: PRODUCER,
    CONSUMER: CONSUMER,
    ADMIN: ADMIN,
    METADATA: ADMIN,
    OPERATOR: ADMIN,
    TRANSACTIONAL: PRODUCER,
    MEMBER: CONSUMER,
    PROCESSOR: CONSUMER,
}
"""What a client does, and whose options it takes."""
PLAIN_KINDS = (PRODUCER, CONSUMER, ADMIN, METADATA)
CUTS = ("unclean_election", "delete_topic", "recreate_topic", "delete_records", "release")
CLUSTER = (
    "coordinators", "initial_rebalance_delay", "marker_delay", "release", "strict_epochs",
    "transaction_version",
)  # fmt: skip
"""Settings of brokers: partitions of `__consumer_offsets`; seconds; seconds until a marker is
written; the release, as 3.9; whether commits are taken under the present epoch only (brokers before
KIP-1251); the finalized `transaction.version`."""
MOST = {"brokers": 100, "partitions": 1000, "operations": 100_000, "volume": 10_000}
SERVERS = f"{BOOTSTRAP_NAME}:9092"
TWO_SERVERS = f"{NOWHERE}:9092,{SERVERS}"
"""The first of them is dead."""

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
"""Producers whose windows of five batches and whose buffers are soon full."""
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
PATIENCE = 60.0
"""Seconds of each call where all that happens is that an API is slow."""
_TRANSACTIONAL_CONFIGS: tuple[dict[str, Any], ...] = (
    {"linger.ms": 0, "transaction.timeout.ms": 5000},
    {"linger.ms": 5, "transaction.timeout.ms": 10000, "request.timeout.ms": 1500},
    {"linger.ms": 0, "batch.size": 100, "transaction.timeout.ms": 2000, "delivery.timeout.ms": 1500,
     "request.timeout.ms": 700},
    {"linger.ms": 20, "batch.size": 100, "transaction.timeout.ms": 60000},
)  # fmt: skip
Family = Literal[
    "plain",
    "hostile",
    "slow",
    "transactions",
    "misled",
    "groups",
    "read-process-write",
    "operators",
]
FAMILIES: tuple[Family, ...] = get_args(Family)
SHARES: dict[Family, float] = {"plain": 0.4, "hostile": 0.75, "slow": 0.85, "transactions": 1.0}
"""Up to where in [0, 1) a seed is of which family. The others are asked for: one of a group costs
as much as ten to twenty others, and seeds stay what they were."""


@dataclass(frozen=True, slots=True)
class ScheduledClient:
    """One client of a schedule."""

    name: str
    kind: str
    operations: int = 5
    start: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    volume: int = 0
    """Of producers: the most records of one operation; 0: a few."""
    habits: Mapping[str, Any] = field(default_factory=dict)
    """Of members: what `Habits` has."""
    writes: Mapping[str, Any] = field(default_factory=dict)
    """Of processors: the settings of their producers."""

    @property
    def writer(self) -> ScheduledClient:
        """A processor's producer, whose transactional id is the processor's name."""
        config = {"transactional.id": self.name, **self.writes}
        return ScheduledClient(f"{self.name}/writer", TRANSACTIONAL, 0, config=config)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run, as data."""

    seed: int
    clients: tuple[ScheduledClient, ...]
    faults: tuple[Fault, ...] = ()
    brokers: int = 3
    partitions: int = 1
    mode: Mode = "messages"
    heal_at: float = 5.0
    link: LinkProfile = field(default_factory=LinkProfile)
    session: float | None = None
    """Clients authenticate; brokers take requests for so many seconds then (KIP-368), 0: for ever.
    None: no SASL."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Partitions of topics besides the first, which is there always."""
    cluster: Mapping[str, float] = field(default_factory=dict)
    """Settings of brokers, of `CLUSTER`."""

    @property
    def patient(self) -> bool:
        """Whether all that happens is that some APIs are slow: then no call may fail (R-RB-9)."""
        slow = bool(self.faults) and {f.verb for f in self.faults} == {"slow_api"}
        unhurried = self.heal_at > PATIENCE and all(c.operations <= 1 for c in self.clients)
        return slow and unhurried and not self.link.loss and self.session is None

    @property
    def scope(self) -> Scope:
        """What its faults may name."""
        names = tuple(c.name for c in self.clients)
        partitions = max(self.partitions, round(self.cluster.get("coordinators", 1)))
        return Scope(self.brokers, partitions, names, tuple(self.topics))

    def __str__(self) -> str:
        who = ", ".join(f"{c.name} ({c.operations} operations)" for c in self.clients)
        size = f"{self.brokers} brokers, {self.partitions} partitions, {self.mode}"
        sasl = "" if self.session is None else f"; SASL with sessions of {self.session} s"
        first = f"seed {self.seed}: {size}; {who}; faults end at {self.heal_at} s{sasl}"
        return "\n".join([first, *(f"  {fault}" for fault in self.faults)])

    def to_json(self) -> str:
        """The text of a schedule file."""
        plain: dict[str, Any] = {"format": FORMAT}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("clients", "faults"):
                value = [_plain(part) for part in value]
            if isinstance(value, Mapping):
                value = dict(value)
            plain[item.name] = _plain(value) if item.name == "link" else value
        return json.dumps(plain, indent=1) + "\n"


def _plain(value: Any) -> dict[str, Any]:
    found = {item.name: getattr(value, item.name) for item in fields(value)}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in found.items()}


# Files


def load(path: Path) -> Schedule:
    """Read a schedule file; raises `ScheduleError` with what is wrong in it, and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ScheduleError(f"{path} can't be read: {error}") from error
    try:
        return from_json(text)
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None


def from_json(text: str) -> Schedule:
    """Read a schedule from a text as `to_json` makes it."""
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise ScheduleError(f"this isn't JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ScheduleError("a schedule is a JSON object")
    number = plain.pop("format", FORMAT)
    if number != FORMAT:
        raise ScheduleError(f"format {number!r} isn't known; this release reads {FORMAT}")
    plain["clients"] = tuple(
        _made(ScheduledClient, item, f"client {n}")
        for n, item in enumerate(_list(plain.get("clients"), "clients"), 1)
    )
    plain["faults"] = tuple(
        _made(Fault, item, f"fault {n}")
        for n, item in enumerate(_list(plain.get("faults", []), "faults"), 1)
    )
    if "link" in plain:
        plain["link"] = _made(LinkProfile, plain["link"], "link")
    schedule: Schedule = _made(Schedule, plain, "schedule")
    validate(schedule)
    return schedule


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ScheduleError(f"{what} must be a list")
    return value


def _made(kind: type[Any], plain: Any, where: str) -> Any:
    if not isinstance(plain, dict):
        raise ScheduleError(f"{where} must be a JSON object")
    known = [item.name for item in fields(kind)]
    for name in plain:
        if name not in known:
            raise ScheduleError(f"{where} has no {name!r} (it has: {', '.join(known)})")
    try:
        return kind(**plain)
    except TypeError as error:
        raise ScheduleError(f"{where}: {str(error).split(') ')[-1]}") from None


def validate(schedule: Schedule) -> None:
    """Raise a `ScheduleError` for what can't be run."""
    _whole("seed", schedule.seed, -(2**63))
    _whole("brokers", schedule.brokers, 1, MOST["brokers"])
    _whole("partitions", schedule.partitions, 1, MOST["partitions"])
    if schedule.mode not in get_args(Mode):
        raise ScheduleError(f"mode must be bytes or messages, not {schedule.mode!r}")
    _number("heal_at", schedule.heal_at)
    if schedule.session is not None:
        _number("session", schedule.session)
    for item in fields(schedule.link):
        value = getattr(schedule.link, item.name)
        if value is not None or item.name != "bandwidth":
            _number(f"link: {item.name}", value)
    _check_topics(schedule)
    if not schedule.clients:
        raise ScheduleError("a schedule needs a client")
    for client in schedule.clients:
        _check_client(client)
    kinds = {c.kind for c in schedule.clients}
    if kinds & set(GROUPED) and len(kinds) > 1:
        raise ScheduleError("members and processors are alone: their books are of one group")
    if PROCESSOR in kinds and not schedule.topics:
        raise ScheduleError("processors need topics to read; they write to the first")
    names = [c.name for c in schedule.clients]
    if len(set(names)) < len(names):
        raise ScheduleError("two clients have the same name")
    for number, fault in enumerate(schedule.faults, 1):
        try:
            check(fault, schedule.scope)
        except ScheduleError as error:
            raise ScheduleError(f"fault {number}: {error}") from None


def _check_topics(schedule: Schedule) -> None:
    for what in ("topics", "cluster"):
        if not isinstance(getattr(schedule, what), Mapping):
            raise ScheduleError(f"{what} must be a JSON object")
    for name, count in schedule.topics.items():
        _whole(f"topic {name}", count, 1, MOST["partitions"])
        if not name or name == TOPIC:
            raise ScheduleError(f"topics: {name!r} is there always, or no name")
    for name, value in schedule.cluster.items():
        if name not in CLUSTER:
            raise ScheduleError(f"cluster has no {name!r} (it has: {', '.join(CLUSTER)})")
        if not isinstance(value, bool):
            _number(f"cluster: {name}", value)
        if name == "release" and str(value) not in RELEASES:
            raise ScheduleError(f"cluster: release must be one of {', '.join(RELEASES)}")


def _check_client(client: ScheduledClient) -> None:
    if not isinstance(client.name, str) or not client.name:
        raise ScheduleError(f"a client's name must be a text, not {client.name!r}")
    if client.kind not in KINDS:
        raise ScheduleError(f"{client.name}: kind must be one of {', '.join(KINDS)}")
    _whole(f"{client.name}: operations", client.operations, 0, MOST["operations"])
    _whole(f"{client.name}: volume", client.volume, 0, MOST["volume"])
    _number(f"{client.name}: start", client.start)
    if not isinstance(client.config, Mapping):
        raise ScheduleError(f"{client.name}: config must be a JSON object")
    for what in ("habits", "writes"):
        if not isinstance(getattr(client, what), Mapping):
            raise ScheduleError(f"{client.name}: {what} must be a JSON object")
    if (wrong := complaint(client.habits)) is not None:
        raise ScheduleError(f"{client.name}: habits: {wrong}")
    try:
        settings(client)
        if client.kind == PROCESSOR:
            settings(client.writer)
    except KafkaError as error:
        raise ScheduleError(f"{client.name}: {error}") from None


def _whole(what: str, value: Any, low: int, high: int = 2**63) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ScheduleError(f"{what} must be a whole number of {low} to {high}, not {value!r}")


def _number(what: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ScheduleError(f"{what} must be a number, 0 or more, not {value!r}")


_settled: dict[tuple[str, str], Config] = {}


def settings(client: ScheduledClient) -> Config:
    """A client's checked configuration; kept, because thousands of runs have the same few."""
    transactional = client.kind == TRANSACTIONAL
    key = (client.name if transactional else client.kind, repr(client.config))
    found = _settled.get(key)
    if found is None:
        given = {"bootstrap.servers": SERVERS, **client.config}
        if KINDS[client.kind] == CONSUMER:
            given.setdefault("auto.offset.reset", "earliest")
        if client.kind in GROUPED:
            given.setdefault("group.id", GROUP_ID)
        if client.kind == PROCESSOR:
            given = {"isolation.level": "read_committed", **given, "enable.auto.commit": False}
        if transactional:
            given.setdefault("transactional.id", client.name)
        found = Config(KINDS[client.kind], given)
        if len(_settled) < 1000:
            _settled[key] = found
    return found


# Random ones


def random_schedule(seed: int, *, short: bool = True, family: Family | None = None) -> Schedule:
    """A schedule that depends on the seed alone.

    Short ones are made to be run by the million: one client or two, at most three brokers, a few
    faults within some seconds. Long ones have more of everything and half a minute. Of each family
    there are both; which one it is is the seed's choice as well, unless it is said.
    """
    family = family or random_family(seed)
    if family in ("groups", "read-process-write"):
        from odradek.simulation.runs import random_groups

        return random_groups.random_group(seed, short=short, writes=family != "groups")
    if family == "operators":
        from odradek.simulation.runs import random_operators

        return random_operators.random_operators(seed, short=short)
    if family in ("hostile", "transactions"):
        return _hostile(seed, short=short, transactions=family == "transactions")
    if family == "slow":
        return _slow(seed, short=short)
    if family == "misled":
        return _misled(seed, short=short)
    return _usual(seed, short=short)


def _usual(seed: int, *, short: bool) -> Schedule:
    """Brokers die, hang and move."""
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
    """Which kind of run a seed gives."""
    found = derived_rng(seed, "schedule/family").random()
    return next(family for family, end in SHARES.items() if found < end)


def _hostile(seed: int, *, short: bool, transactions: bool) -> Schedule:
    """Brokers answer wrongly or late, logs are cut, topics made anew, and producers are busy.

    With transactions nobody can judge outcomes whose markers were lost: logs stay whole.
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
                rng.randint(1, 4) if short else rng.randint(5, 20),
                client.start,
                rng.choice(_TRANSACTIONAL_CONFIGS),
                rng.choice((0, 0, 20)),
            )
            for number, client in enumerate(clients, 1)
        ]
        verbs = {name: verb for name, verb in HOSTILE.items() if name not in CUTS}
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
    return replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)))


def _misled(seed: int, *, short: bool) -> Schedule:
    """Brokers die and move, and addresses lead to other brokers, or to another cluster."""
    plain = _usual(seed, short=short)
    rng = derived_rng(seed, "schedule/misled")
    schedule = replace(plain, brokers=max(2, plain.brokers))
    count = rng.randint(1, 3) if short else rng.randint(3, 12)
    times = sorted(round(rng.uniform(0.0, plain.heal_at * 0.9), 3) for _ in range(count))
    faults = [draw(rng, at, schedule.scope, MISLED) for at in times]
    # A name of brokers' addresses would take bootstrapping clients abroad, which is another story.
    faults += [f for f in plain.faults if rng.random() < 0.5 and f.verb != "dns_change"]
    # Brokers of most clusters don't know KIP-1242 yet: they don't say that they aren't meant.
    older = {"release": float(OLDER)} if seed % 3 == 0 else {}
    return replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)), cluster=older)


def _slow(seed: int, *, short: bool) -> Schedule:
    """Nothing fails but that one API takes seconds: every call must succeed (R-RB-9)."""
    rng = derived_rng(seed, "schedule/slow")
    brokers = rng.choice((1, 1, 3))
    clients = []
    for number in range(1, (1 if short else rng.randint(1, 3)) + 1):
        kind = rng.choice((*PLAIN_KINDS, TRANSACTIONAL))
        clients.append(
            ScheduledClient(f"{kind}-{number}", kind, 1, 0.0, rng.choice(_SLOW_CONFIGS[kind]))
        )
    api = rng.choice(SLOW_APIS[rng.choice([c.kind for c in clients])])
    # What is asked on one connection is answered in order, each so late: busy APIs add up.
    seconds = 3.0 if api in ("Produce", "Fetch") else rng.choice((3.0, 10.0, 25.0))
    fault = Fault(0.0, "slow_api", {"api": api, "seconds": seconds})
    return Schedule(
        seed,
        tuple(clients),
        (fault,),
        brokers,
        rng.randint(1, 2),
        # (One that has two coordinators to find makes two calls that may take so long.)
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
