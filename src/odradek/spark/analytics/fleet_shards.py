"""Simulate fleets of clients on Spark's executors, for fleets that are too large for one machine.

In: a session, the plan of a fleet, the slices (groups of clients) that remain. Out: their counts,
added up by Spark per case, broker and window, wave by wave, so that the caller can show progress
and save results. A task simulates one slice, client by client, and keeps only counts: its memory
doesn't grow with the fleet. A client's behaviour depends only on the seed and its number, so the
division into slices doesn't change the result. Must not: need more on executors than this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.simulation.measurements.fleet import Load
from odradek.simulation.measurements.fleet_slices import FleetPlan, Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "case int, what string, broker int, at int, count long"
TASKS_PER_CORE = 8
"""Number of slices (tasks) per core in a wave: with more, fewer cores are idle at its end."""


def _simulated(
    plan: FleetPlan, wave: Sequence[Slice], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Simulate in a task the slices of `wave` with the indexes in `batches`; yield their counts."""
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield _rows(wave[index].case, plan.run(wave[index]))


def _rows(case: int, load: Load) -> pa.RecordBatch:
    """Return the counts of one group of clients as Arrow rows."""
    keys = list(load.counts)
    columns = [
        pa.array([case] * len(keys), pa.int32()),
        pa.array([what for what, _, _ in keys], pa.string()),
        pa.array([broker for _, broker, _ in keys], pa.int32()),
        pa.array([at for _, _, at in keys], pa.int32()),
        pa.array(list(load.counts.values()), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["case", "what", "broker", "at", "count"])


def default_shards(spark: SparkSession) -> int:
    """Return the number of tasks per wave: `TASKS_PER_CORE` for each core."""
    from pyspark.sql import functions as f

    spread = spark.range(10_000).select(f.spark_partition_id().alias("part")).distinct()
    return TASKS_PER_CORE * max(1, spread.count())


def simulate_shards(
    spark: SparkSession, plan: FleetPlan, todo: Sequence[Slice], shards: int
) -> Iterator[tuple[list[Slice], list[Load]]]:
    """Simulate in waves of `shards` tasks; yield the slices of each wave and their counts."""
    from pyspark.sql import functions as f

    for start in range(0, len(todo), shards):
        wave = list(todo[start : start + shards])
        rows = spark.range(0, len(wave), 1, len(wave)).mapInArrow(
            partial(_simulated, plan, wave), SCHEMA
        )
        merged = rows.groupBy("case", "what", "broker", "at").agg(f.sum("count").alias("count"))
        yield wave, _loads(plan, wave, merged.toArrow())


def _loads(plan: FleetPlan, wave: Sequence[Slice], merged: pa.Table) -> list[Load]:
    """Return the counts of a wave, one `Load` for each of its cases."""
    loads = {part.case: Load(plan.cases[part.case]) for part in wave}
    for part in wave:
        loads[part.case].clients += part.clients
    columns = (merged.column(name).to_pylist() for name in merged.column_names)
    for case, what, broker, at, count in zip(*columns, strict=True):
        loads[case].counts[what, broker, at] += count
    return [loads[case] for case in sorted(loads)]
