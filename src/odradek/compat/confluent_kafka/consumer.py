"""`Consumer` as confluent-kafka has it, over ours.

In: subscriptions or assignments, calls of `poll()` and `consume()`. Out: messages, errors among
them; all callbacks are made inside these calls, and inside `commit()`, `unsubscribe()` and
`close()`. Must not: decide anything: what both kinds of consumers do is `consumer_core`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from odradek.compat.confluent_kafka import beneath
from odradek.compat.confluent_kafka.cluster_metadata import ClusterQuestions
from odradek.compat.confluent_kafka.consumer_calls import ConsumerCalls
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.flows import Flow, carried_out
from odradek.compat.confluent_kafka.message import Message, messages_of


class _Core(ConsumerCore):
    """In threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._questions = ClusterQuestions(self._given.admin)

    def _made(self) -> beneath.Consumer:
        return beneath.Consumer(self._given.ours, messages_of)

    def _now(self) -> float:
        return time.monotonic()

    def _idle(self, seconds: float) -> object:
        return self._queue.serve(seconds)

    def _rest(self, seconds: float) -> object:
        time.sleep(seconds)
        return None

    def _called(self, flow: Callable[..., Flow[None]]) -> Callable[..., Any]:
        return lambda _, partitions: carried_out(flow(partitions))


class Consumer(ConsumerCalls):
    """Hands out messages of subscribed or assigned partitions, one by one.

    The configuration has librdkafka's names and is read as there (`group.id` has to be given); what
    can't be honoured is refused by name, as a `KafkaException` with `_INVALID_ARG`. Times are
    seconds; one below 0 means as long as it takes. Calls come from one thread at a time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._core = _Core(*args, **kwargs)

    # Messages

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, None after `timeout` seconds; callbacks are made meanwhile.

        A message may tell of an error: look at its `error()` first. What a callback raises comes
        out here.
        """
        found = self._core.at_hand()
        return carried_out(self._core.poll(timeout)) if found is None else found

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        return carried_out(self._core.consume(num_messages, timeout))

    # The group, and the end

    def memberid(self) -> str | None:
        """The member's id, None before it has joined."""
        return self._core.memberid()

    def close(self) -> None:
        """Commit where that is set up so, leave the group, close; may be called twice."""
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
