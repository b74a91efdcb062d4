"""Asyncio consumer that returns single records, the counterpart of `ThreadConsumer`.

In: an Odradek asyncio consumer. Out: the next record, and records by partition. Must not: block the
event loop while a program takes many buffered records.
"""

from __future__ import annotations

from typing import Any

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.compat.buffered_records import BufferedRecords, R, RecordFactory, Runs

STRETCH = 128
"""Number of records after which the consumer yields to the event loop."""


class LoopConsumer(BufferedRecords[R], AsyncConsumer):
    """`AsyncConsumer` that returns single records; yields to the loop every `STRETCH` records."""

    _stretch = STRETCH

    def __init__(self, settings: dict[str, Any], made: RecordFactory[R]) -> None:
        super().__init__(settings)
        self._made = made

    async def fetch(self, timeout: float) -> bool:
        """Wait for records, which `at_hand` then returns; return False after `timeout` seconds."""
        if self._found is not None and self._given > STRETCH:
            await self._loop_host.breathe()
            self._given = 0
            return self._found is not None
        self._found = None
        return self._keep(await self._read(self._calls.iterated_as(timeout, self._made)))

    async def runs(self, timeout: float, most: int, *, more: bool = False) -> Runs:
        """Wait for records and return them by partition, including those kept for `at_hand`.

        With `more`, records of the last call aren't processed yet, so no rebalance callback runs.
        """
        self._found = None
        found = await self._read(self._calls.runs(timeout, most, more=more))
        self._calls.engine.delivery.handed_over()
        return found or []
