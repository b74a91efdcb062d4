"""Keep one client for each process and configuration between the calls of Spark's processes.

In: a configuration, and the metadata snapshot that a planner passed along. Out: a consumer, kept in
a module-global cache by process id and fingerprint of the configuration. Must not: connect, or
start anything, when imported: Spark's daemon imports this module and then forks.

A Python worker runs one task at a time and is reused by many, so a cached client saves
bootstrapping and connecting. Number of sockets: executors × workers of each × brokers that lead a
partition.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from odradek.common.errors import KafkaError
from odradek.common.secret import Secret
from odradek.runtime.delayed_action import later
from odradek.runtime.system_clock import SystemClock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

MAX_CLIENTS = 4
"""Maximum number of clients in one process; the oldest is closed."""
IDLE_S = 120.0
"""Seconds for which an unused client is kept.

Spark ends a worker without tasks after 60 s; other queries may keep a worker busy for longer."""

Hint = Mapping[str, Any]
"""Result of `Consumer.bootstrap_hint()`: the metadata snapshot as plain data."""


class Clock(Protocol):
    """Source of the time and of pauses; tests pass a simulated clock."""

    def now(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


def topic_ids(hint: Hint) -> dict[str, str]:
    """Return the topic ids in a client's metadata; a topic without an id is left out."""
    found = {name: UUID(hex=topic["id"]) for name, topic in hint.get("topics", {}).items()}
    return {name: str(topic_id) for name, topic_id in found.items() if topic_id.int}


def known_topic_id(client: Consumer, topic: str) -> str | None:
    """Return the id under which a client knows a topic now, without a request."""
    return topic_ids(client.bootstrap_hint() or {}).get(topic)


Make = Callable[[Mapping[str, Any], Hint | None], "Consumer"]


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return a hash of a configuration, which doesn't reveal its secrets."""
    return hashlib.sha256(
        json.dumps(sorted(config.items()), default=Secret.reveal).encode()
    ).hexdigest()


Later = Callable[[float, Callable[[], None]], None]
"""Function that calls another one after a number of seconds (`runtime.later`)."""


@dataclass(frozen=True, eq=False, slots=True)
class Idle:
    """A client that no task uses, with the time of its release."""

    client: Consumer
    since: float


class ClientCache:
    """Clients of one process; a forked child never uses its parent's."""

    __slots__ = ("_clock", "_idle", "_later", "_make", "_pid", "_used", "_watched_in")

    def __init__(
        self,
        make: Make,
        pid: Callable[[], int] = os.getpid,
        clock: Clock | None = None,
        after: Later = later,
    ) -> None:
        self._make, self._pid, self._later = make, pid, after
        self._clock = clock or SystemClock()
        self._watched_in: int | None = None
        """Id of the process that started the timer; a forked child has no timer thread."""
        self._used: dict[tuple[int, str], Consumer] = {}
        self._idle: dict[tuple[int, str], Idle] = {}

    def connect(
        self, config: Mapping[str, Any], hint: Hint | None = None, *, fresh: bool = False
    ) -> Consumer:
        """Return the process's client for a configuration; create one if there is none.

        `fresh` is set for repeated attempts of a task, and replaces the failed attempt's client. A
        client that failed while it was idle is replaced too, for example if it reached another
        cluster.
        """
        pid = self._pid()
        for kept in (self._used, self._idle):
            # Iterate over a copy, because the timer's thread may change the dict.
            for key in [k for k in tuple(kept) if k[0] != pid]:
                kept.pop(key, None)  # inherited by fork: only the parent process may close it
        key = (pid, fingerprint(config))
        # The thread that removes an entry from `_idle` owns its client: this one, or the timer's.
        idle = self._idle.pop(key, None)
        if idle is not None:
            self._used[key] = idle.client
        if key in self._used and (fresh or self._used[key].ended is not None):
            self.drop(self._used[key])
        client = self._used.pop(key, None) or self._make(config, hint)
        self._used[key] = client  # the last in the dict is the most recently used
        while len(self) > MAX_CLIENTS:
            oldest = next(iter(self._idle.values()), None)
            self.drop(oldest.client if oldest else next(iter(self._used.values())))
        return client

    def release(self, client: Consumer) -> None:
        """Release a client after a task; an idle client is closed after a while.

        A released client has no assignment, so it holds no fetched records and fetches no more.
        """
        key = next((k for k, used in self._used.items() if used is client), None)
        if key is None:
            return  # `drop` has removed the client
        try:
            client.assign([])
        except KafkaError:  # the client has failed, but the task has read all of its records
            self.drop(client)
            return
        del self._used[key]
        other = self._idle.pop(key, None)
        self._idle[key] = Idle(client, self._clock.now())
        if other is not None:  # a client that the timer had removed when this one was created
            self.drop(other.client)
        if self._watched_in != key[0]:
            self._watch(IDLE_S)

    def _watch(self, seconds: float) -> None:
        """Start a timer that closes idle clients; one timer serves all clients.

        A timer for each task would start a thread, which costs as much as a small task.
        """
        self._watched_in = self._pid()
        try:
            self._later(seconds, self._close_idle)
        except RuntimeError:  # no thread could be started, for example while Python shuts down
            self._watched_in = None

    def _close_idle(self) -> None:
        """Close idle clients, in the timer's thread; a task may check a client out meanwhile."""
        now = self._clock.now()
        for key, idle in list(self._idle.items()):
            if now - idle.since < IDLE_S:
                continue
            found = self._idle.pop(key, None)
            if found is idle:
                with contextlib.suppress(Exception):
                    idle.client.close()
            elif found is not None:  # a task has used and released a client meanwhile
                self._idle[key] = found
        self._watched_in = None
        left = [idle.since for idle in list(self._idle.values())]
        if left:
            self._watch(max(0.0, min(left) + IDLE_S - now))

    def drop(self, client: Consumer) -> None:
        """Remove a client at once and close it, because it failed or isn't needed any more."""
        for key in [k for k, kept in self._used.items() if kept is client]:
            del self._used[key]
        for key in [k for k, kept in list(self._idle.items()) if kept.client is client]:
            self._idle.pop(key, None)
        with contextlib.suppress(Exception):  # the client may be broken
            client.close()

    def __len__(self) -> int:
        return len(self._used) + len(self._idle)


def make_consumer(config: Mapping[str, Any], hint: Hint | None) -> Consumer:
    """Create a consumer; imported here, so that planning an option error needs no client.

    A background thread fetches the next records while Spark processes the current ones.
    """
    from odradek.api.consumer import Consumer

    if hint is None:
        return Consumer(dict(config), background=True)
    return Consumer(dict(config), background=True, bootstrap_hint=dict(hint))


_CACHE = ClientCache(make_consumer)


def process_clients() -> ClientCache:
    """Return this process's cache, which is empty before the first client."""
    return _CACHE
