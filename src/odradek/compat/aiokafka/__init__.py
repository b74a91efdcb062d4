"""aiokafka 0.14, by its names, over this package's asyncio clients.

    from odradek.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer

A program switches by its import lines; docs/switching.md lists what differs.
"""

from odradek.compat.aiokafka.abc import ConsumerRebalanceListener
from odradek.compat.aiokafka.consumer import AIOKafkaConsumer
from odradek.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from odradek.compat.aiokafka.producer import AIOKafkaProducer
from odradek.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__version__ = "0.14.0"
"""Of the aiokafka whose names these are."""

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]
