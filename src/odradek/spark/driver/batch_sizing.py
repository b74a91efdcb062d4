"""Decide how much of the lag one micro-batch takes: limits in offsets and bytes, and delays.

In: positions and ends of partitions. Out: the end of the batch. Pure: no cluster, no clock, no
Spark; `byte_rates` measures the bytes per offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.common.types import TopicPartition
from odradek.spark.driver.offsets import Positions

UNWEIGHED_BYTES = 1 << 20
"""Assumed bytes of an offset without an estimate: the brokers' default of `message.max.bytes`."""


def proportional_ends(limit: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Distribute `limit` offsets over partitions in proportion to lag, as the JVM connector does.

    A share below one is rounded up to one, so that a small partition beside a large one isn't
    starved. The sum can therefore exceed the limit by the number of small partitions.
    """
    sizes = {tp: max(0, end - begins.get(tp, end)) for tp, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    found = {}
    for tp, end in ends.items():
        share = max(1, limit * sizes[tp] // total) if sizes[tp] else 0
        found[tp] = begins[tp] + min(share, sizes[tp]) if sizes[tp] else end
    return found


def ends_for_bytes(
    limit: int, starts: Positions, ends: Positions, sizes: Mapping[TopicPartition, float | None]
) -> dict[TopicPartition, int]:
    """Choose end offsets so that a batch has at most `limit` bytes.

    A partition whose record size is unknown gets an equal share of the limit, converted to offsets
    with an assumed record size (at least one offset). The bytes that remain are divided among the
    other partitions in proportion to their lag.
    """
    lags = {tp: end - starts[tp] for tp, end in ends.items() if end > starts.get(tp, end)}
    found, left = dict(ends), float(limit)
    for tp in [tp for tp in lags if sizes[tp] is None]:
        few = max(1, int(limit / len(lags) / UNWEIGHED_BYTES))
        found[tp] = starts[tp] + min(few, lags[tp])
        left -= min(few * UNWEIGHED_BYTES, limit / len(lags))
    weighed = {tp: size for tp in lags if (size := sizes[tp]) is not None}
    total = sum(lags[tp] * size for tp, size in weighed.items())
    if weighed and total > left:  # `left` may be negative by rounding
        offsets = max(1, int(sum(lags[tp] for tp in weighed) * (max(0.0, left) / total)))
        found |= proportional_ends(offsets, starts, {tp: ends[tp] for tp in weighed})
    return found


@dataclass(slots=True)
class Pacing:
    """Decides whether a micro-batch waits for more records (minOffsetsPerTrigger), in one run."""

    least: int | None
    longest: float
    """maxTriggerDelay in seconds."""
    _last: float | None = None
    """When the last batch was released; None in a new run, whose first batch doesn't wait."""

    def holds_back(self, begins: Positions, ends: Positions, now: float) -> bool:
        """Return whether the batch waits; if it doesn't, restart the delay.

        The delay restarts even if there is nothing to read, as in the JVM connector.
        """
        if self.least is None:
            return False
        fresh = sum(max(0, end - begins.get(tp, end)) for tp, end in ends.items())
        waited = None if self._last is None else now - self._last
        if fresh < self.least and waited is not None and waited < self.longest:
            return True
        self.let_go(now)
        return False

    def let_go(self, now: float) -> None:
        """Restart the delay; called directly for the first batch of a query, which never waits."""
        self._last = now
