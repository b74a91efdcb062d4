"""A batch of which a broker refuses some records (KIP-467): these fail, the others go again.

In: a batch that certainly wasn't written, the error of each record that was refused. Out: a batch
of the others in its place, in their order; each refused record with an error of its own. Java fails
the whole batch; one bad record would then take thousands of good ones with it.
Must not: be asked about a batch in doubt: another one with its sequence would be taken for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from odradek.clients.producer.batch import BatchOutcome, Part, ProducerBatch
from odradek.clients.producer.batch_splitting import rows_of
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import KafkaError
from odradek.protocol.messages.produce import PartitionProduceResponse

_REPLACED = BatchOutcome(-1, -1)
_WIDER = 32
"""Bytes by which a record may grow that is counted from another first one."""


def refused(answer: PartitionProduceResponse, count: int) -> dict[int, str | None]:
    """What is said of which of a batch's records."""
    return {
        found.batch_index: found.batch_index_error_message
        for found in answer.record_errors
        if 0 <= found.batch_index < count
    }


def leave_out(
    accumulator: RecordAccumulator,
    batch: ProducerBatch,
    bad: Mapping[int, KafkaError],
    waiting: deque[ProducerBatch],
) -> None:
    """Put the records that nobody complained of where the batch would wait, and end it."""
    failed: dict[str, ProducerBatch] = {}
    parts: list[Part] = []
    good: list[ProducerBatch] = []
    for index, (_, timestamp_ms, _, key, value, headers) in enumerate(rows_of(batch)):
        error = bad.get(index)
        if error is not None:
            into = failed.get(str(error))
            if into is None:
                into = failed[str(error)] = accumulator.make(batch.partition, 0, batch.created_at)
                into.builder.close()
                into.done.fail(error)
            _add(parts, index, into, 0)
            continue
        at = good[-1].append(key, value, headers, timestamp_ms) if good else None
        if at is None:
            room = batch.builder.estimated_size + _WIDER * batch.count
            good.append(accumulator.make(batch.partition, room, batch.created_at))
            at = good[-1].append(key, value, headers, timestamp_ms) or 0
            good[-1].serial = batch.serial + index
        _add(parts, index, good[-1], at)
    place = sum(1 for other in waiting if other.serial < batch.serial)
    for part in reversed(good):
        part.builder.close()
        part.deadline = batch.deadline
        part.refusals = batch.refusals
        part.lingers, part.taken = False, True
        waiting.insert(place, part)
    accumulator.replace(batch, good)
    batch.parts = parts
    batch.done.complete(_REPLACED)


def _add(parts: list[Part], index: int, batch: ProducerBatch, at: int) -> None:
    """One more record; consecutive ones in one batch make one part."""
    if parts:
        last = parts[-1]
        if last.batch is batch and at == last.at + last.records:
            parts[-1] = last._replace(records=last.records + 1)
            return
    parts.append(Part(index, 1, batch, at))
