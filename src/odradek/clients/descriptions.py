"""Describe a cluster and its topics for users.

In: responses to Metadata and DescribeCluster. Out: frozen dataclasses. Must not: change the
client's metadata snapshot: describing is a separate call (R-MD-4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from odradek.clients.any_broker import AnyBrokerCall, Brokers
from odradek.clients.batched_calls import (
    ApiCall,
    ItemResult,
    ItemResults,
    call_any,
    call_brokers,
)
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError, error_for
from odradek.common.notebooks.display import Shown
from odradek.common.outage import number
from odradek.common.topic_names import check_sendable
from odradek.common.types import TopicPartition
from odradek.metadata.bootstrap import check_cluster_id
from odradek.metadata.cluster import is_possible
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.protocol.packed_metadata import PackedMetadataRequest, PackedMetadataResponse

NAMED = 5
"""Maximum number of topics that the text of a call names."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker as the cluster advertises it.

    `fenced`: whether the broker is registered but not in use; None if that wasn't requested
    (KIP-1073).
    """

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition, with the ids of its brokers; `leader` is None if there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription(Shown):
    """One topic; `topic_id` is a UUID as text, None from a broker without topic ids (KIP-516).

    `authorized_operations`: the operations that this client may do; None if they weren't requested.
    """

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[str] | None = None

    @property
    def leaderless(self) -> int:
        """The number of partitions without a leader."""
        return sum(1 for p in self.partitions if p.leader is None)


def topic_description(item: MetadataResponseTopic) -> TopicDescription:
    """Return one topic of a metadata response, with a repeated partition only once."""
    each = {p.partition_index: p for p in item.partitions}
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id if p.leader_id >= 0 else None,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for _, p in sorted(each.items())
    )
    known_id = str(UUID(bytes=bytes(item.topic_id))) if any(item.topic_id) else None
    allowed = authorized_operations(item.topic_authorized_operations)
    return TopicDescription(item.name or "", known_id, item.is_internal, partitions, allowed)


OPERATIONS = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
    *("CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
"""Kafka's names of the operations that ACLs allow, by their numbers."""
NOT_ASKED = -(2**31)


def authorized_operations(bits: int) -> frozenset[str] | None:
    """Return the operations of a bit field; None if they weren't requested."""
    if bits == NOT_ASKED:
        return None
    return frozenset(name for number, name in enumerate(OPERATIONS) if bits >> number & 1)


def check_metadata(
    brokers: Brokers,
) -> Callable[[MetadataResponse, Connection], KafkaError | None]:
    """Return a function that rejects a response from a different cluster (R-RB-5)."""

    def check(response: MetadataResponse, connection: Connection) -> KafkaError | None:
        known = brokers.metadata.cluster_id
        foreign = check_cluster_id(known, response.cluster_id, connection.address)
        if foreign is not None:
            brokers.network.fail(connection, foreign, brokers.engine.now)
            brokers.metadata.request(f"{connection.address} belongs to a different cluster")
            return ForeignAnswerError(str(foreign))
        if response.error_code:
            return error_for(response.error_code).needing("DESCRIBE")
        if not response.brokers:  # a broker that is starting, or refuses all requests
            return EmptyAnswerError("the response contains no brokers")
        return None

    return check


class EmptyAnswerError(KafkaError):
    """A metadata response without brokers: a failed attempt, never applied (R-MD-5)."""

    retriable = True


class ForeignAnswerError(KafkaError):
    """A broker's address leads to another cluster: its response is dropped."""

    retriable = True
    refresh_metadata = True


def describe_each(
    brokers: Brokers,
    topics: Iterable[str | UUID],
    deadline: float,
    *,
    operations: bool = False,
    hurried: bool = False,
) -> Flow[ItemResults[str | UUID, TopicDescription]]:
    """Describe topics by name or id, each with its own error; retry retriable errors.

    A missing topic fails at once, unless this client has just created it. With `hurried`, topics
    that can't be described now aren't waited for: they are in `moved` of the result.
    """
    yield START
    found: ItemResults[str | UUID, TopicDescription] = ItemResults()
    wanted = list(dict.fromkeys(topics))
    for kind in (str, UUID):  # brokers ignore names in a request with ids
        those = [t for t in wanted if isinstance(t, kind)]
        if those:
            asked = _described(brokers, those, operations=operations, hurried=hurried)
            found.add((yield from call_any(brokers, asked, those, deadline)))
    return found


def _described(
    brokers: Brokers,
    topics: Sequence[str | UUID],
    *,
    operations: bool,
    hurried: bool,
) -> ApiCall[str | UUID, MetadataResponse, TopicDescription]:
    by_id = isinstance(topics[0], UUID)

    def body(left: list[str | UUID], _: int) -> MetadataRequest:
        return PackedMetadataRequest(
            topics=[
                MetadataRequestTopic(t.bytes, None)
                if isinstance(t, UUID)
                else MetadataRequestTopic(name=t)
                for t in left
            ],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
        )

    def read(answer: MetadataResponse) -> Iterator[ItemResult[str | UUID, TopicDescription]]:
        note_brokers(brokers, answer)
        for item in answer.topics:
            key = UUID(bytes=bytes(item.topic_id)) if by_id else item.name or ""
            yield key, item.error_code, None, topic_description(item)

    names = ", ".join(map(str, topics[:NAMED])) + (" …" if len(topics) > NAMED else "")
    return ApiCall(
        f"the description of {names}",
        "topic",
        body,
        MetadataResponse,
        read,
        right="DESCRIBE",
        hurried=hurried,
        check=check_metadata(brokers),
    )


def describe_topics(
    brokers: Brokers, names: Sequence[str], deadline: float
) -> Flow[dict[str, TopicDescription]]:
    """Describe topics by name; raise the first error."""
    yield START
    for name in names:
        check_sendable(name)
    found = yield from describe_each(brokers, names, deadline)
    return {topic.name: topic for topic in found.settled().values()}


def describe_by_each(
    brokers: Brokers, topics: Collection[str], deadline: float
) -> Flow[tuple[int, list[dict[str, TopicDescription | None]]]]:
    """Return the number of known brokers, and each answering broker's description of the topics.

    A topic that the broker doesn't know is None. Brokers may differ: one that was frozen or cut off
    describes an earlier state.
    """
    yield START
    snapshot = brokers.metadata.snapshot
    wanted: list[str | UUID] = list(topics)
    asked = {} if snapshot is None else dict.fromkeys(snapshot.brokers, wanted)
    question = _described(brokers, wanted, operations=False, hurried=True)
    found = yield from call_brokers(brokers, lambda _: question, asked, deadline)
    views: list[dict[str, TopicDescription | None]] = []
    for outcome in found.values():
        errors = outcome.errors.items()
        view: dict[str, TopicDescription | None] = {
            str(topic): None for topic, e in errors if isinstance(e, UnknownTopicOrPartitionError)
        }
        view |= {one.name: one for one in outcome.results.values()}
        if view.keys() >= set(topics):
            views.append(view)
    return len(asked), views


def leaders(
    brokers: Brokers,
    partitions: Collection[TopicPartition],
    deadline: float,
) -> Flow[ItemResults[TopicPartition, int]]:
    """Return the id of each partition's leader, -1 if there is none.

    A topic with an unknown state delays no other.
    """
    yield START
    names = dict.fromkeys(p.topic for p in partitions)
    topics = yield from describe_each(brokers, names, deadline, hurried=True)
    found: ItemResults[TopicPartition, int] = ItemResults()
    led = {
        name: {p.partition: p.leader for p in topic.partitions}
        for name, topic in topics.results.items()
    }
    for partition in partitions:
        if partition.topic in topics.errors:
            found.errors[partition] = topics.errors[partition.topic]
        elif partition.topic in topics.moved:
            found.moved[partition] = topics.moved[partition.topic]
        elif partition.partition not in led[partition.topic]:
            count = len(led[partition.topic])
            error = UnknownTopicOrPartitionError(
                f"UNKNOWN_TOPIC_OR_PARTITION (3): partition {partition}: "
                f"topic {partition.topic} has {number(count, 'partition')}, numbered from 0"
            )
            fresh = brokers.just_created(partition.topic)
            (found.moved if fresh else found.errors)[partition] = error
        else:
            leader = led[partition.topic][partition.partition]
            found.results[partition] = -1 if leader is None else leader
    return found


def note_brokers(brokers: Brokers, answer: MetadataResponse) -> None:
    """Request new metadata if the cluster has other brokers now.

    The next broker to ask is chosen from the client's metadata.
    """
    snapshot = brokers.metadata.snapshot
    known = {i: b.address for i, b in snapshot.brokers.items()} if snapshot is not None else {}
    there = {b.node_id: (b.host, b.port) for b in answer.brokers if is_possible(b.host, b.port)}
    if any(known.get(i) != address for i, address in there.items()):
        brokers.metadata.request("the cluster's brokers have changed")


def list_topics(brokers: Brokers, deadline: float, *, internal: bool) -> Flow[list[str]]:
    """Return the names of all topics, sorted.

    Partitions are skipped, and a large response is decoded in parts, so that no step takes long.
    """
    yield START
    call = AnyBrokerCall(brokers, "the list of topics", deadline)
    response: MetadataResponse = yield from call.ask(
        lambda _: PackedMetadataRequest(topics=None, allow_auto_topic_creation=False),
        MetadataResponse,
        check_metadata(brokers),
        read=lambda answer: not isinstance(answer, PackedMetadataResponse) or answer.read_on(),
    )
    return sorted(
        {
            item.name
            for item in response.topics
            if item.name
            and (internal or not item.is_internal)
            and item.error_code != UnknownTopicOrPartitionError.code  # the topic was just deleted
        }
    )
