"""Asyncio clients of `confluent_kafka.aio`, which run in the event loop, without threads."""

from __future__ import annotations

from odradek.compat.confluent_kafka.aio.consumer import AIOConsumer
from odradek.compat.confluent_kafka.aio.deserializing_consumer import AsyncDeserializingConsumer
from odradek.compat.confluent_kafka.aio.producer import AIOProducer
from odradek.compat.confluent_kafka.aio.serializing_producer import AsyncSerializingProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]
