"""confluent-kafka's calls for groups and their committed offsets.

In: groups, states, offsets. Out: futures. Must not: join a group.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.futures import AdminCalls, Left, answered
from odradek.compat.confluent_kafka.admin.group_values import (
    STATES,
    TYPES,
    ConsumerGroupDescription,
    GroupMetadata,
    ListConsumerGroupsResult,
    description,
    group_metadata,
    listed,
)
from odradek.compat.confluent_kafka.admin.topic_calls import checked_topic_partition, some_of, truth
from odradek.compat.confluent_kafka.admin.topic_values import nodes_of
from odradek.compat.confluent_kafka.cluster_metadata import cluster_metadata
from odradek.compat.confluent_kafka.kafka_error import KafkaException
from odradek.compat.confluent_kafka.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
)
from odradek.compat.confluent_kafka.topic_partition import (
    OFFSET_INVALID,
    TopicPartition,
    ours,
    to_commit,
    with_offset,
)
from odradek.compat.confluent_kafka.translated_errors import translated

_OF_CONSUMERS = ("consumer", "")
"""Protocol types of consumer groups; empty for groups that only store offsets."""


class GroupCalls(AdminCalls):
    """Base class of `AdminClient`: calls for groups."""

    def list_consumer_groups(
        self,
        *,
        states: set[ConsumerGroupState] | None = None,
        types: set[ConsumerGroupType] | None = None,
        request_timeout: float | None = None,
    ) -> Future[ListConsumerGroupsResult]:
        """List consumer groups, only those in these states or of these types if they are passed."""
        in_states = _words("states", states, ConsumerGroupState, STATES)
        of_types = _words("types", types, ConsumerGroupType, TYPES)
        if types and len(of_types) < len(types):
            raise ValueError("UNKNOWN type is not allowed")

        def listing(admin: odradek.Admin, left: Left) -> ListConsumerGroupsResult:
            if states and not in_states:  # brokers don't know UNKNOWN
                return ListConsumerGroupsResult([], [])
            errors: list[KafkaException] = []
            try:
                found = admin.list_groups(
                    left(), states=in_states, types=of_types, protocol_types=_OF_CONSUMERS
                )
            except odradek.KafkaError as error:
                if not error.results:
                    raise
                every = [g for groups in error.results.values() for g in groups]
                found = sorted({g.group_id: g for g in every}.values(), key=lambda g: g.group_id)
                errors = [KafkaException(translated(e)) for e in error.errors.values()]
            return ListConsumerGroupsResult(listed(found), errors)

        return self._one(self._seconds(request_timeout), listing)

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe groups with their members; returns a future for each."""
        groups = _ids(group_ids)
        asked = truth("include_authorized_operations", include_authorized_operations)
        nodes: dict[int, Any] = {}

        def describe(admin: odradek.Admin, left: Left, these: list[str]) -> dict[str, Any]:
            nodes.update(nodes_of(admin.describe_cluster(left())))
            return admin.describe_consumer_groups(these, left(), authorized_operations=asked)

        return self._each(
            groups,
            self._seconds(request_timeout),
            describe,
            made=lambda _, found: description(found, nodes),
        )

    def delete_consumer_groups(
        self, group_ids: list[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete groups with their committed offsets; returns a future for each."""
        return self._each(
            _ids(group_ids),
            self._seconds(request_timeout),
            lambda admin, left, these: admin.delete_groups(these, left()),
        )

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Request all groups, or one, and return them with their members."""
        warnings.warn(
            "list_groups() is deprecated, use list_consumer_groups() and "
            "describe_consumer_groups() instead.",
            category=DeprecationWarning,
            stacklevel=2,
        )

        def every(admin: odradek.Admin, left: Left) -> list[GroupMetadata]:
            brokers = cluster_metadata(admin.describe_cluster(left())).brokers
            known = [g.group_id for g in admin.list_groups(left())]
            wanted = [g for g in known if group in (None, g)]
            found = _described(lambda: admin.describe_consumer_groups(wanted, left()))
            return [group_metadata(one, brokers) for one in found.values()]

        return self._awaited(timeout, every)

    # Committed offsets

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """List the committed offsets of one group, for some partitions or for all."""
        request = _one_group(list_consumer_group_offsets_request)
        stable = truth("require_stable", require_stable)
        wanted = None
        if request.topic_partitions is not None:
            wanted = [ours(p) for p in _partitions(request)]
            if any(p.offset != OFFSET_INVALID for p in request.topic_partitions):
                raise ValueError("Element of 'topic_partitions' must not have 'offset' value")

        def made(group: str, found: Any) -> ConsumerGroupTopicPartitions:
            places = found if wanted is None else wanted
            committed = [with_offset(at, found.get(at)) for at in places]
            return ConsumerGroupTopicPartitions(group, committed)

        return self._each(
            [request.group_id],
            self._seconds(request_timeout),
            lambda admin, left, these: admin.list_group_offsets(
                dict.fromkeys(these, wanted), left(), require_stable=stable
            ),
            made=made,
        )

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set committed offsets of one group; each partition's `error` is its result."""
        request = _one_group(alter_consumer_group_offsets_request)
        if request.topic_partitions is None:
            raise ValueError("'topic_partitions' cannot be null")
        partitions = _partitions(request)
        if any(p.offset < 0 for p in partitions):
            raise ValueError(
                "Element of 'topic_partitions' must not have negative value for 'offset' field"
            )
        offsets = {ours(p): to_commit(p) for p in partitions}

        def alter(admin: odradek.Admin, left: Left, these: list[str]) -> dict[str, Any]:
            try:
                admin.alter_group_offsets(request.group_id, offsets, left())
            except odradek.KafkaError as error:
                if not answered(error):
                    raise
                return {request.group_id: dict(error.errors)}
            return {request.group_id: {}}

        def made(group: str, errors: Any) -> ConsumerGroupTopicPartitions:
            found = [
                TopicPartition(p.topic, p.partition, p.offset, p.metadata, p.leader_epoch)
                for p in partitions
            ]
            for partition in found:
                if (error := errors.get(ours(partition))) is not None:
                    partition._failed(translated(error))
            return ConsumerGroupTopicPartitions(group, found)

        return self._each([request.group_id], self._seconds(request_timeout), alter, made=made)


def _words(name: str, given: Any, kind: type[Any], words: dict[Any, str]) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, set):
        raise TypeError(f"'{name}' must be a set")
    if not all(isinstance(one, kind) for one in given):
        raise TypeError(f"All elements of {name} must be of type {kind.__name__}")
    return [words[one] for one in sorted(given) if one in words]


def _ids(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise TypeError("Expected input to be list of group ids")
    return some_of(given, str)


def _described(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Describe groups; leave out deleted ones and groups that can't be described."""
    try:
        return call()
    except odradek.KafkaError as error:
        if not error.errors:
            raise
        return dict(error.results)


def _one_group(given: Any) -> ConsumerGroupTopicPartitions:
    """Return the group of a request for one group; raises `TypeError` and `ValueError`."""
    if not isinstance(given, list):
        raise TypeError("request must be a list")
    if len(given) != 1:
        raise ValueError("Currently we support offsets of a single consumer group only")
    request = given[0]
    if not isinstance(request, ConsumerGroupTopicPartitions):
        raise TypeError("Expected list of 'ConsumerGroupTopicPartitions'")
    if not isinstance(request.group_id, str):
        raise TypeError("'group_id' must be a string")
    if not request.group_id:
        raise ValueError("'group_id' cannot be empty")
    return request


def _partitions(request: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
    given = request.topic_partitions
    if not isinstance(given, list):
        raise TypeError("'topic_partitions' must be a list")
    if not given:
        raise ValueError("'topic_partitions' cannot be empty")
    for partition in given:
        if partition is None:
            raise ValueError("Element of 'topic_partitions' cannot be None")
        checked_topic_partition(partition, "'topic_partitions'")
    return given
