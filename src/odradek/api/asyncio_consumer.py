"""The consumer for asyncio: `Consumer`, awaited; loops over it are `async for`.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (the caller's task) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from odradek.api.asyncio_group_consumer import AsyncGroupConsumer
from odradek.api.consumer import consumer_engine
from odradek.api.converters import reading
from odradek.api.event_producer import event_producer
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.records import (
    ConsumerRecord,
)
from odradek.common.config import CONSUMER
from odradek.metadata.cluster import checked_hint
from odradek.runtime.hosts.host_sources import loop_host
from odradek.runtime.hosts.in_thread import at_hand
from odradek.runtime.hosts.one_task import OneTask
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.client_options import ConsumerOptions
    from odradek.record.columns import Layout

T = TypeVar("T")
ROWS = 6144
"""Rows of an Arrow batch after which no more are decoded: that holds up the loop for two or three
milliseconds.
"""


class AsyncConsumer(AsyncGroupConsumer):
    """Reads records of subscribed or assigned partitions, in an event loop.

    What `Consumer` says holds here, too: options, groups, commits, errors, timeouts in seconds.
    Heartbeats, commits and fetches go on in the loop while the program awaits other things; a
    program that blocks the loop for longer than `session.timeout.ms` loses its membership. Methods
    that never wait (`assign`, `seek`, `pause`, `assignment` …) aren't awaited; all others are.
    One task at a time asks for records. Cancelling a call that does (`asyncio.timeout`, a task's
    `cancel()`) loses nothing: what it wasn't handed, the next call is. Callbacks of `subscribe` and
    `commit_async`, and a listener's methods, may be plain functions or `async def`; the latter are
    awaited in the call that asks for records.

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
        key_deserializer: Callable[..., Any] | None = None,
        value_deserializer: Callable[..., Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        `bootstrap_hint` is what `bootstrap_hint()` of another consumer gave.

        `key_deserializer` and `value_deserializer` as `Consumer` has them; a registry that has
        to be asked doesn't hold up the loop.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have.
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
    ) -> list[ConsumerRecord]:
        """Records, at most `max_records` (default `max.poll.records`); none after `timeout`.

        As `Consumer.poll`.
        """
        found = await at_hand(
            lambda: self._read(self._calls.poll(timeout, max_records, timeout_ms))
        )
        self._calls.engine.delivery.handed_over()
        return found or []

    def records(self, timeout: float | None = None) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records, until all `until` are reached or none came for `timeout` seconds.

        The loop has its turn every few records, so that a reader at full speed holds up nobody.

        As `Consumer.records`.
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
        """The next records of one partition as an Arrow batch; None after `timeout` without any.

        As `Consumer.poll_arrow`, but a batch ends with that of Kafka's in which it has got 6,144
        rows: decoding doesn't hold up the loop then. `pyarrow.concat_batches` makes larger ones.
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
        """Iterate over Arrow batches as `poll_arrow` gives them.

        As `Consumer.batches`.
        """
        batches = self._calls.batches(timeout, columns, include_headers, layout)
        return self._reader.batches(lambda: self._read(batches()), self._calls)

    async def _read(self, flow: CallerFlow[T]) -> T:
        """Carry out a call that hands out records: one task at a time does."""
        await self._loop_host.breathe()
        return await self._reader.inside("poll()", self._calls.callback, self._run, flow)
