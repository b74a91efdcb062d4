"""Extract positions and lag of Kafka sources from the progress of a streaming query.

In: progress as Spark reports it (`query.lastProgress`, a listener's event). Out: numbers for each
partition. Must not: import pyspark, or access a cluster: the source on the driver has already
reported its offsets to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek.common.types import TopicPartition


def lag(progress: Mapping[str, Any] | None) -> dict[TopicPartition, int]:
    """Return the lag of a streaming query after a batch, in offsets, by partition.

    `progress` is `query.lastProgress`, an element of `query.recentProgress`, or the progress of a
    listener's event as a dict; for None (no batch yet) the result is empty. The minimum, maximum
    and mean of the result are the JVM connector's metrics `minOffsetsBehindLatest`, `max…` and
    `avg…`, which Spark doesn't accept from a Python source. There may be more offsets than records
    (compaction, transactions). Works for both connectors.

        lag(query.lastProgress)  # {TopicPartition(topic='flights', partition=0): 17}
    """
    found: dict[TopicPartition, int] = {}
    for source in () if progress is None else progress["sources"]:
        ends, latest = positions(source["endOffset"]), positions(source["latestOffset"])
        found |= {tp: max(0, end - ends[tp]) for tp, end in latest.items() if tp in ends}
    return found


def positions(offset: Any) -> dict[TopicPartition, int]:
    """Parse an offset of a query's progress by partition; empty for sources other than Kafka."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping):
        return {}
    topics = offset.get("o") if isinstance(offset.get("v"), int) else offset
    if not isinstance(topics, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): number
        for topic, partitions in topics.items()
        if isinstance(partitions, Mapping)
        for partition, number in partitions.items()
        if isinstance(number, int) and partition.isdecimal()
    }
