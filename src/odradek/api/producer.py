"""The producer as users see it.

In: records one by one, or Arrow batches. Out: futures. Flow: `send` → accumulator → sender → wire.
Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.api.left_open import Opened
from odradek.api.properties import Settings, settings
from odradek.api.record_future import ArrowFuture, DeliveryCallback, RecordFuture, not_yet
from odradek.api.transactions import Transactional
from odradek.clients.calls.client_calls import GRACE
from odradek.clients.client_engine import check_topic
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.delivery import ArrowDelivery
from odradek.clients.producer.early_records import EarlyRecord
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.clients.producer.record_accumulator import CANNOT_WAIT
from odradek.clients.producer.record_arguments import (
    NO_HEADERS,
    HeadersInput,
    checked_record,
    column_names,
    explained,
)
from odradek.clients.producer.topic_lane import TopicLane, lane_for
from odradek.common.arguments import (
    checked_timeout,
    function,
    partition_number,
    record_headers,
    topic_name,
)
from odradek.common.config import PRODUCER, Config
from odradek.common.errors import (
    BufferExhaustedError,
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from odradek.common.imports import loaded
from odradek.common.spellings import sealed
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.network.flow import Completion
from odradek.network.host import Host
from odradek.record import (
    BatchBuilder,
    InvalidRowError,
    SentColumns,
    estimate_record_size,
    partition_for_key,
)

CLOSE_TIMEOUT = 30.0


class Producer(Transactional):
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

    >>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:  # doctest: +SKIP
    ...     future = producer.send("flights", value=b"JFK", key=b"N14228")
    ...     print(future.result(timeout=10).offset)
    """

    def __init__(
        self,
        config: Settings = None,
        *,
        _host: Host | None = None,
        **keywords: Any,
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have.
        """
        from odradek.runtime.fork import ForkSwitch
        from odradek.runtime.locks import this_thread

        keywords = sealed(keywords)  # first: no traceback's locals show what they hold
        try:
            config = settings(config, PRODUCER)
        except ConfigurationError:
            config = None  # what isn't a mapping may have a password in it
            raise
        settled = Config(PRODUCER, config, **keywords)
        super().__init__(
            settled, _host, lambda host: ProducerEngine(settled, host.rng(), host.lock)
        )
        # Kept at hand for `send`: each look-up through another object counts there.
        self._lanes: dict[str, TopicLane] = {}
        self._this_thread = this_thread
        self._in_line: dict[int, object] = {}
        """For whom threads wait for room: what interrupts one of them there can't wait as well."""
        self._metadata = self._engine.metadata
        lanes = self._lanes  # not `self`: a producer that is dropped can go
        self._metadata.on_forgotten.append(lambda topic: lanes.pop(topic, None))
        self._wall_clock = self._host.wall_clock
        self._process = ForkSwitch()
        self._lock_free = (
            BatchBuilder.ATOMIC and settled["max.request.size"] >= settled["batch.size"]
        )
        """A record may go into an open batch without a lock, and without a look at its size."""

    @property
    def _close_after_error(self) -> float:
        seconds: float = self._config["close.timeout.ms"]
        return seconds

    def _left_open(self) -> Opened:
        found = super()._left_open()
        found.producer, found.timeout = self._engine, self._config["close.timeout.ms"]
        return found

    def _usual_host(self) -> Host:
        """A thread of its own, started at the first record: records linger while users go on."""
        return self._host_in_thread()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Give one record to the producer; returns at once unless `buffer.memory` is full.

        `partition`: None leaves it to the option `partitioner`: unless that is given, to the key
        (Java's murmur2), or to the sticky partitioner without a key (KIP-480, KIP-794).
        `timestamp_ms`: milliseconds since the epoch, None for now.
        It waits for room in `buffer.memory` alone, `max.block.ms` at most; callers get it in the
        order they came. A record whose topic or `partition` isn't known (it may just have been
        made) waits in the producer for as long, not in this call: so `send(…).result(5)` takes five
        seconds at most. Only with a function of yours as `partitioner` does the call wait for the
        metadata, too.
        The outcome: ask the future, or give `on_delivery(error, metadata)`, or do neither. It is
        called as soon as the outcome is there, on the producer's I/O thread (nobody has to poll),
        with `error` None, or with the error and an offset of -1. Records of a partition are
        reported in order, but for those of a batch that a broker answered with an error to be
        tried again: later ones may be written, and reported, first where it had been written all
        the same. It must be quick and mustn't wait for anything of this producer; what it raises is
        logged and has no other effect, but for `SystemExit` and `KeyboardInterrupt`:
        those come out of the program's next call of this producer. What `send` itself raises
        isn't reported to it.

        Raises `RecordTooLargeError` (`max.request.size`), `BufferExhaustedError`,
        `PartitionerError` (a function of yours as `partitioner` failed; nothing is written),
        `InvalidTopicExceptionError` (what can't be a name), `ClientClosedError`; all else comes out
        of the future: `KafkaTimeoutError` (no metadata of the topic or no such partition in
        `max.block.ms`, with what was tried), `TopicAuthorizationError`, errors of sending.
        """
        # What a wrong type breaks is explained where it broke, so right ones cost no look (R-IN-1);
        # looked at here is only what would go through. The headers are read once, and no more.
        if on_delivery is not None:
            function("on_delivery", on_delivery)
        if headers is not NO_HEADERS and type(headers) is not tuple:
            headers = tuple(headers) if type(headers) is list else record_headers(headers)
        at = int(self._wall_clock() * 1000) if timestamp_ms is None else timestamp_ms
        try:
            lane = self._lanes.get(topic)
            if lane is None or lane.snapshot is not self._metadata.snapshot:
                lane = self._lane(topic)
            if lane is None:
                if partition is not None:
                    partition = partition_number("partition", partition)
            else:
                if partition is None:
                    if key is None or not lane.by_key:
                        partition = lane.place(key, value)
                    else:
                        partition = partition_for_key(key, lane.count)
                elif type(partition) is not int:
                    partition = partition_number("partition", partition)
                batch = lane.open.get(partition)
                if batch is not None and self._lock_free and self._process.here:
                    index = batch.append(key, value, headers, at)
                    if index is not None:
                        future = RecordFuture(self, batch, index, at)
                        if on_delivery is not None:
                            future.report_to(on_delivery)
                        return future
        except KafkaError:
            raise
        except (TypeError, ValueError, BufferError) as error:
            raise explained(error, topic, value, key, headers, at) from None
        future = self._append(topic, lane, key, value, headers, partition, at)
        if on_delivery is not None:
            future.report_to(on_delivery)
        return future

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

        >>> table = polars.DataFrame({"id": ["a", "b"], "text": ["x", "y"]})  # doctest: +SKIP
        >>> producer.send_arrow("t", table, key="id", value="text").result()  # doctest: +SKIP
        """
        loaded("pyarrow", "odradek.record.arrow_send")
        from odradek.record.arrow_send import ColumnNames, columns_from_arrow

        self._calls.check_open()
        self._calls.check_uninterrupted("send_arrow()")
        topic = topic_name("topic", topic)
        names = ColumnNames(
            *column_names(
                value=value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
        )
        pieces = columns_from_arrow(data, names)
        delivery = ArrowDelivery(self._host.lock)
        try:
            for columns in pieces:
                self._write(topic, columns, delivery)
        except BaseException as error:
            if delivery.rows:
                error.add_note(f"The first {delivery.rows} rows are being sent; flush() waits.")
            raise
        finally:
            delivery.finish()
        return ArrowFuture(self, delivery)

    def flush(self, timeout: float | None = None) -> int:
        """Send everything that lingers and wait until all records sent before have an outcome.

        Gives 0, the number of those that have none: so a program that looks at it, as with
        confluent-kafka, goes on to work. `timeout` in seconds, default `delivery.timeout.ms`.
        Raises `KafkaTimeoutError` when some have none by then, with their number as `remaining`;
        they go on being sent. Errors of records come out of their futures.
        """
        what = "acknowledgement of all records"
        try:
            self._call(self._engine.flush, timeout, what, "delivery.timeout.ms")
        except KafkaTimeoutError as error:
            if error.remaining is None:  # the thread was late, too
                error.remaining = self._engine.unsettled()
            raise
        return 0

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Waits for metadata, default `max.block.ms`."""
        name = topic_name("topic", topic)
        found = self._topic(name, timeout)
        return [TopicPartition(name, p.partition) for p in found.partitions]

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for at most `timeout` seconds, then close; records left get `ClientClosedError`.

        A transaction that is open is aborted instead (with `timeout=0` its coordinator does that,
        after `transaction.timeout.ms`). In a forked child only the child's copies are let go.
        In a callback of this producer, which can't wait for what is left, it raises
        `IllegalStateError` and closes nothing; with `timeout=0` it gives that up and closes.
        """
        timeout = checked_timeout(timeout)
        if not self._closed and self._process.here:
            self._calls.check_uninterrupted("close()")
            if self._host.inside and self._left and timeout > 0:
                raise IllegalStateError(
                    "close() was called in a callback of this Producer, which can't wait for what "
                    "is left: call it in the program's thread, or close(0) to give that up"
                )
        self._lanes.clear()  # so that every later `send` looks whether this is open
        deadline = self._host.now() + timeout
        self._host.surfacing = False
        try:
            if self._process.here and not self._closed and not self._host.inside:
                self._end_work(timeout)
        finally:
            self._run(self._calls.close(max(1.0, deadline - self._host.now())))

    @property
    def _left(self) -> bool:
        """Records or a transaction have yet to end."""
        engine = self._engine
        if engine.ended is not None:
            return False
        return bool(engine.sender.incomplete()) or (
            engine.transactions is not None and engine.transactions.open
        )

    def _end_work(self, timeout: float) -> None:
        """Have records delivered, or the open transaction aborted."""
        engine = self._engine
        if engine.ended is not None:
            return
        if engine.transactions is None:
            if engine.sender.incomplete():
                self.flush(timeout)
        elif timeout > 0:
            self._end_transaction(timeout)

    # What the futures need

    def surface(self, error: BaseException) -> None:
        """Have what a callback raised come out of a call of the program's (R-HO-5)."""
        self._host.surface(error)

    def outcome_deadline(self, timeout: float | None) -> float:
        """Until when to wait for an outcome."""
        return self._host.now() + self._calls.seconds(timeout, "delivery.timeout.ms")

    def await_outcome(
        self, completion: Completion[Any], deadline: float, of: ProducerBatch | int
    ) -> None:
        """Wait for an outcome: of a batch, or of so many rows; raises `KafkaTimeoutError` when it
        isn't there in time.
        """
        self._host.wake()
        if not self._host.run(completion, deadline):
            raise self.too_late(of)

    def too_late(self, of: ProducerBatch | int) -> KafkaTimeoutError:
        """The error of a wait that ended before there was an outcome."""
        return not_yet(self._engine.no_outcome(of, self._host.now()))

    def watched(self) -> float:
        """Somebody waits without a call; gives the seconds that a call would wait."""
        if not self._host.on_its_own:
            raise IllegalStateError(
                "in a simulation time passes in this client's calls only: use result() or flush()"
            )
        if self._host.inside:
            raise IllegalStateError(
                "a callback of this Producer can't wait for an outcome: its thread brings that"
            )
        self._host.wake()
        seconds: float = self._config["delivery.timeout.ms"]
        return seconds

    # Inside

    def _topic(self, name: str, timeout: float | None = None) -> Topic:
        """The topic's metadata, once no record waits for it that `send` has taken before."""
        found = self._engine.early.topic(name)
        if found is not None:
            return found
        return self._call(
            lambda deadline: self._engine.early.placed(name, deadline),
            timeout,
            f"metadata of topic {name}",
            "max.block.ms",
        )

    def _lane(self, name: str) -> TopicLane | None:
        """What `send` needs to know of a topic, as the newest snapshot has it; None where it isn't
        known, and records needn't wait here for it.
        """
        name = topic_name("topic", name)
        self._calls.check_open()
        engine = self._engine
        engine.accumulator.check()
        topic = engine.early.topic(name)
        if topic is None and not callable(self._config["partitioner"]):
            check_topic(name)
            return None
        lane = self._lanes[name] = lane_for(engine, topic or self._topic(name))
        return lane

    def _append(
        self,
        topic: str,
        lane: TopicLane | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """Put a record where its partition has no open batch with room, or isn't known yet; waits
        for memory, `max.block.ms` at most.
        """
        self._calls.check_open()
        self._calls.check_uninterrupted("send()")
        engine, host = self._engine, self._host
        if engine.ended is not None:
            raise engine.ended
        headers = checked_record(value, key, headers, timestamp_ms)
        size = estimate_record_size(key, value, headers)
        limit = min(self._config["max.request.size"], self._config["buffer.memory"])
        if size > limit:
            raise RecordTooLargeError(
                f"a record of up to {size} bytes is above max.request.size "
                f"({self._config['max.request.size']}) or buffer.memory"
            )
        if partition is not None and partition < 0:
            there = "" if lane is None else f", which has partitions 0 to {lane.count - 1}"
            raise ConfigurationError(f"{partition} is no partition of topic {topic}{there}")
        deadline: float | None = None
        owner: object = None
        try:
            while lane is None or partition is None or partition >= lane.count:
                if owner is not None:
                    engine.accumulator.waive(owner)
                owner = record = EarlyRecord(
                    topic,
                    (key, value, headers, timestamp_ms),
                    *(partition, size, host.now(), self._config["max.block.ms"]),
                )
                taken, deadline = self._taken_early(record, deadline)
                if taken:
                    return RecordFuture(self, record, 0, timestamp_ms)
                lane = self._lane(topic)  # it has just become known
                if lane is not None and partition is None:
                    partition = lane.choose(key, value)
            target = TopicPartition(topic, partition)
            self._metadata.use(topic, host.now())
            while True:
                place = engine.accumulator.append(
                    target, key, value, headers, timestamp_ms, size, host.now(), owner
                )
                if place is not None:
                    break
                if owner is None and self._cannot_wait:
                    owner = CANNOT_WAIT
                    continue
                deadline = deadline or (
                    self._host.now() + self._calls.seconds(None, "max.block.ms")
                )
                owner = object()
                self._await_room(owner, size, deadline)
            if place.wake:
                host.wake()
        except BaseException:  # interrupted: what it began lingers, and nobody else says so
            if isinstance(owner, EarlyRecord):  # it may have been taken, and nobody has its future
                engine.early.withdraw(owner)
            elif owner is not None:
                self._out_of_line(owner)
                engine.accumulator.waive(owner)
            host.wake()
            raise
        return RecordFuture(self, place.batch, place.index, timestamp_ms)

    def _taken_early(
        self, record: EarlyRecord, deadline: float | None
    ) -> tuple[bool, float | None]:
        """Give a record of a topic or partition that isn't known to those that wait for it; False
        where it is known by now: then what was granted to the record is its owner's still. And
        until when the call may wait, once it has had to.
        """
        early, host = self._engine.early, self._host
        try:
            while (taken := early.add(record, turn=self._cannot_wait)) is None:
                deadline = deadline or (
                    self._host.now() + self._calls.seconds(None, "max.block.ms")
                )
                self._await_room(record, early.room(record), deadline)
            host.wake()
        except BaseException:  # interrupted, or the host can't begin: nobody will have its future
            self._out_of_line(record)
            early.withdraw(record)
            host.wake()
            raise
        return taken, deadline

    @property
    def _cannot_wait(self) -> bool:
        """This is a callback, or has interrupted a call of this thread that waits for room."""
        return self._host.inside or self._this_thread() in self._in_line

    def _write(self, name: str, columns: SentColumns, delivery: ArrowDelivery) -> None:
        """Write one piece of Arrow data, waiting for memory as often as it has to."""
        engine, host = self._engine, self._host
        self._calls.check_open()
        if engine.ended is not None:
            raise engine.ended
        at = int(self._wall_clock() * 1000)
        topic = self._topic(name)
        try:
            writer = engine.writer(columns, topic, delivery.add, host.wake)
        except InvalidRowError:
            topic = self._call(
                lambda deadline: engine.newer(topic, columns, deadline),
                None,
                f"metadata of topic {name}",
                "max.block.ms",
            )
            writer = engine.writer(columns, topic, delivery.add, host.wake)
        self._metadata.use(name, host.now())
        try:
            while missing := writer.advance(host.now(), at):
                deadline = host.now() + self._config["max.block.ms"]
                self._await_room(writer, missing, deadline, engine.accumulator.limit // 8)
        except BaseException:
            self._out_of_line(writer)
            engine.accumulator.waive(writer)
            writer.give_up(host.now())
            raise

    def _out_of_line(self, owner: object) -> None:
        thread = self._this_thread()
        if self._in_line.get(thread) is owner:  # not that of the wait which was interrupted
            del self._in_line[thread]

    def _await_room(self, owner: object, size: int, deadline: float, wanted: int = 0) -> None:
        """Stand in line until bytes are granted to `owner`; without, it has left the line."""
        engine, host, thread = self._engine, self._host, self._this_thread()
        if thread in self._in_line:
            raise IllegalStateError(
                "send() was called by what has interrupted a send() of this thread that waits for "
                "room in buffer.memory (a signal handler, a finaliser), and there is none: call it "
                "later"
            )
        try:
            self._in_line[thread] = owner
            # An exception from outside may come before `room` has a name: the owner is one.
            room: Completion[bool] = engine.start(engine.line.room(owner, size, deadline, wanted))
            host.wake()
            granted = host.run(room, deadline + GRACE) and room.result()
        except BaseException:
            engine.leave_line(owner)
            host.wake()
            raise
        finally:
            self._out_of_line(owner)  # the callers do so, too, where an exception comes right here
        if not granted:
            engine.leave_line(owner)
            host.wake()
            error = engine.undelivered(f"room for {size} bytes in buffer.memory", host.now())
            raise BufferExhaustedError(
                f"buffer.memory ({engine.accumulator.limit} bytes) had no room within max.block.ms"
            ) from error
