"""What becomes of a batch that came back, or didn't: acknowledged, sent again, given up (R-PR-1).

In: the answer to a batch, or why there is none; batches whose time is up. Out: its outcome, or the
batch back in its partition's queue. A batch that may have been written keeps its sequence over all
its retries. OUT_OF_ORDER_SEQUENCE says that a leader which knows the producer expects another
sequence: either the batch has been written and the leader has forgotten it, or something before it
is missing. Sequences have no holes where a log wasn't cut, so the batch *is* written if a later one
is; and it isn't if all later ones that may be written are refused in the same way (a leader that
has restarted remembers only the last). Must not: end a batch without an offset or a typed error, or
give one that may be written a new sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from odradek.clients.producer.batch import (
    NO_OFFSET,
    NO_SEQUENCE,
    BatchOutcome,
    ProducerBatch,
    ProduceRefusals,
    together,
)
from odradek.clients.producer.batch_splitting import BatchSplitter, refused, too_large
from odradek.clients.producer.doubt import in_doubt, leaves_doubt
from odradek.clients.producer.partition_queue import PartitionQueue, PartitionQueues
from odradek.clients.producer.produce_exchange import SentCounts
from odradek.clients.producer.producer_id import quick_backoff
from odradek.clients.refusal_words import of_batch
from odradek.common.errors import Attempt, BrokerError, KafkaError, KafkaTimeoutError
from odradek.common.kafka_errors import (
    ConcurrentTransactionsError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
    error_for,
)
from odradek.common.types import Address
from odradek.network.connection import Connection
from odradek.network.flow import Signal
from odradek.protocol.messages.produce import PartitionProduceResponse

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine

TOPICS_NAMED = 10
"""Of those that an error of a call names, at most."""
_UNKNOWN = (UnknownProducerIdError.code, InvalidProducerEpochError.code)
"""The identity is over for the leader."""


class Settling:
    """Decides about the batches of one producer."""

    def __init__(self, engine: ProducerEngine, queues: PartitionQueues, counts: SentCounts) -> None:
        config = engine.config
        self._engine = engine
        self._counts = counts
        self._events = engine.events
        self._accumulator = engine.accumulator
        self._queues = queues
        self._retry = config.backoff("retry.backoff")
        self._quick = quick_backoff(config)
        self._retries: int = config["retries"]
        self._answered = bool(config["acks"])
        self._splitter = BatchSplitter(engine.accumulator, engine.events)
        self.batch_done = Signal()
        self.acknowledged = 0
        """Records that were written."""
        self.acknowledged_as = (-1, -1)
        """The id and epoch of the batch that was acknowledged last."""
        self.disturbed = True
        """Something has failed since the last acknowledgement."""

    def settle(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse | None,
        error: BaseException | None,
        *,
        address: Address | None = None,
        hinted: bool = False,
    ) -> None:
        """Decide what becomes of a batch that came back; without an answer, `error` says why."""
        queue = self._queues.get(batch.partition)
        queue.in_flight.remove(batch)
        if batch.done.done:  # it expired meanwhile
            return
        code = answer.error_code if answer is not None else None
        if answer is not None and code in (0, DuplicateSequenceNumberError.code):
            offset = answer.base_offset if not code else -1
            self._acknowledge(queue, batch, BatchOutcome(offset, answer.log_append_time_ms))
            return
        if leaves_doubt(code):
            batch.doubt()
        if code == MessageTooLargeError.code and batch.count > 1:
            self._splitter.split(batch, queue, self._engine.now)
            return
        failure = self._failure(batch, answer, error)
        batch.refused(address, failure, self._engine.now)
        about_sequence = code == OutOfOrderSequenceNumberError.code or code in _UNKNOWN
        if about_sequence and self._engine.identity.idempotent:
            self._out_of_order(queue, batch, code, failure)
        elif not (failure.retriable or failure.refresh_metadata):
            bad = refused(answer, batch.count) if answer is not None else {}
            if answer is not None and bad and not batch.doubtful:
                self._leave_out(queue, batch, answer, bad)
            else:
                self._give_up(queue, batch, in_doubt(batch, failure), type(failure).__name__)
            self._resolve(queue)
        elif batch.attempts > self._retries:
            what = f"{batch.count} records of {batch.partition} after {self._retries} retries"
            self._events.emit(self._engine.now, "expired", what=what)
            self._engine.metadata.refused(batch.partition, failure, at=address, hinted=hinted)
            self._give_up(queue, batch, failure, "no retries left")
            self._resolve(queue)
        else:
            self._retry_later(queue, batch, failure, address=address, hinted=hinted)

    def _leave_out(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        bad: Mapping[int, str | None],
    ) -> None:
        """Some of its records are refused (KIP-467): the others go again."""
        said = answer.error_message or str(batch.partition)
        errors = {n: self._refusal(answer.error_code, t or said, batch) for n, t in bad.items()}
        first = errors[min(errors)]
        self._missing(queue, batch, f"{batch.partition}: {type(first).__name__}")
        batch.unnumber()
        self._counts.failed(batch.partition.topic, len(errors))
        self._splitter.leave_out(batch, queue, errors, self._engine.now)
        self._engine.identity.failed(first)
        self.batch_done.notify()

    def lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        """A connection is gone."""
        self.disturbed = self.disturbed or failure

    # Sequences

    def _out_of_order(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int | None, failure: KafkaError
    ) -> None:
        """A leader doesn't take this batch's sequence, or doesn't know its identity."""
        if code == OutOfOrderSequenceNumberError.code:
            numbering = queue.numbering
            if batch.doubtful and batch.serial < numbering.acknowledged and not numbering.cut:
                self._acknowledge(queue, batch, NO_OFFSET)
                return
        elif self._engine.identity.transactional_id is not None:
            self._give_up(queue, batch, failure, type(failure).__name__)  # KIP-360: by an abort
            return
        if batch.attempts > self._retries:
            self._give_up(queue, batch, in_doubt(batch, failure), "no retries left")
        else:
            queue.out_of_order.add(batch)
            self._retry_later(queue, batch, failure, hinted=False)
        self._resolve(queue)

    def _resolve(self, queue: PartitionQueue) -> None:
        """Once all that might be in the log are refused, none of them is: they begin again."""
        lost, numbering = queue.out_of_order, queue.numbering
        if not lost or any(b not in lost for b in queue.unsettled()):
            return
        waiting = [b for b in queue.waiting if b in lost]
        lost.clear()
        for batch in waiting:
            refusals = cast("ProduceRefusals", batch.refusals)
            failure = cast("KafkaError", refusals.latest)
            why = type(failure).__name__
            self._end(queue, f"{batch.partition}: {why}")
            foreign = isinstance(failure, InvalidProducerEpochError)
            # A copy of it may be under way after one that was given up and may come yet.
            unsure = foreign or numbering.lost or numbering.cut or not batch.recognised
            if (batch.doubtful and unsure) or self._engine.identity.transactional_id is not None:
                queue.waiting.remove(batch)
                self._give_up(queue, batch, in_doubt(batch, failure), why)
            else:
                batch.unnumber()

    def _missing(self, queue: PartitionQueue, batch: ProducerBatch, why: str) -> None:
        """A batch won't be written under its sequence: the next one has it, or a new epoch."""
        if batch.sequence == NO_SEQUENCE:
            return
        if batch.doubtful or not queue.take_back(batch):
            self._end(queue, why, lost=batch.doubtful)

    def _end(self, queue: PartitionQueue, why: str, *, lost: bool = False) -> None:
        if queue.numbering.end(lost=lost):
            self._engine.identity.request_bump(why)

    # Outcomes

    def _acknowledge(
        self, queue: PartitionQueue, batch: ProducerBatch, outcome: BatchOutcome
    ) -> None:
        numbering = queue.numbering
        # An answer of the topic that had this name before says nothing of the one that has it now.
        if batch.producer == numbering.identity and batch.topic_tried == numbering.topic_id:
            queue.appended(batch, outcome.base_offset)
        self.acknowledged_as = batch.producer
        self.acknowledged += batch.builder.count
        self._accumulator.release(batch)
        if self.disturbed and self._answered:
            self.disturbed = False
            topic, partition = batch.partition
            self._events.emit(self._engine.now, "first_ack", topic=topic, partition=partition)
        batch.done.complete(outcome)
        self.batch_done.notify()
        if queue.out_of_order:
            self._settle_older(queue, batch)

    def _settle_older(self, queue: PartitionQueue, written: ProducerBatch) -> None:
        """A batch is in the log, so those in doubt before it are; those after it may follow."""
        for batch in [b for b in queue.waiting if b in queue.out_of_order]:
            if batch.serial > written.serial:
                queue.out_of_order.discard(batch)
            elif batch.doubtful and not queue.numbering.cut:
                queue.out_of_order.discard(batch)
                queue.waiting.remove(batch)
                self._acknowledge(queue, batch, NO_OFFSET)
        self._resolve(queue)

    def expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """End a batch whose delivery time is up (KIP-91); it isn't in `waiting` any more."""
        if batch in queue.in_flight:
            batch.doubt()  # nobody knows what becomes of this attempt
        queue.out_of_order.discard(batch)
        now, place = self._engine.now, batch.partition
        self._events.emit(now, "expired", what=f"{batch.count} records of {place}")
        what = (
            f"acknowledgement of {batch.count} records for {place} "
            f"after {batch.attempts} attempts (delivery.timeout.ms)"
        )
        error = self.timeout(what, now, [batch])
        self._give_up(queue, batch, error, "expired after it was sent")
        self._resolve(queue)

    def timeout(self, what: str, now: float, batches: Iterable[ProducerBatch]) -> KafkaTimeoutError:
        """The error of who waited for batches: what was said to them, the last of it its cause."""
        attempts, latest = self.refusals(batches, now)
        error = self._engine.timeout(what, now, attempts)
        error.__cause__ = error.__cause__ or latest
        return error

    def refusals(
        self, batches: Iterable[ProducerBatch], now: float
    ) -> tuple[list[Attempt], KafkaError | None]:
        """What brokers said to batches, or of topics without a leader; any thread may ask."""
        batches = list(batches)
        attempts, latest = together([batch.refusals for batch in batches])
        for topic in sorted({batch.partition.topic for batch in batches})[:TOPICS_NAMED]:
            code = self._engine.metadata.topic_errors.get(topic, 0)
            if code:
                error = error_for(code, f"topic {topic}")
                said = f"{type(error).__name__}: {error}{self._engine.missing.near(topic)}"
                attempts.append(Attempt(None, "Metadata", said, now))
                latest = latest or error
        return attempts, latest

    def never_sent(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A batch that got its sequence couldn't be put into a request."""
        queue = self._queues.get(batch.partition)
        queue.in_flight.remove(batch)
        self._give_up(queue, batch, error, "it couldn't be sent")
        self._resolve(queue)

    def _give_up(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, why: str
    ) -> None:
        """End a batch with an error so that others can follow; the caller calls `_resolve` next."""
        self._missing(queue, batch, f"{batch.partition}: {why}")
        self.fail(batch, error)

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        """End a batch with an error, unless it has its outcome."""
        if batch.done.done:
            return
        self._counts.failed(batch.partition.topic, batch.builder.count)
        self._accumulator.release(batch)
        batch.done.fail(error)
        self._engine.identity.failed(error)
        self.batch_done.notify()

    def _failure(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse | None,
        error: BaseException | None,
    ) -> KafkaError:
        if answer is None:
            return cast("KafkaError", error)
        said = answer.error_message or str(batch.partition)
        if answer.error_code == MessageTooLargeError.code:
            return too_large(batch, said)
        said = of_batch(answer.error_code, said, self._engine.identity.transactional_id)
        return self._refusal(answer.error_code, said, batch)

    def _refusal(self, code: int, said: str, batch: ProducerBatch) -> BrokerError:
        """A broker's error for a batch; where a right is missing, it says which."""
        error = error_for(code, said).of(self._engine.network.user)
        error = error.needing("WRITE", batch.partition.topic, "topic")
        return error.needing(
            "WRITE", self._engine.identity.transactional_id or "", "transactional id"
        )

    def _retry_later(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: KafkaError,
        *,
        address: Address | None = None,
        hinted: bool,
    ) -> None:
        now = self._engine.now
        ending = isinstance(error, ConcurrentTransactionsError)  # the last one's markers
        policy = self._quick if ending else self._retry
        delay = policy.delay(batch.attempts - 1, self._engine.rng)
        batch.retry_at = now + delay
        self._counts.again(batch.partition.topic, batch.builder.count)
        self.disturbed = True
        self._events.emit(
            now,
            "retry",
            what=f"batch of {batch.partition}",
            attempt=batch.attempts,
            error=f"{type(error).__name__}: {error}",
            backoff=round(delay, 6),
        )
        self._engine.metadata.refused(batch.partition, error, at=address, hinted=hinted)
        queue.put_back(batch)
