"""Read the metrics that a consumer has while workers use it.

In: the workers' counters, read from any thread. Out: values for its snapshot. Must not: change
anything, or wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric_values import MetricValues

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.clients.workers.work_totals import WorkTotals


def add_work(found: MetricValues, engine: ConsumerEngine, totals: WorkTotals) -> None:
    """Add running, buffered and finished work, and the age of the oldest."""
    counts, queue = totals.counts, totals.queue
    found.add(OURS, "work-finished-total", counts.finished)
    found.add(OURS, "work-retry-total", counts.retried)
    found.add(OURS, "work-dead-letter-total", counts.dead)
    if queue is None:
        return
    oldest, longest = queue.oldest(), queue.longest()
    found.add(OURS, "work-running", queue.in_work)
    found.add(OURS, "work-waiting", queue.waiting)
    found.add(OURS, "work-buffered-bytes", queue.bytes)
    paused = sum(state.paused for state in list(engine.subscription.partitions.values()))
    found.add(OURS, "work-paused-partitions", paused)
    ages = (0.0 if at is None else max(0.0, found.now - at) for at in (oldest, longest))
    for name, age in zip(("work-oldest-seconds", "work-longest-seconds"), ages, strict=True):
        found.add(OURS, name, age)
