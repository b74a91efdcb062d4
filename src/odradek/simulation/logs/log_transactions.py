"""Track the transactions in a partition's log: open, ended and aborted ones.

In: batches and markers that are appended to the log, in order; the high watermark. Out: the last
stable offset, and the aborted transactions that a `read_committed` fetch returns. Must not know
coordinators, or check whether a producer may write.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.record import BatchHeader


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction that a marker in the log has ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    commit: bool


class LogTransactions:
    """The transactions in one partition's log."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of each open transaction, by producer id."""
        self.ended: list[Ended] = []
        """Ended transactions in the order of their markers."""

    def clear(self) -> None:
        """Forget all transactions, because the log was truncated and is replayed."""
        self.open.clear()
        self.ended.clear()

    def appended(self, header: BatchHeader, base_offset: int, marker: bool | None) -> None:
        """Track an appended batch; `marker`: True for commit, False for abort, else None."""
        if marker is None:
            if header.transactional:
                self.open.setdefault(header.producer_id, base_offset)
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None:  # a marker may end a transaction without records in this partition
            self.ended.append(Ended(header.producer_id, first, base_offset, marker))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which `read_committed` consumers can read.

        Neither an open transaction nor one whose marker may still be lost begins before this
        offset. As in Kafka, the offset doesn't exceed the high watermark.
        """
        stable = min(self.open.values(), default=high_watermark)
        for ended in reversed(self.ended):
            if ended.marker_offset < high_watermark:
                break
            stable = min(stable, ended.first_offset)
        return min(stable, high_watermark)

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of aborted transactions that overlap this range."""
        return [
            (ended.producer_id, ended.first_offset)
            for ended in self.ended
            if not ended.commit and ended.marker_offset >= start and ended.first_offset < end
        ]
