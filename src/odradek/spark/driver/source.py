"""`format("odradek")`: the data source that Spark finds, and the reader of batch queries.

In: Spark's options and the user's schema. Out: partitions with all a task needs. Must not connect
when it is made: Spark makes a source in several processes, pickles it, and throws most copies
away. Streams are in `stream_source`, what runs in tasks in `tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from odradek.common.errors import KafkaError
from odradek.runtime.system_clock import SystemClock
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.kafka_settings import sealed_options
from odradek.spark.options.registry_options import sealed_registry
from odradek.spark.options.source_options import BATCH, STREAM, SourceOptions, parse_options
from odradek.spark.tasks.task import batch_partitions, read_partition
from odradek.spark.tasks.worker_clients import process_clients
from odradek.spark.values.schema import check_schema, full_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkaDataSource(DataSource):
    """Spark's data source for Kafka: the JVM connector's schema and option names.

    Registered with `spark.dataSource.register(odradek.spark.KafkaDataSource)`, or found by Spark
    itself where the package `pyspark_odradek` is installed; then `spark.read.format("odradek")`
    and `spark.readStream.format("odradek")` work. A schema given by the user may name any of the
    columns: the others are never built, which saves time.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(sealed_registry(sealed_options(options)))

    @classmethod
    def name(cls) -> str:
        """Give the name for `format(…)`."""
        return "odradek"

    def schema(self) -> StructType:
        """Give the JVM connector's schema, with headers if they are asked for."""
        given = dict(self.options)
        try:
            options = parse_options(given, STREAM)
        except KafkaError:
            # Whether it is a batch or a stream isn't known here. What is wrong for both is
            # refused now, in load(); the rest when the reader is made.
            options = parse_options(given, BATCH)
        return full_schema(options.include_headers, options.resolved().decoded_types())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query; one that takes filters where Spark hands them over."""
        from odradek.spark.driver.pushdown import PushingBatchReader, planner_pushes

        reader = PushingBatchReader if planner_pushes() else KafkaBatchReader
        return reader(parse_options(dict(self.options), BATCH).resolved(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Make the reader of a streaming query."""
        from odradek.spark.driver.stream_source import KafkaStreamReader

        return KafkaStreamReader(parse_options(dict(self.options), STREAM).resolved(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch query."""
        from odradek.spark.sink.sink_options import parse_sink_options
        from odradek.spark.sink.writers import KafkaBatchWriter

        return KafkaBatchWriter(parse_sink_options(dict(self.options), BATCH), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Make the writer of a streaming query."""
        from odradek.spark.sink.sink_options import parse_sink_options
        from odradek.spark.sink.writers import KafkaStreamWriter

        return KafkaStreamWriter(parse_sink_options(dict(self.options), STREAM), schema)


class KafkaBatchReader(DataSourceReader):
    """Reads a range of offsets of every partition, fixed when the query is planned.

    Spark plans a loaded frame once and runs it often; what its later runs read says `later_runs`.
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
