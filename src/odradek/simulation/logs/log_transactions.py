"""Which transactions a partition's log has: open, ended and not safe yet, aborted.

In: batches and markers as the log takes them, in order; the high watermark. Out: the last stable
offset, and the list of aborted transactions that an answer to a `read_committed` fetch carries.
Must not: know coordinators; who may write is decided before.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.record import BatchHeader


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    marker_offset: int
    commit: bool


class LogTransactions:
    """The transactions of one partition."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id → the first offset of its open transaction."""
        self.ended: list[Ended] = []
        """In the order of their markers."""

    def clear(self) -> None:
        """The log was cut: everything is told anew."""
        self.open.clear()
        self.ended.clear()

    def appended(self, header: BatchHeader, base_offset: int, marker: bool | None) -> None:
        """A batch was appended; `marker` says whether it commits, None that it is none."""
        if marker is None:
            if header.transactional:
                self.open.setdefault(header.producer_id, base_offset)
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None:  # a marker without records ends nothing here
            self.ended.append(Ended(header.producer_id, first, base_offset, marker))

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end for `read_committed`: no open transaction before it, no marker that may be lost.

        As in Kafka the high watermark bounds it.
        """
        stable = min(self.open.values(), default=high_watermark)
        for ended in reversed(self.ended):
            if ended.marker_offset < high_watermark:
                break
            stable = min(stable, ended.first_offset)
        return min(stable, high_watermark)

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """(Producer id, first offset) of aborted ones that touch the offsets from start to end."""
        return [
            (ended.producer_id, ended.first_offset)
            for ended in self.ended
            if not ended.commit and ended.marker_offset >= start and ended.first_offset < end
        ]
