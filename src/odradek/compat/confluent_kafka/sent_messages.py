"""Messages that were produced and not yet reported to the program.

In: sent messages, and the outcomes of their batches from the producer's thread. Out: delivery
reports, whose callbacks run when the program polls; the number of pending messages
(`len(producer)`). Must not: hold more than `queue.buffering.max.messages` and
`queue.buffering.max.kbytes` allow, or do work for each message in the producer's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock
from typing import Any

from odradek.compat.batch_positions import Batch, Notes, Room, build_reports
from odradek.compat.clock import monotonic_clock
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, Message
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.translated_errors import code_of

DeliveryCallback = Callable[[KafkaError | None, Message], object]
CREATE_TIME = TIMESTAMP_CREATE_TIME - 1
MOST_AT_ONCE = 1000
"""Maximum number of reports that are created at once."""


class SentMessages:
    """Messages in flight or waiting to be reported."""

    def __init__(self, given: Given, deliver: Callable[[Reports], None]) -> None:
        """Take `deliver`, which the producer's thread calls when a batch has its outcome."""
        self.only_errors = given.only_errors
        self.deliver = deliver
        self.now = monotonic_clock()
        """Clock implemented in C, because `produce()` calls it for each message."""
        self._unheard: list[tuple[int, BaseException]] = []
        self._most_messages = given.most_messages or sys.maxsize
        self._most_bytes = given.most_bytes
        self.room = Room()
        """How many messages and bytes may be added before all pending ones are counted again.

        Concurrent threads may exceed the limits by one message each.
        """
        self.by_batch: dict[Batch, Reports] = {}
        """Reports of batches that have no outcome yet."""
        self._all: dict[Reports, None] = {}

    def __len__(self) -> int:
        return sum(reports.left for reports in list(self._all))

    def admit(self, size: int) -> None:
        """Reserve memory for a message of this size; raises `BufferError` if the queue is full."""
        room = self.room
        if not room.take(size):
            waiting = list(self._all)
            messages = self._most_messages - sum(reports.left for reports in waiting)
            bytes_left = self._most_bytes - sum(reports.size for reports in waiting)
            if not room.counted(messages, bytes_left, size):
                raise BufferError("Local: Queue full")

    def expect(self, batch: Batch, message: tuple[Any, ...], size: int) -> None:
        """Add a message to the reports of its batch, whose outcome may arrive concurrently."""
        reports = self.by_batch.get(batch)
        if reports is None:
            made = Reports(self, batch)
            reports = self.by_batch.setdefault(batch, made)
            if reports is made:
                self._all[made] = None
                reports.add(message, size)
                batch.done.when_done(made.over)
                return
        reports.add(message, size)
        if reports.can_be_made:  # the batch's outcome has arrived concurrently
            reports.late()

    def again(self, reports: Reports) -> None:
        """Queue reports again, for messages that were added after the batch's outcome."""
        self._all[reports] = None
        self.deliver(reports)

    def fails_unheard(self, count: int, error: BaseException) -> None:
        """Record that `count` messages without a callback have failed."""
        self._unheard.append((count, error))

    def take_unheard(self) -> list[tuple[int, BaseException]]:
        """Return and clear the (count, error) pairs that `fails_unheard` has recorded."""
        found, self._unheard = self._unheard, []
        return found

    def forget(self, reports: Reports) -> None:
        """Remove a batch's reports after all of them were delivered."""
        self._all.pop(reports, None)
        if reports.count:  # another thread has added a message
            self._all[reports] = None


class Reports(Notes):
    """Delivery reports of one batch; a call of this object makes them (see `CallbackQueue`)."""

    __slots__ = ("_batch", "_in_hand", "_one", "_sent")

    def __init__(self, sent: SentMessages, batch: Batch) -> None:
        super().__init__()
        self._sent = sent
        self._batch = batch
        self._one = Lock()
        """Held by the thread that delivers the reports, so that only one does."""
        self._in_hand = 0

    @property
    def left(self) -> int:
        """Number of messages that haven't been reported."""
        return self.count + self._in_hand

    def late(self) -> None:
        """Queue the report of a message that was added after the outcome."""
        self._sent.again(self)

    def over(self, _: object) -> None:
        """Handle the outcome of the batch."""
        self.can_be_made = True
        self._sent.by_batch.pop(self._batch, None)
        if self._batch.parts is not None:
            with self._one:
                self._move()
        if self.count:
            self._sent.deliver(self)

    def _move(self) -> None:
        """Move the messages to the batches into which this batch was split."""
        sent, each = self._sent, self.size // max(1, self.left)
        taken = self._take(self.count)  # other threads may add more
        for index, *others in taken.items():
            batch, place, _ = self._batch.find(index)
            sent.expect(batch, (place, *others), each)
            self._in_hand -= 1
        sent.forget(self)

    def _take(self, most: int) -> Notes:
        taken = self.take(most)
        self._in_hand = taken.count
        return taken

    def __call__(self) -> int:
        """Call the callbacks in the program's thread; return the number of reports."""
        if not self._one.acquire(blocking=False):
            return 0  # another thread delivers them, or one of the callbacks has polled
        made = 0
        try:
            while self.count:
                made += self._tell()
        finally:
            self._one.release()
        if self.left:  # another thread has added a message, and couldn't get the lock
            self._sent.deliver(self)
        else:
            self._sent.forget(self)
        return made

    def _tell(self) -> int:
        batch, sent, made = self._batch, self._sent, 0
        if batch.parts is not None:
            self._move()
            return 0
        topic, partition = batch.partition
        number = partition if partition >= 0 else None
        outcome, error, unheard = (-1, -1), None, 0
        failure = batch.error()
        if failure is not None:
            error = delivery_error(failure, sent=batch.doubtful)
        else:
            found = batch.done.result()
            outcome = found.base_offset, found.log_append_time_ms
        told, now = error is not None or not sent.only_errors, sent.now()
        taken = self._take(MOST_AT_ONCE)
        try:
            messages = build_reports(
                Message, CREATE_TIME, topic, number, outcome, error, now, taken
            )
            for call, message in zip(taken.calls, messages, strict=True):
                made += 1
                self._in_hand -= 1
                if call is None:
                    unheard += 1
                elif told:
                    call(error, message)
        except BaseException:
            self.put_back(taken, made)
            self._in_hand = 0
            raise
        finally:
            if unheard and failure is not None:
                sent.fails_unheard(unheard, failure)
        return made


def delivery_error(error: BaseException, *, sent: bool = False) -> KafkaError:
    """Return the error of a message that failed; `sent`: the message may have been written."""
    code = code_of(error)
    if code == KafkaError._TIMED_OUT:
        code = KafkaError._MSG_TIMED_OUT
    elif code == KafkaError._DESTROY:
        return KafkaError(KafkaError._PURGE_INFLIGHT if sent else KafkaError._PURGE_QUEUE)
    return KafkaError(code, str(error))
