"""What a cluster and its topics look like to a user, and how that is asked for.

In: answers to Metadata and DescribeCluster. Out: frozen dataclasses. Must not: touch the client's
own snapshot: describing is a call of its own (R-MD-4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine, check_topic
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import UnknownTopicOrPartitionError, error_for
from odradek.metadata.bootstrap import check_cluster_id
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker as the cluster advertises it."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; brokers are given by their ids, `leader` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; `topic_id` is a UUID as text, None from a broker without topic ids (KIP-516)."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def leaderless(self) -> int:
        """How many partitions have no leader now."""
        return sum(1 for p in self.partitions if p.leader is None)


def topic_description(item: MetadataResponseTopic) -> TopicDescription:
    """One topic of a metadata answer."""
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id if p.leader_id >= 0 else None,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(item.partitions, key=lambda p: p.partition_index)
    )
    known_id = str(UUID(bytes=bytes(item.topic_id))) if any(item.topic_id) else None
    return TopicDescription(item.name or "", known_id, item.is_internal, partitions)


def check_metadata(
    engine: ClientEngine,
) -> Callable[[MetadataResponse, Connection], KafkaError | None]:
    """What to think of an answer as a whole: a foreign cluster's is refused (R-RB-5)."""

    def check(response: MetadataResponse, connection: Connection) -> KafkaError | None:
        known = engine.metadata.cluster_id
        foreign = check_cluster_id(known, response.cluster_id, connection.address)
        if foreign is not None:
            engine.network.fail(connection, foreign, engine.now)
            engine.metadata.request(f"{connection.address} answered for another cluster")
            return ForeignAnswerError(str(foreign))
        if response.error_code:
            return error_for(response.error_code).needing("DESCRIBE")
        return None

    return check


class ForeignAnswerError(KafkaError):
    """An ordinary broker's address leads to another cluster: its answer is dropped."""

    retriable = True
    refresh_metadata = True


def describe_topics(
    engine: ClientEngine,
    names: Sequence[str],
    deadline: float,
    *,
    patient_with: Collection[str] = (),
) -> Flow[dict[str, TopicDescription]]:
    """Describe topics by name; retries while a broker says "not now".

    A topic that isn't there raises at once, unless it is one of `patient_with`: those were just
    made, and not every broker has heard of them.
    """
    now = yield START
    if not names:
        return {}
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        check_topic(name)
    call = AnyBrokerCall(engine, f"description of {', '.join(wanted)}", deadline)
    found: dict[str, TopicDescription] = {}
    while True:
        left = [n for n in wanted if n not in found]
        body = MetadataRequest(
            topics=[MetadataRequestTopic(name=n) for n in left], allow_auto_topic_creation=False
        )
        response: MetadataResponse = yield from call.ask(
            lambda _, body=body: body,  # type: ignore[misc]  # bound now
            MetadataResponse,
            check_metadata(engine),
        )
        now = engine.now
        error: KafkaError | None = None
        for item in response.topics:
            name = item.name or ""
            if name not in left:
                continue  # nobody asked for it: it says nothing about those that are left
            if item.error_code == 0:
                found[name] = topic_description(item)
                continue
            error = error_for(item.error_code, f"topic {name}").needing("DESCRIBE", name)
            missing = isinstance(error, UnknownTopicOrPartitionError)
            if (missing and name not in patient_with) or not error.retriable:
                raise error
        if len(found) == len(wanted):
            return {n: found[n] for n in wanted}
        now = yield from call.retry(
            None, error or KafkaError("the answer leaves some of the topics out"), now
        )


def list_topics(engine: ClientEngine, deadline: float, *, internal: bool) -> Flow[list[str]]:
    """The names of all topics, sorted."""
    yield START
    call = AnyBrokerCall(engine, "list of topics", deadline)
    response: MetadataResponse = yield from call.ask(
        lambda _: MetadataRequest(topics=None, allow_auto_topic_creation=False),
        MetadataResponse,
        check_metadata(engine),
    )
    return sorted(
        item.name
        for item in response.topics
        if item.name and (internal or not item.is_internal) and item.error_code == 0
    )
