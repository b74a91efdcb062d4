"""`format("odradek")`: the data source that Spark finds, and the reader of batch queries.

In: Spark's options and the user's schema. Out: partitions with all a task needs, and a task's
iterator of Arrow batches. Must not connect when it is made: Spark makes a source in several
processes, pickles it, and throws most copies away. Streams are in `stream_source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)

from odradek.common.errors import KafkaError, UnsupportedFeatureError
from odradek.runtime.system_clock import SystemClock
from odradek.spark.options import BATCH, STREAM, SourceOptions, parse_options, sealed_options
from odradek.spark.planning import OffsetRange
from odradek.spark.reading import RangeReader, ReadLimits
from odradek.spark.schema import arrow_schema, check_schema, full_schema
from odradek.spark.tracker import OffsetTracker, Plan
from odradek.spark.worker_clients import (
    ClusterConsumer,
    Hint,
    known_topic_id,
    process_clients,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NO_SINK = 'writing with format("odradek") isn\'t in this release yet; odradek.Producer writes'


class KafkaInputPartition(InputPartition):
    """One range of one partition, with the cluster's picture that spares a task the metadata."""

    def __init__(
        self, wanted: OffsetRange, cluster: str, topic_id: str | None, hint: Hint | None
    ) -> None:
        super().__init__(str(wanted.tp))
        self.wanted, self.cluster, self.topic_id, self.hint = wanted, cluster, topic_id, hint


class PlanningClients:
    """The process's cached clients as the tracker sees them."""

    def connect(self, config: Mapping[str, Any]) -> ClusterConsumer:
        """Give the planner process's client."""
        return process_clients().checkout(config)

    def drop(self, client: ClusterConsumer) -> None:
        """Forget one that failed."""
        process_clients().drop(client)


def input_partitions(plan: Plan) -> list[KafkaInputPartition]:
    """Pack a plan for its tasks: one partition of Spark for each range."""
    return [
        KafkaInputPartition(wanted, plan.cluster, plan.topic_ids.get(wanted.tp.topic), plan.hint)
        for wanted in plan.ranges
    ]


def read_partition(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read one partition in a task; the generator of batches that Spark drains."""
    if not isinstance(partition, KafkaInputPartition):
        return  # Spark replaces an empty list of partitions by one InputPartition(None)
    clients = process_clients()
    config = options.consumer_config(partition.cluster)
    consumer = clients.checkout(config, partition.hint, fresh=_attempt() > 0)
    known = known_topic_id(consumer, partition.wanted.tp.topic)
    if None not in (known, partition.topic_id) and known != partition.topic_id:
        # This worker last read the topic before it was made anew; the planner knows better.
        consumer = clients.checkout(config, partition.hint, fresh=True)
    limits = ReadLimits(options.poll_timeout, options.outage_tolerance, options.fail_on_data_loss)
    reader = RangeReader(consumer, partition.wanted, partition.topic_id, limits, SystemClock())
    try:
        yield from reader.batches(check_schema(schema), arrow_schema(schema))
    except KafkaError:
        # Whatever it was, the next task shall not inherit it; Spark ends this worker anyway.
        clients.drop(consumer)
        raise


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


class KafkaDataSource(DataSource):
    """Spark's data source for Kafka: the JVM connector's schema and option names.

    Registered with `spark.dataSource.register(odradek.spark.KafkaDataSource)`, or found by Spark
    itself where the package `pyspark_odradek` is installed; then `spark.read.format("odradek")`
    and `spark.readStream.format("odradek")` work. A schema given by the user may name any of the
    columns: the others are never built, which saves time.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(sealed_options(options))

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
        return full_schema(options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query."""
        return KafkaBatchReader(parse_options(dict(self.options), BATCH), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Make the reader of a streaming query."""
        from odradek.spark.stream_source import KafkaStreamReader

        return KafkaStreamReader(parse_options(dict(self.options), STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse: the sink comes later."""
        raise UnsupportedFeatureError(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """Refuse: the sink comes later."""
        raise UnsupportedFeatureError(_NO_SINK)


class KafkaBatchReader(DataSourceReader):
    """Reads a fixed range of offsets of every partition, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the offsets; runs in a planner process of the driver."""
        tracker = OffsetTracker(self._options, PlanningClients(), SystemClock())
        return list(input_partitions(tracker.plan_batch()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs in a Python worker of an executor."""
        return read_partition(self._options, self._schema, partition)
