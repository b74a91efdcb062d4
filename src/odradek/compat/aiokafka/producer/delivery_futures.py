"""aiokafka's futures for sent records, completed when the records' batches are.

In: positions of records in batches, and outcomes of batches. Out: an `asyncio.Future` for each
record, with aiokafka's metadata or error; all futures of a batch in one call. Must not: wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from odradek.clients.producer.batch import BatchOutcome, ProducerBatch
from odradek.common.errors import TransactionAbortedError
from odradek.compat.aiokafka.errors import MessageSizeTooLargeError, ProducerClosed
from odradek.compat.aiokafka.structs import RecordMetadata, TopicPartition
from odradek.compat.aiokafka.translation import translated
from odradek.network.flow import Completion

Outcome = asyncio.Future[RecordMetadata | None]
CREATE_TIME, LOG_APPEND_TIME = 0, 1
ITEMS = 3
"""List items for each record of a batch: its future, its index and its timestamp."""


class Outcomes:
    """Pending futures of one producer's records, by batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, answered: bool) -> None:
        """Take the event loop; without `answered` (`acks=0`), the futures' result is None."""
        self._loop = loop
        self._answered = answered
        self._waiting: dict[ProducerBatch, list[Any]] = {}

    def future(self, _: object, batch: ProducerBatch, index: int, at: int) -> Outcome:
        """Return a future for the record at `index` of a batch; `at` is the record's timestamp."""
        made: Outcome = asyncio.Future(loop=self._loop)
        waiting = self._waiting.get(batch)
        if waiting is None:
            self._add(batch, made, index, at)
        else:
            waiting.extend((made, index, at))
        return made

    def _add(self, batch: ProducerBatch, *record: Any) -> None:
        waiting = self._waiting.get(batch)
        if waiting is None:
            self._waiting[batch] = [*record]
            batch.done.when_done(partial(self._settle, batch))
        else:
            waiting.extend(record)

    def _settle(self, batch: ProducerBatch, done: Completion[BatchOutcome]) -> None:
        waiting = zip(*[iter(self._waiting.pop(batch))] * ITEMS, strict=True)
        if self._loop.is_closed():  # no task can wait any more
            return
        if batch.parts is not None:  # the batch was split into smaller batches
            for future, index, at in waiting:
                now_in, place, _ = batch.find(index)
                self._add(now_in, future, place, at)
        elif done.error is not None:
            aborted = isinstance(done.error, TransactionAbortedError) and not done.error.__cause__
            for future, _, _ in waiting:
                if not future.done():  # the program may have cancelled the future
                    error = translated(done.error, ProducerClosed, MessageSizeTooLargeError)
                    future.set_exception(error)
                    if aborted:  # keep asyncio from logging "never retrieved"
                        future.exception()
        elif self._answered:
            self._tell(TopicPartition(*batch.partition), done.result(), waiting)
        else:
            for future, _, _ in waiting:
                if not future.done():
                    future.set_result(None)

    @staticmethod
    def _tell(
        place: TopicPartition, found: BatchOutcome, waiting: Iterable[tuple[Outcome, int, int]]
    ) -> None:
        """Complete futures with the partition and offset of each record."""
        (topic, partition), made = place, tuple.__new__
        base, appended = found.base_offset, found.log_append_time_ms
        kind = LOG_APPEND_TIME if appended >= 0 else CREATE_TIME
        for future, index, at in waiting:
            if not future.done():
                offset = base + index if base >= 0 else -1
                time = int(at) if appended < 0 else appended
                told = (topic, partition, place, offset, time, kind, None)
                future.set_result(made(RecordMetadata, told))


def batch_outcome(loop: asyncio.AbstractEventLoop, records: Sequence[Outcome]) -> Outcome:
    """Return a future for a batch: the metadata of its first record, or the first error."""
    future: Outcome = loop.create_future()
    left = len(records)
    if not records:
        future.set_result(None)

    def settle(done: Outcome) -> None:
        nonlocal left
        left -= 1
        error = None if done.cancelled() else done.exception()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        elif not left:
            first = records[0].result()
            appended = first is not None and first.timestamp_type == LOG_APPEND_TIME
            # A create time is the first record's own; only a log append time is the batch's.
            future.set_result(first if first is None or appended else first._replace(timestamp=-1))

    for record in records:
        record.add_done_callback(settle)
    return future
