"""Records one by one, from those that came together: what other clients' calls give is one record.

In: a consumer of ours. Out: the next record, without a wait and without a flow of the engine's
where it is here already; the position moves with each of them. Records by partition, for calls that
give many. Must not: pass a callback of the group's that comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from odradek.api.consumer import Consumer
from odradek.api.consumer_state import ConsumerState
from odradek.clients.consumer.group.consumer_group import ConsumerGroup
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata

R = TypeVar("R")
Runs = list[list[ConsumerRecord]]
"""Records of one partition that follow each other, and so on; no list is empty."""


Made = Callable[[list[ConsumerRecord]], list[R]]
"""What a library's records are made of ours by, many at once."""


class AtHand(ConsumerState, Generic[R]):
    """What both kinds of consumers share."""

    _made: Made[R]
    _found: Iterator[R] | None = None
    """What is here already."""
    _group: ConsumerGroup | None = None
    _clock: Callable[[], float]
    _given = 0
    """Records since the last `fetch`."""
    _stretch = sys.maxsize

    def at_hand(self) -> R | None:
        """The next record, if it is here already and nothing comes before it: else `fetch`."""
        found, group = self._found, self._group
        if found is None:
            return None
        self._given += 1
        if self._given > self._stretch:
            return None
        record = None
        if group is None or not group.callbacks.waiting:
            try:
                record = next(found, None)
            except ValueError:  # another thread takes one just now: `fetch` says so
                return None
        if record is None:
            self._found = None
        elif group is not None:
            group.given.append(self._clock())
        return record

    def rest(self) -> tuple[Iterator[R], ConsumerGroup | None, Callable[[], float], int]:
        """All that is here, for who takes it himself and says with `took` how many; what is left
        then `at_hand` gives. With it the group whose callbacks come first, the clock by which it is
        told of each record, and how many may be taken before `fetch`.
        """
        return self._found or iter(()), self._group, self._clock, self._stretch - self._given

    def took(self, count: int) -> None:
        """So many of the rest were taken."""
        self._given += count

    def remember_positions(self) -> None:
        """Commit the offsets that resets find, where the library above commits the rest."""
        engine = self._calls.engine
        with engine.lock:
            if engine.group is not None:
                engine.group.remember_positions(True)

    def is_assigned(self, topic: str, partition: int) -> bool:
        """Whether it reads a partition."""
        return (topic, partition) in self._engine.subscription.partitions

    def may_commit(self, record: tuple[Any, ...]) -> bool:
        """Return whether a record was read since its partition was assigned, as far as is known."""
        group = self._calls.engine.group
        if group is None or not isinstance(record, ConsumerRecord):
            return True
        with self._calls.engine.lock:
            offsets = {record.topic_partition: OffsetAndMetadata(record.offset + 1)}
            return not group.commits.asked(offsets, read=True).refused()

    def _keep(self, found: Iterator[R] | None) -> bool:
        """These are here now."""
        self._calls.engine.delivery.handed_over()
        self._found, self._group, self._given = found, self._calls.engine.group, 0
        self._clock = self._host.now
        return found is not None


class ThreadConsumer(AtHand[R], Consumer):
    """`Consumer`, record by record."""

    def __init__(self, settings: dict[str, Any], made: Made[R]) -> None:
        super().__init__(settings)
        self._made = made

    def fetch(self, timeout: float) -> bool:
        """Wait for records, which `at_hand` gives; False after `timeout` seconds."""
        self._found = None
        return self._keep(self._read(self._calls.iterated_as(timeout, self._made)))

    def runs(self, timeout: float, most: int) -> Runs:
        """As `poll`, by partition. What `at_hand` would have given comes first."""
        self._found = None
        found = self._read(self._calls.runs(timeout, most))
        self._calls.engine.delivery.handed_over()
        return found or []
