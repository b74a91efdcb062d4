"""How much of the lag one micro-batch takes: limits in offsets and bytes, and what it waits for.

In: where partitions stand and where they end. Out: where the batch ends. Pure: no cluster, no
clock, no Spark; `byte_rates` measures what an offset weighs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.common.types import TopicPartition
from odradek.spark.offsets import Positions


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


def offsets_for_bytes(
    limit: int, begins: Positions, ends: Positions, weights: Mapping[TopicPartition, float]
) -> int | None:
    """How many offsets weigh `limit` bytes when all partitions give the same part of their lag.

    None where everything weighs less, so that there is nothing to limit.
    """
    offsets, total = 0, 0.0
    for tp, end in ends.items():
        size = max(0, end - begins.get(tp, end))
        offsets += size
        total += size * weights[tp]
    if total <= limit:
        return None
    return max(1, int(offsets * (limit / total)))


@dataclass(slots=True)
class Pacing:
    """minOffsetsPerTrigger: whether a micro-batch waits for more; one for each run of a query."""

    least: int | None
    longest: float
    """maxTriggerDelay."""
    _last: float | None = None
    """When the last batch was let go; None in a new run, whose first batch doesn't wait."""

    def holds_back(self, begins: Positions, ends: Positions, now: float) -> bool:
        """Tell whether to wait; letting a batch go starts the delay anew."""
        if self.least is None:
            return False
        fresh = sum(max(0, end - begins.get(tp, end)) for tp, end in ends.items())
        waited = None if self._last is None else now - self._last
        if fresh < self.least and waited is not None and waited < self.longest:
            return True
        if fresh:
            self._last = now
        return False
