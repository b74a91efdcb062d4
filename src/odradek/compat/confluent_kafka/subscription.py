"""Subscriptions and rebalance callbacks of confluent-kafka.

In: topics, callbacks that take a consumer and a list of partitions. Out: topics or a pattern for
Odradek's consumer; callbacks for it, which call the program's callbacks inside `poll()`. Must not:
assign anything: Odradek's consumer does, and `assign()` in a callback only sets the start offsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any

from odradek.compat.confluent_kafka.flows import Flow
from odradek.compat.confluent_kafka.topic_partition import TopicPartition

RebalanceCallback = Callable[[Any, list[TopicPartition]], object]


def topics_or_pattern(topics: Any) -> tuple[list[str], str | None]:
    """Return the topic names, or a pattern if a name begins with ^ (a regular expression).

    The expression needs to match only the beginning of a topic's name.
    """
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of topic unicode strings")
    if not any(topic.startswith("^") for topic in topics):
        return list(topics), None
    parts = [f"{t}.*" if t.startswith("^") else re.escape(t) for t in topics]
    return [], "|".join(f"(?:{part})" for part in parts)


def checked_callbacks(**callbacks: Any) -> dict[str, RebalanceCallback | None]:
    """Check that all callbacks are callable; raises `TypeError`."""
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    return callbacks


class RunningCallback:
    """Partitions of the rebalance callback that runs in this thread or task.

    Calls that other threads or tasks make while it runs don't belong to the callback.
    """

    def __init__(self) -> None:
        self._inside: ContextVar[frozenset[tuple[str, int]] | None] = ContextVar(
            "partitions of a rebalance callback", default=None
        )

    @property
    def partitions(self) -> frozenset[tuple[str, int]] | None:
        """Partitions of the running callback; None outside of one."""
        return self._inside.get()

    def run(
        self, callback: RebalanceCallback, consumer: Any, partitions: Collection[Any]
    ) -> Flow[None]:
        """Run a callback; if it is a coroutine function, wait for its end."""
        before = self._inside.set(frozenset((t, n) for t, n in partitions))
        try:
            yield callback(consumer, [TopicPartition(*place) for place in partitions])
        finally:
            self._inside.reset(before)
