"""confluent-kafka's API on Odradek: a program switches by changing its imports.

    from odradek.compat.confluent_kafka import Consumer, KafkaError, Producer

Settings, signatures, callbacks and errors are those of confluent-kafka 2.16; docs/switching.md
lists each difference. An `AttributeError` explains why a name is missing.
"""

from __future__ import annotations

from importlib import import_module

from odradek.compat.confluent_kafka.consumer import Consumer
from odradek.compat.confluent_kafka.deserializing_consumer import DeserializingConsumer
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.key_partitions import consistent, fnv1a, murmur2
from odradek.compat.confluent_kafka.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from odradek.compat.confluent_kafka.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Node,
    ThrottleEvent,
    TopicCollection,
    TopicPartitionInfo,
)
from odradek.compat.confluent_kafka.producer import Producer
from odradek.compat.confluent_kafka.serializing_producer import SerializingProducer
from odradek.compat.confluent_kafka.topic_partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)
from odradek.compat.confluent_kafka.uuid import Uuid

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "ElectionType",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Node",
    "Producer",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "admin",
    "aio",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

__version__ = "2.16.1"

_SHARE = "share groups (KIP-932) aren't supported by this release"
_MISSING = {
    **dict.fromkeys(
        (
            *("ShareConsumer", "DeserializingShareConsumer", "AcknowledgeType", "Messages"),
            *("IllegalStateException", "ConcurrentModificationException"),
        ),
        _SHARE,
    ),
    "ThrottleEvent": "throttle_cb isn't called, as this client doesn't report throttling",
    "kafkatest": "confluent-kafka's own test programs aren't included",
}


def version() -> str:
    """Return the version of confluent-kafka's API; Odradek's is `odradek.__version__`."""
    return __version__


def libversion() -> tuple[str, int]:
    """Return the version of librdkafka that belongs to this API, as a str and as an int."""
    return "2.16.0", 0x021000FF


def __getattr__(name: str) -> object:
    if name in ("admin", "aio"):  # imported on first use: asyncio is slow to import
        return import_module(f"{__name__}.{name}")
    text = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(f"{text}: {_MISSING[name]}" if name in _MISSING else text)
