"""Define `format("odradek")`, the data source that Spark finds.

In: Spark's options and the user's schema. Out: partitions with all data that a task needs. Must
not: connect when it is created: Spark creates a source in several processes, pickles it, and
discards most copies. The readers are in `batch_source` and `stream_source`, the code of tasks is in
`tasks`.
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
    """Spark's data source for Kafka, with the JVM connector's schema and option names.

    Spark finds it without registration if the package `pyspark_odradek` is installed; otherwise
    call `spark.dataSource.register(odradek.spark.KafkaDataSource)`. Then use
    `spark.read.format("odradek")`, `spark.readStream.format("odradek")` and the writers of this
    format. A schema passed to `.schema(…)` may name a subset of the columns; the others are not
    built, which saves time.

    Columns: key (binary), value (binary), topic (string), partition (int), offset (long), timestamp
    (timestamp), timestampType (int); with option includeHeaders also headers (array<struct<key:
    string, value: binary>>). docs/spark.md describes all options.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(sealed_registry(sealed_options(options)))

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "odradek"

    def schema(self) -> StructType:
        """Return the JVM connector's schema, with headers if option includeHeaders is true."""
        given = dict(self.options)
        try:
            options = parse_options(given, STREAM)
        except KafkaError:
            # Whether the query is a batch or a stream isn't known here. Errors of both are raised
            # now, in load(), the others when the reader is created.
            options = parse_options(given, BATCH)
        return full_schema(options.include_headers, options.resolved().decoded_types())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of a batch query; it accepts filters if Spark pushes them down."""
        from odradek.spark.driver.batch_source import KafkaBatchReader
        from odradek.spark.driver.pushdown import PushingBatchReader, planner_pushes

        reader = PushingBatchReader if planner_pushes() else KafkaBatchReader
        return reader(parse_options(dict(self.options), BATCH).resolved(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Create the reader of a streaming query."""
        from odradek.spark.driver.stream_source import KafkaStreamReader

        return KafkaStreamReader(parse_options(dict(self.options), STREAM).resolved(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create the writer of a batch query."""
        from odradek.spark.sink.sink_options import parse_sink_options
        from odradek.spark.sink.writers import KafkaBatchWriter

        return KafkaBatchWriter(parse_sink_options(dict(self.options), BATCH), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Create the writer of a streaming query."""
        from odradek.spark.sink.sink_options import parse_sink_options
        from odradek.spark.sink.writers import KafkaStreamWriter

        return KafkaStreamWriter(parse_sink_options(dict(self.options), STREAM), schema)
