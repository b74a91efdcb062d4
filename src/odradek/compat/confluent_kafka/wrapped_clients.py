"""Odradek's clients, wrapped by the confluent-kafka clients of the same names.

In: options. Out: Odradek's clients. Must not: add anything but what the wrappers need.
"""

from __future__ import annotations

from odradek.common.types import TopicPartition
from odradek.compat.batch_positions import BatchPositionProducer
from odradek.compat.buffered_records import ThreadConsumer
from odradek.compat.confluent_kafka.message import Message


class Producer(BatchPositionProducer):
    """`odradek.Producer`; error messages and warnings use the name of this class."""


class Consumer(ThreadConsumer[Message]):
    """`odradek.Consumer`; error messages and warnings use the name of this class."""

    def at_end(self, partition: TopicPartition) -> bool:
        """Return whether a fetch response since the last seek shows that the end is reached."""
        return self._engine.subscription.at_end(partition)
