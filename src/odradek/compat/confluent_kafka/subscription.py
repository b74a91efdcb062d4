"""Subscriptions and rebalance callbacks, as confluent-kafka has them.

In: topics, callbacks that take a consumer and a list of partitions. Out: topics or a pattern for
our consumer, and callbacks of ours that call them inside `poll()`. Must not: assign anything: our
consumer does, and a callback's `assign()` says only where to begin.
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
    """Names, or a pattern where one of them begins with ^; it needn't match to a name's end."""
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of topic unicode strings")
    if not any(topic.startswith("^") for topic in topics):
        return list(topics), None
    parts = [f"{t}.*" if t.startswith("^") else re.escape(t) for t in topics]
    return [], "|".join(f"(?:{part})" for part in parts)


def checked_callbacks(**callbacks: Any) -> dict[str, RebalanceCallback | None]:
    """The callbacks; raises `TypeError` for what can't be called."""
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    return callbacks


class RunningCallback:
    """Which partitions the rebalance callback that runs just now, here, is about.

    Other threads and tasks that call the consumer meanwhile aren't in it.
    """

    def __init__(self) -> None:
        self._inside: ContextVar[frozenset[tuple[str, int]] | None] = ContextVar(
            "partitions of a rebalance callback", default=None
        )

    @property
    def partitions(self) -> frozenset[tuple[str, int]] | None:
        """They; None outside of a callback."""
        return self._inside.get()

    def run(
        self, callback: RebalanceCallback, consumer: Any, partitions: Collection[Any]
    ) -> Flow[None]:
        """Run it, and wait for its end where it is a coroutine function."""
        before = self._inside.set(frozenset((t, n) for t, n in partitions))
        try:
            yield callback(consumer, [TopicPartition(*place) for place in partitions])
        finally:
            self._inside.reset(before)
