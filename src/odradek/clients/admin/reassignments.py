"""Move replicas of partitions between brokers (KIP-455), and elect leaders (KIP-460).

In: arguments of a call. Out: `AdminCall`s. The controller carries the changes out; any broker
forwards the request. Must not: wait until replicas have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.clients.admin.admin_arguments import brokers
from odradek.clients.admin.admin_call import AdminCall, by_any, one
from odradek.clients.batched_calls import ApiCall, ItemResult, ItemResults
from odradek.clients.consumer.partition_arguments import one_partition, some_partitions
from odradek.common.arguments import choice, flag, mapping
from odradek.common.errors.kafka import (
    ElectionNotNeededError,
    NoReassignmentInProgressError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages import alter_partition_reassignments as a
from odradek.protocol.messages import elect_leaders as e
from odradek.protocol.messages import list_partition_reassignments as m

ELECTIONS = {"PREFERRED": 0, "UNCLEAN": 1}


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """Reassignment of a partition: its replicas, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter(
    replicas: Mapping[TopicPartition, Sequence[int] | None], allow_replication_factor_change: bool
) -> AdminCall[dict[TopicPartition, None]]:
    """Move partitions to these brokers; None cancels a reassignment."""
    given = mapping("replicas", replicas, "a dict of brokers' ids by TopicPartition")
    wanted = {
        (p := one_partition(tp)): None if ids is None else brokers(str(p), ids)
        for tp, ids in given.items()
    }
    factor = flag("allow_replication_factor_change", allow_replication_factor_change)

    def body(left: list[TopicPartition], ms: int) -> a.AlterPartitionReassignmentsRequest:
        topics = [
            a.ReassignableTopic(
                topic,
                [a.ReassignablePartition(n, wanted[TopicPartition(topic, n)]) for n in numbers],
            )
            for topic, numbers in by_topic(left).items()
        ]
        return a.AlterPartitionReassignmentsRequest(ms, factor, topics)

    def read(
        answer: a.AlterPartitionReassignmentsResponse,
    ) -> Iterator[ItemResult[TopicPartition, None]]:
        for topic in answer.responses:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                yield at, part.error_code, part.error_message, None

    return by_any(
        ApiCall(
            "the reassignment of partitions",
            "partition",
            body,
            a.AlterPartitionReassignmentsResponse,
            read,
            right="ALTER",
            already=(NoReassignmentInProgressError,),
            changes=True,
        ),
        wanted,
    )


def listing(
    partitions: Sequence[TopicPartition] | None,
) -> AdminCall[dict[TopicPartition, PartitionReassignment]]:
    """List the reassignments in progress, of these partitions or of all."""
    wanted = None if partitions is None else by_topic(some_partitions(partitions))

    def read(answer: m.ListPartitionReassignmentsResponse) -> Iterator[ItemResult[None, Any]]:
        found = {
            TopicPartition(t.name, p.partition_index): PartitionReassignment(
                tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for t in answer.topics
            for p in t.partitions
        }
        yield None, 0, None, dict(sorted(found.items()))

    topics = None
    if wanted is not None:
        topics = [m.ListPartitionReassignmentsTopics(*t) for t in wanted.items()]
    question: ApiCall[
        None,
        m.ListPartitionReassignmentsResponse,
        dict[TopicPartition, PartitionReassignment],
    ] = ApiCall(
        "the list of reassignments",
        "",
        lambda _, ms: m.ListPartitionReassignmentsRequest(ms, topics),
        m.ListPartitionReassignmentsResponse,
        read,
        right="DESCRIBE",
    )
    return one(question)


def elect(
    election_type: str, partitions: Sequence[TopicPartition] | None
) -> AdminCall[list[TopicPartition]]:
    """Elect leaders of these partitions, or of all; return those with a new leader."""
    kind = ELECTIONS[choice("election_type", election_type, ELECTIONS)]
    wanted = None if partitions is None else some_partitions(partitions)

    def read(answer: e.ElectLeadersResponse) -> Iterator[ItemResult[TopicPartition, bool]]:
        for topic in answer.replica_election_results:
            for part in topic.partition_result:
                at = TopicPartition(topic.topic, part.partition_id)
                needless = part.error_code == ElectionNotNeededError.code
                code = 0 if needless else part.error_code
                yield at, code, part.error_message, not needless

    what = "the election of leaders"
    of_these: ApiCall[TopicPartition, e.ElectLeadersResponse, bool] = ApiCall(
        what,
        "partition",
        lambda left, ms: e.ElectLeadersRequest(
            kind, [e.TopicPartitions(*t) for t in by_topic(left).items()], ms
        ),
        e.ElectLeadersResponse,
        read,
        right="ALTER",
        changes=True,
    )
    # If all partitions are requested, the response only contains those with an election.
    of_all: ApiCall[None, e.ElectLeadersResponse, ItemResults[TopicPartition, bool]] = ApiCall(
        what,
        "",
        lambda _, ms: e.ElectLeadersRequest(kind, None, ms),
        e.ElectLeadersResponse,
        lambda answer: [(None, 0, None, _outcome(read(answer)))],
        right="ALTER",
        changes=True,
    )
    if wanted is not None:
        found = by_any(of_these, wanted)
    else:
        found = one(of_all).then(lambda outcome: outcome.settled())
    return found.then(lambda done: sorted(at for at, elected in done.items() if elected))


def _outcome(said: Iterable[ItemResult[TopicPartition, bool]]) -> ItemResults[TopicPartition, bool]:
    found: ItemResults[TopicPartition, bool] = ItemResults()
    for at, code, reason, elected in said:
        if code:
            found.errors[at] = error_for(code, f"partition {at}: {reason or ''}".rstrip(": "))
        else:
            found.results[at] = elected
    return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found
