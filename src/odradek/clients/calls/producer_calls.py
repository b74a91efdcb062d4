"""The caller's half of a producer: all of `send` but an open batch, `flush`, closing in order.

In: records and Arrow data. Out: flows that run in the caller: they check, choose partitions, and
wait for room in `buffer.memory`, each caller in its turn. Must not: leave room, or an early record,
with a caller that was interrupted (R-HO-1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from odradek.clients.calls.caller_flow import CallerFlow, whatever_happens
from odradek.clients.calls.client_calls import BLOCK_TIMEOUT, GRACE
from odradek.clients.calls.transaction_calls import TransactionCalls
from odradek.clients.client_engine import check_topic
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.column_writer import ColumnWriter
from odradek.clients.producer.delivery import ArrowDelivery
from odradek.clients.producer.early_records import EarlyRecord
from odradek.clients.producer.partitioner import TopicLane, lane_for
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.clients.producer.record_accumulator import CANNOT_WAIT, SentRecord
from odradek.clients.producer.record_arguments import checked_record, column_names
from odradek.common.arguments import checked_timeout, topic_name
from odradek.common.config import Config
from odradek.common.errors import (
    BufferExhaustedError,
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from odradek.common.imports import loaded
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.network.flow import START, Completion, Wait
from odradek.network.host import Host
from odradek.record import BatchBuilder, InvalidRowError, SentColumns, estimate_record_size

F = TypeVar("F")

DELIVERY_TIMEOUT = "delivery.timeout.ms"
Found = tuple[ProducerBatch | int, Completion[Any], bool]
"""What a future waits for (a batch, or so many rows), its end, and whether it has come."""


class Process(Protocol):
    """Whether this is still the process that made the client."""

    here: bool


class ProducerCalls(TransactionCalls):
    """What the callers of one producer share."""

    def __init__(
        self,
        kind: str,
        config: Config,
        host: Host,
        build: Callable[[Host], ProducerEngine],
        process: Process,
        who: Callable[[], object],
    ) -> None:
        """`who`: a number or name of whoever calls just now, as calls may come side by side."""
        super().__init__(kind, config, host, build)
        self.process = process
        self.lanes: dict[str, TopicLane] = {}
        self.in_line: dict[object, object] = {}
        """For whom callers wait for room: what interrupts one of them there can't wait as well."""
        self.lock_free = BatchBuilder.ATOMIC and config["max.request.size"] >= config["batch.size"]
        """A record may go into an open batch without a lock, and without a look at its size."""
        self._who = who
        lanes = self.lanes  # not `self`: a producer that is dropped can go
        self.engine.metadata.on_forgotten.append(lambda topic: lanes.pop(topic, None))

    @property
    def writes(self) -> ProducerEngine:
        """Records wait in it."""
        return self.engine

    @property
    def close_timeout(self) -> float:
        """Seconds for its records."""
        seconds: float = self.config["close.timeout.ms"]
        return seconds

    # Records

    def topic(self, name: str, timeout: float | None = None) -> CallerFlow[Topic]:
        """The topic's metadata, once no record waits for it that `send` has taken before."""
        found = self.engine.early.topic(name)
        if found is not None:
            return found
        return (
            yield from self.call(
                lambda deadline: self.engine.early.placed(name, deadline),
                timeout,
                f"metadata of topic {name}",
                BLOCK_TIMEOUT,
            )
        )

    def partitions_for(self, topic: str, timeout: float | None) -> CallerFlow[list[TopicPartition]]:
        """The partitions of a topic, in order."""
        name = topic_name("topic", topic)
        found = yield from self.topic(name, timeout)
        return [TopicPartition(name, p.partition) for p in found.partitions]

    def lane(self, name: str) -> CallerFlow[TopicLane | None]:
        """What `send` needs to know of a topic, as the newest snapshot has it; None where it isn't
        known, and records needn't wait here for it. It waits for a function as partitioner alone.
        """
        name = topic_name("topic", name)
        self.check_open()
        engine = self.engine
        engine.accumulator.check()
        topic = engine.early.topic(name)
        if topic is None and not callable(self.config["partitioner"]):
            check_topic(name)
            return None
        found = topic or (yield from self.topic(name))
        lane = self.lanes[name] = lane_for(engine, found)
        return lane

    def append(
        self,
        topic: str,
        lane: TopicLane | None,
        record: SentRecord,
        partition: int | None,
        made: Callable[[ProducerBatch, int, int], F],
    ) -> CallerFlow[F]:
        """Put a record where its partition has no open batch with room, or isn't known yet; waits
        for memory, `max.block.ms` at most. `made` makes its future.
        """
        self.check_free("send()")
        engine, host = self.engine, self.host
        if engine.ended is not None:
            raise engine.ended
        key, value, headers, at = record
        headers = checked_record(value, key, headers, at)
        record = (key, value, headers, at)
        size = self._size(key, value, headers)
        if partition is not None and partition < 0:
            there = "" if lane is None else f", which has partitions 0 to {lane.count - 1}"
            raise ConfigurationError(f"{partition} is no partition of topic {topic}{there}")
        now = yield START
        deadline: float | None = None
        owner: object = None
        try:
            while lane is None or partition is None or partition >= lane.count:
                if owner is not None:
                    engine.accumulator.waive(owner)
                owner = early = EarlyRecord(
                    *(topic, record, partition, size, now, self.config["max.block.ms"])
                )
                taken, deadline = yield from self._taken_early(early, deadline)
                if taken:
                    return made(early, 0, at)
                lane = yield from self.lane(topic)  # it has just become known
                if lane is not None and partition is None:
                    partition = lane.choose(key, value)
                now = yield START
            target = TopicPartition(topic, partition)
            engine.metadata.use(topic, now)
            while True:
                place = engine.accumulator.append(target, record, size, now, owner)
                if place is not None:
                    break
                if owner is None and self._cannot_wait:
                    owner = CANNOT_WAIT
                    continue
                deadline = deadline or now + self.seconds(None, BLOCK_TIMEOUT)
                owner = object()
                now = yield from self._room(owner, size, deadline)
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
        return made(place.batch, place.index, at)

    def _size(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        """The most bytes that a record takes in a batch; raises where that is too much."""
        size = estimate_record_size(key, value, headers)
        if size > min(self.config["max.request.size"], self.config["buffer.memory"]):
            raise RecordTooLargeError(
                f"a record of up to {size} bytes is above max.request.size "
                f"({self.config['max.request.size']}) or buffer.memory"
            )
        return size

    def _taken_early(
        self, record: EarlyRecord, deadline: float | None
    ) -> CallerFlow[tuple[bool, float | None]]:
        """Give a record of a topic or partition that isn't known to those that wait for it; False
        where it is known by now: then what was granted to the record is its owner's still. And
        until when the call may wait, once it has had to.
        """
        early, host = self.engine.early, self.host
        try:
            while (taken := early.add(record, turn=self._cannot_wait)) is None:
                deadline = deadline or (yield START) + self.seconds(None, BLOCK_TIMEOUT)
                yield from self._room(record, early.room(record), deadline)
            host.wake()
        except BaseException:  # interrupted, or the host can't begin: nobody will have its future
            self._out_of_line(record)
            early.withdraw(record)
            host.wake()
            raise
        return taken, deadline

    @property
    def _cannot_wait(self) -> bool:
        """This is a callback, or has interrupted a call of the same caller that waits for room."""
        return self.host.inside or self._who() in self.in_line

    def _out_of_line(self, owner: object) -> None:
        who = self._who()
        if self.in_line.get(who) is owner:  # not that of the wait which was interrupted
            del self.in_line[who]

    def _room(
        self, owner: object, size: int, deadline: float, wanted: int = 0
    ) -> CallerFlow[float]:
        """Stand in line until bytes are granted to `owner`; without, it has left the line."""
        engine, host, who = self.engine, self.host, self._who()
        if who in self.in_line:
            raise IllegalStateError(
                "send() was called by what has interrupted a send() of this thread that waits for "
                "room in buffer.memory (a signal handler, a finaliser), and there is none: call it "
                "later"
            )
        try:
            self.in_line[who] = owner
            # An exception from outside may come before `room` has a name: the owner is one.
            room: Completion[bool] = engine.start(engine.line.room(owner, size, deadline, wanted))
            host.wake()
            now = yield Wait((room,), deadline + GRACE)
            granted = room.done and room.result()
        except BaseException:
            engine.leave_line(owner)
            host.wake()
            raise
        finally:
            self._out_of_line(owner)  # the callers do so, too, where an exception comes right here
        if not granted:
            engine.leave_line(owner)
            host.wake()
            error = engine.undelivered(f"room for {size} bytes in buffer.memory", now)
            raise BufferExhaustedError(
                f"buffer.memory ({engine.accumulator.limit} bytes) had no room within max.block.ms"
            ) from error
        return now

    # Arrow data

    def send_arrow(self, topic: str, data: Any, **columns: str | None) -> CallerFlow[ArrowDelivery]:
        """Have the rows of Arrow data written, piece by piece, as there is room."""
        loaded("pyarrow", "odradek.record.arrow_send")
        from odradek.record.arrow_send import ColumnNames, columns_from_arrow

        self.check_free("send_arrow()")
        name = topic_name("topic", topic)
        pieces = columns_from_arrow(data, ColumnNames(*column_names(**columns)))
        delivery = ArrowDelivery(self.host.lock)
        try:
            for piece in pieces:
                yield from self._write(name, piece, delivery)
        except BaseException as error:
            if delivery.rows:
                error.add_note(f"The first {delivery.rows} rows are being sent; flush() waits.")
            raise
        finally:
            delivery.finish()
        return delivery

    def _write(self, name: str, columns: SentColumns, delivery: ArrowDelivery) -> CallerFlow[None]:
        """Write one piece of Arrow data, waiting for memory as often as it has to."""
        engine, host = self.engine, self.host
        self.check_open()
        if engine.ended is not None:
            raise engine.ended
        at = int(host.wall_clock() * 1000)
        topic = yield from self.topic(name)
        try:
            writer = ColumnWriter(engine, columns, topic, delivery.add, host.wake)
        except InvalidRowError:
            topic = yield from self.call(
                lambda deadline: engine.newer(topic, columns, deadline),
                None,
                f"metadata of topic {name}",
                BLOCK_TIMEOUT,
            )
            writer = ColumnWriter(engine, columns, topic, delivery.add, host.wake)
        now = yield START
        engine.metadata.use(name, now)
        try:
            while missing := writer.advance(now, at):
                deadline = (yield START) + self.config["max.block.ms"]
                now = yield from self._room(
                    writer, missing, deadline, engine.accumulator.limit // 8
                )
        except BaseException:
            self._out_of_line(writer)
            engine.accumulator.waive(writer)
            writer.give_up(max(now, engine.now))
            raise

    # Outcomes

    def flush(self, timeout: float | None) -> CallerFlow[int]:
        """Wait until all records sent before have an outcome; gives how many have none: 0."""
        what = "acknowledgement of all records"
        try:
            yield from self.call(self.engine.flush, timeout, what, DELIVERY_TIMEOUT)
        except KafkaTimeoutError as error:
            if error.remaining is None:  # the host was late, too
                error.remaining = self.engine.unsettled()
            raise
        return 0

    def outcome(self, find: Callable[[], Found], timeout: float | None) -> CallerFlow[None]:
        """Wait for an outcome; `find` says of what, as a batch may be split meanwhile."""
        seconds = self.seconds(timeout, DELIVERY_TIMEOUT)
        deadline = (yield START) + seconds
        while True:
            of, end, over = find()
            if over:
                return
            self.host.wake()
            now = yield Wait((end,), deadline)
            if not end.done:
                raise self.too_late(of, now)

    def too_late(self, of: ProducerBatch | int, now: float) -> KafkaTimeoutError:
        """The error of a wait that ended before the delivery timeout did."""
        error = self.engine.no_outcome(of, now)
        error.add_note("The records are still being sent.")
        return error

    def watched(self) -> float:
        """Somebody waits without a call; gives the seconds that a call would wait."""
        if not self.host.on_its_own:
            raise IllegalStateError(
                "in a simulation time passes in this client's calls only: use result() or flush()"
            )
        if self.host.inside:
            raise IllegalStateError(
                "a callback of this Producer can't wait for an outcome: its thread brings that"
            )
        self.host.wake()
        seconds: float = self.config[DELIVERY_TIMEOUT]
        return seconds

    # The end

    def close(self, timeout: float) -> CallerFlow[None]:
        """Have records delivered, or the open transaction aborted; then close."""
        timeout = checked_timeout(timeout)
        if not self.closed and self.process.here:
            self.check_uninterrupted("close()")
            if self.host.inside and self._left and timeout > 0:
                raise IllegalStateError(
                    "close() was called in a callback of this Producer, which can't wait for what "
                    "is left: call it in the program's thread, or close(0) to give that up"
                )
        self.lanes.clear()  # so that every later `send` looks whether this is open
        deadline = (yield START) + timeout
        self.host.surfacing = False
        yield from whatever_happens(self._end_work(timeout), lambda: self._close_by(deadline))

    def _close_by(self, deadline: float) -> CallerFlow[None]:
        now = yield START
        yield from super().close(max(1.0, deadline - now))

    @property
    def _left(self) -> bool:
        """Records or a transaction have yet to end."""
        engine = self.engine
        if engine.ended is not None:
            return False
        return bool(engine.sender.incomplete()) or (
            engine.transactions is not None and engine.transactions.open
        )

    def _end_work(self, timeout: float) -> CallerFlow[None]:
        engine = self.engine
        gone = self.closed or not self.process.here or self.host.inside
        if gone or engine.ended is not None:
            return
        if engine.transactions is not None:
            if timeout > 0:
                yield from self.end_transaction(timeout)
        elif engine.sender.incomplete():
            yield from self.flush(timeout)
