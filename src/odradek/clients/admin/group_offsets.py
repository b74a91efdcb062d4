"""List, alter and delete committed offsets of groups, and start offsets of share groups.

In: arguments of a call. Out: `AdminCall`s. A group with members refuses changes by other clients. A
share group (KIP-932) has one start offset per partition. Must not: be a member of a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.admin.admin_arguments import keys, offsets_by_partition
from odradek.clients.admin.admin_call import AdminCall, by_coordinator_of_each, by_coordinators
from odradek.clients.batched_calls import NOT_CURED_BY_WAITING, ApiCall, ItemResult
from odradek.clients.consumer.group.commit_arguments import offsets_to_commit
from odradek.clients.consumer.partition_arguments import some_partitions
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.coordinator import CoordinatorKind
from odradek.common.arguments import flag, mapping, text
from odradek.common.errors import BrokerError, KafkaError
from odradek.common.errors.kafka import UnsupportedVersionError, error_for
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.messages import alter_share_group_offsets as sa
from odradek.protocol.messages import delete_share_group_offsets as sd
from odradek.protocol.messages import describe_share_group_offsets as sl
from odradek.protocol.messages import offset_commit as c
from odradek.protocol.messages import offset_delete as d
from odradek.protocol.messages import offset_fetch as f

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

V = TypeVar("V")

NAMES_TOPICS = 9
"""Newest version of OffsetFetch and OffsetCommit with topic names instead of ids.

Offsets of a deleted topic can only be requested by name.
"""
WITH_ONE_GROUP = 7
"""Newest version of OffsetFetch with a single group per request."""
NOTHING = -1

Wanted = Sequence[str] | str | Mapping[str, Sequence[TopicPartition] | None]
Committed = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The start offset of a share group in a partition.

    `lag`: number of records after the offset; None if the broker doesn't report it (before 4.2).
    `error`: why the offset is unavailable (it is -1 then); other partitions aren't affected.
    Retriable errors are retried until the call times out.
    """

    start_offset: int
    leader_epoch: int = -1
    lag: int | None = None
    error: BrokerError | None = None


def listing(groups: Wanted, require_stable: bool) -> AdminCall[dict[str, Committed]]:
    """List the committed offsets of groups; partitions without an offset are left out."""
    wanted = _wanted(groups)
    stable = flag("require_stable", require_stable)

    def found_of(topics: Iterable[Any]) -> tuple[int, Committed]:
        code, found = 0, {}
        for topic in topics:
            for part in topic.partitions:
                code = code or part.error_code
                if part.committed_offset != NOTHING:
                    found[TopicPartition(topic.name, part.partition_index)] = OffsetAndMetadata(
                        part.committed_offset, part.metadata or "", part.committed_leader_epoch
                    )
        return code, found

    def read(answer: f.OffsetFetchResponse) -> Iterator[ItemResult[str, Committed]]:
        for g in answer.groups:
            code, found = found_of(g.topics)
            yield g.group_id, g.error_code or code, None, found

    together: ApiCall[str, f.OffsetFetchResponse, Committed] = ApiCall(
        "committed offsets",
        "group",
        lambda left, _: f.OffsetFetchRequest(
            groups=[
                f.OffsetFetchRequestGroup(g, topics=_by_topic(wanted[g], _numbered)) for g in left
            ],
            require_stable=stable,
        ),
        f.OffsetFetchResponse,
        read,
        right="DESCRIBE",
        hurried=True,
        newest=NAMES_TOPICS,
    )

    def alone(group: str) -> ApiCall[str, f.OffsetFetchResponse, Committed]:
        """List the offsets of one group, as brokers before Kafka 3.0 require (version 8)."""

        def read(answer: f.OffsetFetchResponse) -> Iterator[ItemResult[str, Committed]]:
            code, found = found_of(answer.topics)
            yield group, answer.error_code or code, None, found

        topics = _by_topic(wanted[group], f.OffsetFetchRequestTopic)
        body = f.OffsetFetchRequest(group, topics, require_stable=stable)
        return together._replace(body=lambda _, __: body, read=read, newest=WITH_ONE_GROUP)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, Committed]]:
        coordinators, kind = engine.coordinators, CoordinatorKind.GROUP
        told = yield from coordinators.by_broker(kind, together, wanted, deadline)
        old = [g for g, error in told.errors.items() if isinstance(error, UnsupportedVersionError)]
        if old:
            of_each = yield from coordinators.by_key(kind, alone, {g: [g] for g in old}, deadline)
            for group, outcome in of_each.items():
                del told.errors[group]
                told.add(outcome)
        found = told.settled()
        return {group: found[group] for group in wanted}

    return AdminCall(together.what, flow)


def _numbered(topic: str, numbers: list[int]) -> f.OffsetFetchRequestTopics:
    return f.OffsetFetchRequestTopics(topic, partition_indexes=numbers)


def alter(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> AdminCall[dict[TopicPartition, None]]:
    """Set the committed offsets of a group without members (KIP-396)."""
    given = mapping("offsets", offsets, "a dict of OffsetAndMetadata, or of offsets")
    group, wanted = text("group", group), offsets_to_commit(given, "alter_group_offsets()")

    def topic(name: str, numbers: list[int]) -> c.OffsetCommitRequestTopic:
        partitions = []
        for n in numbers:
            at = wanted[TopicPartition(name, n)]
            partitions.append(
                c.OffsetCommitRequestPartition(n, at.offset, at.leader_epoch, at.metadata)
            )
        return c.OffsetCommitRequestTopic(name, partitions=partitions)

    def read(answer: c.OffsetCommitResponse) -> Iterator[ItemResult[TopicPartition, None]]:
        for item in answer.topics:
            for part in item.partitions:
                yield TopicPartition(item.name, part.partition_index), part.error_code, None, None

    question: ApiCall[TopicPartition, c.OffsetCommitResponse, None] = ApiCall(
        f"the change of offsets of group {group}",
        f"group {group}, partition",
        lambda left, _: c.OffsetCommitRequest(group, topics=_by_topic(left, topic) or []),
        c.OffsetCommitResponse,
        read,
        newest=NAMES_TOPICS,
    )
    return _of_one(group, question, wanted)


def delete(
    group: str, partitions: Sequence[TopicPartition]
) -> AdminCall[dict[TopicPartition, None]]:
    """Delete committed offsets of partitions that no member subscribes to (KIP-496)."""
    group, wanted = text("group", group), some_partitions(partitions)

    def topic(name: str, numbers: list[int]) -> d.OffsetDeleteRequestTopic:
        return d.OffsetDeleteRequestTopic(
            name, [d.OffsetDeleteRequestPartition(n) for n in numbers]
        )

    def read(answer: d.OffsetDeleteResponse) -> Iterator[ItemResult[TopicPartition, None]]:
        for item in answer.topics:
            for part in item.partitions:
                yield TopicPartition(item.name, part.partition_index), part.error_code, None, None

    question: ApiCall[TopicPartition, d.OffsetDeleteResponse, None] = ApiCall(
        f"the deletion of offsets of group {group}",
        f"group {group}, partition",
        lambda left, _: d.OffsetDeleteRequest(group, _by_topic(left, topic) or []),
        d.OffsetDeleteResponse,
        read,
        right="DELETE",
        changes=True,
    )
    return _of_one(group, question, wanted)


# Share groups


def list_share(groups: Wanted) -> AdminCall[dict[str, dict[TopicPartition, ShareGroupOffset]]]:
    """List the start offsets of share groups; partitions without an offset are left out."""
    wanted = _wanted(groups)

    def read(
        answer: sl.DescribeShareGroupOffsetsResponse,
    ) -> Iterator[ItemResult[str, dict[TopicPartition, ShareGroupOffset]]]:
        for g in answer.groups:
            found = {}
            for topic in g.topics:
                for part in topic.partitions:
                    at = TopicPartition(topic.topic_name, part.partition_index)
                    if part.error_code:
                        bad = error_for(part.error_code, part.error_message or str(at))
                        found[at] = ShareGroupOffset(NOTHING, error=bad)
                    elif part.start_offset != NOTHING:
                        lag = None if part.lag < 0 else part.lag
                        found[at] = ShareGroupOffset(part.start_offset, part.leader_epoch, lag)
            yield g.group_id, g.error_code, g.error_message, found

    def passing(offsets: dict[TopicPartition, ShareGroupOffset]) -> KafkaError | None:
        errors = (o.error for o in offsets.values() if o.error is not None)
        return next(
            (e for e in errors if e.retriable and not isinstance(e, NOT_CURED_BY_WAITING)), None
        )

    question: ApiCall[
        str, sl.DescribeShareGroupOffsetsResponse, dict[TopicPartition, ShareGroupOffset]
    ] = ApiCall(
        "offsets of share groups",
        "share group",
        lambda left, _: sl.DescribeShareGroupOffsetsRequest(
            [
                sl.DescribeShareGroupOffsetsRequestGroup(
                    g, _by_topic(wanted[g], sl.DescribeShareGroupOffsetsRequestTopic)
                )
                for g in left
            ]
        ),
        sl.DescribeShareGroupOffsetsResponse,
        read,
        right="DESCRIBE",
        hurried=True,
        unsettled=passing,
    )
    return _each(question, wanted)


def alter_share(
    group: str, offsets: Mapping[TopicPartition, int]
) -> AdminCall[dict[TopicPartition, None]]:
    """Set the start offsets of a share group without members."""
    group, wanted = text("group", group), offsets_by_partition("offsets", offsets)

    def topic(name: str, numbers: list[int]) -> sa.AlterShareGroupOffsetsRequestTopic:
        return sa.AlterShareGroupOffsetsRequestTopic(
            name,
            [
                sa.AlterShareGroupOffsetsRequestPartition(n, wanted[TopicPartition(name, n)])
                for n in numbers
            ],
        )

    def read(
        answer: sa.AlterShareGroupOffsetsResponse,
    ) -> Iterator[ItemResult[TopicPartition, None]]:
        for item in answer.responses:
            for part in item.partitions:
                at = TopicPartition(item.topic_name, part.partition_index)
                yield at, part.error_code, part.error_message, None

    question: ApiCall[TopicPartition, sa.AlterShareGroupOffsetsResponse, None] = ApiCall(
        f"the change of offsets of share group {group}",
        f"share group {group}, partition",
        lambda left, _: sa.AlterShareGroupOffsetsRequest(group, _by_topic(left, topic) or []),
        sa.AlterShareGroupOffsetsResponse,
        read,
        right="READ",
        changes=True,
    )
    return _of_one(group, question, wanted)


def delete_share(group: str, topics: Sequence[str] | str) -> AdminCall[dict[str, None]]:
    """Delete the start offsets of a share group in topics that no member subscribes to."""
    group, wanted = text("group", group), keys("topics", topics, "topics' names")
    question: ApiCall[str, sd.DeleteShareGroupOffsetsResponse, None] = ApiCall(
        f"the deletion of offsets of share group {group}",
        "topic",
        lambda left, _: sd.DeleteShareGroupOffsetsRequest(
            group, [sd.DeleteShareGroupOffsetsRequestTopic(t) for t in left]
        ),
        sd.DeleteShareGroupOffsetsResponse,
        lambda answer: [
            (t.topic_name, t.error_code, t.error_message, None) for t in answer.responses
        ],
        right="DELETE",
        changes=True,
    )
    return _of_one(group, question, wanted)


# Helpers


def _wanted(groups: Any) -> dict[str, list[TopicPartition] | None]:
    """Return the requested partitions by group; None means all that have an offset."""
    if isinstance(groups, Mapping):
        found = {g: None if p is None else some_partitions(p) for g, p in groups.items()}
        keys("groups", list(found), "groups' ids")
        return found
    return dict.fromkeys(keys("groups", groups, "groups' ids"))


def _by_topic(partitions: Iterable[TopicPartition] | None, make: Any) -> list[Any] | None:
    """Return `make(topic, partition numbers)` for each topic."""
    if partitions is None:
        return None
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return [make(topic, numbers) for topic, numbers in found.items()]


def _each(question: ApiCall[str, Any, V], groups: Iterable[str]) -> AdminCall[dict[str, V]]:
    return by_coordinators(CoordinatorKind.GROUP, question, groups)


def _of_one(
    group: str, question: ApiCall[Any, Any, None], items: Iterable[Any]
) -> AdminCall[dict[Any, None]]:
    """Ask a group's coordinator about these partitions or topics of the group."""
    return by_coordinator_of_each(
        CoordinatorKind.GROUP, lambda _: question, {group: list(items)}, question.what
    )
