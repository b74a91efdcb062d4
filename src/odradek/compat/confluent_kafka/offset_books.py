"""What a consumer's program was handed, what it has stored, and what of that is committed.

In: messages as they are handed out, offsets that the program stores, outcomes of commits. Out:
positions, and the offsets that a commit without arguments is about. Must not: commit anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import odradek
from odradek.compat.confluent_kafka.topic_partition import TopicPartition, to_commit

Place = tuple[str, int]
"""A topic's name and a partition's number."""


class OffsetBooks:
    """Offsets by partition, of what is assigned."""

    def __init__(self, *, store: bool) -> None:
        self.store = store
        """Each message that is handed out counts as worked on."""
        self._read: dict[Place, tuple[int, int]] = {}
        """The offset and the leader epoch of the last record."""
        self._stored: dict[Place, odradek.OffsetAndMetadata] = {}
        self._committed: dict[Place, int] = {}

    def handed_out(self, record: tuple[Any, ...]) -> None:
        """A record goes to the program, and those before it in its partition."""
        self._read[record[0], record[1]] = record[2], record[8]

    def take_back(self, record: tuple[Any, ...]) -> None:
        """A record didn't reach the program, nor did those after it in its partition."""
        self._read[record[0], record[1]] = record[2] - 1, record[8]

    def position(self, place: Place) -> TopicPartition:
        """Behind the last message that was handed out; no offset before the first one."""
        last = self._read.get(place)
        if last is None:
            return TopicPartition(*place)
        return TopicPartition(*place, last[0] + 1, None, last[1])

    def keep(self, partition: TopicPartition) -> None:
        """The program says that everything before this offset is worked on."""
        self._stored[partition.topic, partition.partition] = to_commit(partition)

    def to_commit(
        self, of: Iterable[Place] | None = None
    ) -> dict[odradek.TopicPartition, odradek.OffsetAndMetadata]:
        """What is stored and wasn't committed yet, of all partitions or of these."""
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
        """These were committed."""
        for (topic, number), offset in offsets:
            self._committed[topic, number] = offset.offset

    def sought(self, place: Place) -> None:
        """The position moves; what was read before doesn't count any more."""
        self._read.pop(place, None)

    def forget(self, places: Iterable[Place] | None = None) -> None:
        """These partitions, or all, are gone, or come anew."""
        for books in (self._read, self._stored, self._committed):
            for place in list(books) if places is None else tuple(places):
                books.pop(place, None)
