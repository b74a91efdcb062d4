"""The producer for asyncio: `Producer`, awaited; its outcomes are awaitable.

In: records one by one, in lists, or Arrow batches. Out: deliveries. Flow: `send` → accumulator →
sender → wire. Must not: decide anything; the engine and `clients/calls` do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Generator, Iterable
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
from odradek.common.types import TopicPartition
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


class AsyncProducer(RecordSending[Any], AsyncTransactional):
    """Writes records from an event loop: idempotent, `acks=all`, in order per partition.

    What `Producer` says holds here, too: options, transactions, errors, timeouts in seconds.
    `await producer.send(…)` waits for room in `buffer.memory` alone and gives a `DeliveryFuture`,
    which is awaited for the outcome, or not at all; `send_and_wait` does both. Cancelling a wait
    takes back nothing that was sent. Any number of tasks may share a producer.

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
        key_serializer: Callable[..., Any] | None = None,
        value_serializer: Callable[..., Any] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        `key_serializer` and `value_serializer` as `Producer` has them.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have.
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
        value: bytes | None = None,
        key: bytes | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryFuture:
        """Give one record to the producer; waits for room in `buffer.memory` alone.

        `on_delivery` is called in the loop, amid the client's work: it must be quick.

        As `Producer.send`.
        """
        put = self._put(topic, value, key, headers, partition, timestamp_ms)
        future = put if type(put) is DeliveryFuture else await put
        return future if on_delivery is None else self._report_to(future, on_delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged: its topic, partition, offset, time.

        Raises what `send` raises, and what ended the record's batch.
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
        """Give the rows of Arrow data to the producer, in their order, without making objects.

        As `Producer.send_arrow`.
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
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[HeadersInput] | None = None,
        partitions: Iterable[int | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> ManyDeliveryFuture:
        """Give a record for each item of `values` to the producer, in their order, at once.

        As `Producer.send_many`.
        """
        lists: dict[str, Any] = {"values": values, "keys": keys, "headers": headers}
        lists |= {"partitions": partitions, "timestamps_ms": timestamps_ms}
        return ManyDeliveryFuture(self, await self._run(self._calls.send_many(topic, **lists)))

    async def flush(self, timeout: float | None = None) -> int:
        """Send everything that lingers and wait until all records sent before have an outcome.

        As `Producer.flush`.
        """
        return await self._run(self._calls.flush(timeout))

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic, in order. Waits for metadata, default `max.block.ms`.

        As `Producer.partitions_for`.
        """
        return await self._run(self._calls.partitions_for(topic, timeout))

    async def warm(self, topics: Collection[str] | str, timeout: float | None = None) -> None:
        """Have at hand what a first record to these topics would wait for; a str is one name.

        As `Producer.warm`.
        """
        await self._run(self._calls.warm(topics, timeout))

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for at most `timeout` seconds, then close; records left get `ClientClosedError`.

        As `Producer.close`.
        """
        await self._end(self._calls.deliver_and_close(timeout, self))

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """Begin a transaction; commit it at the end, or abort it when the body raises.

        A body that is cancelled is one that raises; a cancellation amid the commit, which can't be
        taken back, comes out when that has ended. One that comes amid the abort comes out at once:
        the abort continues, and the next block waits for its end before it begins, as it does for
        a commit during which a second cancellation came.

        As `Producer.transaction`.
        """
        return block(
            self,
            lambda: self._run(self._calls.before_block(self)),
            lambda error: self._run(self._calls.end_block(self, error)),
        )

    # What deliveries and `send` need

    def _surface(self, error: BaseException) -> None:
        """Have what a callback raised come out of a call of the program's (R-HO-5)."""
        self._host.surface(error)

    def _check_loop(self) -> None:
        """Raise where another event loop runs than this producer's."""
        self._loop_host.enter()

    def _append(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture | Coroutine[Any, Any, DeliveryFuture]:
        append = self._after_breath if self._loop_host.overdue else self._append_now
        return append(topic, lane, record, partition)

    def _append_now(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture | Coroutine[Any, Any, DeliveryFuture]:
        """Carry out `ProducerCalls.append`."""
        made, now = partial(self._future, self), self._loop_host.enter()
        found = self._calls.append(topic, lane, record, partition, made, now)
        return self._run(found) if isinstance(found, Generator) else found

    async def _after_breath(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> DeliveryFuture:
        """Let the loop have its turn; then the topic is looked at again. Not by `self.send`, which
        may be a subclass's, with arguments of its own, nor through serializers once more.
        """
        await self._loop_host.breathe()
        put: Any = RecordSending.send(
            self, topic, record[1], record[0], record[2], partition, record[3]
        )
        return cast("DeliveryFuture", await put if type(put) is CoroutineType else put)
