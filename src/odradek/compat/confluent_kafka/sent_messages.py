"""Messages that were produced and whose reports the program hasn't been given yet.

In: messages as they are sent, and the outcomes of their batches from the producer's own thread.
Out: reports, made into callbacks when the program asks for them; how many messages are left
(`len(producer)`). Must not: hold more than `queue.buffering.max.messages` and
`queue.buffering.max.kbytes` allow, or have the producer's thread do anything for a single message.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from threading import Lock

from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, Message, report_of
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.translated_errors import code_of
from odradek.compat.placed import Batch

DeliveryCallback = Callable[[KafkaError | None, Message], object]
CREATE_TIME = TIMESTAMP_CREATE_TIME - 1
Sent = tuple[int, float, int, bytes | None, bytes | None, DeliveryCallback | None, int]
"""One message: its index in its batch, when and with which time it was sent, key and value, what
its report calls, and its size."""


class SentMessages:
    """What is on its way, or waits to be reported."""

    def __init__(self, given: Given, deliver: Callable[[Reports], None]) -> None:
        """`deliver`: is called, in the producer's own thread, with reports that can be made."""
        self.only_errors = given.only_errors
        self.deliver = deliver
        self._most_messages = given.most_messages or math.inf
        self._most_bytes = given.most_bytes
        self._lock = Lock()
        self._count = 0
        self._bytes = 0
        self._reports: dict[Batch, Reports] = {}
        """By batches that have no outcome yet."""

    def __len__(self) -> int:
        return max(0, self._count)

    def admit(self, size: int) -> None:
        """Take a message of this size in; raises `BufferError` where there is no room."""
        with self._lock:
            full = self._count >= self._most_messages
            if full or self._bytes + size > self._most_bytes:
                raise BufferError("Local: Queue full")
            self._count += 1
            self._bytes += size

    def dismiss(self, size: int) -> None:
        """Forget one: it was reported, or couldn't be sent at all."""
        with self._lock:
            self._count -= 1
            self._bytes -= size

    def expect(self, batch: Batch, message: Sent) -> None:
        """A message went into a batch. Others may come at the same time, and so may the outcome."""
        reports = self._reports.get(batch)
        if reports is None:
            made = Reports(self, batch)
            reports = self._reports.setdefault(batch, made)
            reports.waiting.append(message)
            if reports is made:
                batch.done.when_done(made.over)
                return
        else:
            reports.waiting.append(message)
        if reports.can_be_made:  # the outcome came in between
            self.deliver(reports)

    def forget(self, batch: Batch) -> None:
        """Its outcome is there."""
        self._reports.pop(batch, None)


class Reports:
    """The reports of one batch: calls that wait."""

    __slots__ = ("_batch", "_sent", "can_be_made", "waiting")

    def __init__(self, sent: SentMessages, batch: Batch) -> None:
        self._sent = sent
        self._batch = batch
        self.waiting: deque[Sent] = deque()
        """Whoever takes one off makes its report."""
        self.can_be_made = False

    def over(self, _: object) -> None:
        """The batch has its outcome."""
        self.can_be_made = True
        self._sent.forget(self._batch)
        if self._batch.parts is None:
            self._sent.deliver(self)
        else:
            self._move()

    def _move(self) -> None:
        """The messages are in other batches now."""
        while self.waiting:
            index, *others = self.waiting.popleft()
            batch, place, _ = self._batch.find(index)
            self._sent.expect(batch, (place, *others))  # type: ignore[arg-type]

    def __call__(self) -> int:
        """Tell the program, in its thread; gives how many were told."""
        batch, sent, waiting, made = self._batch, self._sent, self.waiting, 0
        if batch.parts is not None:
            self._move()
            return 0
        topic, partition = batch.partition
        number = partition if partition >= 0 else None
        base, appended, error = -1, -1, None
        if batch.done.error is not None:
            error = delivery_error(batch.done.error)
        else:
            outcome = batch.done.result()
            base, appended = outcome.base_offset, outcome.log_append_time_ms
        told, now = error is not None or not sent.only_errors, time.monotonic()
        while waiting:
            try:
                index, begun, at, key, value, call, size = waiting.popleft()
            except IndexError:  # another thread makes reports, too
                break
            made += 1
            sent.dismiss(size)
            if call is not None and told:
                offset = base + index if base >= 0 else None
                time_ms = at if appended < 0 else appended
                record = (topic, number, offset, time_ms, CREATE_TIME, key, value, None, -1)
                call(error, report_of(record, error, now - begun))
        return made


def delivery_error(error: BaseException) -> KafkaError:
    """The error of a message that wasn't delivered."""
    code = code_of(error)
    if code == KafkaError._TIMED_OUT:
        code = KafkaError._MSG_TIMED_OUT
    elif code == KafkaError._DESTROY:
        return KafkaError(KafkaError._PURGE_QUEUE)
    return KafkaError(code, str(error))
