"""Track which transactions are aborted while a response is decoded, to skip their batches.

In: the broker's list of aborted transactions, and batch headers in order. Out: whether a
read_committed consumer skips a batch. Must not: read records; the decoder reports the markers that
end a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.record.batch import BatchHeader


class AbortedTransactions:
    """The producers with an aborted transaction at the current batch (read_committed)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: dict[int, int] = {}

    def advance(self, header: BatchHeader) -> None:
        """Continue with the next batch: add the aborted transactions that begin before its end."""
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            producer_id, first_offset = self._ahead.pop()
            self._open[producer_id] = first_offset

    def open_for(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction of its producer."""
        return header.producer_id in self._open

    def end(self, header: BatchHeader) -> None:
        """Remove the transaction of the producer for which a broker wrote this marker."""
        self._open.pop(header.producer_id, None)

    def left(self) -> tuple[tuple[int, int], ...]:
        """Return the aborted transactions that haven't ended yet, for the decoder's next call."""
        return (*self._open.items(), *reversed(self._ahead))
