"""Where `send()` puts records: one open batch per partition, under a lock the host hands in.

In: records from the callers' threads. Out: ripe batches for the sender, taken in one swap.
`buffer.memory` limits what is here and in flight. Must not: hop to another thread for a record;
`append` says when the host has to be woken: for a full batch, or for the first one that lingers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.clients.producer.batch import ProducerBatch
from odradek.common.config import Config
from odradek.common.types import Lock, TopicPartition
from odradek.record import BatchBuilder


@dataclass(frozen=True, slots=True)
class Appended:
    """A record's place: its batch, its index there, and whether the host must be woken."""

    batch: ProducerBatch
    index: int
    wake: bool


class RecordAccumulator:
    """The open batches and the memory of one producer."""

    def __init__(self, config: Config, lock: Lock) -> None:
        self.lock = lock
        self.limit: int = config["buffer.memory"]
        self.used = 0
        self.batch_size: int = config["batch.size"]
        self.waiters = 0
        """Callers that wait for room: while there are any, nothing lingers."""
        self._linger: float = config["linger.ms"]
        self._delivery: float = config["delivery.timeout.ms"]
        self._compression: str | None = config["compression.type"]
        self._serial = 0
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._ripe: deque[ProducerBatch] = deque()
        self._lingering: deque[ProducerBatch] = deque()

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        size: int,
        now: float,
    ) -> Appended | None:
        """Add a record of at most `size` bytes; None when `buffer.memory` has no room for it."""
        with self.lock:
            if self.used + size > self.limit:
                return None
            batch = self._open.get(partition)
            wake = False
            if batch is not None:
                index = batch.builder.append(key, value, headers, timestamp_ms)
                if index is not None:
                    self.used += size
                    batch.reserved += size
                    if batch.builder.estimated_size >= self.batch_size:
                        self._close(partition, batch)
                        wake = True
                    return Appended(batch, index, wake)
                self._close(partition, batch)
                wake = True
            builder = BatchBuilder(self.batch_size, self._compression)
            batch = ProducerBatch(partition, builder, self._serial, now, self._delivery)
            self._serial += 1
            index = builder.append(key, value, headers, timestamp_ms) or 0
            wake = wake or not self._lingering
            self.used += size
            batch.reserved = size
            self._open[partition] = batch
            self._lingering.append(batch)
            if builder.estimated_size >= self.batch_size:
                self._close(partition, batch)
                wake = True
            return Appended(batch, index, wake)

    def _close(self, partition: TopicPartition, batch: ProducerBatch) -> None:
        batch.builder.close()
        del self._open[partition]
        self._ripe.append(batch)

    @property
    def has_batches(self) -> bool:
        """Batches are here that the sender hasn't taken."""
        return bool(self._ripe or self._lingering)

    def take(self, now: float) -> list[ProducerBatch]:
        """The batches that should go out now, in the order they were filled."""
        if not self._ripe and not self._lingering:
            return []
        with self.lock:
            hurry = self.waiters > 0
            while self._lingering:
                batch = self._lingering[0]
                if not batch.builder.closed and not hurry and now < self._ripe_at(batch):
                    break
                self._lingering.popleft()
                if not batch.builder.closed:
                    self._close(batch.partition, batch)
            taken = list(self._ripe)
            self._ripe.clear()
        for batch in taken:
            batch.taken = True
        return taken

    def close_all(self) -> None:
        """Let nothing linger any more (flush, close)."""
        with self.lock:
            for partition, batch in list(self._open.items()):
                self._close(partition, batch)
            self._lingering.clear()

    def release(self, batch: ProducerBatch) -> None:
        """The batch has ended: its memory is free again."""
        with self.lock:
            self.used -= batch.reserved
            batch.reserved = 0

    def next_ripe(self) -> float:
        """When the oldest open batch has lingered long enough."""
        if self._ripe:
            return -math.inf
        try:
            return self._ripe_at(self._lingering[0])
        except IndexError:
            return math.inf

    def _ripe_at(self, batch: ProducerBatch) -> float:
        return batch.created_at + self._linger

    def untaken(self) -> list[ProducerBatch]:
        """Batches that the sender doesn't have yet."""
        with self.lock:
            return [*self._ripe, *self._open.values()]
