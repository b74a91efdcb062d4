"""Records one by one from fetched batches, for other clients' calls that return a single record.

In: an Odradek consumer. Out: the next record, without a wait and without a flow of the engine if it
has been fetched; the position moves with each record. Records by partition, for calls that return
many. Must not: return a record before a pending callback of the group has run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from odradek.api.consumer import Consumer
from odradek.api.consumer_state import ConsumerState
from odradek.clients.consumer.group.consumer_group import ConsumerGroup
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.types import TopicPartition

R = TypeVar("R")
Runs = list[list[ConsumerRecord]]
"""Lists of consecutive records of one partition each; no list is empty."""


RecordFactory = Callable[[list[ConsumerRecord]], list[R]]
"""Function that converts a list of Odradek's records to the library's records."""


class BufferedRecords(ConsumerState, Generic[R]):
    """Base of the consumers for threads and for event loops."""

    _made: RecordFactory[R]
    _found: Iterator[R] | None = None
    """Fetched records that weren't returned yet."""
    _group: ConsumerGroup | None = None
    _clock: Callable[[], float]
    _given = 0
    """Number of records returned since the last `fetch`."""
    _stretch = sys.maxsize

    def at_hand(self) -> R | None:
        """Return the next fetched record; None if the caller has to `fetch` first."""
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
            except ValueError:  # another thread is taking one: `fetch` raises an error
                return None
        if record is None:
            self._found = None
        elif group is not None:
            group.given.append(self._clock())
        return record

    def rest(self) -> tuple[Iterator[R], ConsumerGroup | None, Callable[[], float], int]:
        """Return the fetched records for a caller that reports to `took` how many it takes.

        Records that it doesn't take are returned by `at_hand`. Also returns the group, whose
        callbacks come first; the clock for the time of each record; and how many records may be
        taken before `fetch`.
        """
        return self._found or iter(()), self._group, self._clock, self._stretch - self._given

    def took(self, count: int) -> None:
        """Count records that were taken from `rest`."""
        self._given += count

    def remember_positions(self) -> None:
        """Commit positions after resets too, if the compat layer commits the other offsets."""
        engine = self._calls.engine
        with engine.lock:
            if engine.group is not None:
                engine.group.remember_positions(True)

    def assigned(self) -> list[TopicPartition]:
        """Return the assigned partitions, with those that `assignment` doesn't contain yet."""
        return list(self._engine.subscription.partitions)

    def is_assigned(self, topic: str, partition: int) -> bool:
        """Return whether this partition is assigned."""
        return (topic, partition) in self._engine.subscription.partitions

    def needs_poll(self) -> bool:
        """Return whether a rebalance waits until the program has processed its records."""
        group = self._calls.engine.group
        return group is not None and group.needs_poll

    def may_commit(self, record: tuple[Any, ...]) -> bool:
        """Return whether a record was read since its partition was assigned, as far as is known."""
        group = self._calls.engine.group
        if group is None or not isinstance(record, ConsumerRecord):
            return True
        with self._calls.engine.lock:
            offsets = {record.topic_partition: OffsetAndMetadata(record.offset + 1)}
            return not group.commits.asked(offsets, read=True).refused()

    def _keep(self, found: Iterator[R] | None) -> bool:
        """Keep fetched records for `at_hand`; return whether there are any."""
        self._calls.engine.delivery.handed_over()
        self._found, self._group, self._given = found, self._calls.engine.group, 0
        self._clock = self._host.now
        return found is not None


class ThreadConsumer(BufferedRecords[R], Consumer):
    """`Consumer`, record by record."""

    def __init__(self, settings: dict[str, Any], made: RecordFactory[R]) -> None:
        super().__init__(settings)
        self._made = made

    def fetch(self, timeout: float) -> bool:
        """Wait for records, which `at_hand` then returns; return False after `timeout` seconds."""
        self._found = None
        return self._keep(self._read(self._calls.iterated_as(timeout, self._made)))

    def runs(self, timeout: float, most: int, *, more: bool = False) -> Runs:
        """Return records by partition, including those that `at_hand` didn't return yet.

        With `more`, those of the last call aren't processed yet, and no rebalance callback runs.
        """
        self._found = None
        found = self._read(self._calls.runs(timeout, most, more=more))
        self._calls.engine.delivery.handed_over()
        return found or []
