"""The consumer of aiokafka, by its names."""

from odradek.compat.aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
