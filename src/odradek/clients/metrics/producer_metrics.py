"""Read the metrics that only a producer has.

In: its engine, read from any thread. Out: values for its snapshot. Must not: change anything, take
the accumulator's lock, or wait.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric_values import MS, MetricValues, ratio

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine

GROUP, TOPICS = "producer-metrics", "producer-topic-metrics"


def add_producer(found: MetricValues, engine: ProducerEngine) -> None:
    """Add sent records, in total and by topic; the buffer."""
    counts, accumulator = engine.sender.counts, engine.accumulator
    topics = dict(counts.topics)
    ever = [counts.former, *topics.values()]
    for name, value in (
        ("record-send-total", sum(t.records for t in ever)),
        ("record-retry-total", sum(t.retried for t in ever)),
        ("record-error-total", sum(t.failed for t in ever)),
        ("batch-split-total", engine.events.counts.get("split", 0)),
    ):
        found.add(GROUP, name, value)
    seen = counts.lately(found.now)
    batches, requests = sum(s.batches for s in seen), sum(s.requests for s in seen)
    size, records = sum(s.bytes for s in seen), sum(s.records for s in seen)
    found.add(GROUP, "batch-size-avg", ratio(size, batches))
    found.add(GROUP, "batch-size-max", max((s.largest for s in seen), default=math.nan))
    queued = MS * sum(s.queued for s in seen)
    found.add(GROUP, "record-queue-time-avg", ratio(queued, batches))
    longest = max((s.longest for s in seen), default=math.nan)
    found.add(GROUP, "record-queue-time-max", MS * longest)
    found.add(GROUP, "records-per-request-avg", ratio(records, requests))
    found.add_throttled(GROUP, "produce-throttle-time", engine.network.throttled, requests)
    found.add(GROUP, "buffer-total-bytes", accumulator.limit)
    found.add(GROUP, "buffer-available-bytes", max(0, accumulator.limit - accumulator.used))
    found.add(GROUP, "waiting-threads", len(accumulator.waiters))
    found.add(OURS, "record-acknowledged-total", engine.sender.batch_completion.acknowledged)
    for topic, of in topics.items():
        found.add(TOPICS, "record-send-total", of.records, topic=topic)
        found.add(TOPICS, "byte-total", of.bytes, topic=topic)
        found.add(TOPICS, "record-retry-total", of.retried, topic=topic)
        found.add(TOPICS, "record-error-total", of.failed, topic=topic)
