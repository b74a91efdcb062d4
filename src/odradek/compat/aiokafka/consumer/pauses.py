"""Partitions that are held back: by the program, and for a moment by this module's own callers.

In: what the program pauses and resumes, what one call wants alone. Out: pauses and resumptions of
the consumer beneath. Must not: read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.common.types import TopicPartition

Wants = Callable[[TopicPartition], bool]


class Pauses:
    """Who holds which partition of one consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._paused: set[TopicPartition] = set()
        """By the program."""
        self._held: set[TopicPartition] = set()
        """By a call, for as long as it takes."""
        self._wants: Wants | None = None

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """The program pauses; raises ours `IllegalStateError` for what isn't assigned."""
        for partition in partitions:
            self._consumer.pause(partition)
            self._paused.add(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """The program resumes; what a call holds stays held until it ends."""
        for partition in partitions:
            if partition not in self._held:
                self._consumer.resume(partition)
            self._paused.discard(partition)

    def paused(self) -> set[TopicPartition]:
        """What the program has paused, of what is assigned."""
        return self._paused.intersection(self._consumer.assignment())

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are new: nobody has paused them yet."""
        self._paused.difference_update(partitions)
        self._held.difference_update(partitions)
        self._hold(partitions)

    def _hold(self, partitions: Iterable[TopicPartition]) -> None:
        if self._wants is not None:
            more = {tp for tp in partitions if not self._wants(tp)}
            self._consumer.pause(more)
            self._held |= more

    @contextmanager
    def only(self, wants: Wants | None) -> Iterator[None]:
        """Hand out nothing within but of partitions that are wanted; None: of all."""
        if wants is None:
            yield
            return
        self._wants = wants
        self._hold(self._consumer.assignment())
        try:
            yield
        finally:
            self._wants = None
            here = set(self._consumer.assignment())
            self._consumer.resume((self._held - self._paused) & here)
            self._held.clear()
