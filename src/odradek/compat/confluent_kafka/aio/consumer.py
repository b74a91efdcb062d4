"""confluent-kafka's `AIOConsumer` on Odradek's asyncio consumer.

In: subscriptions or assignments, calls that are awaited. Out: messages, errors among them;
rebalance callbacks, plain or `async def`, run in the loop inside `poll()` and `consume()`. Must
not: start a thread, or contain logic: `consumer_core` has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakMethod

import odradek
from odradek.common.secret import private
from odradek.compat.confluent_kafka.aio import wrapped_clients
from odradek.compat.confluent_kafka.aio.consumer_calls import AIOConsumerCalls
from odradek.compat.confluent_kafka.aio.loop_callbacks import with_loop
from odradek.compat.confluent_kafka.aio.topic_listing import AsyncClusterQuestions
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.flows import Flow, awaited
from odradek.compat.confluent_kafka.message import Message, messages_of
from odradek.compat.confluent_kafka.partition_ends import PATIENCE
from odradek.compat.confluent_kafka.settings import Given


class _Core(ConsumerCore):
    """`ConsumerCore` for an event loop."""

    @private
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._questions = AsyncClusterQuestions(self._given.admin)

    def _as_called(self, found: Given) -> Given:
        return with_loop(found)

    def _made(self) -> wrapped_clients.AIOConsumer:
        return wrapped_clients.AIOConsumer(self._given.ours, messages_of)

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


class AIOConsumer(AIOConsumerCalls):
    """Consumer for asyncio: every method is a coroutine, and callbacks may be, too.

    `max_workers` and `executor` are accepted and have no effect: there are no threads. Concurrent
    calls of `poll()` and `consume()` wait for each other.
    """

    @private
    def __init__(
        self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Any = None
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._core = _Core(consumer_conf)
        self._one = asyncio.Lock()

    # Messages

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after `timeout` seconds; check its `error()` first."""
        found = self._core.at_hand()
        if found is None:
            async with self._one:
                found = await awaited(self._core.poll(timeout))
        return found

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return `num_messages` messages, or fewer after `timeout` seconds; some may be errors."""
        async with self._one:
            return await awaited(self._core.consume(num_messages, timeout))

    # Closing

    async def close(self) -> None:
        """Commit if configured, leave the group and close; closing twice has no effect."""
        await awaited(self._core.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
