"""Track the aborted transactions of a response, whose batches are skipped, while decoding it.

In: the broker's list of aborted transactions, and batch headers in order. Out: whether a
read_committed consumer skips a batch. Must not look into records; the decoder reports the markers
that end a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.record.batch import BatchHeader


class AbortedTransactions:
    """Producers whose transaction is aborted at the current batch (read_committed)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: dict[int, int] = {}

    def advance(self, header: BatchHeader) -> None:
        """Move on to a batch, and open the aborted transactions that begin before its end."""
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            producer_id, first_offset = self._ahead.pop()
            self._open[producer_id] = first_offset

    def open_for(self, header: BatchHeader) -> bool:
        """Return whether the batch's producer has an open aborted transaction at this batch."""
        return header.producer_id in self._open

    def end(self, header: BatchHeader) -> None:
        """Close the transaction of the producer that wrote this marker."""
        self._open.pop(header.producer_id, None)

    def left(self) -> tuple[tuple[int, int], ...]:
        """Return the open and the remaining aborted transactions, for the decoder's next call."""
        return (*self._open.items(), *reversed(self._ahead))
