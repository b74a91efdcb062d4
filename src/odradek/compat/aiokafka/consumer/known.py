"""What a consumer knows without asking, which aiokafka's shows by methods of its own.

In: nothing. Out: where logs ended as the last answers said, partitions from metadata. Must not:
ask a broker.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.common.types import TopicPartition


class Ends(NamedTuple):
    """What the last answer to a fetch said of one partition."""

    high_watermark: int
    last_stable_offset: int
    told_ms: int
    """Milliseconds since the epoch."""


class KnowingConsumer(AsyncConsumer):
    """`AsyncConsumer`, and what its engine knows besides."""

    def ends(self, partition: TopicPartition) -> Ends | None:
        """None before the first answer. Raises `IllegalStateError` for what isn't assigned."""
        answered = self._engine.subscription.get(partition).answered
        if answered is None:
            return None
        high_watermark, last_stable_offset, at = answered
        told = time.time() - (self._host.now() - at)
        return Ends(high_watermark, last_stable_offset, int(told * 1000))

    def known_partitions(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None where metadata doesn't tell of it."""
        snapshot = self._engine.metadata.snapshot
        found = None if snapshot is None else snapshot.topic(topic)
        return None if found is None or not found.partitions else set(range(len(found.partitions)))
