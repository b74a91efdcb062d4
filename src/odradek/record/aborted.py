"""Track aborted transactions of a response, whose batches are hidden, while decoding it.

In: the broker's list of them, batch headers in order. Out: which batches a reader of committed
records skips. Must not: look into records; the decoder says which marker ends one.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.record.batch import BatchHeader


class AbortedTransactions:
    """Which producers' batches are to be skipped at the batch being looked at (read_committed)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: dict[int, int] = {}

    def advance(self, header: BatchHeader) -> None:
        """Come to a batch: transactions that begin before its end are open now."""
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            producer_id, first_offset = self._ahead.pop()
            self._open[producer_id] = first_offset

    def open_for(self, header: BatchHeader) -> bool:
        """Whether the batch's producer has an aborted transaction open there."""
        return header.producer_id in self._open

    def end(self, header: BatchHeader) -> None:
        """Note the marker that ends a transaction."""
        self._open.pop(header.producer_id, None)

    def left(self) -> tuple[tuple[int, int], ...]:
        """Return the state that later decoding needs."""
        return (*self._open.items(), *reversed(self._ahead))
