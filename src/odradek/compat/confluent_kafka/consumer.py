"""confluent-kafka's `Consumer` on Odradek's.

In: subscriptions or assignments, calls of `poll()` and `consume()`. Out: messages, errors among
them; all callbacks run inside these calls, and inside `commit()`, `unsubscribe()` and `close()`.
Must not: contain logic: `consumer_core` has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from odradek.common.secret import private
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka import wrapped_clients
from odradek.compat.confluent_kafka.cluster_metadata import ClusterQuestions
from odradek.compat.confluent_kafka.consumer_calls import ConsumerCalls
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.flows import Flow, carried_out
from odradek.compat.confluent_kafka.message import Message, messages_of


class _Core(ConsumerCore):
    """`ConsumerCore` for threads."""

    @private
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._questions = ClusterQuestions(self._given.admin)

    def _made(self) -> wrapped_clients.Consumer:
        return wrapped_clients.Consumer(self._given.ours, messages_of)

    def _now(self) -> float:
        return monotonic()

    def _idle(self, seconds: float) -> object:
        return self._queue.serve(seconds)

    def _rest(self, seconds: float) -> object:
        time.sleep(seconds)
        return None

    def _called(self, flow: Callable[..., Flow[None]]) -> Callable[..., Any]:
        return lambda _, partitions: carried_out(flow(partitions))


class Consumer(ConsumerCalls):
    """Consumer of subscribed or assigned partitions; returns messages one by one.

    The configuration has librdkafka's names, with their meaning there (`group.id` is required).
    Unsupported settings raise `KafkaException` with `_INVALID_ARG`. Timeouts are in seconds; a
    negative one means no limit. Only one thread at a time may call a consumer.
    """

    @private
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._core = _Core(*args, **kwargs)

    # Messages

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after `timeout` seconds; runs callbacks meanwhile.

        A message may be an error: check its `error()` first. Exceptions of callbacks are raised
        here.
        """
        found = self._core.at_hand()
        return carried_out(self._core.poll(timeout)) if found is None else found

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return `num_messages` messages, or fewer after `timeout` seconds; some may be errors."""
        return carried_out(self._core.consume(num_messages, timeout))

    # Group and closing

    def memberid(self) -> str | None:
        """Return the member's id, or None before it has joined."""
        return self._core.memberid()

    def close(self) -> None:
        """Commit if configured, leave the group and close; closing twice has no effect."""
        carried_out(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(RuntimeError):
            self.close()
