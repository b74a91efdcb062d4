"""How much of the lag one micro-batch takes: limits in offsets and bytes, and what it waits for.

In: where partitions stand and where they end. Out: where the batch ends. Pure: no cluster, no
clock, no Spark; `byte_rates` measures what an offset weighs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.common.types import TopicPartition
from odradek.spark.driver.offsets import Positions

UNWEIGHED_BYTES = 1 << 20
"""What an offset is taken for that nobody could weigh: `message.max.bytes` as brokers have it."""


def proportional_ends(limit: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Share `limit` offsets out over partitions by their lag, as the JVM connector does.

    A share below one is rounded up to one, so that a small partition beside a large one isn't
    starved; hence the sum can pass the limit by as many offsets as there are small partitions.
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
    """Share `limit` bytes out: all weighed partitions give the same part of their lag.

    Those without a size are no reason to drop the limit, nor to slow the others down. Each gets
    an equal part of it, and as many offsets as fit in if they are as large as brokers usually take;
    at least one, so that it goes on. What they leave is for the weighed ones.
    """
    lags = {tp: end - starts[tp] for tp, end in ends.items() if end > starts.get(tp, end)}
    found, left = dict(ends), float(limit)
    for tp in [tp for tp in lags if sizes[tp] is None]:
        few = max(1, int(limit / len(lags) / UNWEIGHED_BYTES))
        found[tp] = starts[tp] + min(few, lags[tp])
        left -= min(few * UNWEIGHED_BYTES, limit / len(lags))
    weighed = {tp: size for tp in lags if (size := sizes[tp]) is not None}
    total = sum(lags[tp] * size for tp, size in weighed.items())
    if weighed and total > left:  # rounding may leave a little less than nothing
        offsets = max(1, int(sum(lags[tp] for tp in weighed) * (max(0.0, left) / total)))
        found |= proportional_ends(offsets, starts, {tp: ends[tp] for tp in weighed})
    return found


@dataclass(slots=True)
class Pacing:
    """minOffsetsPerTrigger: whether a micro-batch waits for more; one for each run of a query."""

    least: int | None
    longest: float
    """maxTriggerDelay."""
    _last: float | None = None
    """When the last batch was let go; None in a new run, whose first batch doesn't wait."""

    def holds_back(self, begins: Positions, ends: Positions, now: float) -> bool:
        """Tell whether to wait; not to starts the delay anew, as in the JVM connector also where
        there is nothing to be read.
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
        """A batch begins that nobody was asked about: a new query's first one."""
        self._last = now
