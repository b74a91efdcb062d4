"""A producer's part of `explain()`: records without an outcome, and what the oldest waits for.

In: the producer's engine, read from any thread. Out: a frozen picture and its line of text. Must
not: change anything, or wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine

LONG = 2.0
"""Seconds from which on a diagnosis tells of the oldest record."""


@dataclass(frozen=True, slots=True)
class RecordsExplanation:
    """Records that were given to `send()` and have no outcome. Times are in seconds."""

    records: int
    partitions: int
    topic: str
    """Of the oldest, as what follows."""
    partition: int
    seconds: float
    """Since its batch was begun."""
    left: float
    """Until it is given up (`delivery.timeout.ms`)."""
    attempts: int
    """How often it was sent."""
    waits_for: str
    """Words that fit after "waits for"."""

    def __str__(self) -> str:
        noun = "record has" if self.records == 1 else "records have"
        return f"{self.records} {noun} no outcome; {self.oldest()}"

    def oldest(self) -> str:
        """The oldest in words."""
        tries = f", sent {self.attempts} times" if self.attempts > 1 else ""
        return (
            f"the oldest, for partition {self.partition} of topic {self.topic}, is "
            f"{self.seconds:.1f} s old{tries} and waits for {self.waits_for}; it is given up in "
            f"{self.left:.1f} s (delivery.timeout.ms)"
        )


def explain_records(engine: ProducerEngine, now: float) -> RecordsExplanation | None:
    """Take the picture; None while every record has its outcome."""
    from odradek.clients.producer.why_waiting import why_waiting

    pending = [batch for batch in engine.sender.incomplete() if batch.count]
    if not pending:
        return None
    oldest = min(pending, key=lambda batch: batch.created_at)
    return RecordsExplanation(
        records=sum(batch.count for batch in pending),
        partitions=len({batch.partition for batch in pending}),
        topic=oldest.partition.topic,
        partition=oldest.partition.partition,
        seconds=max(0.0, now - oldest.created_at),
        left=max(0.0, oldest.deadline - now),
        attempts=oldest.attempts,
        waits_for=why_waiting(engine, oldest, now),
    )
