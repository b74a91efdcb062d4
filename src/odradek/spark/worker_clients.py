"""One client for each process and configuration: what Spark's processes keep between calls.

In: a configuration, and a picture of the cluster's metadata that a planner shipped. Out: a
consumer, kept in a module-global cache by process id and fingerprint of the configuration.
Must not connect, or start anything, when imported: Spark's daemon imports and then forks.

A Python worker runs one task at a time and is reused by many, so a cached client saves bootstrap
and dials. Sockets in all: executors × workers of each × brokers that lead something.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from odradek.common.secret import Secret
from odradek.common.types import TopicPartition

logger = logging.getLogger("odradek.spark")

MAX_CLIENTS = 4
"""Clients kept in one process; a worker that is reused by other queries closes the oldest."""

Hint = Mapping[str, Any]
"""What `Consumer.bootstrap_hint()` gives: the metadata snapshot as plain data."""


class DescribedPartition(Protocol):
    """The part of a partition's description that planning needs."""

    @property
    def partition(self) -> int: ...


class DescribedTopic(Protocol):
    """The part of a topic's description that planning needs."""

    @property
    def topic_id(self) -> str | None: ...
    @property
    def partitions(self) -> Sequence[DescribedPartition]: ...


class ClusterConsumer(Protocol):
    """What this room uses of `odradek.Consumer`; tests hand in one of their own."""

    def cluster_id(self, timeout: float | None = None) -> str: ...
    def describe(
        self, topics: Sequence[str], timeout: float | None = None
    ) -> Mapping[str, DescribedTopic]: ...
    def bootstrap_hint(self) -> Hint | None: ...
    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, int]: ...
    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, int]: ...
    def assign(
        self,
        partitions: Collection[TopicPartition],
        *,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None: ...
    def seek(self, tp: TopicPartition, offset: int) -> None: ...
    def position(self, tp: TopicPartition, timeout: float | None = None) -> int: ...
    def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> Any: ...
    def explain(self) -> object: ...
    def close(self) -> None: ...


class Clock(Protocol):
    """Time as it is handed in; tests use one that jumps."""

    def now(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


def known_topic_id(client: ClusterConsumer, topic: str) -> str | None:
    """Give the id under which a client knows a topic now; asks nobody."""
    hint = client.bootstrap_hint() or {}
    known = hint.get("topics", {}).get(topic)
    number = UUID(hex=known["id"]) if known else UUID(int=0)
    return str(number) if number.int else None


Make = Callable[[Mapping[str, Any], Hint | None], ClusterConsumer]


def fingerprint(config: Mapping[str, Any]) -> str:
    """Name a configuration without showing it (it may hold a secret)."""
    return hashlib.sha256(
        json.dumps(sorted(config.items()), default=Secret.reveal).encode()
    ).hexdigest()


class ClientCache:
    """The clients of one process; a forked child never uses its parent's."""

    __slots__ = ("_clients", "_make", "_pid")

    def __init__(self, make: Make, pid: Callable[[], int] = os.getpid) -> None:
        self._make, self._pid = make, pid
        self._clients: dict[tuple[int, str], ClusterConsumer] = {}

    def checkout(
        self, config: Mapping[str, Any], hint: Hint | None = None, *, fresh: bool = False
    ) -> ClusterConsumer:
        """Give the process's client for a configuration, made where there is none.

        `fresh` is for the second attempt of a task: whatever failed the first isn't used again.
        """
        pid = self._pid()
        for key in [k for k in self._clients if k[0] != pid]:
            del self._clients[key]  # the parent's: not ours to close
        key = (pid, fingerprint(config))
        if fresh and key in self._clients:
            self.drop(self._clients[key])
        client = self._clients.pop(key, None) or self._make(config, hint)
        self._clients[key] = client  # last in the dict is the latest used
        while len(self._clients) > MAX_CLIENTS:
            self.drop(next(iter(self._clients.values())))
        return client

    def drop(self, client: ClusterConsumer) -> None:
        """Forget a client at once and close it; it failed, or isn't wanted any more."""
        for key in [k for k, kept in self._clients.items() if kept is client]:
            del self._clients[key]
        with contextlib.suppress(Exception):  # it may be broken: closing is a courtesy
            client.close()

    def __len__(self) -> int:
        return len(self._clients)


def make_consumer(config: Mapping[str, Any], hint: Hint | None) -> ClusterConsumer:
    """Make the real one; imported here, so that planning an option error costs no client."""
    from odradek.api.consumer import Consumer

    if hint is None:
        return Consumer(dict(config))
    return Consumer(dict(config), _metadata_hint=dict(hint))


_CACHE = ClientCache(make_consumer)


def process_clients() -> ClientCache:
    """Give this process's cache. It holds nothing until the first checkout."""
    return _CACHE
