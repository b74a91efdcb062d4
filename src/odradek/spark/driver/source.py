"""`format("odradek")`: the data source that Spark finds.

In: Spark's options and the user's schema. Out: partitions with all a task needs. Must not connect
when it is made: Spark makes a source in several processes, pickles it, and throws most copies
away. The readers are in `batch_source` and `stream_source`, what runs in tasks in `tasks`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from odradek.common.errors import KafkaError
from odradek.spark.options.kafka_settings import sealed_options
from odradek.spark.options.registry_options import sealed_registry
from odradek.spark.options.source_options import BATCH, STREAM, parse_options
from odradek.spark.values.schema import full_schema

if TYPE_CHECKING:
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
        from odradek.spark.driver.batch_source import KafkaBatchReader
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
