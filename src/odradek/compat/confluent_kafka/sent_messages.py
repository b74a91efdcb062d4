"""Messages that were produced and whose reports the program hasn't been given yet.

In: messages as they are sent, and their outcomes from the producer's own thread. Out: reports, made
into callbacks when the program asks for them; how many messages are left (`len(producer)`). Must
not: hold more than `queue.buffering.max.messages` and `queue.buffering.max.kbytes` allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import odradek
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, Message
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.translated_errors import code_of

DeliveryCallback = Callable[[KafkaError | None, Message], object]


class SentMessages:
    """What is on its way, or waits to be reported."""

    def __init__(self, given: Given, queue: CallbackQueue) -> None:
        self.queue = queue
        self.only_errors = given.only_errors
        self._most_messages = given.most_messages
        self._most_bytes = given.most_bytes
        self._lock = Lock()
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, topic: str, value: bytes | None, key: bytes | None, callback: DeliveryCallback | None
    ) -> SentMessage:
        """Take a message in; raises `BufferError` where there is no room."""
        made = SentMessage(self, topic, value, key, callback)
        with self._lock:
            full = 0 < self._most_messages <= self._count
            if full or self._bytes + made.size > self._most_bytes:
                raise BufferError("Local: Queue full")
            self._count += 1
            self._bytes += made.size
        return made

    def remove(self, message: SentMessage) -> None:
        """Forget one: it was reported, or couldn't be sent at all."""
        with self._lock:
            self._count -= 1
            self._bytes -= message.size


class SentMessage:
    """One message: `on_delivery` of our producer, and the report as a call that waits."""

    __slots__ = ("_all", "_begun", "_callback", "_error", "_key", "_place", "_topic", "_value",
                 "size")  # fmt: skip

    def __init__(
        self,
        messages: SentMessages,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        callback: DeliveryCallback | None,
    ) -> None:
        self._all = messages
        self._topic = topic
        self._value = value
        self._key = key
        self._callback = callback
        self._begun = time.monotonic()
        self._error: BaseException | None = None
        self._place: odradek.RecordMetadata | None = None
        self.size = (0 if value is None else len(value)) + (0 if key is None else len(key))

    def delivered(self, error: BaseException | None, place: odradek.RecordMetadata) -> None:
        """The outcome is there; called in the producer's own thread."""
        self.outcome(error, place)
        self._all.queue.put(self.report)

    def outcome(self, error: BaseException | None, place: odradek.RecordMetadata) -> None:
        """Take note of the outcome."""
        self._error, self._place = error, place

    def report(self) -> None:
        """Tell the program, in its thread."""
        self._all.remove(self)
        wanted = self._callback is not None and not (self._all.only_errors and not self._error)
        if wanted and self._callback is not None:
            error = None if self._error is None else delivery_error(self._error)
            self._callback(error, self._message(error))

    def _message(self, error: KafkaError | None) -> Message:
        place: Any = self._place
        well = error is None
        return Message(
            self._topic,
            place.partition if place.partition >= 0 else None,
            place.offset if well and place.offset >= 0 else None,
            self._key,
            self._value,
            None,
            error,
            (TIMESTAMP_CREATE_TIME, place.timestamp_ms),
            time.monotonic() - self._begun,
        )


def delivery_error(error: BaseException) -> KafkaError:
    """The error of a message that wasn't delivered."""
    code = code_of(error)
    if code in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        code = KafkaError._MSG_TIMED_OUT
    elif code == KafkaError._DESTROY:
        return KafkaError(KafkaError._PURGE_QUEUE)
    return KafkaError(code, str(error))
