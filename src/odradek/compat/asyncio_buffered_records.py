"""Records one by one in an event loop, as `at_hand` returns them in a thread.

In: an Odradek asyncio consumer. Out: the next record, and records by partition. Must not: block the
event loop while a program takes record after record.
"""

from __future__ import annotations

from typing import Any

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.compat.buffered_records import BufferedRecords, R, RecordFactory, Runs

STRETCH = 128
"""Records after which the consumer yields to the event loop."""


class LoopConsumer(BufferedRecords[R], AsyncConsumer):
    """`AsyncConsumer`, record by record; yields to the event loop every `STRETCH` records."""

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
        """Return records by partition, including those that `at_hand` didn't return yet.

        With `more`, those of the last call aren't processed yet, and no rebalance callback runs.
        """
        self._found = None
        found = await self._read(self._calls.runs(timeout, most, more=more))
        self._calls.engine.delivery.handed_over()
        return found or []
