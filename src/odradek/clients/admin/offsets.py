"""List offsets of partitions by a keyword (EARLIEST …) or a time, from their leaders.

In: arguments of a call. Out: an `AdminCall`. Each leader gets one request, however many partitions
it leads. Must not: use committed offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.clients.admin.admin_call import AdminCall, by_leaders
from odradek.clients.batched_calls import LEADER_MOVED, ApiCall, ItemResult
from odradek.clients.consumer.partition_arguments import one_partition
from odradek.common.arguments import choice, mapping, timestamp
from odradek.common.types import TopicPartition
from odradek.protocol.messages import list_offsets as m

SPECS = {
    "LATEST": -1,
    "EARLIEST": -2,
    "MAX_TIMESTAMP": -3,
    "EARLIEST_LOCAL": -4,
    "LATEST_TIERED": -5,
    "EARLIEST_PENDING_UPLOAD": -6,
}
"""Kafka's names of positions in a log, and the timestamps that represent them."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
EARLIEST = SPECS["EARLIEST"]
"""EARLIEST and LATEST work with all brokers; keywords with smaller numbers need newer brokers."""
NOTHING = -1

OffsetSpec = str | int
"""One of `SPECS`, or milliseconds since the epoch: the first record at or after that time."""


@dataclass(frozen=True, slots=True)
class OffsetListing:
    """Result of `list_offsets` for one partition; `offset` is None if no record matches.

    `timestamp_ms` is the timestamp of the record, None for the ends of a log. `leader_epoch` is the
    epoch in which the record was written, -1 if unknown.
    """

    offset: int | None
    timestamp_ms: int | None
    leader_epoch: int


def listing(
    specs: Mapping[TopicPartition, OffsetSpec], isolation_level: str
) -> AdminCall[dict[TopicPartition, OffsetListing]]:
    """List offsets by a keyword or a time (KIP-396, KIP-734, KIP-1005, KIP-1023)."""
    given = mapping("specs", specs, "a dict of keywords or milliseconds by TopicPartition")
    wanted = {(p := one_partition(tp)): _time(p, spec) for tp, spec in given.items()}
    level = ISOLATION_LEVELS.index(choice("isolation_level", isolation_level, ISOLATION_LEVELS))

    def body(left: list[TopicPartition], ms: int) -> m.ListOffsetsRequest:
        topics: dict[str, list[m.ListOffsetsPartition]] = {}
        for at in left:
            asked = m.ListOffsetsPartition(at.partition, timestamp=wanted[at])
            topics.setdefault(at.topic, []).append(asked)
        return m.ListOffsetsRequest(-1, level, [m.ListOffsetsTopic(*t) for t in topics.items()], ms)

    def read(answer: m.ListOffsetsResponse) -> Iterator[ItemResult[TopicPartition, OffsetListing]]:
        for topic in answer.topics:
            for part in topic.partitions:
                found = OffsetListing(
                    None if part.offset == NOTHING else part.offset,
                    None if part.timestamp == NOTHING else part.timestamp,
                    part.leader_epoch,
                )
                yield TopicPartition(topic.name, part.partition_index), part.error_code, None, found

    question: ApiCall[TopicPartition, m.ListOffsetsResponse, OffsetListing] = ApiCall(
        "the list of offsets",
        "partition",
        body,
        m.ListOffsetsResponse,
        read,
        right="DESCRIBE",
        moving=LEADER_MOVED,
    )
    asked = by_leaders(question, wanted, lambda at: min(wanted[at], EARLIEST))
    return asked.then(lambda found: {at: found[at] for at in wanted})


def _time(partition: TopicPartition, spec: Any) -> int:
    name = f"the offset to look up for {partition}"
    return SPECS[choice(name, spec, SPECS)] if isinstance(spec, str) else timestamp(name, spec)
