"""Consumers that return single records from fetched batches, as other client libraries do.

In: an Odradek consumer. Out: the next record, without waiting if it is already fetched; the
position advances with each record. Also records by partition, for calls that return many. Must not:
return a record before a pending callback of the group has run.
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
    """Fetched records that haven't been returned yet."""
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
            except ValueError:  # another thread uses the iterator; `fetch` will raise an error
                return None
        if record is None:
            self._found = None
        elif group is not None:
            group.given.append(self._clock())
        return record

    def rest(self) -> tuple[Iterator[R], ConsumerGroup | None, Callable[[], float], int]:
        """Return the fetched records; the caller must report to `took` how many it has taken.

        Records that it doesn't take are returned by `at_hand`. Also returns the group, whose
        callbacks must run first; the clock for the time of each record; and the number of records
        that may be taken before `fetch` is called.
        """
        return self._found or iter(()), self._group, self._clock, self._stretch - self._given

    def took(self, count: int) -> None:
        """Record how many records the caller took from `rest`."""
        self._given += count

    def remember_positions(self) -> None:
        """Make the group commit positions found by `auto.offset.reset`, as auto-commit would."""
        engine = self._calls.engine
        with engine.lock:
            if engine.group is not None:
                engine.group.remember_positions(True)

    def assigned(self) -> list[TopicPartition]:
        """Return the assigned partitions, including those that `assignment` doesn't show yet."""
        return list(self._engine.subscription.partitions)

    def is_assigned(self, topic: str, partition: int) -> bool:
        """Return whether this partition is assigned."""
        return (topic, partition) in self._engine.subscription.partitions

    def needs_poll(self) -> bool:
        """Return whether a rebalance waits until the program has processed its records."""
        group = self._calls.engine.group
        return group is not None and group.needs_poll

    def may_commit(self, record: tuple[Any, ...]) -> bool:
        """Return whether the offset after a record may be committed.

        It mustn't be if the partition was lost, or assigned again, since the record was read.
        """
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
    """`Consumer` that returns single records."""

    def __init__(self, settings: dict[str, Any], made: RecordFactory[R]) -> None:
        super().__init__(settings)
        self._made = made

    def fetch(self, timeout: float) -> bool:
        """Wait for records, which `at_hand` then returns; return False after `timeout` seconds."""
        self._found = None
        return self._keep(self._read(self._calls.iterated_as(timeout, self._made)))

    def runs(self, timeout: float, most: int, *, more: bool = False) -> Runs:
        """Wait for records and return them by partition, including those kept for `at_hand`.

        With `more`, records of the last call aren't processed yet, so no rebalance callback runs.
        """
        self._found = None
        found = self._read(self._calls.runs(timeout, most, more=more))
        self._calls.engine.delivery.handed_over()
        return found or []
