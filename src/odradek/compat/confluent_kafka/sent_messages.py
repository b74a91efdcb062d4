"""Messages that were produced and whose reports the program hasn't been given yet.

In: messages as they are sent, and the outcomes of their batches from the producer's own thread.
Out: reports, made into callbacks when the program asks for them; how many messages are left
(`len(producer)`). Must not: hold more than `queue.buffering.max.messages` and
`queue.buffering.max.kbytes` allow, or have the producer's thread do anything for a single message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any

from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, Message
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.translated_errors import code_of
from odradek.compat.placed import Batch, Notes, Room, build_reports

DeliveryCallback = Callable[[KafkaError | None, Message], object]
CREATE_TIME = TIMESTAMP_CREATE_TIME - 1
MOST_AT_ONCE = 1000
"""Reports that are made before the first of them is told."""


class SentMessages:
    """What is on its way, or waits to be reported."""

    def __init__(self, given: Given, deliver: Callable[[Reports], None]) -> None:
        """`deliver`: is called, in the producer's own thread, with reports that can be made."""
        self.only_errors = given.only_errors
        self.deliver = deliver
        self._most_messages = given.most_messages or sys.maxsize
        self._most_bytes = given.most_bytes
        self.room = Room()
        """What may come before somebody has to count. Threads that come at the same time may get
        in one more than that; none is ever lost from what is counted.
        """
        self.by_batch: dict[Batch, Reports] = {}
        """Of batches that have no outcome yet."""
        self._all: dict[Reports, None] = {}

    def __len__(self) -> int:
        return sum(reports.left for reports in list(self._all))

    def admit(self, size: int) -> None:
        """Let a message of this size in; raises `BufferError` where there is no room."""
        room = self.room
        if not room.take(size):
            waiting = list(self._all)
            messages = self._most_messages - sum(reports.left for reports in waiting)
            bytes_left = self._most_bytes - sum(reports.size for reports in waiting)
            if not room.counted(messages, bytes_left, size):
                raise BufferError("Local: Queue full")

    def expect(self, batch: Batch, message: tuple[Any, ...], size: int) -> None:
        """A message went into a batch. Others may come at the same time, and so may the outcome."""
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
        if reports.can_be_made:  # the outcome came in between
            reports.late()

    def again(self, reports: Reports) -> None:
        """There are some that came after the outcome."""
        self._all[reports] = None
        self.deliver(reports)

    def forget(self, reports: Reports) -> None:
        """All of these were told."""
        self._all.pop(reports, None)
        if reports.count:  # one came in between
            self._all[reports] = None


class Reports(Notes):
    """The reports of one batch: calls that wait."""

    __slots__ = ("_batch", "_in_hand", "_one", "_sent")

    def __init__(self, sent: SentMessages, batch: Batch) -> None:
        super().__init__()
        self._sent = sent
        self._batch = batch
        self._one = Lock()
        """Who makes them."""
        self._in_hand = 0

    @property
    def left(self) -> int:
        """How many weren't told."""
        return self.count + self._in_hand

    def late(self) -> None:
        """One came after the outcome."""
        self._sent.again(self)

    def over(self, _: object) -> None:
        """The batch has its outcome."""
        self.can_be_made = True
        self._sent.by_batch.pop(self._batch, None)
        if self._batch.parts is not None:
            with self._one:
                self._move()
        if self.count:
            self._sent.deliver(self)

    def _move(self) -> None:
        """The messages are in other batches now."""
        sent, each = self._sent, self.size // max(1, self.left)
        taken = self._take(self.count)  # others may come meanwhile
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
        """Tell the program, in its thread; gives how many were told."""
        if not self._one.acquire(blocking=False):
            return 0  # another thread does, or this one, further up
        made = 0
        try:
            while self.count:
                made += self._tell()
        finally:
            self._one.release()
        if self.left:  # one came in between, and found that they are being made
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
        outcome, error = (-1, -1), None
        if batch.done.error is not None:
            error = delivery_error(batch.done.error, sent=batch.doubtful)
        else:
            found = batch.done.result()
            outcome = found.base_offset, found.log_append_time_ms
        told, now = error is not None or not sent.only_errors, monotonic()
        taken = self._take(MOST_AT_ONCE)
        try:
            messages = build_reports(
                Message, CREATE_TIME, topic, number, outcome, error, now, taken
            )
            for call, message in zip(taken.calls, messages, strict=True):
                made += 1
                self._in_hand -= 1
                if call is not None and told:
                    call(error, message)
        except BaseException:
            self.put_back(taken, made)
            self._in_hand = 0
            raise
        return made


def delivery_error(error: BaseException, *, sent: bool = False) -> KafkaError:
    """Return the error of a message that wasn't delivered; `sent`: it may have been written."""
    code = code_of(error)
    if code == KafkaError._TIMED_OUT:
        code = KafkaError._MSG_TIMED_OUT
    elif code == KafkaError._DESTROY:
        return KafkaError(KafkaError._PURGE_INFLIGHT if sent else KafkaError._PURGE_QUEUE)
    return KafkaError(code, str(error))
