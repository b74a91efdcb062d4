"""What one call has taken and its caller doesn't have yet: it can be taken back (R-GR-1, R-HO-1).

In: each partition as it was before the call took records of it. Out: an exception that comes out of
the call (a signal handler's, Ctrl-C) puts positions and rows back, so nothing is left out and
nothing counts as consumed. What a seek or another assignment has moved meanwhile stays there.
Must not: be forgotten before the caller has its records; whoever calls it holds the host's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.clients.consumer.completed_fetch import CompletedFetch, DecodingProgress
    from odradek.clients.consumer.partition_state import PartitionState


class Before(NamedTuple):
    """One partition before records of it were taken."""

    entry: CompletedFetch
    progress: DecodingProgress
    position: int | None
    epoch: int
    moves: int


class HandOver:
    """The call that is under way, or the one that an exception has ended."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: dict[PartitionState, Before] = {}
        """Partitions as they were before records of them were taken."""

    def note(self, entry: CompletedFetch) -> None:
        """Before anything of an entry moves; only the first one of its partition counts."""
        state = entry.state
        before = self.taken.get(state)
        if before is None or before.moves != state.moves:
            fields = entry, entry.progress(), state.position, state.position_epoch, state.moves
            self.taken[state] = tuple.__new__(Before, fields)  # without Python's call

    def forget(self, state: PartitionState) -> None:
        """Nothing of it is on its way to the caller."""
        self.taken.pop(state, None)

    def done(self) -> None:
        """The caller has all of it, or there was nothing."""
        self.taken = {}

    def __contains__(self, state: PartitionState) -> bool:
        return state in self.taken

    def settled(self, state: PartitionState) -> tuple[int | None, int]:
        """A partition's position, and its epoch, without what is on its way."""
        before = self.taken.get(state)
        if before is None or before.moves != state.moves:
            return state.position, state.position_epoch
        return before.position, before.epoch

    def take_back(self, put_back: Callable[[CompletedFetch, DecodingProgress], bool]) -> bool:
        """Put everything back; `put_back` does so with an entry and says whether it is buffered
        still, the rest is fetched again.

        Interrupted, it begins again at the next call. Says whether something is fetched again.
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
