"""Order a group's commits: first come, first served.

In: requests for a turn, and the ends of commits. Out: each commit's turn. There is one commit at a
time, so an older commit that is retried never overwrites a newer one. Thousands may wait: each
waits for its own turn, so the end of a commit wakes only one of them. Must not: know the content of
commits.

A commit with a topic that the coordinator doesn't know is retried for 5 s (auto-commits: 1 s), not
until its deadline as in Java, because other commits and rebalances wait for it.
"""

from __future__ import annotations

from collections import deque

from odradek.network.flow import Completion


class CommitQueue:
    """The running commit, and those that wait."""

    def __init__(self) -> None:
        self._line: deque[Completion[None]] = deque()
        """Turns of the running commit (the first) and of the waiting ones."""
        self._gone: set[Completion[None]] = set()
        """Commits that stopped waiting; they are removed when they come to the front."""

    def __len__(self) -> int:
        return len(self._line) - len(self._gone)

    def enter(self) -> Completion[None]:
        """Enter the queue; the result is completed when it is this commit's turn."""
        turn: Completion[None] = Completion()
        self._line.append(turn)
        if len(self._line) == 1:
            turn.complete(None)
        return turn

    def leave(self, turn: Completion[None]) -> None:
        """End a turn, even one that hasn't started."""
        self._gone.add(turn)
        if not turn.done:
            return
        while self._line and self._line[0] in self._gone:
            self._gone.remove(self._line.popleft())
        if self._line:
            self._line[0].complete(None)
