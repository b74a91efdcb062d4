"""Restore records of an interrupted call, which its caller hasn't received (R-GR-1, R-HO-1).

In: the state of each partition before the call took records of it. Out: after an exception that
interrupts the call (a signal handler's, Ctrl-C), the former positions and rows, so that no record
is skipped or counts as consumed. Positions that a seek or another assignment has moved meanwhile
aren't changed. Must not: be reset before the caller has its records; its callers hold the engine's
lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.clients.consumer.completed_fetch import CompletedFetch, DecodingProgress
    from odradek.clients.consumer.partition_state import PartitionState


class PartitionBefore(NamedTuple):
    """State of one partition before records of it were taken."""

    entry: CompletedFetch
    progress: DecodingProgress
    position: int | None
    epoch: int
    moves: int


class UndeliveredRecords:
    """The records that the running call, or an interrupted one, has taken."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: dict[PartitionState, PartitionBefore] = {}
        """States of partitions before records of them were taken."""

    def note(self, entry: CompletedFetch) -> None:
        """Note the partition's state before the call takes records of it; only the first time."""
        state = entry.state
        before = self.taken.get(state)
        if before is None or before.moves != state.moves:
            fields = entry, entry.progress(), state.position, state.position_epoch, state.moves
            self.taken[state] = tuple.__new__(PartitionBefore, fields)  # saves a Python call

    def forget(self, state: PartitionState) -> None:
        """Forget the state of a partition, so that `take_back` doesn't restore it."""
        self.taken.pop(state, None)

    def done(self) -> None:
        """Note that the caller has received all records of the call."""
        self.taken = {}

    def __contains__(self, state: PartitionState) -> bool:
        return state in self.taken

    def settled(self, state: PartitionState) -> tuple[int | None, int]:
        """Return a partition's position and epoch before the records of the running call."""
        before = self.taken.get(state)
        if before is None or before.moves != state.moves:
            return state.position, state.position_epoch
        return before.position, before.epoch

    def take_back(self, put_back: Callable[[CompletedFetch, DecodingProgress], bool]) -> bool:
        """Restore all positions and rows; return whether records have to be fetched again.

        `put_back` restores an entry and returns whether it is still buffered; other records are
        fetched again. If `take_back` itself is interrupted, the next one starts again.
        """
        again = False
        for state, before in self.taken.items():
            if before.moves != state.moves:
                continue
            if put_back(before.entry, before.progress) and before.entry.valid:
                state.put_back(before.position, before.epoch)
            else:
                state.put_back(before.position, before.epoch)
                state.fetch_again()
                again = True
        self.done()
        return again
