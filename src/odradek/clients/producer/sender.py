"""The sender: ripe batches to Produce requests, answers to outcomes; idempotent and in order.

In: batches from the accumulator, the snapshot, replies. Out: requests, outcomes, refreshes asked
for. Rules: R-PR-1 (a batch keeps its sequence over all its retries, to whoever leads now), R-PR-2,
R-RT-1 (exponential backoff per batch, skipped when the leader epoch moved on). Must not: drop a
batch silently: each ends with an offset or a typed error.
"""

from __future__ import annotations

import math
from typing import cast

from odradek.clients.client_engine import ClientEngine
from odradek.clients.cluster_check import ClusterCheck
from odradek.clients.producer.batch import NO_SEQUENCE, Outcome, ProducerBatch
from odradek.clients.producer.batch_splitting import BatchSplitter, too_large, written_whole
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.clients.producer.produce_exchange import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    ProduceExchange,
)
from odradek.clients.producer.producer_id import Identity, ProducerIdentity, quick_backoff
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.kafka_errors import (
    ConcurrentTransactionsError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
    error_for,
)
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Broker
from odradek.network.connection import Connection
from odradek.network.flow import Completion, Signal
from odradek.protocol.message import Message
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)

NOTHING = Outcome(-1, -1)
"""Of a batch without records; somebody may wait for it nevertheless (flush)."""
_LOST_SEQUENCE = (
    OutOfOrderSequenceNumberError.code,
    UnknownProducerIdError.code,
    InvalidProducerEpochError.code,
)


class Sender:
    """A component of the producer's engine."""

    def __init__(self, engine: ClientEngine, accumulator: RecordAccumulator) -> None:
        config = engine.config
        self._engine = engine
        self._network = engine.network
        self._metadata = engine.metadata
        self._events = engine.events
        self._accumulator = accumulator
        self._retry = config.backoff("retry.backoff")
        self._quick = quick_backoff(config)
        self._max_request: int = max(config["max.request.size"], config["batch.size"])
        self._retries: int = config["retries"]
        self._max_in_flight: int = config["max.in.flight.requests.per.connection"]
        self._timeout_ms = int(config["request.timeout.ms"] * 1000)
        self._check = ClusterCheck(engine)
        self._splitter = BatchSplitter(accumulator, engine.events)
        self.identity: Identity = ProducerIdentity(engine, self._none_in_doubt)
        """Whose batches these are; with a transactional.id, the transaction manager."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.batch_done = Signal()
        self.acknowledged = 0
        self.sent_at: dict[Address, float] = {}
        """When something went to each broker last."""
        self._requests: dict[int, int] = {}  # by connection
        self._disturbed = True
        self._wake_at = math.inf
        engine.network.on_lost.append(self._on_lost)

    # The component's part

    def advance(self, now: float) -> bool:
        """Take over, expire, send."""
        dropping = self.identity.dropping
        if (
            now < self._wake_at
            and self._cut_off
            and not self._accumulator.has_batches
            and dropping is None
        ):
            return False  # the most frequent step of an outage: nothing of ours can have changed
        moved = False
        for batch in self._accumulator.take(now):
            moved = True
            if batch.count:
                self._queue(batch.partition).waiting.append(batch)
            else:  # it was claimed for columns, and nothing came
                self._accumulator.release(batch)
                batch.done.complete(NOTHING)
                self.batch_done.notify()
        self._wake_at = self._accumulator.next_ripe()
        active = {tp: q for tp, q in self.queues.items() if q.waiting or q.in_flight}
        if not active:
            return moved
        for queue in active.values():
            moved = self._expire(queue, now) or moved
        if (dropping := self.identity.dropping) is not None:
            moved = self._drop(dropping) or moved
        if not self.identity.usable():
            return moved
        return self._drain(active, now) or moved

    def next_deadline(self, now: float) -> float | None:
        """The next linger, retry, dial or delivery deadline."""
        return None if self._wake_at == math.inf else max(self._wake_at, now)

    def abort(self, error: KafkaError, now: float) -> None:
        """End every batch with `error`."""
        self._accumulator.ended = error  # before the open batches are looked at: no more come
        self._accumulator.close_all()
        for queue in self.queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                self._fail(batch, error)
            queue.waiting.clear()
            queue.in_flight.clear()
        for batch in self._accumulator.untaken():
            self._fail(batch, error)
        self._accumulator.take(now)

    def _drop(self, error: KafkaError) -> bool:
        """End what isn't sent any more: its transaction is aborted, or the producer has failed."""
        everything, moved = self.identity.abandons, False
        for queue in self.queues.values():
            for batch in [*queue.waiting, *(queue.in_flight if everything else ())]:
                if (everything or batch.sequence == NO_SEQUENCE) and not batch.done.done:
                    self._fail(batch, error)
                    moved = True
            while queue.waiting and queue.waiting[-1].done.done:  # the youngest are at the end
                queue.waiting.pop()
        return moved

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        found = self.queues.get(partition)
        if found is None:
            found = self.queues[partition] = PartitionQueue()
        return found

    @property
    def _cut_off(self) -> bool:
        """R-CS-8: there is nothing to send on, and no leader is dialled before metadata."""
        network = self._network
        if not (network.governor.engaged and network.governor.metadata_only):
            return False
        return not any(c.ready for c in network.connections.values())

    def _none_in_doubt(self) -> bool:
        """No batch could still be written under the current epoch."""
        return not any(q.in_flight or q.sequenced() for q in self.queues.values())

    def incomplete(self) -> list[ProducerBatch]:
        """Every batch without an outcome, those that are still open included."""
        mine = [b for q in self.queues.values() for b in [*q.in_flight, *q.waiting]]
        return [b for b in [*mine, *self._accumulator.untaken()] if not b.done.done]

    # Expiry

    def _expire(self, queue: PartitionQueue, now: float) -> bool:
        """End batches whose delivery time is up (KIP-91)."""
        moved = False
        for batch in queue.in_flight:
            if not batch.done.done:
                if now >= batch.deadline:
                    self._expired(batch, now)
                    moved = True
                else:
                    self._wake_at = min(self._wake_at, batch.deadline)
        while queue.waiting and now >= queue.waiting[0].deadline:
            batch = queue.waiting.popleft()
            self._expired(batch, now)
            moved = True
        if queue.waiting:
            self._wake_at = min(self._wake_at, queue.waiting[0].deadline)
        return moved

    def _expired(self, batch: ProducerBatch, now: float) -> None:
        if batch.sequence != NO_SEQUENCE:
            # R-PR-1: it may or may not have been written; later batches need a new epoch.
            self.identity.request_bump(f"a batch of {batch.partition} expired after it was sent")
        what = (
            f"acknowledgement of {batch.count} records for {batch.partition} "
            f"after {batch.attempts} attempts (delivery.timeout.ms)"
        )
        self._events.emit(now, "expired", what=f"{batch.count} records of {batch.partition}")
        self._fail(batch, self._engine.timeout(what, now))

    # Sending

    def _drain(self, active: dict[TopicPartition, PartitionQueue], now: float) -> bool:
        """Send what can be sent, one batch per partition and request; say whether any went."""
        snapshot = self._metadata.snapshot
        if self._cut_off:
            return False
        by_broker: dict[Address, list[tuple[PartitionQueue, int]]] = {}
        for partition, queue in active.items():
            if not queue.waiting:
                continue
            leader = snapshot.leader(*_pair(partition)) if snapshot is not None else None
            if snapshot is None or leader is None:
                self._metadata.want([partition.topic])
                if snapshot is not None and not self._metadata.requested:
                    self._metadata.request(f"{partition} has no leader")
                continue
            known = snapshot.partition(*_pair(partition))
            epoch = known.leader_epoch if known is not None else -1
            if self._sendable(queue, epoch, now) and self.identity.admits(partition):
                by_broker.setdefault(leader.address, []).append((queue, epoch))
        sent = False
        for address, ready in by_broker.items():
            sent = self._send_to(address, ready, now) or sent
        return sent

    def _sendable(self, queue: PartitionQueue, epoch: int, now: float) -> bool:
        batch = queue.next(sequenced=self.identity.bumping)
        if batch is None:
            return False
        if batch.attempts and batch.retry_at > now and epoch <= batch.epoch_tried:
            self._wake_at = min(self._wake_at, batch.retry_at)
            return False
        return queue.admits(batch, epoch, self.identity.current, self._max_in_flight)

    def _send_to(
        self, address: Address, ready: list[tuple[PartitionQueue, int]], now: float
    ) -> bool:
        connection = self._network.ready(address, now)
        if connection is None:
            at = self._network.next_dial_at(address, now)
            if at > now:
                self._wake_at = min(self._wake_at, at)
            return False
        if self._requests.get(connection.id, 0) >= self._max_in_flight:
            return False
        _, newest = connection.versions.get(ProduceRequest.API_KEY, (0, -1))
        limit = self.identity.newest_produce
        newest = newest if limit is None else min(newest, limit)
        if newest < FIRST_VERSION_WITH_TOPIC_IDS and not self._check.passed(connection, now):
            return False
        size = 0
        chosen: list[ProducerBatch] = []
        for queue, epoch in ready:
            batch = cast("ProducerBatch", queue.next(sequenced=self.identity.bumping))
            if chosen and size + batch.builder.estimated_size > self._max_request:
                continue
            size += batch.builder.estimated_size
            queue.waiting.remove(batch)
            queue.number(batch, self.identity.current)
            batch.attempts += 1
            batch.epoch_tried = epoch
            queue.in_flight.append(batch)
            chosen.append(batch)
        self.sent_at[address] = now
        self._request(connection, chosen, now)
        return True  # so the engine asks again: for what didn't fit, and for further batches

    def _request(self, connection: Connection, batches: list[ProducerBatch], now: float) -> None:
        try:
            version = self._network.version_for(connection, ProduceRequest)
            limit = self.identity.newest_produce
            version = version if limit is None else min(version, limit)
        except KafkaError as error:
            for batch in batches:
                self._queue(batch.partition).in_flight.remove(batch)
                self._fail(batch, error)
            return
        exchange = ProduceExchange(
            batches,
            self._metadata.snapshot,
            version,
            self._timeout_ms,
            self.identity.transactional_id,
        )
        request = self._network.send_version(connection, exchange.body, exchange.version, now)
        request.held = True  # acks=all waits for replicas; metadata doesn't wait behind it
        self._requests[connection.id] = self._requests.get(connection.id, 0) + 1
        request.reply.when_done(lambda reply: self._answered(connection, batches, exchange, reply))

    # Answers

    def _answered(
        self,
        connection: Connection,
        batches: list[ProducerBatch],
        exchange: ProduceExchange,
        reply: Completion[Message],
    ) -> None:
        now = self._engine.now
        left = self._requests.get(connection.id, 1) - 1
        if left:
            self._requests[connection.id] = left
        else:
            self._requests.pop(connection.id, None)
        if self._engine.ended is not None:
            return
        if reply.error is not None:
            for batch in batches:
                self._settle(batch, None, reply.error, now)
            return
        response = cast("ProduceResponse", reply.result())
        answers = exchange.answers(response)
        brokers = [
            Broker(n.node_id, Address(n.host, n.port), n.rack) for n in response.node_endpoints
        ]
        for batch in batches:
            answer = answers.get(_pair(batch.partition))
            if answer is None:
                missing = DisconnectedError(f"{batch.partition} is missing in the answer")
                self._settle(batch, None, missing, now)
                continue
            hinted = self._apply_hint(batch, answer, brokers)
            self._settle(batch, answer, None, now, hinted=hinted)

    def _apply_hint(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, brokers: list[Broker]
    ) -> bool:
        """KIP-951: say whether the answer named a newer leader."""
        leader = answer.current_leader
        if not answer.error_code or leader.leader_id < 0:
            return False
        return self._metadata.hint(
            *_pair(batch.partition), leader.leader_id, leader.leader_epoch, brokers
        )

    def _refusal(self, code: int, said: str, batch: ProducerBatch) -> KafkaError:
        """A broker's error for a batch; where a right is missing, it says which."""
        error = error_for(code, said).of(self._network.user)
        error = error.needing("WRITE", batch.partition.topic, "topic")
        return error.needing("WRITE", self.identity.transactional_id or "", "transactional id")

    def _settle(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse | None,
        error: BaseException | None,
        now: float,
        *,
        hinted: bool = False,
    ) -> None:
        """Decide what becomes of a batch that came back."""
        queue = self._queue(batch.partition)
        queue.in_flight.remove(batch)
        if batch.done.done:  # it expired meanwhile
            return
        code = answer.error_code if answer is not None else 0
        if answer is not None and code in (0, DuplicateSequenceNumberError.code):
            offset = answer.base_offset if not code else -1
            self._acknowledge(batch, Outcome(offset, answer.log_append_time_ms), now)
            return
        if code == MessageTooLargeError.code and batch.count > 1:
            self._splitter.split(batch, queue.waiting, now)
            return
        if answer is not None:
            said = answer.error_message or str(batch.partition)
            too_much = code == MessageTooLargeError.code
            error = too_large(batch, said) if too_much else self._refusal(code, said, batch)
        failure = cast("KafkaError", error)
        others = queue.beside(batch)
        oldest = all(b.serial > batch.serial for b in others)
        if code in _LOST_SEQUENCE:
            if oldest or code != OutOfOrderSequenceNumberError.code:
                # It wasn't written, and under this epoch it never will be.
                self.identity.request_bump(f"{batch.partition}: {type(failure).__name__}")
                if batch.doubtful:
                    failure = written_whole(batch, failure)
                if batch.doubtful or self.identity.transactional_id is not None:
                    self._fail(batch, failure)  # KIP-360: of a transaction, an abort mends it
                    return
                batch.sequence = NO_SEQUENCE
        elif not (failure.retriable or failure.refresh_metadata):
            behind = any(b.serial > batch.serial for b in others)
            if batch.sequence != NO_SEQUENCE and (behind or batch.attempts > 1):
                # Its sequence is missing for those behind it; or an earlier attempt may have been
                # written, and another batch with that sequence would be taken for it.
                self.identity.request_bump(f"{batch.partition}: {type(failure).__name__}")
            elif batch.sequence != NO_SEQUENCE:
                queue.next_sequence = batch.sequence
            self._fail(batch, failure)
            return
        if batch.attempts > self._retries:
            if batch.sequence != NO_SEQUENCE:  # as for one that expired: it may have been written
                self.identity.request_bump(f"{batch.partition}: no retries left")
            what = f"{batch.count} records of {batch.partition} after {self._retries} retries"
            self._events.emit(now, "expired", what=what)
            self._fail(batch, failure)
            return
        self._retry_later(queue, batch, failure, now, hinted=hinted)

    def _retry_later(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        *,
        hinted: bool,
    ) -> None:
        ending = isinstance(error, ConcurrentTransactionsError)  # the last one's markers
        policy = self._quick if ending else self._retry
        delay = policy.delay(batch.attempts - 1, self._engine.rng)
        batch.retry_at = now + delay
        self._disturbed = True
        self._events.emit(
            now,
            "retry",
            what=f"batch of {batch.partition}",
            attempt=batch.attempts,
            error=f"{type(error).__name__}: {error}",
            backoff=round(delay, 6),
        )
        if error.refresh_metadata and not hinted:
            self._metadata.request(f"{batch.partition}: {type(error).__name__}")
        queue.put_back(batch)

    def _acknowledge(self, batch: ProducerBatch, outcome: Outcome, now: float) -> None:
        self._accumulator.release(batch)
        self._queue(batch.partition).known_as = batch.producer
        self.acknowledged += batch.count
        if self._disturbed:
            self._disturbed = False
            self._events.emit(
                now, "first_ack", topic=batch.partition.topic, partition=batch.partition.partition
            )
        batch.done.complete(outcome)
        self.batch_done.notify()

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        if batch.done.done:
            return
        self._accumulator.release(batch)
        batch.done.fail(error)
        self.identity.failed(error)
        self.batch_done.notify()

    def _on_lost(
        self, connection: Connection, error: KafkaError, failure: bool, now: float
    ) -> None:
        self._disturbed = self._disturbed or failure


def _pair(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
