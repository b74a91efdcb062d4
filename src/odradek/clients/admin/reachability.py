"""Find out which addresses of a cluster answer from here, and which partitions have a leader.

In: a deadline, names of topics. Out: one `AddressReach` for each bootstrap address and each address
that a broker advertises, one `TopicReach` for each topic with a problem. Each address is connected
and asked separately; an address that doesn't answer delays no other. Must not: wait for an address
that keeps failing while all others have answered, or change the client's metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from odradek.clients.admin.admin_arguments import topic_names
from odradek.clients.admin.admin_call import AdminCall
from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.clients.descriptions import (
    authorized_operations,
    check_metadata,
    list_topics,
    topic_description,
)
from odradek.clients.missing_topics import similar_names
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import (
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from odradek.common.notebooks.display import Shown
from odradek.common.types import Address
from odradek.metadata.bootstrap import check_cluster_id
from odradek.metadata.cluster import Cluster
from odradek.network.connection import Connection
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

ENOUGH_FAILURES = 3
"""Failed connection attempts in a row after which an address isn't waited for."""
RETURN_BEFORE_S = 0.5
"""Seconds before the caller's deadline at which the results so far are returned.

A busy machine may take this long to return them.
"""
WELL, PARTLY, OUT_OF_REACH = "well", "partly", "out of reach"


@dataclass(frozen=True, slots=True)
class AddressReach:
    """A bootstrap address, or one that brokers advertise; `error` says why it doesn't answer."""

    address: str
    bootstrap: bool
    brokers: tuple[int, ...]
    """Ids of the brokers that advertise this address; more than one means that
    advertised.listeners is wrong."""
    error: KafkaError | None
    leads: int
    """Number of examined partitions that these brokers lead."""
    throttle: float = 0.0
    """Seconds for which the broker throttles this client because of a quota."""


@dataclass(frozen=True, slots=True)
class TopicReach:
    """A topic with partitions that can't be used."""

    topic: str
    partitions: int
    leaderless: tuple[int, ...]
    """Partitions without a leader, which can't be written or read."""
    error: KafkaError | None = None
    """Reason why the topic's partitions are unknown; None if they are known."""
    near: tuple[str, ...] = ()
    """Similar names of existing topics, if this one doesn't exist."""


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """An existing topic: under-replicated partitions, and the client's permissions."""

    topic: str
    partitions: int
    under_replicated: tuple[int, ...]
    """Partitions with replicas that are out of sync."""
    rights: frozenset[str] | None
    """Operations that this client may do, with Kafka's names (READ, WRITE, DESCRIBE …); None if
    they weren't requested, or the broker doesn't report them."""


@dataclass(frozen=True, slots=True)
class TopicFindings:
    """Findings about the topics: leaders by broker, unusable topics, missing brokers."""

    leads: dict[int, int]
    """Number of led partitions by broker id."""
    wrong: tuple[TopicReach, ...]
    absent: tuple[int, ...]
    standings: tuple[TopicStanding, ...] = ()


@dataclass(frozen=True, slots=True)
class Reachability(Shown):
    """Which parts of a cluster can be used from this machine."""

    cluster_id: str | None
    addresses: tuple[AddressReach, ...]
    topics: tuple[TopicReach, ...]
    """Topics with a problem."""
    absent: tuple[int, ...]
    """Ids of brokers that have replicas of these topics but aren't listed by the cluster: they
    aren't running, or they are fenced."""
    topics_error: KafkaError | None
    """Reason why topics couldn't be examined; None if they were."""
    standings: tuple[TopicStanding, ...] = ()
    """All examined topics that exist."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The bootstrap addresses, as `host:port`."""
        return tuple(a.address for a in self.addresses if a.bootstrap)

    @property
    def brokers(self) -> tuple[AddressReach, ...]:
        """The addresses that brokers advertise."""
        return tuple(a for a in self.addresses if a.brokers)

    @property
    def state(self) -> str:
        """Result of the check: `well`, `partly` or `out of reach`.

        It is `well` if no address failed and no problem was found, `out of reach` if no broker
        answers at its advertised address, otherwise `partly`.
        """
        if all(a.error is not None for a in self.brokers):
            return OUT_OF_REACH
        shared = any(len(a.brokers) > 1 for a in self.brokers)
        failing = any(a.error is not None for a in self.addresses)
        if failing or shared or self.topics or self.absent or self.topics_error is not None:
            return PARTLY
        return WELL


def describe_reachability(
    engine: ClientEngine, names: Sequence[str] | None, deadline: float, *, rights: bool = False
) -> Flow[Reachability]:
    """Connect to every address and check these topics (None: all).

    Raises only if no broker returns metadata. With `rights`, the operations that this client may do
    with each topic are requested (KIP-430).
    """
    yield START
    snapshot = yield from engine.snapshot(deadline)
    deadline -= min(RETURN_BEFORE_S, (deadline - engine.now) / 2)
    addresses = [b.address for b in snapshot.brokers.values()]
    addresses = list(dict.fromkeys([*addresses, *engine.updater.bootstrap]))
    asked = {a: engine.start(_ask(engine, a, deadline)) for a in addresses}
    looked = engine.start(_look(engine, names, deadline, rights=rights))
    try:
        yield from _answers(engine, asked, deadline)
        known = [asked[b.address] for b in snapshot.brokers.values()]
        if all(answer.error is not None for answer in known):
            engine.cancel_now(looked, KafkaTimeoutError("no broker answers"))
        while not looked.done:
            yield Wait((looked,))
    finally:  # if the caller has stopped waiting, cancel the rest
        everything: list[Completion[Any]] = [*asked.values(), looked]
        for each in everything:
            engine.cancel(each, KafkaTimeoutError("the caller no longer waits"))
    return _outcome(snapshot, engine.updater.bootstrap, asked, looked)


def _answers(
    engine: ClientEngine, asked: dict[Address, Completion[Any]], deadline: float
) -> Flow[None]:
    """Wait until each address has answered, or has failed `ENOUGH_FAILURES` times."""
    states = engine.network.states
    failures = {address: states.state(address).failures for address in asked}
    now = yield START
    while True:
        waiting = {a: answer for a, answer in asked.items() if not answer.done}
        for address in waiting:
            count = states.state(address).failures
            failures[address] = min(failures[address], count)
            if count >= failures[address] + ENOUGH_FAILURES or now >= deadline:
                state = states.state(address)
                error = state.last_error if state.failures else None
                if not isinstance(error, KafkaError):
                    error = engine.timeout(f"a response of {address}", now)
                engine.cancel_now(asked[address], error)
        if not (left := [answer for answer in waiting.values() if not answer.done]):
            return
        now = yield Wait((*left, engine.network.changed), deadline)


def _ask(engine: ClientEngine, address: Address, deadline: float) -> Flow[float]:
    """Send a request to an address; return the throttle time in the response, in seconds."""
    call = AnyBrokerCall(engine.brokers, f"a response of {address}", deadline, lambda _: [address])

    def check(response: MetadataResponse, connection: Connection) -> KafkaError | None:
        known = engine.metadata.cluster_id
        foreign = check_cluster_id(known, response.cluster_id, connection.address)
        if foreign is not None:
            engine.network.disown(connection, foreign, engine.now)
            raise foreign
        return error_for(response.error_code) if response.error_code else None

    body = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    response: MetadataResponse = yield from call.ask(lambda _: body, MetadataResponse, check)
    return response.throttle_time_ms / 1000.0


def _look(
    engine: ClientEngine, names: Sequence[str] | None, deadline: float, *, rights: bool
) -> Flow[TopicFindings]:
    """Request the topics from any broker, and check their partitions."""
    call = AnyBrokerCall(engine.brokers, "the description of topics", deadline)
    wanted = None if names is None else [MetadataRequestTopic(name=n) for n in names]
    body = MetadataRequest(
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=rights,
    )
    check = check_metadata(engine.brokers)
    response: MetadataResponse | None = None
    with suppress(UnsupportedVersionError):
        response = yield from call.ask(lambda _: body, MetadataResponse, check)
    if response is None:  # the brokers are older than Kafka 2.3
        body.include_topic_authorized_operations = False
        response = yield from call.ask(lambda _: body, MetadataResponse, check)
    standings: list[TopicStanding] = []
    leads: dict[int, int] = {}
    wrong: list[TopicReach] = []
    missing: list[str] = []
    replicas: set[int] = set()
    for item in sorted(response.topics, key=lambda t: t.name or ""):
        topic = topic_description(item)
        for partition in topic.partitions:
            replicas.update(partition.replicas)
            if partition.leader is not None:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
        leaderless = tuple(p.partition for p in topic.partitions if p.leader is None)
        if not item.error_code:
            may = authorized_operations(item.topic_authorized_operations) if rights else None
            behind = (p.partition for p in topic.partitions if len(p.isr) < len(p.replicas))
            standings.append(TopicStanding(topic.name, len(topic.partitions), tuple(behind), may))
        error = None
        if item.error_code:
            error = error_for(item.error_code, f"topic {topic.name}")
            error.needing("DESCRIBE", topic.name)
        if isinstance(error, UnknownTopicOrPartitionError):
            missing.append(topic.name)
        elif leaderless or error is not None:
            wrong.append(TopicReach(topic.name, len(topic.partitions), leaderless, error))
    if missing:
        there = yield from list_topics(engine.brokers, deadline, internal=False)
        for name in missing:
            gone = UnknownTopicOrPartitionError(f"topic {name} doesn't exist")
            wrong.append(TopicReach(name, 0, (), gone, similar_names(name, there)))
    absent = replicas - {broker.node_id for broker in response.brokers}
    return TopicFindings(leads, tuple(wrong), tuple(sorted(absent)), tuple(standings))


def _outcome(
    snapshot: Cluster,
    bootstrap: Sequence[Address],
    asked: dict[Address, Completion[Any]],
    looked: Completion[TopicFindings],
) -> Reachability:
    topics_error = looked.error if isinstance(looked.error, KafkaError) else None
    seen = TopicFindings({}, (), ()) if topics_error is not None else looked.result()
    reached = []
    for address, answer in asked.items():
        ids = tuple(sorted(b.id for b in snapshot.brokers.values() if b.address == address))
        error = answer.error if isinstance(answer.error, KafkaError) else None
        quiet = answer.result() if answer.done and answer.error is None else 0.0
        led = sum(seen.leads.get(i, 0) for i in ids)
        reached.append(AddressReach(str(address), address in bootstrap, ids, error, led, quiet))
    reached.sort(key=lambda a: (not a.brokers, a.brokers))
    return Reachability(
        snapshot.cluster_id,
        tuple(reached),
        seen.wrong,
        seen.absent,
        topics_error,
        seen.standings,
    )


def reachability(topics: Sequence[str] | str | None) -> AdminCall[Reachability]:
    """Connect to every address, and check these topics or all."""
    names = None if topics is None else topic_names("topics", topics)
    return AdminCall(
        "responses of the cluster's addresses", lambda e, d: describe_reachability(e, names, d)
    )
