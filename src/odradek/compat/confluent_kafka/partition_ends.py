"""`enable.partition.eof`: a message that isn't one, each time a partition was read to its end.

In: a consumer of ours, which knows how far each partition is from its end. Out: partitions that
have reached it, and whether that is news. Must not: ask a broker.
"""

from __future__ import annotations

from typing import Any

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, error_message

PATIENCE = 0.05
"""Seconds between two looks while a partition's end may come."""


class PartitionEnds:
    """Ends that were told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], int] = {}
        self.waits = False
        """Whether an end may come without a record."""

    def reached(self, consumer: Any) -> list[odradek.TopicPartition]:
        """The partitions whose ends are reached; those that are paused have none."""
        paused = consumer.paused()
        reading = [p for p in consumer.assignment() if p not in paused]
        found = [p for p in reading if consumer.at_end(p)]
        self.waits = len(found) < len(reading)
        return found

    def message(self, partition: odradek.TopicPartition, offset: int) -> Message | None:
        """What tells of an end at this offset; None where it was told."""
        if self._told.get(partition) == offset:
            return None
        self._told[partition] = offset
        text = f"{partition} was read to its end, offset {offset}"
        return error_message(KafkaError(KafkaError._PARTITION_EOF, text), partition, offset)

    def forget(self, place: tuple[str, int] | None = None) -> None:
        """Tell of this one, or of all, again."""
        if place is None:
            self._told.clear()
        else:
            self._told.pop(place, None)
