"""confluent-kafka's `Producer` on Odradek's.

In: messages, and calls of `poll()` or `flush()`, in which callbacks run. Out: records for Odradek's
producer, and their outcomes as delivery reports. Must not: decide how records are sent.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import odradek
from odradek.common.options.values import PRODUCER
from odradek.common.secret import private
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata, ClusterQuestions
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.produce_arguments import (
    ANY_PARTITION,
    as_bytes,
    as_headers,
    as_partition,
    check_messages,
)
from odradek.compat.confluent_kafka.sent_messages import DeliveryCallback, SentMessages
from odradek.compat.confluent_kafka.settings import checked_seconds, given
from odradek.compat.confluent_kafka.statistics_json import tell_regularly
from odradek.compat.confluent_kafka.topic_partition import (
    TopicPartition,
    ours,
    partition_list,
    to_commit,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating
from odradek.compat.confluent_kafka.wrapped_clients import Producer as BatchPositionProducer

PATIENCE = 0.05
"""Seconds that `flush()` waits for deliveries before it runs queued callbacks."""
CLOSE_TIMEOUT = 30.0
"""Seconds for `close()` to end an open transaction."""


class Producer:
    """Sends messages and reports their delivery in `poll()` and `flush()`.

    The configuration has librdkafka's names, with their meaning there. Unsupported settings raise
    `KafkaException` with `_INVALID_ARG`. Timeouts are in seconds; a negative one means no limit.
    Threads may share a producer.
    """

    @private
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            raise TypeError(f"Producer takes one configuration dict, not {len(args)} arguments")
        self._given = given(PRODUCER, args[0] if args else None, kwargs)
        self._queue = CallbackQueue(self._given)
        self._on_delivery = self._given.on_delivery
        self._sent = SentMessages(self._given, self._queue.put_many)
        self._questions = ClusterQuestions(self._given.admin)
        self._closed = False
        self._producer = self._made()
        tell_regularly(self._queue, PRODUCER, self._given, self, lambda own: own._producer)

    def _made(self) -> BatchPositionProducer:
        with translating():
            made = BatchPositionProducer(self._given.ours)
        if self._queue.hears:
            made.listen(self._queue.hear)
        return made

    def _open(self) -> BatchPositionProducer:
        if self._closed:
            raise RuntimeError("Producer has been closed")
        return self._producer

    # Messages

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Send a message; returns at once.

        `on_delivery(error, message)`, or `callback`, is called in a later `poll()` or `flush()`.
        `timestamp` is in milliseconds since the epoch, 0 for the current time; `headers` is a dict
        or a list of pairs. Raises `BufferError` if the queue is full (call `poll()` and retry),
        `TypeError`, and `KafkaException` (for example `MSG_SIZE_TOO_LARGE`, or `_STATE` outside of
        a transaction).
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        call = callback or on_delivery or self._on_delivery
        number = None if partition == ANY_PARTITION else as_partition(partition)
        sent, producer, begun = self._sent, self._producer, self._sent.now()
        try:
            if headers is None:  # the fast path for most messages
                number = producer.report_at_once(
                    sent.room, sent.by_batch, begun, topic, key, value, number, timestamp, call
                )
                if number is True:
                    return
            if not isinstance(topic, str):
                raise TypeError(f"topic must be a str, not {type(topic).__name__}")
            value, key, pairs = as_bytes(value), as_bytes(key), as_headers(headers)
            size = (0 if value is None else len(value)) + (0 if key is None else len(key))
            sent.admit(size)
            batch, index, at = producer.put(
                topic, value, key, pairs, number, timestamp if timestamp > 0 else None
            )
        except odradek.BufferExhaustedError as error:
            raise BufferError("Local: Queue full") from error
        except odradek.KafkaError as error:
            raise KafkaException(translated(error)) from error
        sent.expect(batch, (index, begun, at, key, value, call), size)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Send messages: dicts with `value`, `key`, `partition`, `timestamp`, `callback`.

        Returns the number of accepted messages; the dict of each rejected message gets a
        `KafkaError` as its item `_error`.
        """
        taken = 0
        for message in check_messages(messages):
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or callback or on_delivery,
                    timestamp=message.get("timestamp", 0),
                )
                taken += 1
            except KafkaException as error:
                message["_error"] = error.args[0]
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        return taken

    def poll(self, timeout: float = -1) -> int:
        """Run queued callbacks, waiting at most `timeout` seconds for the first.

        Returns the number of reports. Exceptions of callbacks are raised here.
        """
        seconds = checked_seconds(timeout)
        self._open()
        try:
            return self._queue.serve(seconds)
        finally:
            self._note_unheard()

    def flush(self, timeout: float = -1) -> int:
        """Send all messages and wait until each is reported; return the number still pending."""
        deadline = monotonic() + checked_seconds(timeout)
        self._open()
        while len(self._sent):
            left = max(0.0, deadline - monotonic())
            with suppress(odradek.KafkaError):  # the messages' callbacks get the errors
                self._open().flush(min(left, PATIENCE))
            if not self._queue.serve(min(left, PATIENCE)) and not left:
                break
        self._note_unheard()
        self._producer.report_failures()
        return len(self._sent)

    def _note_unheard(self) -> None:
        """Pass failed messages without a callback to the client, which logs them once a minute."""
        if found := self._sent.take_unheard():
            self._producer.unnoticed(sum(count for count, _ in found), found[0][1])

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop all messages; a later `poll()` reports each of them.

        The error is `_PURGE_QUEUE`, or `_PURGE_INFLIGHT` for a message that was sent and may have
        been written. Raises `KafkaException` with `_NOT_IMPLEMENTED` unless both `in_queue` and
        `in_flight` are true, and with a `transactional.id` (use `abort_transaction()`).
        """
        producer = self._open()
        if self._given.transactional:
            raise_error(
                KafkaError._NOT_IMPLEMENTED,
                "purge() can't be called with a transactional.id: call abort_transaction(), which "
                "drops all messages of the transaction",
            )
        if not (in_queue and in_flight):
            raise_error(
                KafkaError._NOT_IMPLEMENTED,
                "purge() always drops all messages: in_queue and in_flight must both be true",
            )
        self._producer = self._made()
        with suppress(odradek.KafkaTimeoutError):  # the timeout 0 always expires
            producer.close(0)

    def __len__(self) -> int:
        return len(self._sent)

    def __bool__(self) -> bool:
        return True

    # Transactions

    def _transactional(self) -> odradek.Producer:
        producer = self._open()
        if not self._given.transactional:
            raise_error(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )
        return producer

    def init_transactions(self, timeout: float = -1) -> None:
        """Get the producer id, and finish an open transaction of this id; call it once, first."""
        producer, seconds = self._transactional(), checked_seconds(timeout)
        with translating(transactional=True):
            producer.init_transactions(seconds)

    def begin_transaction(self) -> None:
        """Begin a transaction: messages produced from now on belong to it."""
        producer = self._transactional()
        with translating(transactional=True):
            producer.begin_transaction()

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: Any,
        timeout: float = -1,
    ) -> None:
        """Commit offsets with the transaction; negative offsets are ignored.

        `group_metadata` is the result of the consumer's `consumer_group_metadata()`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        offsets = {ours(p): to_commit(p) for p in partition_list(positions) if p.offset >= 0}
        if not isinstance(group_metadata, odradek.ConsumerGroupMetadata):
            raise TypeError("group_metadata must be the result of consumer_group_metadata()")
        if not offsets:
            return
        with translating(transactional=True):
            producer.send_offsets_to_transaction(offsets, group_metadata, seconds)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait until all messages are written, and commit; runs callbacks meanwhile.

        After an error that is `retriable()` call it again; after one with `txn_requires_abort()`
        call `abort_transaction()`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        deadline = monotonic() + seconds
        if self.flush(seconds):
            late = KafkaError(
                KafkaError._TIMED_OUT, "timed out: some messages are still in flight", False, True
            )
            raise KafkaException(late)
        with translating(transactional=True):
            producer.commit_transaction(max(0.0, deadline - monotonic()))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; unsent messages are reported with `_PURGE_QUEUE`."""
        producer, seconds = self._transactional(), checked_seconds(timeout)
        with translating(transactional=True):
            producer.abort_transaction(seconds)
        self._queue.serve(0)

    # Cluster and closing

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics, or one topic; doesn't create topics."""
        self._check_handle()
        return self._questions.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        self._check_handle()
        with translating():
            return self._producer.cluster_id(checked_seconds(timeout))

    @private
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next login on (PLAIN and SCRAM)."""
        self._check_handle()
        if not self._given.checked_login(username, password):
            return
        with translating():
            self._producer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    def _check_handle(self) -> None:
        if self._closed:
            raise RuntimeError("Handle has been closed")

    def close(self) -> bool:
        """Abort an open transaction, or flush; then close. Returns True; may be called twice."""
        if self._closed:
            return True
        if not self._given.transactional:
            self.flush()
        with translating():
            self._producer.close(CLOSE_TIMEOUT)
        self._closed = True
        self._questions.close()
        self._queue.serve_last()
        self._sent = SentMessages(self._given, self._queue.put_many)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
