"""The values that aiokafka's calls take and give.

In: fields, and records as our clients have them. Out: tuples and records with aiokafka's names.
Must not: ask a client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.clients.consumer.records import ConsumerRecord as Record
from odradek.compat.aiokafka.errors import KafkaError
from odradek.compat.blanks import become, blanks, collectable

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


class _Fields:
    """Where a record's fields are, without a dict: that is half of the time of making one."""

    __slots__ = (
        *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value"),
        *("checksum", "serialized_key_size", "serialized_value_size", "headers", "__weakref__"),
    )


@dataclass
class ConsumerRecord(_Fields, Generic[KT, VT]):
    """One record that was read; `key` and `value` are what the deserializers made."""

    __slots__ = ()

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

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """What `vars()` gives."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setattr__(self, name: str, value: object) -> None:
        collectable(self)  # it may refer back
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[type[ConsumerRecord[KT, VT]], tuple[Any, ...]]:
        return type(self), tuple(vars(self).values())


Reads = Callable[[Any], Any]


def records_of(
    records: Sequence[Record],
    read_key: Reads | None = None,
    read_value: Reads | None = None,
) -> list[ConsumerRecord[Any, Any]]:
    """Records of our clients' as aiokafka has them; nothing is called for each but deserializers,
    and what one of these raises comes out.
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
