"""Producer that returns a record's position in its batch instead of a future.

In: records. Out: each record's batch, its index there and its time. A batch reports its outcome
once, from which the caller derives the outcomes of its records. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.api.producer import Producer
from odradek.clients.producer.batch import ProducerBatch
from odradek.record import Notes, Room, build_reports

__all__ = [
    "Batch",
    "BatchPosition",
    "BatchPositionProducer",
    "Notes",
    "Room",
    "batch_position",
    "build_reports",
    "never",
]

Batch = ProducerBatch
BatchPosition = tuple[Batch, int, int]


def batch_position(_: object, batch: Batch, index: int, at: int) -> BatchPosition:
    """Return a record's batch, its index in it and its timestamp, instead of a future."""
    return batch, index, at


def never(*_: object) -> None:
    """Do nothing, where `Producer` would register a callback: batches report outcomes here."""


class BatchPositionProducer(Producer):
    """`Producer` whose method `put` sends a record and returns its position in its batch."""

    put: Callable[..., BatchPosition] = Producer.send  # type: ignore[assignment]

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._set_up_sending(self._calls, batch_position, never)  # type: ignore[arg-type]
        self.report_at_once = self._report_at_once
        engine = self._calls.engine  # batches hold these methods, and mustn't keep `self` alive
        self.unnoticed, self.report_failures = engine.unnoticed, engine.report_failures
