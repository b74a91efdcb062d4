"""Define schedules: all data of one random run, which can be stored in a file.

In: a JSON file. Out: a `Schedule`: brokers, links, clients with their settings, faults with their
times. The same schedule produces the same run, each time and in both modes. Must not run anything;
`explore` does.

A schedule file:

    {"format": 1, "seed": 17, "brokers": 3, "partitions": 2, "mode": "messages", "heal_at": 4.0,
     "link": {"latency": 0.0005, "jitter": 0.0002, "loss": 0.0},
     "clients": [{"name": "producer-1", "kind": "producer", "operations": 8, "start": 0.0,
                  "config": {"linger.ms": 5}}],
     "faults": [{"at": 1.5, "verb": "crash", "arguments": {"i": 1}}]}

Faults end at `heal_at`; then every client must recover. Operations are calls at times that depend
on the seed and the client's name. Only `seed` and `clients` are required.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config
from odradek.common.errors import KafkaError
from odradek.simulation.brokers.broker_faults import RELEASES
from odradek.simulation.faults.fault_arguments import TOPIC as TOPIC
from odradek.simulation.faults.fault_table import (
    BOOTSTRAP_NAME,
    Fault,
    ScheduleError,
    Scope,
    check,
)
from odradek.simulation.runs.application_behaviour import complaint
from odradek.simulation.world.link import LinkProfile, Mode

FORMAT = 1
METADATA = "metadata"
TRANSACTIONAL = "transactional"
OPERATOR = "operator"
"""An admin client that makes all calls, and checks their results against the possible states."""
MEMBER = "member"
PROCESSOR = "processor"
GROUPED = (MEMBER, PROCESSOR)
"""Members of the schedule's only group; processors write results in transactions."""
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
"""Kinds of clients, each with the client (producer, consumer, admin) whose options it has."""
PLAIN_KINDS = (PRODUCER, CONSUMER, ADMIN, METADATA)
CUTS = ("unclean_election", "delete_topic", "recreate_topic", "delete_records", "release")
CLUSTER = (
    "coordinators", "initial_rebalance_delay", "marker_delay", "offsets_retention", "release",
    "source_transactions", "strict_epochs", "transaction_version",
)  # fmt: skip
"""Settings of brokers: the number of partitions of `__consumer_offsets`; the initial rebalance
delay in seconds; average seconds until a marker is written; seconds until an offset expires; the
release, for example 3.9; the maximum seconds of the transactions in which a group's input records
are written; whether commits are accepted only with the present epoch (brokers before KIP-1251); the
finalized `transaction.version`."""
MOST = {"brokers": 100, "partitions": 1000, "operations": 100_000, "volume": 10_000}
SERVERS = f"{BOOTSTRAP_NAME}:9092"
PATIENCE = 60.0
"""Timeout of each call, in seconds, if the only fault is a slow API."""


@dataclass(frozen=True, slots=True)
class ScheduledClient:
    """One client of a schedule."""

    name: str
    kind: str
    operations: int = 5
    start: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    volume: int = 0
    """For producers: maximum number of records per operation; 0 means a few."""
    habits: Mapping[str, Any] = field(default_factory=dict)
    """For members and transactional producers: the fields of `ApplicationBehaviour`."""
    writes: Mapping[str, Any] = field(default_factory=dict)
    """For processors: the settings of their producers."""

    @property
    def writer(self) -> ScheduledClient:
        """A processor's producer, whose transactional id is the processor's name."""
        config = {"transactional.id": self.name, **self.writes}
        return ScheduledClient(f"{self.name}/writer", TRANSACTIONAL, 0, config=config)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All data of one run."""

    seed: int
    clients: tuple[ScheduledClient, ...]
    faults: tuple[Fault, ...] = ()
    brokers: int = 3
    partitions: int = 1
    mode: Mode = "messages"
    heal_at: float = 5.0
    link: LinkProfile = field(default_factory=LinkProfile)
    session: float | None = None
    """None: no SASL. Otherwise clients authenticate, and their sessions expire after this number of
    seconds (KIP-368); 0: never."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions of each topic in addition to the first topic, which always exists."""
    cluster: Mapping[str, float] = field(default_factory=dict)
    """Settings of brokers, with the names in `CLUSTER`."""

    @property
    def patient(self) -> bool:
        """Whether a slow API is the only fault: then no call may fail (R-RB-9)."""
        slow = bool(self.faults) and {f.verb for f in self.faults} == {"slow_api"}
        unhurried = self.heal_at > PATIENCE and all(c.operations <= 1 for c in self.clients)
        return slow and unhurried and not self.link.loss and self.session is None

    @property
    def scope(self) -> Scope:
        """Names and numbers that the faults of this schedule may contain."""
        names = tuple(c.name for c in self.clients)
        partitions = max(self.partitions, round(self.cluster.get("coordinators", 1)))
        return Scope(self.brokers, partitions, names, tuple(self.topics))

    @property
    def group_protocol(self) -> str:
        """The group protocol of the schedule's members."""
        return str(self.clients[0].config.get("group.protocol", "classic"))

    def with_config(self, more: Mapping[str, Any]) -> Schedule:
        """Return a copy with these options added to the configuration of all clients."""
        clients = (replace(c, config={**c.config, **more}) for c in self.clients)
        return replace(self, clients=tuple(clients))

    def __str__(self) -> str:
        who = ", ".join(f"{c.name} ({c.operations} operations)" for c in self.clients)
        size = f"{self.brokers} brokers, {self.partitions} partitions, {self.mode}"
        sasl = "" if self.session is None else f"; SASL with sessions of {self.session} s"
        first = f"seed {self.seed}: {size}; {who}; faults end at {self.heal_at} s{sasl}"
        return "\n".join([first, *(f"  {fault}" for fault in self.faults)])

    def to_json(self) -> str:
        """Return the schedule as the text of a schedule file."""
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
    """Read a schedule file; raise `ScheduleError` with the mistake and its line or field."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ScheduleError(f"{path} can't be read: {error}") from error
    try:
        return from_json(text)
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None


def from_json(text: str) -> Schedule:
    """Parse a text that `to_json` returned."""
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
    """Raise a `ScheduleError` if a schedule can't be run."""
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
        if isinstance(item.default, bool):
            if not isinstance(value, bool):
                raise ScheduleError(f"link: {item.name} must be true or false, not {value!r}")
        elif value is not None or item.name != "bandwidth":
            _number(f"link: {item.name}", value)
    _check_topics(schedule)
    if not schedule.clients:
        raise ScheduleError("a schedule needs a client")
    for client in schedule.clients:
        _check_client(client)
    kinds = {c.kind for c in schedule.clients}
    if kinds & set(GROUPED) and len(kinds) > 1:
        raise ScheduleError("members and processors can't be combined with other kinds of clients")
    if PROCESSOR in kinds and not schedule.topics:
        raise ScheduleError("processors need further topics to read: they write to the first topic")
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
            raise ScheduleError(
                f"topics: {name!r} isn't a valid topic name, or is a topic that always exists"
            )
    for name, value in schedule.cluster.items():
        if name not in CLUSTER:
            raise ScheduleError(f"cluster has no {name!r} (it has: {', '.join(CLUSTER)})")
        if not isinstance(value, bool):
            _number(f"cluster: {name}", value)
        if name == "release" and str(value) not in RELEASES:
            raise ScheduleError(f"cluster: release must be one of {', '.join(RELEASES)}")


def _check_client(client: ScheduledClient) -> None:
    if not isinstance(client.name, str) or not client.name:
        raise ScheduleError(f"a client's name must be a string, not {client.name!r}")
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
    """Return a client's validated configuration; cached, as many runs share a few of them."""
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
