"""Run a producer's calls in its caller: the parts of `send` that wait, `flush`, closing.

In: records, lists of records, Arrow data. Out: generators that run in the caller: they check data,
choose partitions, and wait for `buffer.memory`, in the order of the calls. Must not: leave
memory, or a record without metadata, with a caller that was interrupted (R-HO-1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from odradek.clients.bootstrap_timeout import BLOCK_TIMEOUT, DELIVERY_TIMEOUT
from odradek.clients.caller_flow import BREATH, CallerFlow, Do
from odradek.clients.calls.client_calls import GRACE
from odradek.clients.calls.transaction_calls import TransactionCalls, TransactionClient
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.column_writer import ColumnWriter
from odradek.clients.producer.delivery import RowsDelivery
from odradek.clients.producer.partitioner import TopicLane, lane_for
from odradek.clients.producer.producer_engine import ACKNOWLEDGEMENT, ProducerEngine
from odradek.clients.producer.record_accumulator import CANNOT_WAIT, SentRecord
from odradek.clients.producer.record_arguments import (
    checked_record,
    column_names,
    without_carried,
)
from odradek.clients.producer.records_without_metadata import RecordWithoutMetadata
from odradek.clients.producer.uncertain_writes import counted, were
from odradek.common.arguments import checked_timeout, names, topic_name
from odradek.common.config import Config
from odradek.common.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
    first_use,
)
from odradek.common.extras import require_extra
from odradek.common.topic_names import check_topic
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.network.flow import START, Completion, Wait
from odradek.network.host import Host
from odradek.record import BatchBuilder, InvalidRowError, SentColumns, estimate_record_size

F = TypeVar("F")

Found = tuple[ProducerBatch | int, Completion[Any], bool]
"""State of a future: its batch or its number of rows, the completion, whether it is done."""


class Process(Protocol):
    """Interface of a flag: whether this is still the process that created the client."""

    here: bool


class ProducerClient(TransactionClient, Protocol):
    """The producer object of the user."""

    def flush(self, timeout: float | None = None) -> object:
        """Carry out `ProducerCalls.flush`."""


class ProducerCalls(TransactionCalls):
    """Calls of a producer."""

    least_to_close = 1.0

    def __init__(
        self,
        kind: str,
        config: Config,
        host: Host,
        build: Callable[[Host], ProducerEngine],
        process: Process,
        who: Callable[[], object],
    ) -> None:
        """Set `who`, which returns the identity of the current caller (a thread or a task)."""
        super().__init__(kind, config, host, build)
        self.process = process
        self.lanes: dict[str, TopicLane] = {}
        self.in_line: dict[object, object] = {}
        """Owners of waits for memory by thread or task; a call inside one can't wait for memory."""
        self.lock_free = BatchBuilder.ATOMIC and config["max.request.size"] >= config["batch.size"]
        """Whether records may be added to an open batch without a lock or a check of size."""
        self._most: int = config["max.request.size"]
        self._by_function = callable(config["partitioner"])
        self._who = who
        lanes = self.lanes  # a reference to `self` would keep a dropped producer alive
        self.engine.metadata.on_forgotten.append(lambda topic: lanes.pop(topic, None))

    @property
    def writes(self) -> ProducerEngine:
        """The engine, which may have unsent records."""
        return self.engine

    @property
    def close_timeout(self) -> float:
        """Maximum number of seconds in which `close` delivers the remaining records."""
        seconds: float = self.config["close.timeout.ms"]
        return seconds

    # Records

    def topic(self, name: str, timeout: float | None = None) -> CallerFlow[Topic]:
        """Return the topic's metadata, once no earlier record waits for it."""
        found = self.engine.early.topic(name)
        if found is not None:
            return found
        placed, what = partial(self.engine.early.placed, name), f"metadata of topic {name}"
        return (yield from self.call(placed, timeout, what, BLOCK_TIMEOUT))

    def partitions_for(self, topic: str, timeout: float | None) -> CallerFlow[list[TopicPartition]]:
        """Return the partitions of a topic, in order."""
        name = topic_name("topic", topic)
        found = yield from self.topic(name, timeout)
        return [TopicPartition(name, p.partition) for p in found.partitions]

    def warm(self, topics: Collection[str] | str, timeout: float | None) -> CallerFlow[None]:
        """Get metadata of these topics, connect to their leaders, and get a producer id."""
        with first_use():
            from odradek.clients.producer.warm_up import warm

        wanted = names("topics", topics)
        what = f"connections to the leaders of {', '.join(wanted)}"
        return self.call(partial(warm, self.engine, wanted), timeout, what, BLOCK_TIMEOUT)

    def lane(self, name: str) -> TopicLane | None:
        """Return a topic's data that `send` uses, from the newest metadata; None if unknown."""
        name = topic_name("topic", name)
        self.check_open()
        engine = self.engine
        engine.accumulator.check()
        topic = engine.early.topic(name)
        if topic is not None:
            batches = engine.accumulator.lane(name)
            lane = lane_for(engine.partitioner, topic, engine.metadata.snapshot, batches)
            self.lanes[name] = lane
            return lane
        if not self._by_function:
            check_topic(name)
        return None

    def append(
        self,
        topic: str,
        lane: TopicLane | None,
        record: SentRecord,
        partition: int | None,
        made: Callable[[ProducerBatch, int, int], F],
        now: float,
        owner: object = None,
        deadline: float | None = None,
    ) -> F | CallerFlow[F]:
        """Append a record to its partition's open batch, or return a generator that does so later.

        The generator waits for memory, at most `max.block.ms`, or for metadata that a partitioner
        function needs. `made` creates the future. A repeated call after a wait for memory passes
        that wait's `owner` and `deadline`.
        """
        self.check_open()
        self.check_uninterrupted("send()")
        engine, host = self.engine, self.host
        if engine.ended is not None:
            raise engine.ended
        record, size = self._measured(record)
        key, value, _, at = record
        if partition is not None and partition < 0:
            there = "" if lane is None else f" (it has partitions 0 to {lane.count - 1})"
            raise ConfigurationError(f"topic {topic} has no partition {partition}{there}")
        # A partitioner function runs here, in the caller, and needs the topic's metadata.
        if lane is None and self._by_function:
            lane = self.lane(topic)
            if lane is None:
                again = partial(self.append, topic, None, record, partition, made)
                return self._later(self.topic(topic), None, again)
        if partition is None and lane is not None:
            partition = lane.choose(key, value)
        try:
            if lane is None or partition is None or partition >= lane.count:
                if not isinstance(owner, RecordWithoutMetadata):
                    patience = self.config["max.block.ms"]
                    owner = RecordWithoutMetadata(topic, record, partition, size, now, patience)
                taken = engine.early.add(owner, turn=self._cannot_wait)
                if taken:
                    host.wake()
                    return made(owner, 0, at)
                if taken is False:  # the topic's metadata has just arrived
                    lane = self.lane(topic)
                    return self.append(topic, lane, record, partition, made, now, owner, deadline)
                size = engine.early.room(owner)
            else:
                engine.metadata.use(topic, now)
                target = tuple.__new__(TopicPartition, (topic, partition))  # saves a Python call
                append = engine.accumulator.append
                place = append(target, record, size, now, owner)
                if place is None and owner is None and self._cannot_wait:
                    owner = CANNOT_WAIT
                    place = append(target, record, size, now, owner)
                if place is not None:
                    if place.wake:
                        host.wake()
                    return made(place.batch, place.index, at)
                owner = object()
        except BaseException:
            self._give_back(owner)
            raise
        deadline = deadline or now + self.seconds(None, BLOCK_TIMEOUT)
        again = partial(
            self.append, topic, lane, record, partition, made, owner=owner, deadline=deadline
        )
        return self._later(self._room(owner, size, deadline), owner, again)

    def _measured(self, record: SentRecord) -> tuple[SentRecord, int]:
        """Check a record; return it with an upper bound of its size in a batch, in bytes."""
        key, value, headers, at = record
        headers = checked_record(value, key, headers, at)
        size = estimate_record_size(key, value, headers)
        if size > self._most:
            headers = without_carried(headers)
            size = estimate_record_size(key, value, headers)
        if size > self._most:
            raise RecordTooLargeError(
                f"a record of up to {size} bytes exceeds max.request.size ({self._most}): raise "
                "it, and the topic's max.message.bytes if that is lower"
            )
        return (key, value, headers, at), size

    def _later(
        self, wait: CallerFlow[object], owner: object, append: Callable[[float], F | CallerFlow[F]]
    ) -> CallerFlow[F]:
        try:
            yield from wait
            found = append((yield START))
            return (yield from found) if isinstance(found, Generator) else found
        except BaseException:
            self._give_back(owner)
            raise

    def _give_back(self, owner: object) -> None:
        """Undo an interrupted call: withdraw its record, or its wait and its reserved memory."""
        if owner is not None:
            self._out_of_line(owner)
        if isinstance(
            owner, RecordWithoutMetadata
        ):  # The record may have been accepted, but its future is lost.
            self.engine.early.withdraw(owner)
        else:
            self.engine.accumulator.waive(owner)
        self.host.wake()

    @property
    def _cannot_wait(self) -> bool:
        """Whether this call runs in a callback, or interrupts its caller's wait for memory."""
        return self.host.inside or self._who() in self.in_line

    def _out_of_line(self, owner: object) -> None:
        who = self._who()
        if self.in_line.get(who) is owner:  # keep the entry of a wait that this call is inside
            del self.in_line[who]

    def _room(
        self, owner: object, size: int, deadline: float, wanted: int = 0
    ) -> CallerFlow[float]:
        """Wait until `owner` gets memory; if it gets none, remove its wait and raise."""
        engine, host, who = self.engine, self.host, self._who()
        if who in self.in_line:
            raise IllegalStateError(
                "send() was called while another send() in the same thread waits for free "
                "buffer.memory (from a signal handler or a finaliser): call it after that"
            )
        try:
            self.in_line[who] = owner
            # Waits are removed by owner, as an exception may come before `room` is assigned.
            room: Completion[bool] = engine.start(engine.line.room(owner, size, deadline, wanted))
            host.wake()
            now = yield Wait((room,), deadline + GRACE)
            granted = room.done and room.result()
        except BaseException:
            engine.leave_line(owner)
            host.wake()
            raise
        finally:
            self._out_of_line(owner)  # `_give_back` repeats this, if an exception comes here
        if not granted:
            engine.leave_line(owner)
            host.wake()
            error = engine.undelivered(f"{size} bytes of free buffer.memory", now)
            raise BufferExhaustedError(
                f"buffer.memory ({engine.accumulator.limit} bytes) stayed full for "
                f"{self.config[BLOCK_TIMEOUT]:g} s (max.block.ms): the brokers acknowledge records "
                "more slowly than they are sent. Wait for results before you send more, or raise "
                "buffer.memory"
            ) from error
        return now

    # Arrow data and lists

    def send_arrow(self, topic: str, data: Any, **columns: str | None) -> CallerFlow[RowsDelivery]:
        """Send the rows of Arrow data chunk by chunk, as `buffer.memory` allows."""
        require_extra("pyarrow")
        with first_use():
            from odradek.record.arrow_send import ColumnNames, columns_from_arrow

        self.check_free("send_arrow()")
        name = topic_name("topic", topic)
        pieces = columns_from_arrow(data, ColumnNames(*column_names(**columns)))
        return (yield from self._rows(name, pieces, data, columns.get("headers")))

    def send_many(self, topic: str, **lists: Any) -> CallerFlow[RowsDelivery]:
        """Send the records of lists chunk by chunk, as `buffer.memory` allows."""
        with first_use():
            from odradek.record.list_send import RecordLists

        self.check_free("send_many()")
        name, given = topic_name("topic", topic), RecordLists.given(**lists)
        for _ in given.check():
            yield BREATH
        return (yield from self._rows(name, given.columns(), given.headers, None))

    def _rows(
        self, name: str, pieces: Iterable[SentColumns], data: object, headers: str | None
    ) -> CallerFlow[RowsDelivery]:
        """Append chunks of rows to batches; a trace looks for its context in `data`, `headers`."""
        engine = self.engine
        delivery, traces = RowsDelivery(self.host.lock, engine.unnoticed), engine.traces
        failed = None if traces is None else traces.sent_rows(name, data, headers, delivery)
        try:
            for piece in pieces:
                yield from self._write(name, piece, delivery)
                yield BREATH
        except BaseException as error:
            if failed is not None:
                failed(error)
            over = error is self.engine.ended or error is self.engine.accumulator.ended
            if delivery.rows and not over:  # an ended producer sends nothing
                error.add_note(
                    f"The first {delivery.rows} rows are still sent, unless the producer is closed "
                    "first; flush() waits for them."
                )
            raise
        finally:
            delivery.finish()
        return delivery

    def _write(self, name: str, columns: SentColumns, delivery: RowsDelivery) -> CallerFlow[None]:
        """Append one chunk of rows to batches, waiting for memory as often as necessary."""
        engine, host = self.engine, self.host
        self.check_open()
        if engine.ended is not None:
            raise engine.ended
        at = int(host.wall_clock() * 1000)
        topic = yield from self.topic(name)
        writer = None
        # Suppressed, so that an error of the second attempt has no context.
        with suppress(InvalidRowError):
            writer = self._writer(columns, topic, delivery)
        if writer is None:
            newer, what = partial(engine.newer, topic, columns), f"metadata of topic {name}"
            topic = yield from self.call(newer, None, what, BLOCK_TIMEOUT)
            writer = self._writer(columns, topic, delivery)
        now = yield START
        engine.metadata.use(name, now)
        try:
            while missing := writer.advance(now, at):
                deadline = (yield START) + self.config["max.block.ms"]
                now = yield from self._room(
                    writer, missing, deadline, engine.accumulator.limit // 8
                )
        except BaseException:
            self._give_back(writer)
            writer.give_up(max(now, engine.now))
            raise

    def _writer(self, columns: SentColumns, topic: Topic, delivery: RowsDelivery) -> ColumnWriter:
        engine = self.engine
        return ColumnWriter(
            engine.accumulator,
            engine.partitioner,
            self._most,
            columns,
            topic,
            delivery.add,
            self.host.wake,
        )

    # Results

    def flush(self, timeout: float | None) -> CallerFlow[int]:
        """Wait until all earlier records have a result; return 0, the number without one."""
        what = f"{ACKNOWLEDGEMENT} all records"
        try:
            yield from self.call(self.engine.flush, timeout, what, DELIVERY_TIMEOUT)
        except KafkaTimeoutError as error:
            if error.remaining is None:  # raised by `by`, not by `engine.flush`
                error.leaving(self.engine.unsettled())
            raise
        except ClientClosedError:
            if self.closed or self.engine.incomplete():
                raise  # else the interpreter exits, and all records were sent
        finally:
            self.engine.report_failures()
        return 0

    def outcome(self, find: Callable[[], Found], timeout: float | None) -> CallerFlow[None]:
        """Wait for a result; `find` returns the batch to wait for, which changes if it is split."""
        seconds = self.seconds(timeout, DELIVERY_TIMEOUT)
        deadline = (yield START) + seconds
        while True:
            of, end, over = find()
            if over:
                return
            now = yield tuple.__new__(Wait, ((end,), deadline))  # saves a Python call
            if not end.done:
                raise self.too_late(of, now)
            if isinstance(of, int) or of.parts is None:
                return

    def too_late(self, of: ProducerBatch | int, now: float) -> KafkaTimeoutError:
        """Return the error of a wait that ended before the delivery timeout of the records did."""
        error = self.engine.no_outcome(of, now)
        error.add_note("The producer still sends the records, unless it is closed first.")
        return error

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action once in the engine's thread, before a later `flush()` returns."""
        left = deque([action])

        def run(_: float = 0.0) -> None:
            try:
                do = left.popleft()
            except IndexError:  # the action has run already
                return
            do()

        self.engine.post(run)  # the action runs before later calls' work
        self.host.defer(run)  # and even if the engine takes no further step

    def watched(self) -> float:
        """Return the default timeout in seconds, for a caller that waits with its own means."""
        if not self.host.on_its_own:
            raise IllegalStateError(
                "in a simulation, time only passes in this client's calls: use result() or "
                "flush(), or run a coroutine with kafka_simulation.run()"
            )
        if self.host.inside:
            raise IllegalStateError(
                "a callback of this Producer can't wait for a result: its thread delivers results"
            )
        self.host.wake()
        seconds: float = self.config[DELIVERY_TIMEOUT]
        return seconds

    # Closing

    def deliver_and_close(self, timeout: float, client: ProducerClient) -> CallerFlow[None]:
        """Wait for the delivery of records, or end the open transaction; then close."""
        timeout = checked_timeout(timeout)
        if not self.closed and self.process.here:
            self.check_uninterrupted("close()")
            if self.host.inside and self._left and timeout > 0:
                raise IllegalStateError(
                    "close() was called in a callback of this Producer, which can't wait for the "
                    "remaining records: call it outside of the callback, or call close(0) to "
                    "discard them"
                )
        self.lanes.clear()  # then `send` calls `append`, which checks whether the client is open
        return self.close(timeout, lambda deadline: self._deliver(timeout, deadline, client))

    @property
    def _left(self) -> bool:
        """Whether records are undelivered or a transaction is open."""
        engine = self.engine
        if engine.ended is not None:
            return False
        return bool(engine.incomplete()) or (
            engine.transactions is not None and engine.transactions.open
        )

    def _deliver(self, timeout: float, deadline: float, client: ProducerClient) -> CallerFlow[None]:
        engine = self.engine
        gone = self.closed or not self.process.here or self.host.inside
        if gone or engine.ended is not None:
            return
        if self.host.gone and (left := engine.unsettled()):
            raise IllegalStateError(
                f"{counted(left)} {were(left)} not acknowledged when this Producer's event loop "
                "was closed, and may be lost: await close() or flush() in that loop"
            )
        if engine.transactions is None:
            if engine.incomplete():
                try:
                    yield Do(partial(client.flush, timeout))
                except KafkaTimeoutError as error:
                    if given_up := engine.left():
                        error.add_note(f"close() discards {given_up}.")
                    raise
        elif timeout > 0:
            yield from self.end_transaction(timeout, deadline, client)
