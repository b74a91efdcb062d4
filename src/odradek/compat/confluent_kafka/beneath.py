"""The clients beneath confluent-kafka's, under names that its users know.

In: options. Out: clients of ours. Must not: add anything but what they know.
"""

from __future__ import annotations

from odradek.common.types import TopicPartition
from odradek.compat.at_hand import ThreadConsumer
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.placed import PlacingProducer


class Producer(PlacingProducer):
    """`odradek.Producer`; texts and warnings say this name."""


class Consumer(ThreadConsumer[Message]):
    """`odradek.Consumer`; texts and warnings say this name."""

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether there is nothing more to read, by an answer that came since the last seek."""
        return self._engine.subscription.at_end(partition)
