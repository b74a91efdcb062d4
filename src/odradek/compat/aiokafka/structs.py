"""The values that aiokafka's calls take and give.

In: fields. Out: tuples and records with aiokafka's names. Must not: know this package's own values;
`records` translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from odradek.compat.aiokafka.errors import KafkaError

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """A broker, as metadata tells of it."""

    nodeId: int | str  # noqa: N815 - their name
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition, as metadata tells of it: ids of brokers, and an error or None."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, that of the next record to read, and a text beside it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, and its time in ms since the epoch."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0: the producer's create time; 1: the broker's log append time."""
    log_start_offset: int | None
    """None: the producer doesn't keep it."""


KT = TypeVar("KT")
VT = TypeVar("VT")


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """One record that was read; `key` and `value` are what the deserializers made."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 where the producer gave none."""
    timestamp_type: int
    """0: the producer's create time; 1: the broker's log append time."""
    key: KT | None
    value: VT | None
    checksum: int | None
    """None: batches have one, and records haven't."""
    serialized_key_size: int
    """Bytes before the deserializer; -1 without a key."""
    serialized_value_size: int
    """Bytes before the deserializer; -1 without a value."""
    headers: Sequence[tuple[str, bytes | None]]
