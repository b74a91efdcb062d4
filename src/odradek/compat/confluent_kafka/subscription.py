"""Subscriptions and rebalance callbacks of confluent-kafka.

In: topics, callbacks that take a consumer and a list of partitions. Out: topics or a pattern for
Odradek's consumer, and its callbacks, which call the program's inside `poll()`. Must not: assign
anything: Odradek's consumer does, and `assign()` in a callback only sets the start offsets.
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
    """Return topic names, or a pattern if one of them begins with ^, which may match a prefix."""
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of topic unicode strings")
    if not any(topic.startswith("^") for topic in topics):
        return list(topics), None
    parts = [f"{t}.*" if t.startswith("^") else re.escape(t) for t in topics]
    return [], "|".join(f"(?:{part})" for part in parts)


def checked_callbacks(**callbacks: Any) -> dict[str, RebalanceCallback | None]:
    """Return the callbacks; raises `TypeError` for one that isn't callable."""
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    return callbacks


class RunningCallback:
    """Partitions of the rebalance callback that runs in this thread or task.

    Calls from other threads and tasks meanwhile aren't part of the callback.
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
        """Run a callback, and wait for its end if it is a coroutine function."""
        before = self._inside.set(frozenset((t, n) for t, n in partitions))
        try:
            yield callback(consumer, [TopicPartition(*place) for place in partitions])
        finally:
            self._inside.reset(before)
