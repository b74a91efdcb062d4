"""`AIOKafkaProducer` on `odradek.AsyncProducer`.

In: aiokafka's arguments. Out: `asyncio` futures with aiokafka's metadata and errors. Must not:
decide how records are sent; the wrapped producer does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

from odradek.common.errors import AbortableTransactionError
from odradek.common.errors import IllegalStateError as WrongTime
from odradek.common.errors import KafkaError as OurError
from odradek.common.errors import KafkaTimeoutError as TooLate
from odradek.common.secret import private
from odradek.compat.aiokafka.errors import (
    IllegalOperation,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)
from odradek.compat.aiokafka.offsets import offsets_by_partition
from odradek.compat.aiokafka.partitioner import DefaultPartitioner
from odradek.compat.aiokafka.producer.delivery_futures import Outcome, batch_outcome
from odradek.compat.aiokafka.producer.message_accumulator import BatchBuilder
from odradek.compat.aiokafka.producer.wrapped_producer import AIOKafkaProducer as _Producer
from odradek.compat.aiokafka.settings import MISSING, producer_settings, running_loop
from odradek.compat.aiokafka.shielded import outcome
from odradek.compat.aiokafka.structs import OffsetAndMetadata, RecordMetadata, TopicPartition
from odradek.compat.aiokafka.translation import raising, translated

_missing = MISSING
_DEFAULT_PARTITIONER = DefaultPartitioner()
FOREVER = math.inf
"""Timeout in seconds of calls that aiokafka doesn't limit; use `asyncio.timeout`."""
GRACE = 1.0
"""Seconds that `stop()` waits in addition to `request_timeout_ms`."""
_in_words = partial(raising, ProducerClosed, MessageSizeTooLargeError)

Headers = Iterable[tuple[str, bytes | None]]
Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
Offsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


@contextmanager
def _in_order() -> Iterator[None]:
    """Convert `IllegalStateError` of a transactional call to `AssertionError`, as in aiokafka."""
    try:
        yield
    except WrongTime as error:
        raise AssertionError(str(error)) from error


class AIOKafkaProducer:
    """aiokafka's producer: `start()`, then `send` or `send_and_wait`, then `stop()`.

    Keywords, their defaults and errors are aiokafka's; `docs/switching.md` lists the differences.
    The producer keeps working when its brokers are replaced (KIP-899).
    """

    @private
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Any = _missing,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Partitioner = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        """Check the settings; no connection is opened yet. Must be called inside a coroutine.

        Raises `ValueError`, and its subclass `RefusedSettingError` for a setting that isn't
        supported.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        self._loop = running_loop(given)
        settings = producer_settings(given)
        with _in_words():
            self._producer = _Producer(settings, self._loop, answered=settings["acks"] != 0)
        self._put = self._producer.put
        self._closed = False
        self._transactional = transactional_id is not None
        self._timeout = request_timeout_ms / 1000
        self._close_timeout = (request_timeout_ms + linger_ms) / 1000 + GRACE
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        # The wrapped producer implements the default partitioner's choice itself.
        self._partitioner = None if type(partitioner) is DefaultPartitioner else partitioner
        self._max_batch_size, self._max_request_size = max_batch_size, max_request_size
        self._partitions: dict[str, list[int]] = {}
        self._initialised: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        """Tasks that end a transaction; event loops only keep weak references to tasks."""
        self._begun = False

    async def start(self) -> None:
        """Connect to the cluster; raises `KafkaConnectionError` after `request_timeout_ms`.

        With a `transactional_id` it returns once an open transaction of an earlier producer with
        this id has finished and that producer is fenced; raises
        `TransactionalIdAuthorizationFailed` and similar errors.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise AssertionError("start() must run in the event loop that created the producer")
        try:
            await self._producer.cluster_id(self._timeout)
        except OurError as error:
            raise KafkaConnectionError(f"no broker could be reached: {error}") from error
        if self._transactional:
            self._initialised = self._initialise()
            with _in_words():
                await outcome(self._initialised)

    async def stop(self) -> None:
        """Wait for sent records for at most `request_timeout_ms`, then close; may be called twice.

        An open transaction is aborted.
        """
        if self._closed:
            return
        self._closed = True
        if self._initialised is not None:
            self._initialised.cancel()
            await asyncio.wait([self._initialised])
        with _in_words():
            await self._producer.close(self._close_timeout)
        if self._ends:
            await asyncio.wait(self._ends)

    async def flush(self) -> None:
        """Wait until each record sent before is acknowledged or has failed."""
        with _in_words():
            await self._producer.flush(FOREVER)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises `UnknownTopicOrPartitionError` after `request_timeout_ms`.
        """
        return set(await self._known(topic))

    async def _known(self, topic: str) -> list[int]:
        if self._closed:
            raise ProducerClosed("the producer was stopped")
        try:
            with _in_words():
                found = await self._producer.partitions_for(topic, self._timeout)
        except Exception as error:
            if isinstance(error.__cause__, TooLate):
                raise UnknownTopicOrPartitionError(str(error.__cause__)) from error.__cause__
            raise
        numbers = self._partitions[topic] = [tp.partition for tp in found]
        return numbers

    # Records

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Outcome:
        """Buffer a record for sending; return a future of its `RecordMetadata`.

        Waits for the topic's metadata and for buffer memory, at most `request_timeout_ms`. With
        `acks=0` the future's result is None. Raises `AssertionError` without key and value and for
        a partition that doesn't exist, `TypeError` for a key or value that isn't bytes after its
        serializer, `IllegalOperation` outside of a transaction, `MessageSizeTooLargeError`,
        `UnknownTopicOrPartitionError`, `KafkaTimeoutError` and `ProducerClosed`; the future raises
        all other errors.
        """
        if value is None and key is None:
            raise AssertionError("a record needs a key or a value")
        known = self._partitions.get(topic)
        if known is None or self._closed or (partition is not None and partition not in known):
            await self._check_partition(topic, partition)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if partition is None and self._partitioner is not None:
            everywhere = self._producer.known_partitions(topic) or await self._known(topic)
            partition = self._partitioner(key, everywhere, everywhere)
        try:
            found = self._put(
                topic, value, key, tuple(headers) if headers else (), partition, timestamp_ms
            )
            return found if isinstance(found, asyncio.Future) else await found
        except OurError as error:
            raise self._refusal(error) from error

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata | None:
        """Send a record and wait until it is acknowledged; raises the error of its delivery."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def _check_partition(self, topic: str, partition: int | None) -> None:
        """Check that the topic exists, and the partition, if one is given."""
        known = self._partitions.get(topic) if not self._closed else None
        if known is None or (partition is not None and partition not in known):
            known = await self._known(topic)
        if partition is not None and partition not in known:
            raise AssertionError(f"{topic} has no partition {partition}")

    async def _sent(self, *record: Any) -> Outcome:
        """Send a serialized record with the wrapped producer."""
        try:
            return await self._producer.send(*record)
        except OurError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OurError) -> BaseException:
        """Return the exception that `send` raises for an Odradek error."""
        if isinstance(error, WrongTime | AbortableTransactionError):
            if self._closed:
                return ProducerClosed(str(error))
            return IllegalOperation(f"not in a transaction: {error}")
        return translated(error, ProducerClosed, MessageSizeTooLargeError)

    # Batches

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch of `max_batch_size`, for `send_batch`."""
        return BatchBuilder(
            self._max_batch_size,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
        )

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Outcome:
        """Send a batch's records in order; return a future with the position of the first.

        The future fails as soon as one record fails. Raises what `send` raises.
        """
        await self._check_partition(topic, partition)
        batch.close()
        sent = [
            await self._sent(topic, one.value, one.key, one.headers, partition, one.timestamp_ms)
            for one in batch.records
        ]
        return batch_outcome(self._loop, sent)

    # Transactions

    def _ensure_transactional(self) -> None:
        if not self._transactional:
            raise IllegalOperation("transactions need a transactional_id")

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on belong to it.

        Waits for the producer id, which `start()` has requested. Raises `AssertionError` if a
        transaction is open, `ProducerFenced`, and `IllegalOperation` without `transactional_id`.
        """
        self._ensure_transactional()
        if self._initialised is None:
            self._initialised = self._initialise()
        with _in_words(), _in_order():
            await outcome(self._initialised)
            await self._producer.begin_transaction()
        self._begun = True

    def _check_begun(self) -> None:
        if not self._begun:
            raise AssertionError("no transaction is open: call begin_transaction() first")

    def _initialise(self) -> asyncio.Task[None]:
        """Request the producer id for transactions, without a timeout."""
        return asyncio.create_task(self._producer.init_transactions(FOREVER))

    async def commit_transaction(self) -> None:
        """Wait until all records are written, and commit the transaction.

        Raises `AssertionError` if no transaction is open, `ProducerFenced`, and the error of a
        failed record: then call `abort_transaction`.
        """
        self._ensure_transactional()
        self._check_begun()
        await self._to_its_end(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort the transaction; consumers with read_committed isolation never see its records."""
        self._ensure_transactional()
        self._check_begun()
        await self._to_its_end(self._producer.abort_transaction)

    async def _to_its_end(self, call: Callable[[float], Awaitable[None]]) -> None:
        """Commit or abort the transaction, even if the caller is cancelled.

        Afterwards the next transaction may begin, as in aiokafka.
        """

        async def ended() -> None:
            await call(FOREVER)
            self._begun = False

        end = asyncio.create_task(ended())
        self._ends.add(end)
        end.add_done_callback(self._over)
        with _in_words(), _in_order():
            await outcome(end)

    def _over(self, end: asyncio.Task[None]) -> None:
        self._ends.discard(end)
        if not end.cancelled():
            end.exception()  # asyncio logs exceptions that are never retrieved

    def transaction(self) -> TransactionContext:
        """Return a transaction for `async with`.

        It is committed at the end of the block, or aborted if the block raises an exception.
        """
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Offsets, group_id: str) -> None:
        """Commit a group's offsets with the transaction: both, or neither.

        Raises `ValueError` and `TypeError` for invalid offsets or an invalid group, and
        `IllegalOperation` outside of a transaction.
        """
        self._ensure_transactional()
        if not self._begun:
            raise IllegalOperation("no transaction is open: call begin_transaction() first")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(f"group_id must be a non-empty str, not {group_id!r}")
        checked = offsets_by_partition(offsets)
        with _in_words():
            await self._producer.send_offsets_to_transaction(checked, group_id, FOREVER)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def ended(self) -> bool:
        """Whether the producer has failed, for example because it was fenced."""
        return self._producer.ended is not None


class TransactionContext:
    """Context manager of `AIOKafkaProducer.transaction()`."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._producer.commit_transaction()
        elif not self._producer.ended:
            await self._producer.abort_transaction()
