"""Offsets of a consumer: returned, stored and committed ones.

In: messages as they are returned, offsets that the program stores, results of commits. Out:
positions, and the offsets for a commit without arguments. Must not: commit anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import odradek
from odradek.compat.confluent_kafka.topic_partition import TopicPartition, to_commit

Place = tuple[str, int]
"""Topic name and partition number."""


class OffsetBooks:
    """Returned, stored and committed offsets of the assigned partitions."""

    def __init__(self, *, store: bool) -> None:
        self.store = store
        """Whether a returned message counts as processed, so that its offset is stored."""
        self._read: dict[Place, tuple[int, int]] = {}
        """Offset and leader epoch of the last returned record, by partition."""
        self._stored: dict[Place, odradek.OffsetAndMetadata] = {}
        self._committed: dict[Place, int] = {}

    def handed_out(self, record: tuple[Any, ...]) -> None:
        """Record that the program has received this record and all before it in its partition."""
        self._read[record[0], record[1]] = record[2], record[8]

    def position(self, place: Place) -> TopicPartition:
        """Return the offset after the last returned message, or no offset if there was none."""
        last = self._read.get(place)
        if last is None:
            return TopicPartition(*place)
        return TopicPartition(*place, last[0] + 1, None, last[1])

    def keep(self, partition: TopicPartition) -> None:
        """Store an offset: the program has processed all messages before it."""
        self._stored[partition.topic, partition.partition] = to_commit(partition)

    def to_commit(
        self, of: Iterable[Place] | None = None
    ) -> dict[odradek.TopicPartition, odradek.OffsetAndMetadata]:
        """Return the stored offsets that aren't committed yet, of all partitions or of these."""
        stored = {**self._stored}
        if self.store:
            for place, (offset, epoch) in self._read.items():
                stored[place] = odradek.OffsetAndMetadata(offset + 1, "", epoch)
        wanted = None if of is None else set(of)
        return {
            odradek.TopicPartition(*place): kept
            for place, kept in stored.items()
            if (wanted is None or place in wanted) and kept.offset > self._committed.get(place, -1)
        }

    def committed(
        self, offsets: Iterable[tuple[odradek.TopicPartition, odradek.OffsetAndMetadata]]
    ) -> None:
        """Record that these offsets were committed."""
        for (topic, number), offset in offsets:
            self._committed[topic, number] = offset.offset

    def sought(self, place: Place) -> None:
        """Forget which records of a partition were returned, because of a seek."""
        self._read.pop(place, None)

    def forget(self, places: Iterable[Place] | None = None) -> None:
        """Drop the offsets of these partitions, or of all."""
        for books in (self._read, self._stored, self._committed):
            for place in list(books) if places is None else tuple(places):
                books.pop(place, None)
