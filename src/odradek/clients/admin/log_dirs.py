"""Describe brokers' log directories, and move replicas between them (KIP-113).

In: arguments of a call. Out: `AdminCall`s. Each broker only knows its own directories. Must not:
access disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.clients.admin.admin_arguments import brokers as broker_ids
from odradek.clients.admin.admin_call import AdminCall, by_brokers
from odradek.clients.admin.groups import of_all_brokers, outcome_of_brokers
from odradek.clients.batched_calls import ApiCall, ItemResult, ItemResults
from odradek.clients.consumer.partition_arguments import one_partition
from odradek.common.arguments import INT32_MAX, iterable, mapping, refusal, text, whole_number
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import ClusterAuthorizationError, error_for
from odradek.common.types import TopicPartition
from odradek.protocol.messages import alter_replica_log_dirs as a
from odradek.protocol.messages import describe_log_dirs as d

UNKNOWN = -1


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{TopicPartition(self.topic, self.partition)} on broker {self.broker}"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """The log of a replica: its size in bytes, and its lag in records.

    The lag is relative to the leader's log or, if `future` is set, to the log that this one will
    replace.
    """

    size: int
    offset_lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory: its replicas, and the size of its file system (None before Kafka 3.3).

    `error`: why the broker can't use the directory, else None. `cordoned`: whether the broker puts
    no new partitions into it (KIP-1066).
    """

    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaLogDir:
    """A replica's current log directory, and the one that it is moving to (None without a move)."""

    current: str | None
    current_offset_lag: int | None
    future: str | None
    future_offset_lag: int | None


def describe(brokers: Sequence[int] | None) -> AdminCall[dict[int, dict[str, LogDirDescription]]]:
    """Describe the log directories of these brokers, or of all if None."""
    return of_all_brokers(
        _describing(), None if brokers is None else broker_ids("this call", brokers)
    )


def _describing() -> ApiCall[None, d.DescribeLogDirsResponse, dict[str, LogDirDescription]]:
    return ApiCall(
        "the description of log directories",
        "",
        lambda *_: d.DescribeLogDirsRequest(None),
        d.DescribeLogDirsResponse,
        lambda answer: [
            # Every broker has a directory. In versions without an error code for the whole
            # response, an empty list means that the permission is missing, as in Java's client.
            (
                None,
                0 if answer.results else ClusterAuthorizationError.code,
                None,
                {r.log_dir: _directory(r) for r in answer.results},
            )
        ],
        right="DESCRIBE",
    )


def _directory(r: d.DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        error_for(r.error_code, f"log directory {r.log_dir}") if r.error_code else None,
        {
            TopicPartition(t.name, p.partition_index): ReplicaInfo(
                p.partition_size, p.offset_lag, p.is_future_key
            )
            for t in r.topics
            for p in t.partitions
        },
        None if r.total_bytes == UNKNOWN else r.total_bytes,
        None if r.usable_bytes == UNKNOWN else r.usable_bytes,
        r.is_cordoned,
    )


def describe_replicas(
    replicas: Sequence[TopicPartitionReplica],
) -> AdminCall[dict[TopicPartitionReplica, ReplicaLogDir]]:
    """Describe the log directories of these replicas.

    If a replica isn't found and its broker can't read some directory, the replica has that
    directory's error.
    """
    wanted = [_replica(r) for r in iterable("replicas", replicas, "a list of replicas")]

    def finish(
        found: ItemResults[int, dict[str, LogDirDescription]],
    ) -> dict[TopicPartitionReplica, ReplicaLogDir]:
        places: ItemResults[TopicPartitionReplica, ReplicaLogDir] = ItemResults()
        for replica in wanted:
            if replica.broker in found.errors:
                places.errors[replica] = found.errors[replica.broker]
                continue
            directories = found.results[replica.broker]
            place = _place(replica, directories)
            unread = [one.error for one in directories.values() if one.error is not None]
            if place.current is None and unread:
                places.errors[replica] = copy(unread[0])  # the replica may be in that directory
            else:
                places.results[replica] = place
        return places.settled()

    return outcome_of_brokers(_describing(), sorted({r.broker for r in wanted})).then(finish)


def _place(
    replica: TopicPartitionReplica, directories: dict[str, LogDirDescription]
) -> ReplicaLogDir:
    partition = TopicPartition(replica.topic, replica.partition)
    places: dict[bool, tuple[str, int]] = {}
    for path, directory in directories.items():
        # A replica's log and its future one are never in the same directory.
        info = directory.replicas.get(partition)
        if info is not None and directory.error is None:
            places[info.future] = path, info.offset_lag
    nowhere = (None, None)
    return ReplicaLogDir(*places.get(False, nowhere), *places.get(True, nowhere))


def alter(
    places: Mapping[TopicPartitionReplica, str],
) -> AdminCall[dict[TopicPartitionReplica, None]]:
    """Move replicas to other directories of their brokers."""
    given = mapping("places", places, "a dict of paths by TopicPartitionReplica")
    wanted = {(r := _replica(at)): text(f"the path for {r}", path) for at, path in given.items()}
    by_broker: dict[int, list[TopicPartitionReplica]] = {}
    for replica in wanted:
        by_broker.setdefault(replica.broker, []).append(replica)

    def question(
        broker: int,
    ) -> ApiCall[TopicPartitionReplica, a.AlterReplicaLogDirsResponse, None]:
        def read(
            answer: a.AlterReplicaLogDirsResponse,
        ) -> Iterator[ItemResult[TopicPartitionReplica, None]]:
            for t in answer.results:
                for p in t.partitions:
                    replica = TopicPartitionReplica(t.topic_name, p.partition_index, broker)
                    yield replica, p.error_code, None, None

        return ApiCall(
            "the move of replicas to log directories",
            "replica",
            lambda left, _: _moves(left, wanted),
            a.AlterReplicaLogDirsResponse,
            read,
            right="ALTER",
            changes=True,
        )

    return by_brokers(question, by_broker, "the move of replicas to log directories")


def _moves(
    left: Sequence[TopicPartitionReplica], wanted: Mapping[TopicPartitionReplica, str]
) -> a.AlterReplicaLogDirsRequest:
    directories: dict[str, dict[str, list[int]]] = {}
    for replica in left:
        topics = directories.setdefault(wanted[replica], {})
        topics.setdefault(replica.topic, []).append(replica.partition)
    return a.AlterReplicaLogDirsRequest(
        [
            a.AlterReplicaLogDir(path, [a.AlterReplicaLogDirTopic(*t) for t in topics.items()])
            for path, topics in directories.items()
        ]
    )


def _replica(given: Any) -> TopicPartitionReplica:
    cure = "use TopicPartitionReplica(topic, partition, broker)"
    if not isinstance(given, tuple) or len(given) != 3:
        raise refusal("a replica", "a TopicPartitionReplica", given, cure)
    topic, partition = one_partition(given[:2])
    return TopicPartitionReplica(
        topic, partition, whole_number("a replica's broker", given[2], 0, INT32_MAX)
    )
