"""The consumer for asyncio: `Consumer`, awaited; loops over it are `async for`.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (the caller's task) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import ref

from odradek.api.asyncio_base import AsyncClient
from odradek.api.consumer import consumer_engine
from odradek.api.consumer_state import ConsumerState
from odradek.api.converters import reading
from odradek.api.group_consumer import RebalanceListener
from odradek.clients.calls.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import CLOSE_TIMEOUT
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.calls.group_calls import RebalanceCallback as Callback
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.offsets import BEGINNING, END
from odradek.clients.consumer.partition_arguments import (
    one_partition,
    some_partitions,
    some_times,
)
from odradek.clients.consumer.records import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from odradek.common.arguments import flag, names, topic_name
from odradek.common.config import CONSUMER
from odradek.common.errors import KafkaError
from odradek.common.habits import with_keywords
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import checked_hint
from odradek.runtime.hosts.host_sources import loop_host
from odradek.runtime.hosts.in_thread import at_hand
from odradek.runtime.hosts.one_task import OneTask
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.client_options import ConsumerOptions
    from odradek.api.group_consumer import Offsets
    from odradek.clients.descriptions import TopicDescription
    from odradek.record.columns import Layout

T = TypeVar("T")
ROWS = 6144
"""Rows of an Arrow batch after which no more are decoded: that holds up the loop for two or three
milliseconds.
"""


class AsyncConsumer(ConsumerState, AsyncClient[ConsumerEngine]):
    """Reads records of subscribed or assigned partitions, in an event loop.

    What `Consumer` says holds here, too: options, groups, commits, errors, timeouts in seconds.
    Heartbeats, commits and fetches go on in the loop while the program awaits other things; a
    program that blocks the loop for longer than `session.timeout.ms` loses its membership. Methods
    that never wait (`assign`, `seek`, `pause`, `assignment` …) aren't awaited; all others are.
    One task at a time asks for records. Cancelling a call that does (`asyncio.timeout`, a task's
    `cancel()`) loses nothing: what it wasn't handed, the next call is.

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

    # Offsets

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is there, per partition.

        As `Consumer.beginning_offsets`.
        """
        wanted = some_partitions(partitions)
        return await self._call(
            lambda d: self._engine.offsets_at(wanted, BEGINNING, d), timeout, "beginning offsets"
        )

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will get (read_committed: the last stable offset).

        As `Consumer.end_offsets`.
        """
        wanted = some_partitions(partitions)
        return await self._call(
            lambda d: self._engine.offsets_at(wanted, END, d), timeout, "end offsets"
        )

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the first record at or after a time in ms since the epoch, else None.

        As `Consumer.offsets_for_times`.
        """
        wanted = some_times(times)
        return await self._call(
            lambda d: self._engine.offsets_for_times(wanted, d), timeout, "offsets for times"
        )

    # Topics and cluster

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic, in order.

        As `Consumer.partitions_for`.
        """
        name = topic_name("topic", topic)
        return await self._call(
            lambda d: self._engine.partitions_for(name, d), timeout, f"partitions of {name}"
        )

    async def describe(
        self, topics: Collection[str] | str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and ids by topic; a str is one name.

        As `Consumer.describe`.
        """
        wanted = names("topics", topics)
        return await self._call(
            lambda d: self._engine.describe(wanted, d), timeout, "description of topics"
        )

    async def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted.

        As `Consumer.list_topics`.
        """
        internal = flag("include_internal", include_internal)
        return await self._call(
            lambda d: self._engine.list_topics(d, internal=internal), timeout, "list of topics"
        )

    # The group

    @with_keywords
    async def subscribe(
        self,
        topics: Collection[str] | str = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group (`group.id`) and read what it assigns of these topics from now on.

        Callbacks, and a listener's methods, may be plain functions or `async def`; those are
        awaited in the call that asks for records.

        As `Consumer.subscribe`.
        """
        named = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        await self._run(self._calls.subscribe(topics, pattern, listener, named, ref(self)))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Give everything back and leave the group; `assign` or `subscribe` may follow.

        As `Consumer.unsubscribe`.
        """
        await self._run(self._calls.unsubscribe(timeout))

    @with_keywords
    async def commit(
        self, offsets: Offsets | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit, and wait for it; gives what was committed.

        As `Consumer.commit`.
        """
        return await self._run(self._calls.commit(offsets, timeout))

    async def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
        | None = None,
    ) -> None:
        """Commit as `commit` does, without waiting for it. `callback` may be `async def`.

        As `Consumer.commit_async`.
        """
        await self._run(self._calls.commit_async(offsets, callback))

    async def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, by partition; None where it hasn't.

        As `Consumer.committed`.
        """
        group = self._calls.group("committed()")
        wanted = some_partitions(partitions)
        return await self._call(
            lambda d: group.commits.stored.fetch(wanted, d), timeout, "committed offsets"
        )

    async def seek_to_committed(
        self, partitions: Collection[TopicPartition] | None = None, timeout: float | None = None
    ) -> None:
        """Go back to what the group has committed (None: all assigned), once that is known.

        As `Consumer.seek_to_committed`.
        """
        await self._run(self._calls.seek_to_committed(partitions, timeout))

    async def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` will hand out.

        As `Consumer.position`.
        """
        known = self._calls.engine.subscription.position(one_partition(tp))
        return await self._run(self._calls.position(tp, timeout)) if known is None else known

    # The end

    @with_keywords
    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commit, leave the group, close all connections; ends within `timeout` seconds.

        As `Consumer.close`.
        """
        await self._end(self._calls.leave_and_close(timeout))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end(self._calls.leave_and_close(CLOSE_TIMEOUT, through=error is None))
