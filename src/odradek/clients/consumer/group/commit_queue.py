"""The order of a group's commits: first come, first served.

In: a commit, when it is asked for and when it has ended, however that comes about. Out: its turn.
One at a time: an older commit that is repeated never overwrites a newer one. Thousands may wait:
each waits for its own turn, so a commit that ends wakes one of them. Must not: know what they say.
"""

from __future__ import annotations

from collections import deque

from odradek.network.flow import Completion


class CommitQueue:
    """Who commits now, and who is next."""

    def __init__(self) -> None:
        self._line: deque[Completion[None]] = deque()
        """The first one has its turn."""
        self._gone: set[Completion[None]] = set()
        """Those that didn't wait for it: taken out when they come to the front."""

    def __len__(self) -> int:
        return len(self._line) - len(self._gone)

    def enter(self) -> Completion[None]:
        """Stand at the end; what is given is done when it is this one's turn."""
        turn: Completion[None] = Completion()
        self._line.append(turn)
        if len(self._line) == 1:
            turn.complete(None)
        return turn

    def leave(self, turn: Completion[None]) -> None:
        """End a turn, whether it has begun or not."""
        self._gone.add(turn)
        if not turn.done:
            return
        while self._line and self._line[0] in self._gone:
            self._gone.remove(self._line.popleft())
        if self._line:
            self._line[0].complete(None)
