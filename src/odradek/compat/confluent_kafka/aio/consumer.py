"""`AIOConsumer` as confluent-kafka has it, over our asyncio consumer.

In: subscriptions or assignments, calls that are awaited. Out: messages, errors among them;
rebalance callbacks, plain or `async def`, run in the loop inside `poll()` and `consume()`. Must
not: start a thread, or decide anything: what both kinds of consumers do is `consumer_core`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakMethod

import odradek
from odradek.compat.confluent_kafka.aio import beneath
from odradek.compat.confluent_kafka.aio.cluster_questions import AsyncClusterQuestions
from odradek.compat.confluent_kafka.aio.loop_callbacks import with_loop
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.flows import Flow, awaited
from odradek.compat.confluent_kafka.message import Message, messages_of
from odradek.compat.confluent_kafka.partition_ends import PATIENCE
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.subscription import RebalanceCallback
from odradek.compat.confluent_kafka.topic_partition import TopicPartition


class _Core(ConsumerCore):
    """In a loop."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._questions = AsyncClusterQuestions(self._given.admin)

    def _as_called(self, found: Given) -> Given:
        return with_loop(found)

    def _made(self) -> beneath.AIOConsumer:
        return beneath.AIOConsumer(self._given.ours, messages_of)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _idle(self, seconds: float) -> object:
        return asyncio.sleep(min(seconds, PATIENCE))

    def _rest(self, seconds: float) -> object:
        return asyncio.sleep(seconds)

    def _called(self, flow: Callable[..., Flow[None]]) -> Callable[..., Any]:
        alive = WeakMethod(flow)

        async def called(_: object, partitions: Any) -> None:
            method = alive()
            if method is not None:
                await awaited(method(partitions))

        return called

    def _heard(self) -> Callable[[odradek.Event], None]:
        alive = WeakMethod(self._hear)

        def hear(event: odradek.Event) -> None:
            method = alive()
            if method is not None:
                method(event)

        return hear


class AIOConsumer:
    """Hands out messages in an event loop; every method is awaited.

    `max_workers` and `executor` are taken and change nothing: there are no threads. `poll()` and
    `consume()` of several tasks wait for each other.
    """

    def __init__(
        self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Any = None
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._core = _Core(consumer_conf)
        self._one = asyncio.Lock()

    # Messages

    async def poll(self, timeout: float = -1) -> Message | None:
        """The next message, None after `timeout` seconds; look at its `error()` first."""
        found = self._core.at_hand()
        if found is None:
            async with self._one:
                found = await awaited(self._core.poll(timeout))
        return found

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        async with self._one:
            return await awaited(self._core.consume(num_messages, timeout))

    # Subscriptions

    async def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """As `Consumer.subscribe`; callbacks may be `async def`."""
        await awaited(self._core.subscribe(self, topics, on_assign, on_revoke, on_lost))

    async def unsubscribe(self) -> None:
        """Leave the group; `on_revoke` runs in here."""
        await awaited(self._core.unsubscribe())

    # Assignments

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        await awaited(self._core.assign(partitions))

    async def unassign(self) -> None:
        """As `Consumer.unassign`."""
        await awaited(self._core.unassign())

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_assign`."""
        await awaited(self._core.incremental_assign(partitions))

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_unassign`."""
        await awaited(self._core.incremental_unassign(partitions))

    async def assignment(self) -> list[TopicPartition]:
        """What is assigned."""
        return self._core.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        """As `Consumer.seek`."""
        await awaited(self._core.seek(partition))

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As `Consumer.position`."""
        return self._core.position(partitions)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these until `resume()`."""
        self._core.pause(partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out messages of these again."""
        self._core.resume(partitions)

    # Commits

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """As `Consumer.commit`."""
        return await awaited(self._core.commit(message, offsets, asynchronous))

    async def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """As `Consumer.store_offsets`."""
        self._core.store_offsets(message, offsets)

    # Offsets

    async def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `Consumer.committed`."""
        return await awaited(self._core.committed(partitions, timeout))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """As `Consumer.get_watermark_offsets`."""
        return await awaited(self._core.get_watermark_offsets(partition, timeout, cached))

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `Consumer.offsets_for_times`."""
        return await awaited(self._core.offsets_for_times(partitions, timeout))

    # Group, cluster, and the end

    async def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Who this consumer is in its group, for `send_offsets_to_transaction()`."""
        return self._core.consumer_group_metadata()

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """As `Consumer.list_topics`."""
        return await awaited(self._core.list_topics(topic, timeout))

    async def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        return await awaited(self._core.cluster_id(timeout))

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        self._core.set_sasl_credentials(username, password)

    async def close(self) -> None:
        """Commit where that is set up so, leave the group, close; may be called twice."""
        await awaited(self._core.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
