"""Replace a batch that a broker has refused by other batches (KIP-126, KIP-467).

In: a batch that was refused with MESSAGE_TOO_LARGE, or of which some records were refused. Out: its
parts in the sender's queue, in its place, with its deadline; a smaller limit for the topic's next
batches; an error for each refused record (Java fails the whole batch).

The topic's `max.message.bytes` limits the compressed size; this client limits the size before
compression, which is never smaller. So a refusal only shows that this size was too large: parts are
half as large, and halved again if necessary. An attempt without a response may have written the
whole batch, if the limit was higher then. The parts keep the batch's sequences, so that the leader
would refuse the first part in this case. Must not: split a batch of one record, change the order,
or leave records out of a batch in doubt: a broker would take the rest for a duplicate.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.clients.producer.batch import NO_SEQUENCE, Part, ProducerBatch
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.uncertain_writes import counted
from odradek.common.errors import KafkaError, RecordTooLargeError
from odradek.common.events import EventLog
from odradek.protocol.messages.produce import PartitionProduceResponse
from odradek.record import decode
from odradek.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger("odradek")

FORGET_AFTER = 600.0
"""Seconds after which larger batches are tried again: the topic's limit may have been raised."""
_WIDER = 32
"""Maximum growth of a record in bytes when its offset and timestamp deltas change."""


class BatchSplitter:
    """Splits the batches of one producer."""

    def __init__(self, accumulator: RecordAccumulator, events: EventLog) -> None:
        self._accumulator = accumulator
        self._events = events

    def split(self, batch: ProducerBatch, queue: PartitionQueue, now: float) -> None:
        """Replace a batch that is too large by batches of half its size."""
        most = self._learn(batch.partition.topic, batch.builder.estimated_size // 2, now)
        what = f"{counted(batch.count)} of {batch.partition}"
        self._events.emit(now, "split", what=what, parts=self._replace(batch, queue, most, {}))

    def leave_out(
        self, batch: ProducerBatch, queue: PartitionQueue, bad: Mapping[int, KafkaError], now: float
    ) -> None:
        """Replace a batch by one without a sequence, which lacks the records in `bad`."""
        what = f"{batch.count - len(bad)} of {counted(batch.count)} of {batch.partition}"
        room = batch.builder.estimated_size + _WIDER * batch.count
        self._replace(batch, queue, room, bad)
        self._events.emit(now, "split", what=what, parts=1)

    def _learn(self, topic: str, most: int, now: float) -> int:
        """Limit the topic's batches to this size, half of a refused one; return the limit."""
        limits = self._accumulator.topic_limits
        known = limits.get(topic)
        if known is None:
            logger.warning(
                "topic %s refuses batches of %d bytes (max.message.bytes), so the producer splits "
                "them; a smaller batch.size avoids that",
                topic,
                2 * most,
            )
        else:
            most = min(most, known[0])
        limits[topic] = (most, now + FORGET_AFTER)
        return most

    def _replace(
        self, batch: ProducerBatch, queue: PartitionQueue, room: int, bad: Mapping[int, KafkaError]
    ) -> int:
        """Replace a batch by batches of at most `room` bytes (or one record); return their number.

        A record with an error in `bad` fails with it.
        """
        make = self._accumulator.make
        parts: list[Part] = []
        good: dict[ProducerBatch, int] = {}
        failed: dict[str, ProducerBatch] = {}
        newest: ProducerBatch | None = None
        plain = batch.builder.build(
            producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH, base_sequence=NO_SEQUENCE
        )
        rows = decode(plain, start_offset=0).columns.rows()
        for index, (_, timestamp_ms, _, key, value, headers) in enumerate(rows):
            if index in bad:
                text = str(bad[index])
                if text not in failed:
                    failed[text] = make(batch.partition, 0, batch.created_at)
                    failed[text].builder.close()
                    failed[text].done.fail(bad[index])
                parts.append(Part(index, 1, failed[text], 0))
                continue
            at = None if newest is None else newest.append(key, value, headers, timestamp_ms)
            if newest is None or at is None:
                newest = make(batch.partition, room, batch.created_at)
                at = newest.append(key, value, headers, timestamp_ms) or 0
                good[newest] = index
            last = parts[-1] if parts else None
            if last is not None and last.batch is newest:
                parts[-1] = last._replace(records=last.records + 1)
            else:
                parts.append(Part(index, 1, newest, at))
        for part, first in good.items():
            part.take_over(batch, first)
            queue.put_back(part)
        self._accumulator.replace(batch, good)
        batch.replaced(parts)
        return len(good)


def refused(answer: PartitionProduceResponse, count: int) -> dict[int, str | None]:
    """Return the errors of a batch's records by index."""
    return {
        found.batch_index: found.batch_index_error_message
        for found in answer.record_errors
        if 0 <= found.batch_index < count
    }


def too_large(batch: ProducerBatch, said: str) -> RecordTooLargeError:
    """Return the error of a record that the topic refuses; its batch contained no other record."""
    size = batch.builder.estimated_size
    doubt = "" if not batch.doubtful else " (an earlier attempt may still have written it)"
    return RecordTooLargeError(
        f"a record for {batch.partition} ({size} bytes before compression) exceeds the topic's "
        f"max.message.bytes, or the brokers' message.max.bytes: raise that (kafka-configs --alter "
        f"--entity-type topics --entity-name {batch.partition.topic} --add-config "
        f"max.message.bytes=…) or make the record smaller{doubt}; the broker said: {said}"
    )
