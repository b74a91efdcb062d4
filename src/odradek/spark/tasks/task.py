"""Run in a Python worker of an executor: one range of one partition, from plan to batches.

In: the partition that a planner pickled, the query's options and schema. Out: the iterator of Arrow
batches that Spark drains. Must not: plan, or request metadata that the planner passed along.
`reading` reads, `worker_clients` keeps the client between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from odradek.common.errors import KafkaError
from odradek.runtime.system_clock import SystemClock
from odradek.spark.driver.discovery import UnconfirmedObservation
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.tracker import BatchPlan
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.sink.dead_letters import DeadLetters
from odradek.spark.sink.sink_clients import process_producers
from odradek.spark.sink.sink_options import FIRST_CONTACT
from odradek.spark.sink.sink_sending import Patience
from odradek.spark.tasks.cached_plans import (
    BATCH_ID,
    QUERY_ID,
    OldPlans,
    Share,
    is_later,
    plan_anew,
    shares,
)
from odradek.spark.tasks.reading import ENOUGH_BYTES, RangeReader
from odradek.spark.tasks.worker_clients import Hint, known_topic_id, process_clients
from odradek.spark.tasks.worker_process import task_begins
from odradek.spark.values.decoding import ValueDecoder
from odradek.spark.values.schema import arrow_schema, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from odradek.api.consumer import Consumer

FETCHED_AHEAD = 24 << 20
"""Bytes of fetched records in a worker, buffered or in flight (default of `fetch.max.bytes`).

Half of it is buffered and half in flight, so about three responses of 8 MB at most.
"""


class KafkaInputPartition(InputPartition):
    """One range of one partition, with metadata that saves the task a metadata request.

    `share` says what this task reads if a later query runs the same plan; None: the same range.
    """

    def __init__(
        self,
        wanted: KafkaOffsetRange | None,
        cluster: str,
        topic_id: str | None,
        hint: Hint | None,
        share: Share | None = None,
    ) -> None:
        super().__init__("nothing" if wanted is None else str(wanted.tp))
        self.wanted, self.cluster, self.topic_id, self.hint = wanted, cluster, topic_id, hint
        self.share = share


def input_partitions(plan: BatchPlan) -> list[KafkaInputPartition]:
    """Return a Spark partition for each range of a plan."""
    return [
        KafkaInputPartition(wanted, plan.cluster, plan.topic_ids.get(wanted.tp.topic), plan.hint)
        for wanted in plan.ranges
    ]


def batch_partitions(plan: BatchPlan, planned_at: int) -> list[KafkaInputPartition]:
    """Return a batch query's Spark partitions; queries created after `planned_at` plan again."""
    found: list[KafkaInputPartition] = input_partitions(plan)
    found = found or [KafkaInputPartition(None, plan.cluster, None, plan.hint)]
    for partition, share in zip(found, shares(plan.ranges, planned_at), strict=True):
        partition.share = share
    return found


class LostRecordChecks:
    """How long a loss of records has been in doubt, for all ranges of a batch in one worker.

    The time is counted from the first observation, so a new batch must start with a new count.
    """

    def __init__(self) -> None:
        self._batch: tuple[object, ...] | None = None
        self._doubt: UnconfirmedObservation | None = None

    def of_batch(
        self, options: SourceOptions, clock: SystemClock, partition: KafkaInputPartition
    ) -> UnconfirmedObservation:
        """Return the state of the running micro-batch, or of the running query over this plan."""
        planned_at = None if partition.share is None else partition.share.planned_at
        batch = _property(QUERY_ID), _property(BATCH_ID), planned_at, partition.cluster
        if self._doubt is None or batch != self._batch:
            self._batch, self._doubt = batch, UnconfirmedObservation(options, clock)
        return self._doubt


_DOUBTS = LostRecordChecks()
_OLD_PLANS = OldPlans()


class TaskClients:
    """The worker's cached clients, for a tracker that plans within a task."""

    def __init__(self, options: SourceOptions, partition: KafkaInputPartition) -> None:
        self._config, self._hint = task_config(options, partition.cluster), partition.hint
        self._fresh = _attempt() > 0
        self._client: Consumer | None = None

    def connect(self, config: Mapping[str, Any]) -> Consumer:
        """Return the client that will also read the records; `config` (a planner's) is ignored."""
        self._client = process_clients().connect(self._config, self._hint, fresh=self._fresh)
        return self._client

    def drop(self, client: Consumer) -> None:
        """Close a client that has failed, or whose metadata is older than what brokers describe.

        The next client starts without the planner's metadata, which is just as outdated.
        """
        self._hint = None
        process_clients().drop(client)

    def release(self) -> None:
        """Release the client after planning; it is kept for reading."""
        if self._client is not None:
            process_clients().release(self._client)


def read_partition(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read one partition in a task; yields the batches for Spark."""
    if not isinstance(partition, KafkaInputPartition):
        return  # Spark replaces an empty list of partitions by one InputPartition(None)
    task_begins()
    for due in _due(options, partition):
        yield from _read_range(options, schema, due)


def _due(options: SourceOptions, partition: KafkaInputPartition) -> Iterator[KafkaInputPartition]:
    """Yield the planned range, or this task's new ranges if a later query reuses the plan."""
    share = partition.share
    if share is None or not is_later(share, _property(QUERY_ID), _property(BATCH_ID)):
        if partition.wanted is not None:
            yield partition
        return
    clients = TaskClients(options, partition)
    try:
        plan = plan_anew(
            options, partition.wanted, share, partition.cluster, clients, SystemClock()
        )
    finally:
        clients.release()
    yield from input_partitions(plan)


def _read_range(
    options: SourceOptions, schema: StructType, partition: KafkaInputPartition
) -> Iterator[pa.RecordBatch]:
    wanted = partition.wanted
    if wanted is None:
        return
    clients = process_clients()
    config = task_config(options, partition.cluster)
    consumer = clients.connect(config, partition.hint, fresh=_attempt() > 0)
    known = known_topic_id(consumer, wanted.tp.topic)
    if None not in (known, partition.topic_id) and known != partition.topic_id:
        # This worker last read the topic before it was recreated; the planner's metadata is newer.
        consumer = clients.connect(config, partition.hint, fresh=True)
    columns, target = check_schema(schema, options.decoded_types()), arrow_schema(schema)
    clock = SystemClock()
    reader = RangeReader(
        *(consumer, wanted, partition.topic_id, options, clock),
        is_last=partition.share is not None,
        doubt=_DOUBTS.of_batch(options, clock, partition),
    )
    begun = clock.date_ms()
    try:
        decoders = decoders_of(options, columns, target)
        letters = dead_letters_of(options, clock) if decoders else None
        yield from reader.batches(columns, target, decoders, letters)
        if partition.share is not None:
            _OLD_PLANS.look(options, wanted, partition.share, consumer, begun)
    except KafkaError:
        # The next task mustn't inherit the client's state; Spark ends this worker anyway.
        clients.drop(consumer)
        raise
    finally:
        # Release the client even if Spark needs no more rows (a limit); a dropped client remains
        # dropped.
        clients.release(consumer)


def decoders_of(
    options: SourceOptions, columns: tuple[str, ...], target: pa.Schema
) -> dict[str, ValueDecoder]:
    """Return the decoders of keys and values, for columns that are decoded and read."""
    return {
        name: one.decoder(target.field(columns.index(name)).type)
        for name, one in options.formats.items()
        if name in columns
    }


def dead_letters_of(options: SourceOptions, clock: SystemClock) -> DeadLetters | None:
    """Return the writer of dead letters; None without a dead letter topic."""
    topic = options.dead_letter_topic
    if topic is None:
        return None
    producer, used = process_producers().checkout(options.producer_config(), fresh=_attempt() > 0)
    patience = Patience(options.outage_tolerance, clock, producer.explain)
    first = None if used else min(options.outage_tolerance, FIRST_CONTACT)
    query = str(options.producer_config()["client.id"])
    return DeadLetters(producer, patience, topic, query, _partition(), first)


def task_config(options: SourceOptions, cluster: str | None) -> dict[str, Any]:
    """Return the configuration of a task's client, with fetch sizes for small executors."""
    config = options.consumer_config(cluster)
    config.setdefault("fetch.max.bytes", FETCHED_AHEAD)
    config.setdefault("max.partition.fetch.bytes", ENOUGH_BYTES)  # one response fills a batch
    return config


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _property(name: str) -> str | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
