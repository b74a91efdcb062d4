"""`enable.partition.eof`: a message that isn't one, each time a partition was read to its end.

In: a consumer of ours, which knows how far each partition is from its end. Out: for each partition
that has reached it, its offset, once. Must not: ask a broker.
"""

from __future__ import annotations

import odradek

PATIENCE = 0.05
"""Seconds between two looks while a partition's end may come."""


class PartitionEnds:
    """Ends that were told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], int] = {}
        self.waits = False
        """Whether an end may come without a record."""

    def next(self, consumer: odradek.Consumer) -> tuple[odradek.TopicPartition, int] | None:
        """A partition whose end is reached, and the offset there; None where none is new."""
        self.waits = False
        paused = consumer.paused()
        for partition in consumer.assignment():
            if partition in paused:
                continue
            if consumer.lag(partition) != 0:
                self.waits = True
                continue
            offset = consumer.position(partition)
            if self._told.get(partition) != offset:
                self._told[partition] = offset
                return partition, offset
        return None

    def forget(self, place: tuple[str, int] | None = None) -> None:
        """Tell of this one, or of all, again."""
        if place is None:
            self._told.clear()
        else:
            self._told.pop(place, None)
