"""The producer as users see it.

In: records one by one, in lists, or Arrow batches. Out: futures. Flow: `send` → accumulator →
sender → wire. Must not: decide anything; the engine and `clients/calls` do.
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
from odradek.common.types import TopicPartition
from odradek.network.host import Host
from odradek.runtime.hosts.caller import block
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.hosts.record_future import ArrowFuture, ManyFuture, RecordFuture, report_to
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    from odradek.api.client_options import ProducerOptions

CLOSE_TIMEOUT = 30.0


def producer_engine(config: Config, host: Host) -> ProducerEngine:
    """A producer's engine."""
    return ProducerEngine(config, host.rng(), host.lock)


class Producer(RecordSending[RecordFuture], Transactional):
    """Writes records: idempotent, `acks=all`, in order per partition, without duplicates.

    So it is unless options say otherwise. Without `enable.idempotence`, and so with `acks=0` or 1,
    what is sent again after a lost answer may be written twice, and later records may be written
    first unless `max.in.flight.requests.per.connection=1`; with `acks=0` futures are done once the
    record is written to the socket, with offset -1, and nobody learns what became of it (KIP-679).
    Brokers without InitProducerId are written to without idempotence, with a warning, unless
    `enable.idempotence=true` is given: then `UnsupportedVersionError` ends the producer.

    `config` has Kafka's names (`{"bootstrap.servers": "host:9092"}`); keywords take underscores
    (`linger_ms=20`). Threads may share a producer. It keeps working when its brokers are replaced:
    records wait in `buffer.memory` and go to whoever leads then, for `delivery.timeout.ms`
    (KIP-91, KIP-98, KIP-899). With the option `transactional.id` they go out in transactions:
    `init_transactions()` once, then `with producer.transaction():`.

    Close it, or use it in a `with` block; one that ends with an error waits for its records for
    `close.timeout.ms` at most, and that error comes out. What one that is left open holds is sent
    when the program ends, or the child of `multiprocessing` that made it, for as long. Nothing can
    be done where a process is killed (`Pool.terminate`, and so `with Pool(…)`, sends SIGTERM to
    its workers) or ends by `os._exit`: there, close it in the worker.

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
        key_serializer: Callable[..., Any] | None = None,
        value_serializer: Callable[..., Any] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        `key_serializer` and `value_serializer` make bytes of what is sent: functions of the object,
        or of it and a `SerializationContext`, as Odradek's serializers and confluent-kafka's are.
        None stays None. `send` raises `SerializationError` where they can't, and nothing is sent.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have.
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
        """Give the rows of Arrow data to the producer, in their order, without making objects.

        `data`: a pyarrow RecordBatch, Table or RecordBatchReader, or anything with the Arrow
        PyCapsule interface (Polars, DuckDB, pandas 3). A stream is read piece by piece, as
        `buffer.memory` has room. Its buffers are only read while this call runs.

        The keywords name the columns: `value` and `key` (binary or string of any kind), `headers`
        (list of struct<key: string, value: binary>, or map), `partition` (integer), `timestamp`
        (timestamp of any unit, or integer milliseconds since the epoch). With the names as they
        are only `value` must be there, and a column with another name is an error; with names of
        your own, other columns are left out. None leaves a column out, too.
        Null keys, values, partitions and timestamps mean what None means to `send`.
        A function of yours as `partitioner` is asked about each row, in their order, before the
        first one of a piece is written. Those besides Java's take a microsecond or two a row.

        Batches are 512 KiB unless `batch.size` is given. Rows that don't fill one wait `linger.ms`
        for more. Returns once all rows are in batches; it waits for room in `buffer.memory`, each
        time at most `max.block.ms`. The future's `result()` gives the offsets by partition; when
        rows failed, its `errors()` has a column that says which, and why.

        Raises what `send` raises, `ArrowSchemaError` for columns that don't fit and
        `InvalidRowError` for a row that can't be sent (of the piece that holds it nothing is).
        Rows that were in batches by then go on being sent; a note at the error says how many.

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
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[HeadersInput] | None = None,
        partitions: Iterable[int | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> ManyFuture:
        """Give a record for each item of `values` to the producer, in their order, at once.

        What `send` is called for in a loop, at a third of the cost: the call is one, and so is its
        future. The other lists have an item for each record, too, None for what None means to
        `send`; a list that is left out has nothing but None. An item is what `send` takes: bytes,
        pairs of a header's name and value, a number. Serializers of this producer are called for
        each. The lists are read during the call only.

        All items are looked at before the first record is sent. Batches are 512 KiB unless
        `batch.size` is given; records that don't fill one wait `linger.ms` for more. Returns once
        all records are in batches; it waits for room in `buffer.memory`, each time at most
        `max.block.ms`. The future's `result()` gives the offsets by partition; when records failed,
        its `errors()` has a list that says which, and why.

        Raises what `send` raises, `ArgumentError` for an item of another type or a list of another
        length, `InvalidRowError` for a partition that isn't there. A note at an error says how many
        of the first records are being sent all the same.

        >>> [written] = producer.send_many("flights", [b"JFK", b"LGA"], [b"N1", b"N1"]).result()
        >>> print(written.first_offset, written.last_offset)
        0 1
        """
        lists: dict[str, Any] = {"values": values, "keys": keys, "headers": headers}
        lists |= {"partitions": partitions, "timestamps_ms": timestamps_ms}
        return ManyFuture(self, self._run(self._calls.send_many(topic, **lists)))

    def flush(self, timeout: float | None = None) -> int:
        """Send everything that lingers and wait until all records sent before have an outcome.

        Gives 0, the number of those that have none: so a program that looks at it, as with
        confluent-kafka, goes on to work. `timeout` in seconds, default `delivery.timeout.ms`.
        Raises `KafkaTimeoutError` when some have none by then, with their number as `remaining`;
        they go on being sent. Errors of records come out of their futures.
        """
        return self._run(self._calls.flush(timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Waits for metadata, default `max.block.ms`."""
        return self._run(self._calls.partitions_for(topic, timeout))

    def warm(self, topics: Collection[str] | str, timeout: float | None = None) -> None:
        """Have at hand what a first record to these topics would wait for; a str is one name.

        That is their metadata, a connection to each leader of their partitions, and the producer's
        id; a connection that nobody uses is closed after `connections.max.idle.ms` all the same.
        `timeout` in seconds, default `max.block.ms`. Raises `TopicAuthorizationError`, and
        `KafkaTimeoutError` for a topic that isn't there or a leader that can't be reached in time.
        """
        self._run(self._calls.warm(topics, timeout))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for at most `timeout` seconds, then close; records left get `ClientClosedError`.

        A transaction that is open is aborted instead (with `timeout=0` its coordinator does that,
        after `transaction.timeout.ms`). In a forked child only the child's copies are let go.
        In a callback of this producer, which can't wait for what is left, it raises
        `IllegalStateError` and closes nothing; with `timeout=0` it gives that up and closes.
        """
        self._run(self._calls.deliver_and_close(timeout, self))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction; commit it at the end, or abort it when the body raises.

        The error of the body is raised again, with a note if the abort failed. A commit that
        fails for good (`AbortableTransactionError`) is followed by an abort, so that the next
        transaction can begin; one that takes too long (`KafkaTimeoutError`) continues:
        `commit_transaction()` waits for it. A Ctrl-C anywhere in the block aborts as well; one that
        comes amid the commit, which can't be taken back, comes out when that has ended. If the
        abort timed out (`max.block.ms`), or a second Ctrl-C came before the commit had ended, the
        next block waits for that end before it begins, and raises the error if the commit failed.

        >>> with producer.transaction():
        ...     future = producer.send("flights", value=b"12")
        ...     producer.send_offsets_to_transaction(records, consumer.group_metadata())
        """
        yield from block(
            self,
            lambda: self._run(self._calls.before_block(self)),
            lambda error: self._run(self._calls.end_block(self, error)),
        )

    # What the futures need

    def _surface(self, error: BaseException) -> None:
        """Have what a callback raised come out of a call of the program's (R-HO-5)."""
        self._host.surface(error)

    def _await_outcome(self, find: Callable[[], Found], timeout: float | None) -> None:
        """Wait for what `find` says; raises `KafkaTimeoutError` when it isn't there in time."""
        self._run(self._calls.outcome(find, timeout))

    def _too_late(self, of: ProducerBatch | int) -> KafkaTimeoutError:
        """The error of a wait that ended before there was an outcome."""
        return self._calls.too_late(of, self._host.now())

    def _watched(self) -> float:
        """Somebody waits without a call; gives the seconds that a call would wait."""
        return self._calls.watched()

    # What `send` needs

    def _append(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> RecordFuture:
        made, now = partial(self._future, self), self._calls.host.now()
        found = self._calls.append(topic, lane, record, partition, made, now)
        # As `Generator` says it, but without the calls of an abstract class.
        return self._run(found) if type(found) is GeneratorType else found  # type: ignore[return-value]
