"""Batches that are too large for their topic: the same records again, in smaller ones (KIP-126).

In: a batch that a broker refused with MESSAGE_TOO_LARGE. Out: its parts, in the sender's queue at
its place, with its sequences and its deadline; and a smaller limit for the topic's next batches.
A limit of a topic is what `max.message.bytes` says of a batch as it is sent, so compressed; ours
count before compression, and a batch never grows by it. So all that is known after a refusal is
that so much was too much: parts are half as large, and halved again if need be.
An earlier attempt whose answer was lost may have written the batch whole, if the limit was lowered
since: its parts keep its sequences, so that such a leader refuses the first of them.
Must not: split a batch of one record, or change the order.
"""

from __future__ import annotations

import logging
from collections import deque

from odradek.clients.producer.batch import NO_SEQUENCE, BatchOutcome, Part, ProducerBatch
from odradek.clients.producer.partition_queue import SEQUENCES
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import KafkaError, RecordTooLargeError
from odradek.common.events import EventLog
from odradek.record import decode
from odradek.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.record.columns import Row

logger = logging.getLogger("odradek")

FORGET_AFTER = 600.0
"""A topic's limit may be raised, or its data shrink better: then larger batches are tried again."""

_SPLIT = BatchOutcome(-1, -1)
"""What `done` of a batch with parts says; nobody reads an offset from it."""


class BatchSplitter:
    """Splits the batches of one producer."""

    def __init__(self, accumulator: RecordAccumulator, events: EventLog) -> None:
        self._accumulator = accumulator
        self._events = events

    def split(self, batch: ProducerBatch, waiting: deque[ProducerBatch], now: float) -> None:
        """Put a refused batch's parts where it would wait to be sent again, and end it."""
        topic = batch.partition.topic
        target = self._learn(topic, batch.builder.estimated_size // 2, now)
        parts = self._parts(batch, target)
        place = sum(1 for other in waiting if other.serial < batch.serial)
        for part in reversed(parts):
            waiting.insert(place, part.batch)
        self._accumulator.replace(batch, [part.batch for part in parts])
        self._events.emit(
            now, "split", what=f"{batch.count} records of {batch.partition}", parts=len(parts)
        )
        batch.parts = parts
        batch.done.complete(_SPLIT)

    def _learn(self, topic: str, most: int, now: float) -> int:
        """Note that batches of twice this size are too large; give what seems right for now."""
        limits = self._accumulator.topic_limits
        known = limits.get(topic)
        if known is None:
            logger.warning(
                "topic %s refuses batches of %d bytes (its max.message.bytes): they are sent in "
                "parts; a smaller batch.size spares that",
                topic,
                2 * most,
            )
        else:
            most = min(most, known[0])
        limits[topic] = (most, now + FORGET_AFTER)
        return most

    def _parts(self, batch: ProducerBatch, target: int) -> list[Part]:
        """New batches of at most `target` bytes, two at least; one record alone may be larger."""
        rows = rows_of(batch)
        found: list[tuple[int, ProducerBatch]] = []
        for index, (_, timestamp_ms, _, key, value, headers) in enumerate(rows):
            if found:
                taken = found[-1][1].append(key, value, headers, timestamp_ms)
                if taken is not None:
                    continue
            part = self._accumulator.make(batch.partition, target, batch.created_at)
            part.append(key, value, headers, timestamp_ms)
            found.append((index, part))
        for first, part in found:
            part.builder.close()
            part.serial = batch.serial + first
            part.deadline = batch.deadline
            part.lingers, part.taken = False, True
            part.producer = batch.producer
            part.ordinal = batch.ordinal
            part.doubtful = batch.doubtful
            part.recognised = batch.recognised and not batch.doubtful
            part.refusals = batch.refusals
            if batch.sequence != NO_SEQUENCE:
                part.sequence = (batch.sequence + first) % SEQUENCES
        return [Part(first, part.count, part, 0) for first, part in found]


def rows_of(batch: ProducerBatch) -> list[Row]:
    """The records, read from the batch as it was sent."""
    plain = batch.builder.build(
        producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH, base_sequence=NO_SEQUENCE
    )
    return list(decode(plain, start_offset=0).columns.rows())


def too_large(batch: ProducerBatch, said: str) -> RecordTooLargeError:
    """Say which record a topic doesn't take; its batch held nothing else."""
    size = batch.builder.estimated_size
    doubt = "" if not batch.doubtful else " (an earlier attempt may have written it nevertheless)"
    return RecordTooLargeError(
        f"a record for {batch.partition} ({size} bytes before compression) is above the topic's "
        f"max.message.bytes, or the brokers' message.max.bytes: raise that (kafka-configs --alter "
        f"--entity-type topics --entity-name {batch.partition.topic} --add-config "
        f"max.message.bytes=…) or make the record smaller{doubt}; the broker said: {said}"
    )


def written_whole(batch: ProducerBatch, refusal: KafkaError) -> KafkaError:
    """Say what a part's refusal means: the batch it was made of is in the log, or its end is lost.

    To send it under another sequence could write its records twice.
    """
    return type(refusal)(
        f"{batch.count} records for {batch.partition} may have been written already, in a larger "
        "batch whose acknowledgement was lost; when it came again the topic's max.message.bytes "
        f"had become too low for it. They aren't sent again, so that nothing is written twice. The "
        f"broker said: {refusal}"
    )
