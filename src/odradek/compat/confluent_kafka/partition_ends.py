"""`enable.partition.eof`: a message with `_PARTITION_EOF` each time a partition's end is reached.

In: an Odradek consumer, which knows each partition's log end. Out: partitions whose log end is
reached, and a message if that wasn't reported yet. Must not: send a request.
"""

from __future__ import annotations

from typing import Any

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, error_message

PATIENCE = 0.05
"""Seconds between two checks while some partition's log end isn't reached."""


class PartitionEnds:
    """Ends of partitions that were reported to the program."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], int] = {}
        self.waits = False
        """Whether some partition's log end isn't reached, so that checks are needed."""

    def reached(self, consumer: Any) -> list[odradek.TopicPartition]:
        """Return the partitions whose end is reached, except paused ones."""
        paused = consumer.paused()
        reading = [p for p in consumer.assigned() if p not in paused]
        found = [p for p in reading if consumer.at_end(p)]
        self.waits = len(found) < len(reading)
        return found

    def message(self, partition: odradek.TopicPartition, offset: int) -> Message | None:
        """Return a message for the end at this offset, or None if it was reported."""
        if self._told.get(partition) == offset:
            return None
        self._told[partition] = offset
        text = f"{partition} was read up to its end at offset {offset}"
        return error_message(KafkaError(KafkaError._PARTITION_EOF, text), partition, offset)

    def forget(self, place: tuple[str, int] | None = None) -> None:
        """Report the log end of this partition, or of all, again when it is reached."""
        if place is None:
            self._told.clear()
        else:
            self._told.pop(place, None)
