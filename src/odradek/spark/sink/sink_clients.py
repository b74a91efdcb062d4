"""Keep one producer for each worker process and configuration between tasks.

In: a configuration. Out: a producer whose earlier tasks have flushed. Must not: connect, or start
anything, when imported: Spark's daemon imports and then forks. A child never uses its parent's
producer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.spark.tasks.worker_clients import fingerprint

if TYPE_CHECKING:
    from odradek.api.prepared_transactions import PreparedTransactions
    from odradek.api.producer import Producer

MAX_PRODUCERS = 2
"""Maximum number of producers; the oldest is closed, as each may hold 64 MiB."""

TRANSACTIONAL_ID = "transactional.id"
Make = Callable[[Mapping[str, Any]], "Producer"]
Prepared = Callable[["Producer"], "PreparedTransactions"]
"""Function that returns the coordinator calls over a producer's connections."""


class ProducerCache:
    """Producers of one process."""

    __slots__ = ("_kept", "_make", "_pid")

    def __init__(self, make: Make, pid: Callable[[], int] = os.getpid) -> None:
        self._make, self._pid = make, pid
        self._kept: dict[tuple[int, str], Producer] = {}

    def checkout(self, config: Mapping[str, Any], *, fresh: bool = False) -> tuple[Producer, bool]:
        """Return the process's producer for a configuration, and whether it was used before.

        A transactional producer serves all transactional ids in turn (`PreparedTransactions.use`).
        `fresh` is set for repeated attempts of a task, and replaces the failed attempt's producer.
        A producer that failed while it was idle is replaced too, for example if it reached another
        cluster.
        """
        pid = self._pid()
        for key in [k for k in self._kept if k[0] != pid]:
            del self._kept[key]  # inherited by fork: only the parent process may close it
        same = {**config, TRANSACTIONAL_ID: ""} if TRANSACTIONAL_ID in config else config
        key = (pid, fingerprint(same))
        if key in self._kept and (fresh or self._kept[key].ended is not None):
            self.drop(self._kept[key])
        kept = self._kept.pop(key, None)
        producer = self._make(config) if kept is None else kept
        self._kept[key] = producer  # the last in the dict is the most recently used
        while len(self._kept) > MAX_PRODUCERS:
            self.drop(next(iter(self._kept.values())))
        return producer, kept is not None

    def drop(self, producer: Producer, timeout: float = 0.0) -> None:
        """Remove and close a producer, by default without waiting for a failed task's rows."""
        for key in [k for k, kept in self._kept.items() if kept is producer]:
            del self._kept[key]
        with contextlib.suppress(Exception):  # the producer may be broken
            producer.close(timeout)

    def __len__(self) -> int:
        return len(self._kept)


def make_producer(config: Mapping[str, Any]) -> Producer:
    """Create a producer; imported here, so that an option error needs no client."""
    from odradek.api.producer import Producer

    return Producer(dict(config))


def prepared_by(producer: Producer) -> PreparedTransactions:
    """Return calls that end other processes' transactions, over this producer's connections."""
    from odradek.api.prepared_transactions import PreparedTransactions

    return PreparedTransactions(producer)


_CACHE = ProducerCache(make_producer)


def process_producers() -> ProducerCache:
    """Return this process's cache, which is empty before the first checkout."""
    return _CACHE
