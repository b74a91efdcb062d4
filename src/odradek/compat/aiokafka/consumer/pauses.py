"""Partitions that a program has paused.

In: partitions that it pauses and resumes, and newly assigned ones. Out: the same calls of the
wrapped consumer. Must not: read records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.common.types import TopicPartition


class Pauses:
    """Paused partitions of one consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._paused: set[TopicPartition] = set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions; raises Odradek's `IllegalStateError` for one that isn't assigned."""
        for partition in partitions:
            self._consumer.pause(partition)
            self._paused.add(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions; raises Odradek's `IllegalStateError` for one that isn't assigned."""
        for partition in partitions:
            self._consumer.resume(partition)
            self._paused.discard(partition)

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that the program has paused."""
        return self._paused.intersection(self._consumer.assignment())

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Record newly assigned partitions; they start unpaused."""
        self._paused.difference_update(partitions)
