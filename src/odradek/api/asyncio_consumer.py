"""Consumer for asyncio: `Consumer`, awaited; its iterators are for `async for`.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (the caller's task) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from odradek.api.asyncio_group_consumer import AsyncGroupConsumer
from odradek.api.consumer import consumer_engine
from odradek.api.converters import reading
from odradek.api.event_producer import event_producer
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.config import CONSUMER
from odradek.common.types import K_co, V_co
from odradek.metadata.cluster import checked_hint
from odradek.runtime.hosts.host_sources import loop_host
from odradek.runtime.hosts.in_thread import at_hand
from odradek.runtime.hosts.one_task import OneTask
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.client_options import ConsumerOptions
    from odradek.api.converters import Deserializer
    from odradek.record.columns import Layout

T = TypeVar("T")
ROWS = 6144
"""Rows after which an Arrow batch is returned: decoding them blocks the event loop for 2 to 3
ms."""


class AsyncConsumer(AsyncGroupConsumer, Generic[K_co, V_co]):
    """Consumer of subscribed or assigned partitions, for asyncio.

    Options, groups, commits, errors and timeouts (in seconds) are those of `Consumer`. Heartbeats,
    commits and fetches run in the event loop while the program awaits other things; a program that
    blocks the loop for longer than `session.timeout.ms` is removed from its group. Methods that
    never wait (`assign`, `seek`, `pause`, `assignment` …) are plain functions; all others are
    coroutines.

    One task at a time may read records. Cancelling a read (`asyncio.timeout`, or a task's
    `cancel()`) loses nothing: the next call returns the records. Callbacks of `subscribe` and
    `commit_async`, and methods of a listener, may be functions or coroutine functions; coroutines
    are awaited in the call that reads records.

    >>> config = {"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}
    >>> async with AsyncConsumer(config, group_id="board") as consumer:
    ...     await consumer.subscribe(["arrivals"])
    ...     async for record in consumer.records(timeout=5.0):
    ...         print(record.offset, record.value)
    0 b'JFK'
    1 b'LGA'
    """

    @with_settings(CONSUMER)
    def __init__(
        self,
        config: Settings = None,
        *,
        bootstrap_hint: Mapping[str, Any] | None = None,
        key_deserializer: Deserializer[K_co] | None = None,
        value_deserializer: Deserializer[V_co] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Check the configuration; no connection is opened yet. Arguments are those of `Consumer`.

        Deserializers that have to ask a schema registry don't block the event loop.

        Raises `ConfigurationError` for an unknown option or an invalid value; its subclass
        `UnsupportedOptionError` for an option of other clients that isn't supported.
        """
        self._reader = OneTask()
        super().__init__(
            config,
            loop_host,
            partial(consumer_engine, hint=checked_hint("bootstrap_hint", bootstrap_hint)),
            event_producer,
            partial(ConsumerCalls, reader=self._reader, arrow_rows=ROWS),
        )
        self._calls.engine.delivery.convert_with(
            reading(key_deserializer, value_deserializer, in_loop=True)
        )

    # Reading

    async def poll(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[ConsumerRecord[K_co, V_co]]:
        """Return the next records, at most `max_records` (default `max.poll.records`).

        See `Consumer.poll`.
        """
        found = await at_hand(
            lambda: self._read(self._calls.poll(timeout, max_records, timeout_ms))
        )
        self._calls.engine.delivery.handed_over()
        return found or []

    def records(self, timeout: float | None = None) -> AsyncIterator[ConsumerRecord[K_co, V_co]]:
        """Iterate over records, until none arrives for `timeout` seconds (None: forever).

        Every few records the iterator yields to the event loop, so that a fast reader doesn't block
        other tasks. See `Consumer.records`.
        """
        more = lambda: at_hand(lambda: self._read(self._calls.iterated(timeout)))  # noqa: E731
        return self._reader.records(more, self._calls, self._loop_host)

    __aiter__ = records

    async def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        layout: Layout = "binary",
    ) -> pa.RecordBatch | None:
        """Return the next records of one partition as an Arrow batch; None after `timeout` seconds.

        See `Consumer.poll_arrow`. To keep the event loop responsive, batches are smaller here: once
        a batch has 6,144 rows, no further Kafka record batch is added to it. Join batches with
        `pyarrow.concat_batches` if you need larger ones.
        """
        batch = await self._read(self._calls.poll_arrow(timeout, columns, include_headers, layout))
        self._calls.engine.delivery.handed_over()
        return batch

    def batches(
        self,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        layout: Layout = "binary",
    ) -> AsyncIterator[pa.RecordBatch]:
        """Iterate over the Arrow batches that `poll_arrow` returns.

        See `Consumer.batches`.
        """
        batches = self._calls.batches(timeout, columns, include_headers, layout)
        return self._reader.batches(lambda: self._read(batches()), self._calls)

    async def _read(self, flow: CallerFlow[T]) -> T:
        """Execute a call that returns records; only one task at a time may."""
        await self._loop_host.breathe()
        return await self._reader.inside("poll()", self._calls.callback, self._run, flow)
