"""A producer that says where a record is, instead of making a future for it.

In: records. Out: each one's batch, its index there and its time: what becomes of a batch is told
once, and whoever has its records knows what became of them. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.api.producer import Producer
from odradek.clients.producer.batch import ProducerBatch
from odradek.record import Notes, Room, build_reports

__all__ = [
    "Batch",
    "Notes",
    "Place",
    "PlacingProducer",
    "Room",
    "build_reports",
    "never",
    "place",
]

Batch = ProducerBatch
Place = tuple[Batch, int, int]


def place(_: object, batch: Batch, index: int, at: int) -> Place:
    """What is made for each record."""
    return batch, index, at


def never(*_: object) -> None:
    """Outcomes are asked for batch by batch."""


class PlacingProducer(Producer):
    """`Producer` with a `send` that gives places, by the name `put`."""

    put: Callable[..., Place] = Producer.send  # type: ignore[assignment]

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._set_up_sending(self._calls, place, never)  # type: ignore[arg-type]
        self.report_at_once = self._report_at_once
