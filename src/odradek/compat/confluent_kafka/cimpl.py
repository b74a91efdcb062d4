"""Names that programs import from `confluent_kafka.cimpl`, confluent-kafka's C module."""

from __future__ import annotations

from odradek.compat.confluent_kafka.admin.topic_values import NewPartitions, NewTopic
from odradek.compat.confluent_kafka.consumer import Consumer
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from odradek.compat.confluent_kafka.producer import Producer
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
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Producer",
    "TopicPartition",
    "Uuid",
]
