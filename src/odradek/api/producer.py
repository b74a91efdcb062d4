"""Public producer.

In: single records, lists, or Arrow batches. Out: futures. Flow: `send` → accumulator → sender →
wire. Must not: decide anything; the engine and `clients/calls` do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Self, Unpack

from odradek.api.converters import sending, sending_many
from odradek.api.transactions import Transactional
from odradek.clients.calls.producer_calls import Found, ProducerCalls
from odradek.clients.calls.record_sending import RecordSending
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.partitioner import TopicLane
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.clients.producer.record_accumulator import SentRecord
from odradek.clients.producer.record_arguments import HeadersInput
from odradek.common.config import PRODUCER, Config
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import K_contra, TopicPartition, V_contra
from odradek.network.host import Host
from odradek.runtime.hosts.caller import block
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.hosts.record_future import ArrowFuture, ManyFuture, RecordFuture, report_to
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    from odradek.api.client_options import ProducerOptions
    from odradek.api.converters import Serializer

CLOSE_TIMEOUT = 30.0


def producer_engine(config: Config, host: Host) -> ProducerEngine:
    """Create a producer's engine."""
    return ProducerEngine(config, host.rng(), host.lock)


class Producer(RecordSending[RecordFuture, K_contra, V_contra], Transactional):
    """Producer; by default idempotent: `acks=all`, no duplicates, records of a partition in order.

    `config` takes Kafka's option names (`{"bootstrap.servers": "host:9092"}`); keywords have
    underscores instead of dots (`linger_ms=20`). Threads may share a producer. If brokers are
    replaced, records wait in `buffer.memory` for up to `delivery.timeout.ms` and are sent to the
    new leaders (KIP-91, KIP-98, KIP-899). With the option `transactional.id` records are written in
    transactions: call `init_transactions()` once, then use `with producer.transaction():`.

    Without `enable.idempotence`, and so with `acks=0` or `acks=1`, a retry after a lost response
    may write a record twice, and later records may be written first unless
    `max.in.flight.requests.per.connection=1`. With `acks=0` a future completes with offset -1 once
    its record is written to the socket, and errors of the broker aren't reported (KIP-679). If a
    broker doesn't support idempotence (InitProducerId), the producer logs a warning and writes
    without it. If `enable.idempotence=true` was set explicitly, the producer fails with
    `UnsupportedVersionError` instead.

    Close the producer, or use it in a `with` block. If the block raises, the producer waits for its
    records for at most `close.timeout.ms` and the block's error is propagated. An unclosed producer
    sends its buffered records, within the same time, when the program or the `multiprocessing`
    child that created it exits. It can't do so in a process that is killed (`Pool.terminate`, and
    so `with Pool(…)`, sends SIGTERM to its workers) or that calls `os._exit`: close it there in the
    worker.

    >>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    ...     future = producer.send("flights", value=b"JFK", key=b"N14228")
    ...     print(future.result(timeout=10).offset)
    0
    """

    @with_settings(PRODUCER)
    def __init__(
        self,
        config: Settings = None,
        *,
        key_serializer: Serializer[K_contra] | None = None,
        value_serializer: Serializer[V_contra] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the configuration; no connection is opened yet.

        `config`: a dict, or the path of a properties file.
        `key_serializer`, `value_serializer`: functions that convert keys and values to bytes. They
        take the object, or the object and a `SerializationContext`, as Odradek's and
        confluent-kafka's serializers do. None is sent as None. Type checkers take the types that
        `send` accepts from the argument types of these functions (`Producer[K, V]`). If a
        serializer fails, `send` raises `SerializationError` and sends nothing.

        Raises `ConfigurationError` for an unknown option or an invalid value; its subclass
        `UnsupportedOptionError` for an option of other clients that isn't supported.
        """
        from odradek.runtime.fork import ForkSwitch
        from odradek.runtime.locks import this_thread

        calls = partial(ProducerCalls, process=ForkSwitch(), who=this_thread)
        super().__init__(
            config, partial(usual_host, in_thread=True), producer_engine, Producer, calls
        )
        self._set_up_sending(
            self._calls,
            RecordFuture,
            report_to,
            send=sending(self, key_serializer, value_serializer),
            send_many=sending_many(self, key_serializer, value_serializer),
        )

    def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str | None = "value",
        key: str | None = "key",
        headers: str | None = "headers",
        partition: str | None = "partition",
        timestamp: str | None = "timestamp",
    ) -> ArrowFuture:
        """Send the rows of Arrow data in order, without creating Python objects.

        `data`: a pyarrow RecordBatch, Table or RecordBatchReader, or any object with the Arrow
        PyCapsule interface (Polars, DuckDB, pandas 3). A stream is read batch by batch, as memory
        in `buffer.memory` becomes free. The data's buffers are only read during this call.

        The keywords name the columns: `value` and `key` (any binary or string type), `headers`
        (list of struct<key: string, value: binary>, or map), `partition` (integer), `timestamp`
        (timestamp of any unit, or integer milliseconds since the epoch); None ignores a column.
        With the default names only `value` is required, and a column with any other name is an
        error. If you change a name, columns that aren't named are ignored. Null keys, values,
        partitions and timestamps mean the same as None does to `send`. A custom `partitioner` is
        called for each row, in order, before the first row of a batch is written; partitioners
        other than Java's take 1 to 2 µs per row.

        Produce batches have 512 KiB unless `batch.size` is set; rows that don't fill one wait
        `linger.ms` for more. The call returns once all rows are in produce batches; while
        `buffer.memory` is full it blocks, each time for at most `max.block.ms`. The future's
        `result()` returns the offsets by partition. If rows failed, its `errors()` returns a column
        with the error of each.

        Raises what `send` raises, `ArrowSchemaError` for unsuitable columns, and `InvalidRowError`
        for a row that can't be sent; no row of its batch is sent then. Rows that were in produce
        batches before the error are still sent; a note on the error has their number.

        >>> table = polars.DataFrame({"id": ["a", "b"], "text": ["x", "y"]})
        >>> [written] = producer.send_arrow("flights", table, key="id", value="text").result()
        >>> print(written.first_offset, written.last_offset)
        0 1
        """
        columns = {"value": value, "key": key, "headers": headers}
        columns |= {"partition": partition, "timestamp": timestamp}
        return ArrowFuture(self, self._run(self._calls.send_arrow(topic, data, **columns)))

    def send_many(
        self,
        topic: str,
        values: Iterable[V_contra | None],
        keys: Iterable[K_contra | None] | None = None,
        headers: Iterable[HeadersInput] | None = None,
        partitions: Iterable[int | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> ManyFuture:
        """Send a record for each item of `values`, in order, with a single future.

        Equivalent to calling `send` in a loop, at a third of the cost. The other lists have one
        item for each record; None in a list, or no list, means the same as None does to `send`.
        Items have the types that `send` takes: bytes, pairs of header name and value, numbers.
        Serializers of this producer are called for each item. The lists are only read during the
        call.

        All items are checked before the first record is sent. Produce batches have 512 KiB unless
        `batch.size` is set; records that don't fill one wait `linger.ms` for more. The call returns
        once all records are in produce batches; while `buffer.memory` is full it blocks, each time
        for at most `max.block.ms`. The future's `result()` returns the offsets by partition. If
        records failed, its `errors()` returns a list with the error of each.

        Raises what `send` raises, `ArgumentError` for an item of a wrong type or a list of a
        different length, and `InvalidRowError` for a partition that doesn't exist. Records that
        were in produce batches before the error are still sent; a note on the error has their
        number.

        >>> [written] = producer.send_many("flights", [b"JFK", b"LGA"], [b"N1", b"N1"]).result()
        >>> print(written.first_offset, written.last_offset)
        0 1
        """
        lists: dict[str, Any] = {"values": values, "keys": keys, "headers": headers}
        lists |= {"partitions": partitions, "timestamps_ms": timestamps_ms}
        return ManyFuture(self, self._run(self._calls.send_many(topic, **lists)))

    def flush(self, timeout: float | None = None) -> int:
        """Send all buffered records now and wait until each is acknowledged or has failed.

        `timeout` in seconds, default `delivery.timeout.ms`. Returns 0, the number of records still
        pending, as confluent-kafka's `flush` does. Raises `KafkaTimeoutError` if records are
        pending after `timeout`, with their number as `remaining`; they are still being sent. Raises
        `NoBrokerAvailableError` if records failed because no broker was ever reached. Other errors
        of records are reported by their futures only.
        """
        return self._run(self._calls.flush(timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic, in order.

        As in Java's client, a missing topic is created if the brokers allow it
        (`auto.create.topics.enable`) and `allow.auto.create.topics` isn't false. Raises
        `KafkaTimeoutError` if there is no metadata of the topic after `timeout` seconds, default
        `max.block.ms`.
        """
        return self._run(self._calls.partitions_for(topic, timeout))

    def warm(self, topics: Collection[str] | str, timeout: float | None = None) -> None:
        """Load metadata and connect to leaders, so that the first records don't have to wait.

        `topics`: names, or one name as a str. Also requests the producer id. Unused connections are
        still closed after `connections.max.idle.ms`. `timeout` in seconds, default `max.block.ms`.
        Raises `TopicAuthorizationError`, and `KafkaTimeoutError` if a topic doesn't exist or a
        leader can't be reached in time.
        """
        self._run(self._calls.warm(topics, timeout))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for up to `timeout` seconds, then close; unsent records get `ClientClosedError`.

        An open transaction is aborted instead; with `timeout=0` its coordinator aborts it after
        `transaction.timeout.ms`. In a forked child only the child's copies of the connections are
        closed. A callback of this producer can't wait for records: if it calls `close`, that raises
        `IllegalStateError` and closes nothing, except with `timeout=0`, which drops the records and
        closes.
        """
        self._run(self._calls.deliver_and_close(timeout, self))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises.

        The block's error is raised again, with a note if the abort failed. If the commit fails with
        `AbortableTransactionError`, the transaction is aborted, so that the next one can begin. If
        the commit times out (`KafkaTimeoutError`), it continues: `commit_transaction()` waits for
        it. Ctrl-C in the block aborts the transaction, too. A Ctrl-C during the commit, which can't
        be revoked, raises `KeyboardInterrupt` once the commit has finished. If the abort timed out
        (`max.block.ms`), or a second Ctrl-C interrupted the commit, the next block first waits for
        that transaction to finish, and raises the error if its commit failed.

        >>> with producer.transaction():
        ...     future = producer.send("flights", value=b"12")
        ...     producer.send_offsets_to_transaction(records, consumer.group_metadata())
        """
        yield from block(
            self,
            lambda: self._run(self._calls.before_block(self)),
            lambda error: self._run(self._calls.end_block(self, error)),
        )

    # Called by futures

    def _surface(self, error: BaseException) -> None:
        """Let the program's next call raise an exception that a callback raised (R-HO-5)."""
        self._host.surface(error)

    def _defer(self, action: Callable[[], None]) -> None:
        """Run an action on the I/O thread, before a later `flush()` returns."""
        self._calls.defer(action)

    def _await_outcome(self, find: Callable[[], Found], timeout: float | None) -> None:
        """Wait for the outcome that `find` looks up, or raise `KafkaTimeoutError`."""
        self._run(self._calls.outcome(find, timeout))

    def _too_late(self, of: ProducerBatch | int) -> KafkaTimeoutError:
        """Return the error for a wait that timed out before the outcome was known."""
        return self._calls.too_late(of, self._host.now())

    def _watched(self) -> float:
        """Wake the I/O thread for a future that waits by itself; return its default timeout."""
        return self._calls.watched()

    # Called by `send`

    def _append(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> RecordFuture:
        made, now = partial(self._future, self), self._calls.host.now()
        found = self._calls.append(topic, lane, record, partition, made, now)
        # `isinstance(found, Generator)` would be slower: it is an abstract class.
        return self._run(found) if type(found) is GeneratorType else found  # type: ignore[return-value]
