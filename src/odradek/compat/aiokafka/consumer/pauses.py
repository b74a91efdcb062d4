"""Partitions that a program has paused.

In: what it pauses and resumes, what is newly assigned. Out: the same calls of the consumer beneath.
Must not: read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.common.types import TopicPartition


class Pauses:
    """The paused partitions of one consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._paused: set[TopicPartition] = set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """The program pauses; raises ours `IllegalStateError` for what isn't assigned."""
        for partition in partitions:
            self._consumer.pause(partition)
            self._paused.add(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """The program resumes."""
        for partition in partitions:
            self._consumer.resume(partition)
            self._paused.discard(partition)

    def paused(self) -> set[TopicPartition]:
        """What the program has paused, of what is assigned."""
        return self._paused.intersection(self._consumer.assignment())

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are new: nobody has paused them yet."""
        self._paused.difference_update(partitions)
