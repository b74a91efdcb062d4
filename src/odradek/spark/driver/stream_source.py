"""Read streaming queries: pass Spark's callbacks to the tracker.

In: Spark's calls, one after the other, in one process for each run of a query. Out: offsets,
partitions, batches. Must not: connect when it is created: a second copy is only created to be
pickled for the tasks. All state is in the tracker and ends with the process; Spark's checkpoint is
authoritative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from odradek.runtime.system_clock import SystemClock
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.group_progress import GroupProgress, make_committer
from odradek.spark.driver.offsets import SENTINEL, parse_offset
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.option_values import LONG_MAX
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.task import input_partitions, read_partition
from odradek.spark.tasks.worker_clients import process_clients
from odradek.spark.values.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One run of a streaming query on the driver, and (as a pickled copy) in its tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema, options.decoded_types())
        self._options, self._schema = options, schema
        self._tracker: OffsetTracker | None = None
        self._group: GroupProgress | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle options and schema for tasks, without the driver's clients."""
        return {**self.__dict__, "_tracker": None, "_group": None}

    def _tracking(self) -> OffsetTracker:
        if self._tracker is None:
            self._tracker = OffsetTracker(self._options, process_clients(), SystemClock())
        return self._tracker

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return a placeholder: the first end offset will contain where the query starts."""
        return dict(SENTINEL)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit this run to the log ends of its first metadata request."""
        self._tracking().freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit for Spark, in offsets or bytes; the tracker itself applies all limits.

        The result is never ReadAllAvailable, so Spark only passes that limit for Trigger.Once.
        """
        rows, size = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if rows is None and size is not None:
            return ReadMaxBytes(size)
        return ReadMaxRows(rows or LONG_MAX)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself if there are no new records."""
        if self._group is None:
            # The first call of a run: Spark doesn't report the last batch of the previous run.
            self.commit(start)
        if self._paused() and parse_offset(start) is not None:
            return start
        return self._tracking().latest(start, everything=isinstance(limit, ReadAllAvailable))

    def _paused(self) -> bool:
        """Return whether option pauseFile pauses the query.

        Raises `OptionError` if this can't be determined: `Path.exists()` would return False (for
        any error from Python 3.14 on), and a paused query would continue.
        """
        path = self._options.pause_file
        if path is None:
            return False
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise OptionError(
                f"option pauseFile: can't check whether {path} exists ({error.strerror}). The "
                "driver's user needs permission to search its folder"
            ) from error
        return True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest known log ends, for the query's progress."""
        return self._tracking().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""
        return input_partitions(self._tracking().plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs in a Python worker of an executor."""
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offset to a consumer group, if option commitOffsets is set.

        Spark's own progress is in its checkpoint.
        """
        if self._group is None:
            self._group = GroupProgress(self._options, make_committer, SystemClock())
        if self._options.commit_group is not None:
            self._group.commit(parse_offset(end))

    def stop(self) -> None:
        """Close the driver's clients; Spark usually ends the process without this call."""
        if self._tracker is not None:
            self._tracker.stop()
        if self._group is not None:
            self._group.close()
