"""Producer for asyncio: `Producer`, awaited; its futures are awaitable.

In: single records, lists, or Arrow batches. Out: deliveries. Flow: `send` → accumulator → sender →
wire. Must not: decide anything; the engine and `clients/calls` do.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from odradek.api.asyncio_transactions import AsyncTransactional
from odradek.api.converters import sending, sending_many
from odradek.api.producer import CLOSE_TIMEOUT, Producer, producer_engine
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.calls.record_sending import DeliveryCallback, RecordSending
from odradek.clients.producer.batch import RecordMetadata
from odradek.clients.producer.partitioner import TopicLane
from odradek.clients.producer.record_accumulator import SentRecord
from odradek.clients.producer.record_arguments import NO_HEADERS, HeadersInput
from odradek.common.config import PRODUCER
from odradek.common.types import K_contra, TopicPartition, V_contra
from odradek.runtime.hosts.async_caller import block, this_task
from odradek.runtime.hosts.delivery_future import (
    ArrowDeliveryFuture,
    DeliveryFuture,
    ManyDeliveryFuture,
    tell_delivery,
)
from odradek.runtime.hosts.host_sources import loop_host
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    from odradek.api.client_options import ProducerOptions
    from odradek.api.converters import Serializer


class AsyncProducer(RecordSending[Any, K_contra, V_contra], AsyncTransactional):
    """Idempotent producer for asyncio; options, errors and guarantees are those of `Producer`.

    `await producer.send(…)` only waits while `buffer.memory` is full. It returns a
    `DeliveryFuture`; await that for the result, or ignore it. `send_and_wait` does both. Cancelling
    a wait doesn't revoke records that were sent. Any number of tasks may share a producer.

    >>> async with AsyncProducer({"bootstrap.servers": "localhost:9092"}) as producer:
    ...     delivery = await producer.send("flights", value=b"JFK", key=b"N14228")
    ...     print((await delivery).offset)
    0
    """

    _put = RecordSending.send
    _taken_by = "_put"

    @with_settings(PRODUCER)
    def __init__(
        self,
        config: Settings = None,
        *,
        key_serializer: Serializer[K_contra] | None = None,
        value_serializer: Serializer[V_contra] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the configuration; no connection is opened yet. Arguments are those of `Producer`.

        Raises `ConfigurationError` for an unknown option or an invalid value; its subclass
        `UnsupportedOptionError` for an option of other clients that isn't supported.
        """
        from odradek.runtime.fork import ForkSwitch

        calls = partial(ProducerCalls, process=ForkSwitch(), who=this_task)
        super().__init__(config, loop_host, producer_engine, Producer, calls)
        self._set_up_sending(
            self._calls,
            DeliveryFuture,
            tell_delivery,
            _put=sending(self, key_serializer, value_serializer, in_loop=True),
            send_many=sending_many(self, key_serializer, value_serializer, in_loop=True),
        )

    async def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryFuture:
        """Buffer one record for sending; only waits while `buffer.memory` is full.

        `on_delivery` is called in the event loop, as part of the client's work, so it must return
        quickly. See `Producer.send`.
        """
        put = self._put(topic, value, key, headers, partition, timestamp_ms)
        future = put if type(put) is DeliveryFuture else await put
        return future if on_delivery is None else self._report_to(future, on_delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record, wait until it is acknowledged, and return its partition and offset.

        Raises what `send` raises, and the error of the record if it wasn't written.
        """
        put = self._put(topic, value, key, headers, partition, timestamp_ms)
        return await (put if type(put) is DeliveryFuture else await put)

    async def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str | None = "value",
        key: str | None = "key",
        headers: str | None = "headers",
        partition: str | None = "partition",
        timestamp: str | None = "timestamp",
    ) -> ArrowDeliveryFuture:
        """Send the rows of Arrow data in order, without creating Python objects.

        See `Producer.send_arrow`.
        """
        columns = {
            "value": value,
            "key": key,
            "headers": headers,
            "partition": partition,
            "timestamp": timestamp,
        }
        sent = await self._run(self._calls.send_arrow(topic, data, **columns))
        return ArrowDeliveryFuture(self, sent)

    async def send_many(
        self,
        topic: str,
        values: Iterable[V_contra | None],
        keys: Iterable[K_contra | None] | None = None,
        headers: Iterable[HeadersInput] | None = None,
        partitions: Iterable[int | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> ManyDeliveryFuture:
        """Send a record for each item of `values`, in order, with a single future.

        See `Producer.send_many`.
        """
        lists: dict[str, Any] = {"values": values, "keys": keys, "headers": headers}
        lists |= {"partitions": partitions, "timestamps_ms": timestamps_ms}
        return ManyDeliveryFuture(self, await self._run(self._calls.send_many(topic, **lists)))

    async def flush(self, timeout: float | None = None) -> int:
        """Send all buffered records now and wait until each is acknowledged or has failed.

        See `Producer.flush`.
        """
        return await self._run(self._calls.flush(timeout))

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of a topic, in order.

        See `Producer.partitions_for`.
        """
        return await self._run(self._calls.partitions_for(topic, timeout))

    async def warm(self, topics: Collection[str] | str, timeout: float | None = None) -> None:
        """Load metadata and connect to leaders, so that the first records don't have to wait.

        See `Producer.warm`.
        """
        await self._run(self._calls.warm(topics, timeout))

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for up to `timeout` seconds, then close; unsent records get `ClientClosedError`.

        See `Producer.close`.
        """
        await self._end(self._calls.deliver_and_close(timeout, self))

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises.

        Cancelling the task in the block aborts the transaction. A cancellation during the commit,
        which can't be revoked, raises `CancelledError` once the commit has finished. One during the
        abort raises it at once, and the abort continues. After that, or after a second cancellation
        during a commit, the next block first waits for the earlier transaction to finish.

        See `Producer.transaction`.
        """
        return block(
            self,
            lambda: self._run(self._calls.before_block(self)),
            lambda error: self._run(self._calls.end_block(self, error)),
        )

    # Called by deliveries and `send`

    def _surface(self, error: BaseException) -> None:
        """Let the program's next call raise an exception that a callback raised (R-HO-5)."""
        self._host.surface(error)

    def _check_loop(self) -> None:
        """Raise an error if another event loop than this producer's is running."""
        self._loop_host.enter()

    def _append(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture | Coroutine[Any, Any, DeliveryFuture]:
        append = self._after_breath if self._loop_host.overdue else self._append_now
        return append(topic, lane, record, partition)

    def _append_now(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture | Coroutine[Any, Any, DeliveryFuture]:
        """Append the record; return a coroutine if it has to wait for memory or metadata."""
        made, now = partial(self._future, self), self._loop_host.enter()
        found = self._calls.append(topic, lane, record, partition, made, now)
        return self._run(found) if isinstance(found, Generator) else found

    async def _after_breath(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture:
        """Yield to the event loop, then look up the topic again and append the record.

        It doesn't call `self.send`, which a subclass may override with other arguments, and doesn't
        call the serializers a second time.
        """
        await self._loop_host.breathe()
        put: Any = RecordSending.send(
            cast("Any", self), topic, record[1], record[0], record[2], partition, record[3]
        )
        return cast("DeliveryFuture", await put if type(put) is CoroutineType else put)
