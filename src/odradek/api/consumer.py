"""The consumer as users see it: subscribed or assigned, records or Arrow batches.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (caller's thread) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from odradek.api.converters import reading
from odradek.api.event_producer import event_producer
from odradek.api.group_consumer import GroupConsumer
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.arguments import flag
from odradek.common.config import CONSUMER, Config
from odradek.metadata.cluster import checked_hint
from odradek.network.host import Host
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.client_options import ConsumerOptions
    from odradek.record.columns import Layout

T = TypeVar("T")


def consumer_engine(config: Config, host: Host, hint: Mapping[str, Any] | None) -> ConsumerEngine:
    """A consumer's engine."""
    clocks = {"wall_clock": host.wall_clock, "clock": host.now}
    first = host.callers_first
    return ConsumerEngine(config, host.rng(), host.lock, **clocks, readers_first=first, hint=hint)


class Consumer(GroupConsumer):
    """Reads records of subscribed or assigned partitions, as objects or as Arrow columns.

    With a `group.id` it can `subscribe` as a member of a group, and commit; a thread of the
    client's own then sends heartbeats, commits and fetches while the caller works. Without one
    it reads what it is told to (`assign`), and all work is done in the caller's thread, inside its
    calls; with `background=True` a thread receives the next records there, too: up to half as much
    again per second where there is a second core, and nothing for a forking program. Calls come
    from one thread at a time either way. It keeps working when its brokers are replaced: positions
    are kept, and no record is handed out twice or left out (KIP-899). Times are in float seconds.

    What waits and what is under way is at most `fetch.max.bytes`, but for a batch that is larger
    alone.

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
        key_deserializer: Callable[..., Any] | None = None,
        value_deserializer: Callable[..., Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        `bootstrap_hint` is what `bootstrap_hint()` of another consumer gave, perhaps in another
        process: this one then knows topics and leaders before it has asked a broker.

        `key_deserializer` and `value_deserializer` make objects of the bytes of records: functions
        of them, or of them and a `SerializationContext`. None stays None, and Arrow batches stay
        bytes. Reading raises `RecordDeserializationError` for a record that they can't read, once
        those before it were handed out; `seek(error.partition, error.next_offset)` goes on after.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have.
        """
        from odradek.runtime.hosts.one_reader import OneReader

        background, self._reader = flag("background", background), OneReader()
        super().__init__(
            config,
            # A member sends heartbeats, and commits, while its application works.
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
    ) -> list[ConsumerRecord]:
        """Records, at most `max_records` (default `max.poll.records`); none after `timeout`.

        `timeout_ms` is the same in milliseconds, for who is used to it, and counts where given.
        Returns as soon as there are any. During an outage it returns an empty list at its timeout
        and goes on trying; `explain()` says what. Raises `NoSuchOffsetError` where a position isn't
        in the log and `auto.offset.reset` is none, `CorruptRecordError`,
        `TopicAuthorizationError`, `UnknownTopicOrPartitionError` (each with the partition;
        the others go on), `ClusterIdMismatchError`, and with `metadata.recovery.strategy=none`
        `NoBrokerAvailableError` after `metadata.unavailable.timeout.ms` (KIP-899).
        `IllegalStateError` while another thread is in `poll`, or in anything else that hands out
        records; `ClientClosedError` where another thread closes the consumer meanwhile;
        `WakeupError` after `wakeup()`.
        """
        found = self._read(self._calls.poll(timeout, max_records, timeout_ms))
        self._calls.engine.delivery.handed_over()
        return found or []

    def records(self, timeout: float | None = None) -> Iterator[ConsumerRecord]:
        """Iterate over records, until all `until` are reached or none came for `timeout` seconds.

        The position moves with each record, so it is right wherever the loop is left; `seek`,
        `pause` and `assign` act at the next record. Without a timeout it waits as long as it takes.
        Raises what `poll` raises; a new iterator goes on behind it.
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
        """The next records of one partition as an Arrow batch; None after `timeout` without any.

        Schema, as Spark's Kafka source has it, all fields nullable: `key binary, value binary,
        topic string, partition int32, offset int64, timestamp timestamp[us, UTC], timestampType
        int32` (0: create time, 1: log append time), and with `include_headers` `headers
        list<struct<key: string, value: binary>>`, null where a record has none. `columns` chooses
        some of them, `headers` too, in that order; what isn't chosen isn't decoded either.

        The batch owns its buffers: they stay as they are for as long as the batch or a slice of it
        is used, also after `close()`, and are used again afterwards. `topic` and `partition` share
        theirs with other batches. With the layout `binary_view` `key` and `value` have that type:
        longer values stay where they were received, which saves copying them, and one row keeps the
        whole answer (some megabytes) in memory. pyarrow 26 can't filter, sort or join such columns,
        and Spark refuses them.

        A batch has what came of one partition in one answer: up to `max.partition.fetch.bytes`,
        and about 131,072 rows. Raises what `poll` raises, and `ArrowSchemaError` for a column or
        layout that isn't there.
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
        """Iterate over Arrow batches as `poll_arrow` gives them.

        Ends when all `until` are reached, or when nothing came for `timeout` seconds; without a
        timeout it waits as long as it takes, outages included. The position of a partition is
        behind the last batch that the loop was given. To keep memory level, let go of a batch
        before the next one is asked for. Raises what `poll` raises; a new iterator goes on.

        >>> sum(batch.num_rows for batch in consumer.batches(timeout=5.0))
        2
        """
        batches = self._calls.batches(timeout, columns, include_headers, layout)
        yield from self._reader.batches(lambda: self._read(batches()), self._calls)

    def _read(self, flow: CallerFlow[T]) -> T:
        """Carry out a call that hands out records: one thread at a time does."""
        return self._reader.inside("poll()", self._calls.callback, self._run, flow)
