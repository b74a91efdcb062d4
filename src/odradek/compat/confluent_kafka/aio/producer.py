"""confluent-kafka's `AIOProducer` on Odradek's asyncio producer.

In: messages. Out: futures of the event loop, each with the delivered message. Must not: start a
thread; Odradek's producer does the batching.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self
from weakref import ref

import odradek
from odradek.common.options.values import PRODUCER
from odradek.common.secret import private
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.aio.loop_callbacks import in_loop, with_loop
from odradek.compat.confluent_kafka.aio.topic_listing import AsyncClusterQuestions
from odradek.compat.confluent_kafka.aio.wrapped_clients import AIOProducer as BatchPositionProducer
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.produce_arguments import as_bytes, as_headers, as_partition
from odradek.compat.confluent_kafka.producer import CLOSE_TIMEOUT
from odradek.compat.confluent_kafka.sent_messages import Reports, SentMessages
from odradek.compat.confluent_kafka.settings import FOREVER, checked_seconds, given
from odradek.compat.confluent_kafka.statistics_json import tell_regularly
from odradek.compat.confluent_kafka.topic_partition import (
    TopicPartition,
    ours,
    partition_list,
    to_commit,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating

logger = logging.getLogger("odradek.compat")


class AIOProducer:
    """Producer for asyncio; `await produce(…)` returns a future for the delivery.

    `max_workers`, `executor`, `batch_size` and `buffer_timeout` are accepted and have no effect:
    there are no threads, and `linger.ms` and `batch.size` control batching.
    """

    @private
    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Any = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        del max_workers, executor, batch_size, buffer_timeout
        self._given = with_loop(given(PRODUCER, producer_conf))
        self._queue = CallbackQueue(self._given)
        self._came = asyncio.Event()
        every = replace(self._given, only_errors=False)  # futures need reports of successes
        self._sent = SentMessages(every, partial(_deliver, ref(self), self._came))
        self._questions = AsyncClusterQuestions(self._given.admin)
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

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message]:
        """Send a message; return a future for the delivered message.

        Waits while the buffer is full. The future raises `KafkaException` if the delivery failed.
        `callback(error, message)`, or `on_delivery`, is called in the event loop. Raises
        `BufferError` if the queue is full.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        producer, loop = self._open(), asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        report = in_loop(callback or on_delivery or self._given.on_delivery)
        call = partial(_told, future, report, self._given.only_errors)
        data, name = as_bytes(value), as_bytes(key)
        pairs, number = as_headers(headers), as_partition(partition)
        size = (0 if data is None else len(data)) + (0 if name is None else len(name))
        sent, begun = self._sent, monotonic()
        sent.admit(size)
        try:
            found = producer.put(
                topic, data, name, pairs, number, timestamp if timestamp > 0 else None
            )
            batch, index, at = found if isinstance(found, tuple) else await found
        except odradek.BufferExhaustedError as error:
            raise BufferError("Local: Queue full") from error
        except odradek.KafkaError as error:
            raise KafkaException(translated(error)) from error
        sent.expect(batch, (index, begun, at, name, data, call), size)
        return future

    def __len__(self) -> int:
        return len(self._sent)

    def __bool__(self) -> bool:
        return True

    async def poll(self, timeout: float = 0) -> int:
        """Call `error_cb` for queued errors; return their number.

        Deliveries are reported without this call. If messages are in flight, it waits for the
        next delivery or failure, for at most `timeout` seconds.
        """
        seconds = checked_seconds(timeout)
        self._open()
        served = self._queue.serve(0)
        if not served and seconds and len(self._sent):
            self._came.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), seconds)
        return served

    async def flush(self, timeout: float = -1) -> int:
        """Send all messages and wait for their outcomes; return the number still pending."""
        seconds = checked_seconds(timeout)
        deadline = monotonic() + seconds
        while len(self._sent):
            left = deadline - monotonic()
            try:
                await self._open().flush(min(FOREVER, max(0.0, left)))
            except odradek.KafkaTimeoutError:
                break
            await asyncio.sleep(0)  # callbacks may have produced messages
        self._queue.serve(0)
        return len(self._sent)

    async def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Drop all messages: their futures raise `KafkaException`.

        The error is `_PURGE_QUEUE`, or `_PURGE_INFLIGHT` for a message that was sent and may have
        been written. Raises `_NOT_IMPLEMENTED` unless both `in_queue` and `in_flight` are true, and
        with a `transactional.id`.
        """
        producer = self._open()
        if self._given.transactional or not (in_queue and in_flight):
            raise_error(
                KafkaError._NOT_IMPLEMENTED,
                "purge() always drops all messages, and can't be called with a transactional.id",
            )
        self._producer = self._made()
        with suppress(odradek.KafkaTimeoutError):
            await producer.close(0)

    # Transactions

    def _transactional(self) -> odradek.AsyncProducer:
        producer = self._open()
        if not self._given.transactional:
            raise_error(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )
        return producer

    async def init_transactions(self, timeout: float = -1) -> None:
        """Get the producer id, and finish an open transaction of this id; call it once, first.

        See `Producer.init_transactions`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        with translating(transactional=True):
            await producer.init_transactions(seconds)

    async def begin_transaction(self) -> None:
        """Begin a transaction: messages produced from now on belong to it.

        See `Producer.begin_transaction`.
        """
        producer = self._transactional()
        with translating(transactional=True):
            await producer.begin_transaction()

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit offsets with the transaction; negative offsets are ignored.

        See `Producer.send_offsets_to_transaction`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        offsets = {ours(p): to_commit(p) for p in partition_list(positions) if p.offset >= 0}
        if not isinstance(group_metadata, odradek.ConsumerGroupMetadata):
            raise TypeError("group_metadata must be the result of consumer_group_metadata()")
        if offsets:
            with translating(transactional=True):
                await producer.send_offsets_to_transaction(offsets, group_metadata, seconds)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Wait until all messages are written, and commit.

        See `Producer.commit_transaction`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        with translating(transactional=True):
            await producer.commit_transaction(seconds)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; unsent messages are reported with `_PURGE_QUEUE`.

        See `Producer.abort_transaction`.
        """
        producer, seconds = self._transactional(), checked_seconds(timeout)
        with translating(transactional=True):
            await producer.abort_transaction(seconds)

    # Cluster and closing

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics, or one topic; doesn't create topics."""
        self._open()
        return await self._questions.list_topics(topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        producer = self._open()
        with translating():
            return await producer.cluster_id(checked_seconds(timeout))

    @private
    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next login on (PLAIN and SCRAM)."""
        producer = self._open()
        if not self._given.checked_login(username, password):
            return
        with translating():
            producer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    async def close(self) -> None:
        """Abort an open transaction, or flush; then close. Closing twice has no effect."""
        if self._closed:
            return
        if not self._given.transactional:
            await self.flush()
        with translating():
            await self._producer.close(CLOSE_TIMEOUT)
        self._closed = True
        await self._questions.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _deliver(producer: ref[AIOProducer], came: asyncio.Event, reports: Reports) -> None:
    """Call delivery callbacks at once, because this runs in the program's event loop."""
    while True:
        try:
            reports()
            break
        except Exception:
            logger.exception("a delivery callback failed")
        except BaseException as error:
            client = producer()
            if client is not None:
                client._producer._surface(error)
    came.set()


def _told(
    future: asyncio.Future[Message],
    report: Callable[[KafkaError | None, Message], object] | None,
    only_errors: bool,
    error: KafkaError | None,
    message: Message,
) -> None:
    """Complete a message's future and call its callback (with only_errors, only for an error)."""
    if not future.done():
        if error is None:
            future.set_result(message)
        else:
            future.set_exception(KafkaException(error))
    if report is not None and (error is not None or not only_errors):
        report(error, message)
