"""The reader of streaming queries: Spark's callbacks, each handed on to the tracker.

In: Spark's calls, one after the other, in one process for each run of a query. Out: offsets,
partitions, batches. Must not connect when it is made: a second copy is made only to be pickled for
the tasks. All state is in the tracker and dies with the process; Spark's checkpoint is the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from odradek.runtime.system_clock import SystemClock
from odradek.spark.offsets import SENTINEL
from odradek.spark.options import LONG_MAX, SourceOptions
from odradek.spark.schema import check_schema
from odradek.spark.source import PlanningClients
from odradek.spark.tasks import input_partitions, read_partition
from odradek.spark.tracker import OffsetTracker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One run of a streaming query on its driver, and (as a pickled copy) its tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options, self._schema = options, schema
        self._tracker: OffsetTracker | None = None
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get options and schema; the driver's client stays where it is."""
        return {**self.__dict__, "_tracker": None}

    def _tracking(self) -> OffsetTracker:
        if self._tracker is None:
            self._tracker = OffsetTracker(self._options, PlanningClients(), SystemClock())
        return self._tracker

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Say that nothing is resolved yet: the first end will carry where the query started."""
        return dict(SENTINEL)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the partitions and ends that this run reads up to."""
        self._available_now = True
        self._tracking().freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Give maxOffsetsPerTrigger.

        Never ReadAllAvailable: so that, when Spark passes that one, it must be Trigger.Once.
        """
        return ReadMaxRows(self._options.max_offsets_per_trigger or LONG_MAX)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Give the end of the next batch; `start` itself where nothing is new."""
        once = isinstance(limit, ReadAllAvailable)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._tracking().latest(start, rows, patient=once or self._available_now)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Give the newest known ends for the query's progress."""
        return self._tracking().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Give the ranges between two offsets."""
        return input_partitions(self._tracking().plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs in a Python worker of an executor."""
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds the offsets."""

    def stop(self) -> None:
        """Close the driver's client. Spark usually just ends the process."""
        if self._tracker is not None:
            self._tracker.stop()
