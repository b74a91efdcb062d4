"""Public consumer: subscribed or assigned, records or Arrow batches.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (caller's thread) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from odradek.api.converters import reading
from odradek.api.event_producer import event_producer
from odradek.api.group_consumer import GroupConsumer
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.arguments import flag
from odradek.common.config import CONSUMER, Config
from odradek.common.types import K_co, V_co
from odradek.metadata.cluster import checked_hint
from odradek.network.host import Host
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.client_options import ConsumerOptions
    from odradek.api.converters import Deserializer
    from odradek.record.columns import Layout

T = TypeVar("T")


def consumer_engine(config: Config, host: Host, hint: Mapping[str, Any] | None) -> ConsumerEngine:
    """Create a consumer's engine."""
    clocks = {"wall_clock": host.wall_clock, "clock": host.now}
    first = host.callers_first
    return ConsumerEngine(config, host.rng(), host.lock, **clocks, readers_first=first, hint=hint)


class Consumer(GroupConsumer, Generic[K_co, V_co]):
    """Consumer of subscribed or assigned partitions; returns records as objects or Arrow columns.

    With a `group.id` the consumer can `subscribe` as a member of a group, and commit offsets; a
    background thread sends heartbeats, commits and fetches while the caller works. Without one it
    reads the partitions given to `assign`, and does all work in the caller's thread, inside the
    calls. `background=True` then adds a thread that prefetches records: up to 50 % more records per
    second if a second core is free. Don't use it in programs that fork.

    Only one thread at a time may call a consumer. If brokers are replaced, the consumer resumes at
    its positions without duplicate or missing records (KIP-899). Times are in seconds (float).
    Buffered and requested records take at most `fetch.max.bytes`, unless a single batch is larger.

    >>> config = {"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}
    >>> with Consumer(config, group_id="board") as consumer:
    ...     consumer.subscribe(["arrivals"])
    ...     for record in consumer.records(timeout=5.0):
    ...         print(record.offset, record.value)
    0 b'JFK'
    1 b'LGA'

    >>> with Consumer({"bootstrap.servers": "localhost:9092"}) as consumer:
    ...     consumer.assign({TopicPartition("arrivals", 0): 1})
    ...     for record in consumer.poll(timeout=1.0):
    ...         print(record.offset, record.value)
    1 b'LGA'
    """

    @with_settings(CONSUMER)
    def __init__(
        self,
        config: Settings = None,
        *,
        background: bool = False,
        bootstrap_hint: Mapping[str, Any] | None = None,
        key_deserializer: Deserializer[K_co] | None = None,
        value_deserializer: Deserializer[V_co] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Check the configuration; no connection is opened yet.

        `config`: a dict, or the path of a properties file.
        `bootstrap_hint`: the result of `bootstrap_hint()` of another consumer, maybe in another
        process; with it the consumer knows topics and leaders before its first metadata request.
        `key_deserializer`, `value_deserializer`: functions that convert bytes to objects. They take
        the bytes, or the bytes and a `SerializationContext`. None stays None, and Arrow batches
        keep bytes. Type checkers take the types of `record.key` and `record.value` from the result
        types of these functions (`Consumer[K, V]`). If one fails, reading raises
        `RecordDeserializationError`, after the records before it have been returned; to skip the
        record, seek to `error.next_offset` of `error.partition`.

        Raises `ConfigurationError` for an unknown option or an invalid value; its subclass
        `UnsupportedOptionError` for an option of other clients that isn't supported.
        """
        from odradek.runtime.hosts.one_reader import OneReader

        background, self._reader = flag("background", background), OneReader()
        super().__init__(
            config,
            # A group member needs a thread for heartbeats and commits while its application works.
            lambda found: usual_host(found, in_thread=background or found["group.id"] is not None),
            partial(consumer_engine, hint=checked_hint("bootstrap_hint", bootstrap_hint)),
            event_producer,
            partial(ConsumerCalls, reader=self._reader),
        )
        self._calls.engine.delivery.convert_with(reading(key_deserializer, value_deserializer))

    # Reading

    def poll(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[ConsumerRecord[K_co, V_co]]:
        """Return the next records, at most `max_records` (default `max.poll.records`).

        Returns as soon as there are records, or an empty list after `timeout` seconds. During an
        outage the list is empty, and the consumer keeps trying to reach a broker; see `explain()`.
        `timeout_ms` is deprecated: it is the same in milliseconds and takes precedence.

        Raises, each with its partition, while the other partitions continue: `NoSuchOffsetError` if
        the position isn't in the log and `auto.offset.reset` is none, `CorruptRecordError`,
        `TopicAuthorizationError` and `UnknownTopicOrPartitionError`. Also raises
        `ClusterIdMismatchError`; `NoBrokerAvailableError` after `metadata.unavailable.timeout.ms`
        with `metadata.recovery.strategy=none` (KIP-899); `IllegalStateError` if another thread is
        reading records; `ClientClosedError` if another thread closes the consumer; and
        `WakeupError` after `wakeup()`.
        """
        found = self._read(self._calls.poll(timeout, max_records, timeout_ms))
        self._calls.engine.delivery.handed_over()
        return found or []

    def records(self, timeout: float | None = None) -> Iterator[ConsumerRecord[K_co, V_co]]:
        """Iterate over records, until none arrives for `timeout` seconds (None: forever).

        The position moves with each record, so it is right if the loop is left early. `seek`,
        `pause` and `assign` take effect before the next record. The iterator also ends once all
        `until` offsets of `assign` are reached. Raises what `poll` raises, and
        `NoBrokerAvailableError` if it would end without having reached any broker, because each
        connection attempt failed; a new iterator continues after the error.
        """
        return self._reader.records(
            lambda: self._read(self._calls.iterated(timeout)), self._calls, self._host.now
        )

    __iter__ = records

    def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        layout: Layout = "binary",
    ) -> pa.RecordBatch | None:
        """Return the next records of one partition as an Arrow batch; None after `timeout` seconds.

        The schema is that of Spark's Kafka source, with all fields nullable: `key binary, value
        binary, topic string, partition int32, offset int64, timestamp timestamp[us, UTC],
        timestampType int32` (0: create time, 1: log append time, -1: none), and with
        `include_headers` `headers list<struct<key: string, value: binary>>`, null for a record
        without headers.
        `columns` selects columns, in this order, maybe with `headers`; other columns aren't
        decoded. A timestamp after the year 294246 doesn't fit and is null; `send_arrow` refuses it.

        The batch owns its buffers: they don't change while the batch or a slice of it exists, even
        after `close()`, and are reused afterwards. Batches share buffers for `topic` and
        `partition`. With `layout="binary_view"` `key` and `value` have that type: longer values
        aren't copied, but one row keeps the whole fetch response (some megabytes) in memory.
        pyarrow 26 can't filter, sort or join such columns, and Spark rejects them.

        A batch has the records of one partition from one fetch response: up to
        `max.partition.fetch.bytes` and about 131,072 rows. Raises what `poll` raises, and
        `ArrowSchemaError` for an unknown column or layout.
        """
        batch = self._read(self._calls.poll_arrow(timeout, columns, include_headers, layout))
        self._calls.engine.delivery.handed_over()
        return batch

    def batches(
        self,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        layout: Layout = "binary",
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the Arrow batches that `poll_arrow` returns.

        The iterator ends once all `until` offsets of `assign` are reached, or after `timeout`
        seconds without records; without a timeout it waits forever, during outages, too. The
        position of a partition is after the last batch that the loop received. To limit memory,
        drop each batch before requesting the next. Raises what `poll` raises, and
        `NoBrokerAvailableError` if it would end without having reached any broker, because each
        connection attempt failed; a new iterator continues after the error.

        >>> sum(batch.num_rows for batch in consumer.batches(timeout=5.0))
        2
        """
        batches = self._calls.batches(timeout, columns, include_headers, layout)
        yield from self._reader.batches(lambda: self._read(batches()), self._calls)

    def _read(self, flow: CallerFlow[T]) -> T:
        """Execute a call that returns records; only one thread at a time may."""
        return self._reader.inside("poll()", self._calls.callback, self._run, flow)
