"""Push filters down into a batch query, if Spark's setting for that is on.

In: Spark's filters, in the planner process that exists only for them. Out: a reader with narrower
ranges. Must not: be created in any other planner: with
`spark.sql.python.filterPushdown.enabled=false` (the default) Spark refuses a reader that accepts
filters, and no option tells a source the setting.

Spark 4.2 and 4.3 keep one plan for all queries over a loaded frame: if a filter narrowed it, the
next query, or the other side of a join, would lack rows without an error. So no filter is accepted
in these versions. A Spark that plans each scan is recognized by the method `pushLimit` of readers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.runtime.system_clock import SystemClock
from odradek.spark.driver.batch_source import KafkaBatchReader
from odradek.spark.driver.filters import Narrowing, narrow_by
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.tasks.task import input_partitions
from odradek.spark.tasks.worker_clients import process_clients

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from odradek.spark.options.source_options import SourceOptions

PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
"""Module of the planner that Spark runs only when the setting is on."""


LIMITS = "pushLimit"
"""Method of readers in Spark versions that keep the plans of scans apart (SPARK-58551)."""


def planner_pushes() -> bool:
    """Return whether this process is Spark's filter planner, and each scan has its own plan.

    Spark forks each planner from a process that has imported only that planner's module, so a
    loaded `PLANNER` shows it. If Spark renames this module, filters aren't pushed down.
    """
    if not hasattr(DataSourceReader, LIMITS):
        return False
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PLANNER in sys.modules or getattr(spec, "name", None) == PLANNER


class PushingBatchReader(KafkaBatchReader):
    """Batch reader that skips offsets and partitions which can't match the query's filters."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Use filters that limit offsets or partitions; return those that Spark has to apply."""
        self._narrowing, left = narrow_by(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Resolve the offsets, then drop the ranges that can't contain matching rows."""
        tracker = OffsetTracker(self._options, process_clients(), SystemClock())
        narrowing = self._narrowing
        plan = tracker.plan_batch(
            lambda ranges: narrowing.narrowed(ranges, tracker.offsets_for_times)
        )
        return list(input_partitions(plan))
