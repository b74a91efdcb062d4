"""What runs in a Python worker of an executor: one range of one partition, from plan to batches.

In: the partition that a planner pickled, the query's options and schema. Out: the iterator of
Arrow batches that Spark drains. Must not plan, and must not ask for metadata that the planner
shipped. `reading` does the reading, `worker_clients` keeps the client between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from odradek.common.errors import KafkaError
from odradek.runtime.system_clock import SystemClock
from odradek.spark.options import SourceOptions
from odradek.spark.planning import OffsetRange
from odradek.spark.reading import RangeReader, ReadLimits
from odradek.spark.schema import arrow_schema, check_schema
from odradek.spark.tracker import Plan
from odradek.spark.values import Decoder
from odradek.spark.worker_clients import Hint, known_topic_id, process_clients
from odradek.spark.worker_process import task_begins

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FETCHED_AHEAD = 24 << 20
"""Bytes a worker may have fetched and under way (`fetch.max.bytes` unless the user says it).

Half of it waits and half is under way, so about three answers of 8 MB at most.
"""


class KafkaInputPartition(InputPartition):
    """One range of one partition, with the cluster's picture that spares a task the metadata."""

    def __init__(
        self, wanted: OffsetRange, cluster: str, topic_id: str | None, hint: Hint | None
    ) -> None:
        super().__init__(str(wanted.tp))
        self.wanted, self.cluster, self.topic_id, self.hint = wanted, cluster, topic_id, hint


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
    task_begins()
    clients = process_clients()
    config = task_config(options, partition.cluster)
    consumer = clients.checkout(config, partition.hint, fresh=_attempt() > 0)
    known = known_topic_id(consumer, partition.wanted.tp.topic)
    if None not in (known, partition.topic_id) and known != partition.topic_id:
        # This worker last read the topic before it was made anew; the planner knows better.
        consumer = clients.checkout(config, partition.hint, fresh=True)
    columns, target = check_schema(schema, options.value_type()), arrow_schema(schema)
    limits = ReadLimits(
        options.poll_timeout,
        options.outage_tolerance,
        options.fail_on_data_loss,
        options.null_timestamps,
    )
    reader = RangeReader(consumer, partition.wanted, partition.topic_id, limits, SystemClock())
    try:
        yield from reader.batches(columns, target, decoder_of(options, columns, target))
    except KafkaError:
        # Whatever it was, the next task shall not inherit it; Spark ends this worker anyway.
        clients.drop(consumer)
        raise
    finally:
        clients.release(consumer)  # also where Spark wants no more (a limit); dropped is dropped


def decoder_of(
    options: SourceOptions, columns: tuple[str, ...], target: pa.Schema
) -> Decoder | None:
    """What decodes the values, where that is asked for and the query reads them at all."""
    if options.value_format is None or "value" not in columns:
        return None
    kind = target.field(columns.index("value")).type
    return options.value_format.decoder(kind)


def task_config(options: SourceOptions, cluster: str | None) -> dict[str, Any]:
    """What a task's client is made with: what it may fetch ahead is bounded for small executors."""
    config = options.consumer_config(cluster)
    config.setdefault("fetch.max.bytes", FETCHED_AHEAD)
    return config


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
