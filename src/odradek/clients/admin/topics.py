"""Create, delete, list and describe topics, add partitions, and delete records.

In: arguments of a call. Out: `AdminCall`s. Must not: block a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.clients.admin.admin_arguments import (
    NewPartitions,
    NewTopic,
    new_partitions,
    new_topics,
    offsets_by_partition,
    topics_by_name_or_id,
)
from odradek.clients.admin.admin_call import AdminCall, by_any, by_leaders
from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.batched_calls import (
    LEADER_MOVED,
    ApiCall,
    ItemResult,
    ItemResults,
    call_any,
)
from odradek.clients.descriptions import TopicDescription, describe_each, list_topics
from odradek.common.arguments import flag
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.common.outage import number
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.messages import create_partitions as p
from odradek.protocol.messages import create_topics as c
from odradek.protocol.messages import delete_records as r
from odradek.protocol.messages import delete_topics as d
from odradek.protocol.primitives import Output

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

TopicNameOrId = str | UUID
WITH_IDS = 6
"""The first version of DeleteTopics that takes topic ids (Kafka 2.8)."""


def create(
    topics: Sequence[NewTopic], validate_only: bool
) -> AdminCall[dict[str, TopicDescription]]:
    """Create topics, then wait until a broker knows leaders for all their partitions."""
    wanted = {topic.name: topic for topic in new_topics(topics)}
    only_checked = flag("validate_only", validate_only)
    question: ApiCall[str, c.CreateTopicsResponse, None] = ApiCall(
        f"the creation of {', '.join(wanted)}",
        "topic",
        lambda left, ms: c.CreateTopicsRequest(
            [_creatable(wanted[name]) for name in left], ms, only_checked
        ),
        c.CreateTopicsResponse,
        lambda answer: [(t.name, t.error_code, t.error_message, None) for t in answer.topics],
        right="CREATE",
        already=(TopicAlreadyExistsError,),
        changes=not only_checked,
    )

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, TopicDescription]]:
        done = yield from call_any(engine.brokers, question, wanted, deadline)
        found: ItemResults[str, TopicDescription] = ItemResults(errors=done.errors)
        if done.results and not only_checked:
            engine.made(done.results)
            found.add((yield from _await_leaders(engine, list(done.results), deadline)))
        return found.settled()

    return AdminCall("the creation of topics", flow)


def _creatable(topic: NewTopic) -> c.CreatableTopic:
    assigned = topic.replica_assignment
    return c.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            c.CreatableReplicaAssignment(partition, list(replicas))
            for partition, replicas in assigned.items()
        ],
        configs=[c.CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
    )


def _await_leaders(
    engine: AdminEngine, names: Sequence[str], deadline: float
) -> Flow[ItemResults[str, TopicDescription]]:
    call = AnyBrokerCall(engine.brokers, f"leaders of {', '.join(names)}", deadline)
    while True:
        described = yield from describe_each(engine.brokers, names, deadline)
        found = ItemResults({t.name: t for t in described.results.values()})
        found.errors.update({str(name): e for name, e in described.errors.items()})
        left = sum(t.leaderless for t in found.results.values())
        if not left:
            return found
        why = KafkaError(f"{number(left, 'partition')} without a leader")
        try:
            yield from call.retry(None, why, engine.now)
        except KafkaError as late:  # at the deadline, only topics without leaders fail
            waiting = [name for name, topic in found.results.items() if topic.leaderless]
            for name in waiting:
                del found.results[name]
                found.errors[name] = copy(late)
            return found


class DeleteTopicsRequest(d.DeleteTopicsRequest):
    """DeleteTopics with topics in both forms: by name for old versions, by name or id for new."""

    def write(self, out: Output, version: int) -> None:
        """Write only names in versions without ids; raise an error if a topic is given by id."""
        if version < WITH_IDS and len(self.topic_names) == len(self.topics):
            d.DeleteTopicsRequest([], self.topic_names, self.timeout_ms).write(out, version)
        else:
            super().write(out, version)


def delete(topics: Sequence[TopicNameOrId] | TopicNameOrId) -> AdminCall[dict[TopicNameOrId, None]]:
    """Delete topics by name or id."""
    wanted = topics_by_name_or_id("topics", topics)

    def read(answer: d.DeleteTopicsResponse) -> Iterator[ItemResult[TopicNameOrId, None]]:
        for item in answer.responses:
            topic_id = UUID(bytes=bytes(item.topic_id))
            key = topic_id if topic_id in wanted else item.name or ""
            yield key, item.error_code, item.error_message, None

    question: ApiCall[TopicNameOrId, d.DeleteTopicsResponse, None] = ApiCall(
        f"the deletion of {', '.join(map(str, wanted))}",
        "topic",
        lambda left, ms: DeleteTopicsRequest(
            [
                d.DeleteTopicState(None, t.bytes) if isinstance(t, UUID) else d.DeleteTopicState(t)
                for t in left
            ],
            [t for t in left if isinstance(t, str)],
            ms,
        ),
        d.DeleteTopicsResponse,
        read,
        right="DELETE",
        already=(UnknownTopicOrPartitionError, UnknownTopicIdError),
        changes=True,
    )
    call = by_any(question, wanted)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[TopicNameOrId, None]]:
        engine.deleted([t for t in wanted if isinstance(t, str)])
        return (yield from call.flow(engine, deadline))

    return AdminCall("the deletion of topics", flow)


def names(include_internal: bool) -> AdminCall[list[str]]:
    """List the names of all topics."""
    internal = flag("include_internal", include_internal)
    return AdminCall(
        "the list of topics",
        lambda e, deadline: list_topics(e.brokers, deadline, internal=internal),
    )


def describe(
    topics: Sequence[TopicNameOrId] | TopicNameOrId, authorized_operations: bool
) -> AdminCall[dict[str, TopicDescription]]:
    """Describe topics by name or id; retry for topics that this client has just created."""
    wanted = topics_by_name_or_id("topics", topics)
    operations = flag("authorized_operations", authorized_operations)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, TopicDescription]]:
        return engine.describe_topics(wanted, deadline, operations=operations)

    return AdminCall("the description of topics", flow)


def add_partitions(
    topics: Mapping[str, int | NewPartitions], validate_only: bool
) -> AdminCall[dict[str, None]]:
    """Increase the number of partitions of topics."""
    wanted, only_checked = new_partitions(topics), flag("validate_only", validate_only)
    question: ApiCall[str, p.CreatePartitionsResponse, None] = ApiCall(
        f"the creation of partitions of {', '.join(wanted)}",
        "topic",
        lambda left, ms: p.CreatePartitionsRequest(
            [_more_partitions(name, wanted[name]) for name in left], ms, only_checked
        ),
        p.CreatePartitionsResponse,
        lambda answer: [(t.name, t.error_code, t.error_message, None) for t in answer.results],
        right="ALTER",
        changes=not only_checked,
    )

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, None]]:
        done = yield from call_any(engine.brokers, question, wanted, deadline)
        if not only_checked:
            engine.made(done.results)  # some brokers may not know the new partitions yet
        return done.settled()

    return AdminCall(question.what, flow)


def _more_partitions(name: str, wanted: NewPartitions) -> p.CreatePartitionsTopic:
    replicas = wanted.replica_assignment
    assignments = [p.CreatePartitionsAssignment(list(ids)) for ids in replicas]
    return p.CreatePartitionsTopic(name, wanted.total, assignments or None)


def delete_records(
    before_offsets: Mapping[TopicPartition, int],
) -> AdminCall[dict[TopicPartition, int]]:
    """Delete the records before an offset, by each partition's leader (KIP-107)."""
    wanted = offsets_by_partition("before_offsets", before_offsets, -1)

    def body(left: list[TopicPartition], ms: int) -> r.DeleteRecordsRequest:
        topics: dict[str, list[Any]] = {}
        for at in left:
            asked = r.DeleteRecordsPartition(at.partition, wanted[at])
            topics.setdefault(at.topic, []).append(asked)
        return r.DeleteRecordsRequest([r.DeleteRecordsTopic(*t) for t in topics.items()], ms)

    def read(answer: r.DeleteRecordsResponse) -> Iterator[ItemResult[TopicPartition, int]]:
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                yield at, part.error_code, None, part.low_watermark

    question: ApiCall[TopicPartition, r.DeleteRecordsResponse, int] = ApiCall(
        "the deletion of records",
        "partition",
        body,
        r.DeleteRecordsResponse,
        read,
        right="DELETE",
        moving=LEADER_MOVED,
    )
    return by_leaders(question, wanted)
