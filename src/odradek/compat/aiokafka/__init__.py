"""aiokafka 0.14's API on Odradek's asyncio clients.

    from odradek.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer

A program switches by changing its imports; docs/switching.md lists the differences.
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
"""Version of aiokafka's API."""

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
