"""Read the metrics that only a consumer has.

In: its engine, read from any thread. Out: values for its snapshot. Must not: change anything, take
the consumer's lock, or wait.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric_values import MS, MetricValues
from odradek.common.sampled import largest

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup

GROUP, FETCHES = "consumer-metrics", "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"


def add_consumer(found: MetricValues, engine: ConsumerEngine) -> None:
    """Add fetched and returned records, in total and by topic; the lag of each partition."""
    fetcher = engine.fetcher
    consumed = fetcher.waiting.consumed()
    ever = [fetcher.waiting.former, *consumed.values()]
    lags = {p: lag for p, lag in engine.subscription.lags().items() if lag is not None}
    measured = fetcher.measured
    found.add(FETCHES, "fetch-total", sum(leader.count for leader in measured))
    found.add_sampled(FETCHES, "fetch-latency", measured)
    fetches = sum(count for leader in measured for count, _, _ in leader.lately(found.now))
    found.add_throttled(FETCHES, "fetch-throttle-time", engine.network.throttled, fetches)
    found.add(FETCHES, "records-consumed-total", sum(c.records for c in ever))
    found.add(FETCHES, "bytes-consumed-total", sum(c.bytes for c in ever))
    found.add(FETCHES, "records-lag-max", max(lags.values(), default=math.nan))
    for topic, of in consumed.items():
        found.add(FETCHES, "records-consumed-total", of.records, topic=topic)
        found.add(FETCHES, "bytes-consumed-total", of.bytes, topic=topic)
    for (topic, partition), lag in lags.items():
        found.add(FETCHES, "records-lag", lag, topic=topic, partition=str(partition))
    for (topic, partition), lag in engine.subscription.committed_lags().items():
        found.add(OURS, "committed-lag", lag, topic=topic, partition=str(partition))
    found.add(OURS, "fetch-bytes-total", fetcher.fetched_bytes)
    found.add(OURS, "fetch-bytes-waiting", fetcher.waiting.bytes_held())
    found.add(OURS, "fetch-bytes-budget", engine.config["fetch.max.bytes"])
    decoding = MS * sum(c.seconds for c in ever)
    found.add(OURS, "decode-time-total", decoding)
    found.add(OURS, "batch-skipped-total", engine.events.counts.get("skipped", 0))
    found.add(COORDINATOR, "assigned-partitions", len(engine.subscription.partitions))
    if engine.group is not None:
        _add_group(found, engine.group)


def _add_group(found: MetricValues, group: ConsumerGroup) -> None:
    now, commits, rebalances = found.now, group.commits.stored.latency, group.rebalances
    polled, ended = group.last_poll(now), rebalances.ended_at
    if group.polling:
        polled = 0.0
    found.add(GROUP, "last-poll-seconds-ago", math.nan if polled is None else max(0.0, polled))
    found.add(COORDINATOR, "commit-total", commits.count)
    found.add_sampled(COORDINATOR, "commit-latency", [commits])
    beats = group.heartbeats
    found.add(COORDINATOR, "heartbeat-total", beats.count)
    longest = MS * largest([beats], now)
    found.add(COORDINATOR, "heartbeat-response-time-max", longest)
    found.add(COORDINATOR, "rebalance-total", rebalances.latency.count)
    found.add_sampled(COORDINATOR, "rebalance-latency", [rebalances.latency])
    found.add(COORDINATOR, "rebalance-latency-total", MS * rebalances.latency.total)
    ago = math.nan if ended is None else max(0.0, now - ended)
    found.add(COORDINATOR, "last-rebalance-seconds-ago", ago)
