"""Decide the outcome of a sent batch: acknowledged, retried, failed (R-PR-1).

In: the response for a batch, or why there is none; expired batches. Out: the batch's outcome, or
the batch back in its partition's queue. A batch that may have been written keeps its sequence over
all its retries. OUT_OF_ORDER_SEQUENCE means that a leader which knows the producer expects another
sequence: either the batch has been written and the leader has forgotten it, or an earlier batch is
missing. Sequences have no gaps if a log wasn't truncated, so the batch *is* written if a later one
is; and it isn't if all later ones that may be written are refused in the same way (a leader that
has restarted remembers only the last). Must not: end a batch without an offset or a typed error, or
assign a new sequence to one that may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from odradek.clients.error_explanations import of_batch
from odradek.clients.producer.batch import (
    NO_OFFSET,
    NO_SEQUENCE,
    UNPLACED,
    BatchOutcome,
    FailedRecords,
    Placed,
    ProducerBatch,
    ProduceRefusals,
)
from odradek.clients.producer.batch_splitting import BatchSplitter, refused, too_large
from odradek.clients.producer.batch_timeouts import BatchTimeouts
from odradek.clients.producer.partition_queue import PartitionQueue, PartitionQueues
from odradek.clients.producer.produce_exchange import SentCounts
from odradek.clients.producer.producer_id import NO_IDENTITY, SenderIdentity, quick_backoff
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.uncertain_writes import (
    counted,
    fate,
    given_up,
    in_doubt,
    leaves_doubt,
    were,
)
from odradek.common.config import Config
from odradek.common.errors import BrokerError, KafkaError
from odradek.common.errors.kafka import (
    ConcurrentTransactionsError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.errors.topics import TopicRecreatedError, topic_id_text
from odradek.common.outage import number
from odradek.common.types import Address, Rng
from odradek.metadata.cluster import NO_ID, Topic
from odradek.metadata.metadata import Metadata
from odradek.network.connection import Connection
from odradek.network.engine import Engine
from odradek.network.flow import Signal
from odradek.network.network_client import NetworkClient
from odradek.protocol.messages.produce import PartitionProduceResponse

_UNKNOWN = (UnknownProducerIdError.code, InvalidProducerEpochError.code)
"""Error codes after which the identity is no longer valid at the leader."""


class BatchCompletion:
    """Component that decides the outcomes of one producer's batches."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        network: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        identity: SenderIdentity,
        queues: PartitionQueues,
        counts: SentCounts,
        timeouts: BatchTimeouts,
        batch_done: Signal,
        rng: Rng,
        unnoticed: Callable[[int, BaseException], FailedRecords | None],
    ) -> None:
        """Set `batch_done`, which is notified of each outcome.

        `unnoticed` returns the object that notes whether the program reads the error of a batch.
        """
        self._engine = engine
        self._network = network
        self._metadata = metadata
        self._accumulator = accumulator
        self._identity = identity
        self._queues = queues
        self._counts = counts
        self._timeouts = timeouts
        self._events = engine.events
        self._rng = rng
        self._retry = config.backoff("retry.backoff")
        self._quick = quick_backoff(config)
        self._retries: int = config["retries"]
        self._answered = bool(config["acks"])
        self._splitter = BatchSplitter(accumulator, engine.events)
        self.batch_done = batch_done
        self._unnoticed = unnoticed
        self.acknowledged = 0
        """Number of acknowledged records."""
        self.acknowledged_as = NO_IDENTITY
        """The producer id and epoch of the last acknowledged batch."""
        self.disturbed = True
        """Whether an error occurred since the last acknowledgement."""

    def settle(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse | None,
        error: BaseException | None,
        *,
        address: Address | None = None,
        hinted: bool = False,
    ) -> None:
        """Process a batch's response, or the `error` with which its request ended without one."""
        queue = self._queues.get(batch.partition)
        queue.in_flight.remove(batch)
        if batch.done.done:  # the batch has timed out meanwhile
            return
        code = answer.error_code if answer is not None else None
        if answer is not None and code in (0, DuplicateSequenceNumberError.code):
            offset = answer.base_offset if not code else -1
            self._acknowledge(queue, batch, BatchOutcome(offset, answer.log_append_time_ms))
            return
        if leaves_doubt(code):
            # Leaders compare topic ids only before the append.
            batch.doubt(met_topic=code != UnknownTopicIdError.code)
        if code == MessageTooLargeError.code and batch.count > 1:
            self._splitter.split(batch, queue, self._engine.now)
            return
        failure = self._failure(batch, answer, error)
        batch.refused(address, failure, self._engine.now)
        about_sequence = code == OutOfOrderSequenceNumberError.code or code in _UNKNOWN
        if about_sequence and self._identity.idempotent:
            self._out_of_order(queue, batch, code, failure)
        elif not (failure.retriable or failure.refresh_metadata):
            bad = refused(answer, batch.count) if answer is not None else {}
            if answer is not None and bad and not batch.doubtful:
                self._leave_out(queue, batch, answer, bad)
            else:
                self._give_up(queue, batch, in_doubt(batch, failure), type(failure).__name__)
            self._resolve(queue)
        elif batch.attempts > self._retries:
            known = f"{were(batch.count)} {fate(batch)} after {self._retries} retries"
            what = f"{counted(batch.count)} of {batch.partition}, {known}"
            self._events.emit(self._engine.now, "expired", what=what)
            self._metadata.refused(batch.partition, failure, at=address, hinted=hinted)
            why = f"as retries={self._retries} allows no more attempts"
            self._give_up(queue, batch, in_doubt(batch, failure, why), "no retries left")
            self._resolve(queue)
        else:
            self._retry_later(queue, batch, failure, address=address, hinted=hinted)

    def recreated(self, queue: PartitionQueue, topic: Topic) -> None:
        """Assign waiting batches to a recreated topic, or fail those that can't be sent to it."""
        for batch in list(queue.waiting):
            if NO_ID in (topic.topic_id, batch.placed.topic_id) and batch.placed is not UNPLACED:
                continue  # without both ids, recreation can't be detected
            if self._goes_on(queue, batch, topic):
                batch.place_in(Placed(topic.topic_id, topic.count))
        queue.leave_ended()
        self._resolve(queue)

    def absent(self, queue: PartitionQueue, count: int) -> None:
        """Fail all batches of a partition that the topic doesn't have."""
        for batch in list(queue.waiting):
            text = f"{batch.partition} doesn't exist: the topic has {number(count, 'partition')}"
            error = error_for(UnknownTopicOrPartitionError.code or 3, text)
            self._give_up(
                queue, batch, in_doubt(batch, error), "its partition doesn't exist any more"
            )
        queue.leave_ended()
        self._resolve(queue)

    def _goes_on(self, queue: PartitionQueue, batch: ProducerBatch, topic: Topic) -> bool:
        """Return whether a batch may be sent to the current topic; otherwise fail the batch.

        A batch in doubt may have been written to the deleted topic, and read there (R-PR-1). If the
        number of partitions differs, the chosen partitions may be wrong for the keys.
        """
        placed = batch.placed
        if placed.topic_id in (b"", topic.topic_id):
            return True
        they, them, are = ("It", "it", "is") if batch.count == 1 else ("They", "them", "are")
        if batch.met_topic:
            outcome = (
                f"{they} may have been written to the deleted topic, and {are} not sent again."
            )
        elif placed.partitions in (0, topic.count):
            return True
        else:
            outcome = (
                f"The topic has {number(topic.count, 'partition')} now, and had "
                f"{placed.partitions} when the partition was chosen. "
                f"{they} {were(batch.count)} not written: send {them} again."
            )
        error = TopicRecreatedError(
            batch.partition,
            f"{counted(batch.count)} for {batch.partition}",
            topic_id_text(placed.topic_id),
            topic_id_text(topic.topic_id),
            batch.met_topic,
            outcome,
        )
        self._give_up(queue, batch, error, "its topic was recreated")
        return False

    def _leave_out(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        bad: Mapping[int, str | None],
    ) -> None:
        """Send the batch again without the refused records (KIP-467)."""
        said = answer.error_message or str(batch.partition)
        errors = {n: self._refusal(answer.error_code, t or said, batch) for n, t in bad.items()}
        first = errors[min(errors)]
        self._missing(queue, batch, f"{batch.partition}: {type(first).__name__}")
        batch.unnumber()
        self._counts.failed(batch.partition.topic, len(errors))
        followed = batch.done.followed
        self._splitter.leave_out(batch, queue, errors, self._engine.now)
        for part, count in {} if followed else batch.leaves().items():
            if part.done.error is not None:
                part.fails_unnoticed(self._unnoticed(count, part.done.error))
        self._identity.failed(first)
        self.batch_done.notify()

    def lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        """Note that an error occurred, if the connection was lost through a failure."""
        self.disturbed = self.disturbed or failure

    # Sequences

    def _out_of_order(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int | None, failure: KafkaError
    ) -> None:
        """Handle a leader that refuses this batch's sequence, or doesn't know its identity."""
        if code == OutOfOrderSequenceNumberError.code:
            numbering = queue.numbering
            if batch.doubtful and batch.serial < numbering.acknowledged and not numbering.cut:
                self._acknowledge(queue, batch, NO_OFFSET)
                return
        elif self._identity.transactional_id is not None:
            # The batch fails: after an abort, the transaction gets a new epoch (KIP-360).
            self._give_up(queue, batch, failure, type(failure).__name__)
            return
        if batch.attempts > self._retries:
            self._give_up(queue, batch, in_doubt(batch, failure), "no retries left")
        else:
            queue.out_of_order.add(batch)
            self._retry_later(queue, batch, failure, hinted=False)
        self._resolve(queue)

    def _resolve(self, queue: PartitionQueue) -> None:
        """Restart the sequences if all batches in doubt were refused, so that none was written."""
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
            # A copy of the batch may still be in flight, or may not be detected as a duplicate.
            unsure = foreign or numbering.lost or numbering.cut or not batch.recognised
            if (batch.doubtful and unsure) or self._identity.transactional_id is not None:
                queue.waiting.remove(batch)
                self._give_up(queue, batch, in_doubt(batch, failure), why)
            else:
                batch.unnumber()

    def _missing(self, queue: PartitionQueue, batch: ProducerBatch, why: str) -> None:
        """Free the sequence of a failed batch for the next one, or bump the epoch."""
        if batch.sequence == NO_SEQUENCE:
            return
        if batch.doubtful or not queue.take_back(batch):
            self._end(queue, why, lost=batch.doubtful)

    def _end(self, queue: PartitionQueue, why: str, *, lost: bool = False) -> None:
        if queue.numbering.end(lost=lost):
            self._identity.request_bump(why)

    # Outcomes

    def _acknowledge(
        self, queue: PartitionQueue, batch: ProducerBatch, outcome: BatchOutcome
    ) -> None:
        numbering = queue.numbering
        # Ignore an offset in a deleted topic, or under an earlier identity.
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
        """Acknowledge older batches in doubt: the written batch proves that they were written."""
        for batch in [b for b in queue.waiting if b in queue.out_of_order]:
            if batch.serial > written.serial:
                queue.out_of_order.discard(batch)
            elif batch.doubtful and not queue.numbering.cut:
                queue.out_of_order.discard(batch)
                queue.waiting.remove(batch)
                self._acknowledge(queue, batch, NO_OFFSET)
        self._resolve(queue)

    def expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fail a batch that timed out (KIP-91) and was removed from `waiting`."""
        if batch in queue.in_flight:
            batch.doubt()  # the outcome of this attempt is not known
        queue.out_of_order.discard(batch)
        now, place = self._engine.now, batch.partition
        known = f"{were(batch.count)} {fate(batch)}"
        self._events.emit(now, "expired", what=f"{counted(batch.count)} of {place}, {known}")
        seconds = batch.deadline - batch.created_at
        error = self._timeouts.timed_out(
            f"{counted(batch.count)} for {place} timed out after {seconds:g} s "
            f"(delivery.timeout.ms) and {known}",
            now,
            [batch],
        )
        self._give_up(queue, batch, error, "expired after it was sent")
        self._resolve(queue)

    def fail_unsent(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Retry or fail a batch that has a sequence, but couldn't be encoded for a request."""
        queue = self._queues.get(batch.partition)
        queue.in_flight.remove(batch)
        batch.refused(None, error, self._engine.now)
        if error.retriable and batch.attempts <= self._retries:
            self._retry_later(queue, batch, error, hinted=False)
            return
        self._give_up(queue, batch, in_doubt(batch, error), "it couldn't be sent")
        self._resolve(queue)

    def _give_up(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, why: str
    ) -> None:
        """Fail a batch and free its sequence; the caller must call `_resolve` next."""
        self._missing(queue, batch, f"{batch.partition}: {why}")
        self.fail(batch, error)

    def end(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch at the client's end; the error says whether it may have been written."""
        if batch.attempts and batch in self._queues.get(batch.partition).in_flight:
            batch.doubt()
        self.fail(batch, given_up(batch, error))

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch, unless it has an outcome."""
        if batch.done.done:
            return
        self._counts.failed(batch.partition.topic, batch.builder.count)
        self._accumulator.release(batch)
        if not batch.done.followed:
            batch.fails_unnoticed(self._unnoticed(batch.count, error))
        batch.done.fail(error)
        self._identity.failed(error)
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
        said = of_batch(answer.error_code, said, self._identity.transactional_id)
        return self._refusal(answer.error_code, said, batch)

    def _refusal(self, code: int, said: str, batch: ProducerBatch) -> BrokerError:
        """Return a broker's error for a batch, with the missing permission if there is one."""
        error = error_for(code, said).of(self._network.user)
        error = error.needing("WRITE", batch.partition.topic, "topic")
        return error.needing("WRITE", self._identity.transactional_id or "", "transactional id")

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
        ending = isinstance(error, ConcurrentTransactionsError)  # lasts for a few milliseconds
        policy = self._quick if ending else self._retry
        delay = policy.delay(batch.attempts - 1, self._rng)
        batch.retry(now + delay, hinted=hinted)
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
        self._metadata.refused(batch.partition, error, at=address, hinted=hinted)
        queue.put_back(batch)
