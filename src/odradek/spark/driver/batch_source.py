"""The reader of batch queries: partitions are planned in the driver and read by tasks.

In: options and the user's schema. Out: partitions with all that a task needs, and their batches.
Must not connect when it is created: Spark pickles a reader and creates it in several processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.runtime.system_clock import SystemClock
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.task import batch_partitions, read_partition
from odradek.spark.tasks.worker_clients import process_clients
from odradek.spark.values.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkaBatchReader(DataSourceReader):
    """Reads a range of offsets of every partition, fixed when the query is planned.

    Spark plans a loaded frame once, but may run the plan for several queries; `cached_plans`
    decides what later queries read.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema, options.decoded_types())
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the offsets; runs in a planner process of the driver."""
        clock = SystemClock()
        tracker = OffsetTracker(self._options, process_clients(), clock)
        plan = tracker.plan_batch()
        return list(batch_partitions(plan, clock.date_ms()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs in a Python worker of an executor."""
        return read_partition(self._options, self._schema, partition)
