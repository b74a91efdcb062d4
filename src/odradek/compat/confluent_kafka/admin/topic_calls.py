"""confluent-kafka's calls for topics, their records and offsets, and the cluster.

In: topics, partitions, offsets. Out: futures. Must not: check what brokers check.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from enum import Enum
from typing import Any, TypeVar

import odradek
from odradek.common.topic_names import check_sendable
from odradek.compat.confluent_kafka.admin.futures import AdminCalls, Left, answered
from odradek.compat.confluent_kafka.admin.offset_values import (
    DeletedRecords,
    ListOffsetsResultInfo,
    OffsetSpec,
    number_of,
    offset_found,
    our_spec,
)
from odradek.compat.confluent_kafka.admin.topic_values import (
    DescribeClusterResult,
    NewPartitions,
    NewTopic,
    TopicDescription,
    cluster_result,
    nodes_of,
    our_partitions,
    our_topic,
    topic_result,
)
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.model import ElectionType, IsolationLevel, TopicCollection
from odradek.compat.confluent_kafka.topic_partition import TopicPartition, at_offset, ours
from odradek.compat.confluent_kafka.translated_errors import translated

K = TypeVar("K")


class TopicCalls(AdminCalls):
    """Base class of `AdminClient`: calls for topics, records, offsets, leaders, the cluster."""

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create topics; return futures by name, completed once all partitions have leaders.

        `request_timeout` is in seconds.
        """
        seconds = self._seconds(request_timeout, operation_timeout)
        only_checked = truth("validate_only", validate_only)
        wanted = {t.topic: our_topic(t) for t in some_of(new_topics, NewTopic)}
        names = [t.topic for t in new_topics]
        return self._each(
            wanted,
            seconds,
            lambda admin, left, these: admin.create_topics(
                [wanted[n] for n in these], left(), validate_only=only_checked
            ),
            ours=lambda name: once(legal(name), names),
        )

    def delete_topics(
        self,
        topics: list[str],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Delete topics; returns a future for each name."""
        seconds = self._seconds(request_timeout, operation_timeout)
        if not isinstance(topics, list):
            raise TypeError(f"expected a list of topic names, not {type(topics).__name__}")
        return self._each(
            some_of(topics, str),
            seconds,
            lambda admin, left, these: admin.delete_topics(these, left()),
            ours=legal,
        )

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Increase the number of partitions; returns a future for each topic's name."""
        if new_partitions is None:
            raise TypeError("expected a list of NewPartitions, not None")
        seconds = self._seconds(request_timeout, operation_timeout)
        only_checked = truth("validate_only", validate_only)
        wanted = {p.topic: our_partitions(p) for p in some_of(new_partitions, NewPartitions)}
        names = [p.topic for p in new_partitions]
        return self._each(
            wanted,
            seconds,
            lambda admin, left, these: admin.create_partitions(
                {n: wanted[n] for n in these}, left(), validate_only=only_checked
            ),
            ours=lambda name: once(legal(name), names),
        )

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics; returns a future for each name."""
        if not isinstance(topics, TopicCollection) or not isinstance(topics.topic_names, list):
            raise TypeError(f"expected a TopicCollection, not {type(topics).__name__}")
        for name in topics.topic_names:
            if not isinstance(name, str):
                raise TypeError(f"a topic's name must be a str, not {type(name).__name__}")
            if not name:
                raise ValueError("a topic's name can't be empty")
        seconds = self._seconds(request_timeout)
        asked = truth("include_authorized_operations", include_authorized_operations)

        def describe(admin: odradek.Admin, left: Left, names: list[str]) -> dict[str, Any]:
            nodes.update(nodes_of(admin.describe_cluster(left())))
            return admin.describe_topics(names, left(), authorized_operations=asked)

        nodes: dict[int, Any] = {}
        return self._each(
            topics.topic_names,
            seconds,
            describe,
            ours=legal,
            made=lambda _, found: topic_result(found, nodes),
        )

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Request the cluster's brokers and topics, or one topic, and return them."""
        return self._awaited(timeout, lambda _, left: self._questions.list_topics(topic, left()))

    # Records and offsets

    def list_offsets(
        self,
        topic_partition_offsets: dict[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Look up offsets by a keyword or a time; returns a future for each partition."""
        if not isinstance(topic_partition_offsets, dict):
            raise TypeError("expected a dict of OffsetSpec by TopicPartition")
        isolation = one_of("isolation_level", isolation_level, IsolationLevel)
        specs = {
            ours(checked_topic_partition(p)): our_spec(s)
            for p, s in topic_partition_offsets.items()
        }
        return self._each(
            [at_offset(ours(p), number_of(s)) for p, s in topic_partition_offsets.items()],
            self._seconds(request_timeout),
            lambda admin, left, these: admin.list_offsets(
                {at: specs[at] for at in these},
                left(),
                isolation_level=isolation.lower(),
            ),
            ours=ours,
            made=lambda _, found: offset_found(found),
        )

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before each partition's offset (`OFFSET_END`: all records)."""
        given = list_of("Request", topic_partition_offsets)
        before = {ours(checked_topic_partition(p, "request")): p.offset for p in given}
        return self._each(
            topic_partition_offsets,
            self._seconds(request_timeout, operation_timeout),
            lambda admin, left, these: admin.delete_records(
                {at: before[at] for at in these}, left()
            ),
            ours=ours,
            made=lambda _, low: DeletedRecords(low),
        )

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, KafkaException | None]]:
        """Elect leaders of these partitions, or of all partitions that need an election.

        The future's result is None for each partition whose leader changed, and an error for the
        others.
        """
        kind = one_of("election_type", election_type, ElectionType)
        wanted = None
        if partitions is not None:
            given = list_of("'partitions'", partitions)
            wanted = [ours(checked_topic_partition(p, "'partitions'")) for p in given]

        def elect(admin: odradek.Admin, left: Left) -> dict[TopicPartition, KafkaException | None]:
            failed: dict[Any, odradek.KafkaError] = {}
            try:
                elected = list(admin.elect_leaders(kind, wanted, left()))
            except odradek.KafkaError as error:
                if not answered(error):
                    raise
                elected = [at for at, done in error.results.items() if done]
                failed = dict(error.errors)
            found: dict[odradek.TopicPartition, KafkaException | None] = {}
            found.update({at: KafkaException(translated(why)) for at, why in failed.items()})
            found.update(dict.fromkeys(elected))
            for at in wanted or ():
                found.setdefault(at, KafkaException(KafkaError(KafkaError.ELECTION_NOT_NEEDED)))
            return {TopicPartition(*at): why for at, why in found.items()}

        return self._one(self._seconds(request_timeout, operation_timeout), elect)

    # The cluster

    def describe_cluster(
        self,
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster."""
        asked = truth("include_authorized_operations", include_authorized_operations)
        return self._one(
            self._seconds(request_timeout),
            lambda admin, left: cluster_result(
                admin.describe_cluster(left(), authorized_operations=asked)
            ),
        )


def truth(name: str, given: Any) -> bool:
    """Check that an argument is a bool; raises `TypeError`."""
    if not isinstance(given, bool):
        raise TypeError(f"Expected {name} to be bool type, not {type(given).__name__}")
    return given


def one_of(name: str, given: Any, kind: type[Enum]) -> str:
    """Check that an argument is a member of an enumeration, and return the member's name."""
    if not isinstance(given, kind):
        raise TypeError(f"Expected {name} to be of type {kind.__name__}")
    return given.name


def list_of(name: str, given: Any) -> list[Any]:
    """Check that an argument is a list; raises `TypeError`."""
    if not isinstance(given, list):
        raise TypeError(f"Expected {name} to be a list, got '{type(given).__name__}'")
    return given


def some_of(given: Any, kind: type[Any]) -> list[Any]:
    """Check that an argument is a non-empty list of one type; raise confluent-kafka's errors."""
    if not isinstance(given, list) or not given:
        raise ValueError(f"Expected non-empty list of {kind.__name__} objects")
    for one in given:
        if not isinstance(one, kind):
            raise ValueError(f"Expected list of {kind.__name__} objects")
    return given


def legal(name: str) -> str:
    """Check a topic's name as a broker does, with the broker's error."""
    check_sendable(name)
    return name


def once(item: K, of: Iterable[Any]) -> K:
    """Check that an item occurs only once in a call, with a broker's error for duplicates."""
    if sum(other == item for other in of) > 1:
        raise odradek.errors.InvalidRequestError(f"{item} was passed twice")
    return item


def checked_topic_partition(given: Any, of: str = "topic_partition_offsets") -> TopicPartition:
    """Check that a partition has a number; raises `TypeError` and `ValueError`."""
    if not isinstance(given, TopicPartition):
        raise TypeError(
            f"Element of the {of} list must be of type 'TopicPartition' got "
            f"'{type(given).__name__}'"
        )
    if given.partition < 0:
        raise ValueError("'partition' cannot be negative")
    if not given.topic:
        raise ValueError("partition topic name cannot be empty")
    return given
