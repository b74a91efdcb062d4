"""Values that aiokafka's calls take and return: tuples and records with aiokafka's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.clients.consumer.records import ConsumerRecord as Record
from odradek.compat.aiokafka.errors import KafkaError
from odradek.compat.untracked_objects import become, blanks, collectable

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """Partition of a topic."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """Broker in the cluster's metadata."""

    nodeId: int | str  # noqa: N815 - their name
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """Partition in the cluster's metadata: ids of brokers, and an error or None."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """Offset to commit (the offset of the next record to read), and a text stored with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """Offset of a record, and its time in ms since the epoch."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Position at which a record was written."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0: the producer's create time; 1: the broker's log append time."""
    log_start_offset: int | None
    """Always None: the producer doesn't store it."""


KT = TypeVar("KT")
VT = TypeVar("VT")


class _Fields:
    """Base class with slots for a record's fields; without a dict, creation takes half the time."""

    __slots__ = (
        *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value"),
        *("checksum", "serialized_key_size", "serialized_value_size", "headers", "__weakref__"),
    )


@dataclass
class ConsumerRecord(_Fields, Generic[KT, VT]):
    """Record that was read; `key` and `value` are the deserialized objects."""

    __slots__ = ()

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if the producer set none."""
    timestamp_type: int
    """0: the producer's create time; 1: the broker's log append time; -1: none (format 0)."""
    key: KT | None
    value: VT | None
    checksum: int | None
    """Always None: batches have a checksum, records don't."""
    serialized_key_size: int
    """Size of the key in bytes, before deserialization; -1 without a key."""
    serialized_value_size: int
    """Size of the value in bytes, before deserialization; -1 without a value."""
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Fields for `vars()`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setattr__(self, name: str, value: object) -> None:
        collectable(self)  # the value may refer to this record
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[type[ConsumerRecord[KT, VT]], tuple[Any, ...]]:
        return type(self), tuple(vars(self).values())


Reads = Callable[[Any], Any]


def records_of(
    records: Sequence[Record],
    read_key: Reads | None = None,
    read_value: Reads | None = None,
) -> list[ConsumerRecord[Any, Any]]:
    """Convert Odradek's records to aiokafka's, and raise the exceptions of deserializers.

    For speed, no Python function except the deserializers is called for each record.
    """
    if read_key is None and read_value is None:
        found: list[Any] = blanks(_Fields, len(records))
    else:
        found = [_Fields() for _ in records]
    rows = zip(found, records, strict=True)
    for made, (topic, partition, offset, at, kind, key, value, headers, _) in rows:
        made.topic = topic
        made.partition = partition
        made.offset = offset
        made.timestamp = at
        made.timestamp_type = kind
        made.key = key if read_key is None else read_key(key)
        made.value = value if read_value is None else read_value(value)
        made.checksum = None
        made.serialized_key_size = -1 if key is None else len(key)
        made.serialized_value_size = -1 if value is None else len(value)
        made.headers = headers
    become(found, _Fields, ConsumerRecord)
    return found
