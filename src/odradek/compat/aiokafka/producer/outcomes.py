"""From the deliveries of `odradek.AsyncProducer` to aiokafka's futures.

In: what is told of a delivery, or the futures of a batch. Out: an `asyncio.Future` of aiokafka's
metadata, or with its error. Must not: wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import RecordMetadata as Delivered
from odradek.compat.aiokafka.errors import MessageSizeTooLargeError, ProducerClosed
from odradek.compat.aiokafka.structs import RecordMetadata, TopicPartition
from odradek.compat.aiokafka.translation import translated

Outcome = asyncio.Future[RecordMetadata | None]
CREATE_TIME, LOG_APPEND_TIME = 0, 1


def record_outcome(
    loop: asyncio.AbstractEventLoop, at: int, *, answered: bool
) -> tuple[Outcome, DeliveryCallback]:
    """The outcome of one record sent with the time `at`, and what has to be told of it.

    It gives None where brokers don't answer.
    """
    future: Outcome = loop.create_future()

    def settle(error: BaseException | None, found: Delivered) -> None:
        if future.done():  # it was cancelled; the record went on
            return
        if error is not None:
            future.set_exception(translated(error, ProducerClosed, MessageSizeTooLargeError))
            return
        if not answered:
            future.set_result(None)
            return
        place = TopicPartition(found.topic, found.partition)
        kind = CREATE_TIME if found.timestamp_ms == at else LOG_APPEND_TIME
        future.set_result(
            RecordMetadata(*place, place, found.offset, found.timestamp_ms, kind, None)
        )

    return future, settle


def batch_outcome(loop: asyncio.AbstractEventLoop, records: Sequence[Outcome]) -> Outcome:
    """The outcome of a batch: its first record's place, or the first error."""
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
            # A batch has a time of its own only where the broker gave it one.
            future.set_result(first if first is None or appended else first._replace(timestamp=-1))

    for record in records:
        record.add_done_callback(settle)
    return future
