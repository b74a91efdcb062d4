"""Count the work of a consumer's workers over all of their runs, for its metrics.

In: the queue of each run. Out: totals that only grow, and current values, read from any thread
without a lock. Must not: change a queue.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.clients.workers.work_queue import WorkQueue


class WorkCounts(NamedTuple):
    """Numbers of finished records, of retries, and of written dead letters."""

    finished: int = 0
    retried: int = 0
    dead: int = 0


class WorkTotals:
    """Totals of all runs on one consumer, also of several workers objects, one after another."""

    def __init__(self) -> None:
        self._state: tuple[WorkCounts, WorkQueue | None] = (WorkCounts(), None)
        """Totals of earlier runs and the current run's queue, replaced together."""

    def begin(self, queue: WorkQueue) -> None:
        """Note the queue of a new run."""
        self._state = (self.counts, queue)

    @property
    def queue(self) -> WorkQueue | None:
        """Queue of the current run, or of the last one."""
        return self._state[1]

    @property
    def counts(self) -> WorkCounts:
        """Return the counters since the consumer was created."""
        past, queue = self._state
        if queue is None:
            return past
        finished, retried, dead = past
        return WorkCounts(finished + queue.finished, retried + queue.retried, dead + queue.dead)
