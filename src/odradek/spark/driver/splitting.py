"""Divide ranges into tasks by maxRecordsPerPartition and minPartitions, as the JVM connector does.

In: one range for each partition of a topic. Out: as many or more ranges, in order, with exactly the
same offsets. The result only depends on the ranges: a replayed batch gets the same tasks, which
exactly-once sinks rely on. Must not: use anything but its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from odradek.spark.driver.planning import KafkaOffsetRange


def split(
    ranges: Sequence[KafkaOffsetRange], min_partitions: int | None, max_records: int | None
) -> list[KafkaOffsetRange]:
    """Divide large ranges; if there are too few tasks, divide more, in proportion to size."""
    found = list(ranges)
    if max_records is not None:
        found = [part for r in found for part in _divided(r, -(-r.size // max_records))]
    if min_partitions is None or not found or len(found) >= min_partitions:
        return found
    total = sum(r.size for r in found)
    # Ranges too small to be divided, and all ranges of their partitions, are left out of the
    # calculation, so that large ranges get more tasks. The JVM connector does the same.
    small = {r.tp for r in found if _parts(r.size, total, min_partitions) == 1}
    left = [r for r in found if _parts(r.size, total, min_partitions) > 1]
    large = sum(r.size for r in left)
    wanted = max(min_partitions - (len(found) - len(left)), 1)
    return [
        part
        for r in found
        for part in _divided(r, 1 if r.tp in small else _parts(r.size, large, wanted))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    # Java rounds halves up.
    return max(math.floor(size / total * wanted + 0.5), 1)


def _divided(whole: KafkaOffsetRange, parts: int) -> list[KafkaOffsetRange]:
    found, start, left = [], whole.start, whole.size
    for part in range(parts):
        size = left // (parts - part)  # rounded down, so later ranges are one offset larger
        left -= size
        if size:
            found.append(replace(whole, start=start, until=start + size))
        start += size
    return found
