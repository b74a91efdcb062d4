"""Number of requests and size of offsets for many partitions; durations aren't measured."""

from __future__ import annotations

import json
from typing import Any

from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.tasks.task import input_partitions

FAR = 10_000_000_000
"""An offset of eleven digits, as in a topic that has been in use for years."""


def grow(cluster: Any, partitions: int, records: int) -> None:
    """Add `records` new records to each partition, from offset `FAR` on."""
    topic_id, _ = cluster.topics["t"]
    ends = dict.fromkeys(range(partitions), (FAR - 1, FAR + records))
    cluster.topics["t"] = (topic_id, ends)


def test_offsets_of_ten_thousand_partitions_take_one_lookup_and_less_than_a_megabyte(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    grow(cluster, 10_000, 0)
    driver = tracker()
    first = json.loads(json.dumps(driver.latest(SENTINEL)))
    cluster.calls.clear()
    grow(cluster, 10_000, 1)
    clock.at += 1
    end = driver.latest(first)
    planned = input_partitions(driver.plan(first, end))
    assert cluster.calls == ["end"]
    ranges = [p.wanted for p in planned if p.wanted is not None]
    assert [r.tp.partition for r in ranges] == list(range(10_000))
    assert all(r.size == 1 for r in ranges)
    # The first batch's offset is the largest, because it also contains each partition's start.
    assert len(json.dumps(end)) < len(json.dumps(first)) <= 1_000_000
