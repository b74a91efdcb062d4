"""The producer of aiokafka, by its names."""

from odradek.compat.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
