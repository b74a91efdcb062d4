"""Send ready batches in Produce requests, in order; idempotent unless options say otherwise.

In: batches from the accumulator, metadata, responses. Out: requests, requested refreshes;
responses are passed to `batch_completion`, by batch. Rules: R-PR-1 (a batch keeps its sequence
over all its retries), R-PR-2, R-RT-1 (exponential backoff per batch, skipped once if there is a
newer leader epoch). Without idempotence batches have no sequence, and order is kept only with one
request in flight; with acks=0 a batch has its outcome once it is written to its socket. Must not:
decide the outcome of a batch; iterate over partitions without batches.
"""

from __future__ import annotations

import math
from errno import ENOMEM
from functools import partial

from odradek.clients.cluster_check import ClusterCheck
from odradek.clients.producer.batch import NO_OFFSET, NO_SEQUENCE, ProducerBatch
from odradek.clients.producer.batch_completion import BatchCompletion
from odradek.clients.producer.partition_queue import PartitionQueue, PartitionQueues
from odradek.clients.producer.produce_exchange import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    ProduceExchange,
    SentCounts,
)
from odradek.clients.producer.producer_id import SenderIdentity
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.config import ALL_REPLICAS, Config
from odradek.common.errors import DisconnectedError, KafkaError, SystemLimitError
from odradek.common.errors.kafka import UnknownTopicIdError
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Broker
from odradek.metadata.metadata import Metadata
from odradek.network.connection import Connection
from odradek.network.engine import Engine
from odradek.network.flow import Completion
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse

Ready = tuple[PartitionQueue, ProducerBatch, int]
"""A partition's queue, the batch to send, and the leader epoch."""


ABSENT_FOR = 5.0
"""Seconds after which a partition that its topic's metadata lacks counts as removed."""


class Sender:
    """The engine component that sends one producer's batches."""

    resting = False

    def __init__(
        self,
        config: Config,
        engine: Engine,
        network: NetworkClient,
        metadata: Metadata,
        check: ClusterCheck,
        accumulator: RecordAccumulator,
        identity: SenderIdentity,
        batch_completion: BatchCompletion,
        queues: PartitionQueues,
        counts: SentCounts,
    ) -> None:
        self._engine = engine
        self._network = network
        self._metadata = metadata
        self._check = check
        self._accumulator = accumulator
        self.identity = identity
        """Source of ids and epochs; with a transactional.id, the transaction manager."""
        self._max_request: int = max(config["max.request.size"], config["batch.size"])
        self._acks: int = config["acks"]
        self._max_in_flight: int = config["max.in.flight.requests.per.connection"]
        self._timeout_ms = int(config["request.timeout.ms"] * 1000)
        self._partitions = queues
        self.queues = self._partitions.active
        """The queues of partitions that have a batch waiting or in flight."""
        self.counts = counts
        self.batch_completion = batch_completion
        self.batch_done = batch_completion.batch_done
        self.sent_at: dict[Address, float] = {}
        """Time of the last request to each broker."""
        self._requests: dict[int, int] = {}  # requests in flight by connection id
        self._wake_at = math.inf
        network.on_lost.append(self.batch_completion.lost)

    # Component

    def advance(self, now: float) -> bool:
        """Take batches from the accumulator, fail expired ones, and send all that can be sent.

        Sent batches needn't be reported as progress, because no further one can be sent.
        """
        identity = self.identity
        dropping = identity.dropping
        if (
            now < self._wake_at
            and not self._accumulator.has_batches
            and dropping is None
            and (not self.queues or self._cut_off)
        ):
            return False  # nothing has changed, which is usual during an outage
        moved = False
        for batch in self._accumulator.take(now):
            if batch.builder.count:
                self._partitions.get(batch.partition).waiting.append(batch)
            else:  # an empty batch, which `send_arrow` claimed but didn't need
                self._accumulator.release(batch)
                batch.done.complete(NO_OFFSET)  # a flush may wait for it
                self.batch_done.notify()
        self._wake_at = self._accumulator.next_ready_at()
        for partition, queue in list(self.queues.items()):
            if not queue.waiting and not queue.in_flight:
                self._partitions.rest(partition, identity)
            else:
                moved = self._expire(queue, now) or moved
        if not self.queues:
            return moved
        if (dropping := identity.dropping) is not None:
            moved = self._drop(dropping) or moved
        if not identity.usable():
            return moved
        # Repeat for batches that didn't fit into a request, and for each partition's next ones.
        while self._drain(identity, now):
            pass
        return moved

    def next_deadline(self, now: float) -> float | None:
        """Return the next deadline of lingering, a retry, a connection attempt or delivery."""
        return None if self._wake_at == math.inf else max(self._wake_at, now)

    def abort(self, error: KafkaError, now: float) -> None:
        """Fail every batch with `error`."""
        # Refuse records first, so that none is added to an open batch.
        self._accumulator.refuse(error)
        self._accumulator.close_all()
        for queue in self.queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                self.batch_completion.end(batch, error)
            queue.waiting.clear()
            queue.in_flight.clear()
            queue.out_of_order.clear()
        for batch in self._accumulator.untaken():
            self.batch_completion.end(batch, error)
        self._accumulator.take(now)

    def _drop(self, error: KafkaError) -> bool:
        """Fail batches whose transaction is aborted, or all batches if the producer has failed."""
        everything, moved = self.identity.abandons, False
        for queue in self.queues.values():
            for batch in [*queue.waiting, *(queue.in_flight if everything else ())]:
                if (everything or batch.sequence == NO_SEQUENCE) and not batch.done.done:
                    self.batch_completion.fail(batch, error)
                    moved = True
            if moved:
                queue.leave_ended()
        return moved

    @property
    def _cut_off(self) -> bool:
        """Whether no leader can be connected before metadata is refreshed (R-CS-8)."""
        network = self._network
        return network.dials.leaders_wait and not any(c.ready for c in network.connections.values())

    def expect(self, partition: TopicPartition, now: float) -> None:
        """Prepare for a lingering batch: connect to its leader, and request a producer id."""
        snapshot = self._metadata.snapshot
        leader = None if snapshot is None else snapshot.leader(*partition)
        if leader is not None and not self._cut_off:
            self._network.ready(leader.address, now)
            self.identity.usable()

    # Expiry

    def _expire(self, queue: PartitionQueue, now: float) -> bool:
        """Fail batches that have exceeded delivery.timeout.ms (KIP-91)."""
        moved = False
        for batch in queue.in_flight:
            if not batch.done.done:
                if now >= batch.deadline:
                    self.batch_completion.expire(queue, batch)
                    moved = True
                else:
                    self._wake_at = min(self._wake_at, batch.deadline)
        while queue.waiting and now >= queue.waiting[0].deadline:
            self.batch_completion.expire(queue, queue.waiting.popleft())
            moved = True
        if queue.waiting:
            self._wake_at = min(self._wake_at, queue.waiting[0].deadline)
        return moved

    # Sending

    def _drain(self, identity: SenderIdentity, now: float) -> bool:
        """Send at most one batch of each partition; return whether to try again for more."""
        by_broker: dict[Address, list[Ready]] | None = None
        snapshot = self._metadata.snapshot
        for partition, queue in self.queues.items():
            if not queue.waiting:
                continue
            if by_broker is None:
                if self._network.dials.leaders_wait and self._cut_off:
                    return False
                by_broker = {}
            topic = snapshot.topic(partition.topic) if snapshot is not None else None
            there = snapshot.partition(*partition) if snapshot is not None else None
            leader = None
            if topic is not None:
                if queue.waiting[0].placed.topic_id != topic.topic_id:
                    self.batch_completion.recreated(queue, topic)
                if there is None and partition.partition >= topic.count:
                    self._absent(queue, topic.count, now)
                if not queue.waiting:
                    continue
            if snapshot is not None and there is not None:
                if queue.absent_since is not None:
                    queue.present()
                leader = snapshot.brokers.get(there.leader)
            if snapshot is None or topic is None or there is None or leader is None:
                self._metadata.want([partition.topic])
                if snapshot is not None and not self._metadata.requested:
                    self._metadata.request(f"{partition} has no leader")
                continue
            topic_id, epoch = topic.topic_id, there.leader_epoch
            if queue.by_name or topic_id != queue.numbering.topic_id:
                queue.lives_in(topic_id)
            batch = self._sendable(queue, identity, epoch, now)
            if batch is not None and identity.admits(partition):
                by_broker.setdefault(leader.address, []).append((queue, batch, epoch))
        sent = False
        for address, ready in by_broker.items() if by_broker else ():
            sent = self._send_to(address, ready, identity, now) or sent
        if sent:
            for queue in self.queues.values():
                if queue.waiting:
                    return True
        return False

    def _absent(self, queue: PartitionQueue, count: int, now: float) -> None:
        """Fail a partition's batches if its topic lacks the partition for `ABSENT_FOR` seconds.

        The topic was recreated, or the metadata is from a broker that doesn't know new partitions.
        """
        until = queue.absent(now) + ABSENT_FOR
        if now < until:
            self._wake_at = min(self._wake_at, until)
        else:
            self.batch_completion.absent(queue, count)

    def _sendable(
        self, queue: PartitionQueue, identity: SenderIdentity, epoch: int, now: float
    ) -> ProducerBatch | None:
        """Return a partition's next batch if it may be sent now, else None."""
        batch = queue.next()
        if batch is None:
            return None
        numbered = identity.idempotent
        if numbered and batch.sequence == NO_SEQUENCE and not self._identified(queue):
            return None
        if batch.attempts and batch.waits(epoch, now):
            self._wake_at = min(self._wake_at, batch.retry_at)
            return None
        if not queue.in_flight:
            return batch
        if not numbered:
            return batch if len(queue.in_flight) < self._max_in_flight else None
        return batch if queue.admits(batch, epoch, self._max_in_flight) else None

    def _identified(self, queue: PartitionQueue) -> bool:
        """Return whether batches may get a sequence.

        If the partition's identity has ended, the next identity begins after all batches with a
        sequence of the old identity have an outcome.
        """
        numbering = queue.numbering
        identity = self.identity.go_on(numbering.identity, ended=numbering.ended)
        if identity is None or (numbering.ended and queue.unsettled()):
            return False
        if identity != numbering.identity:
            numbering.begin(identity)
        return True

    def _send_to(
        self, address: Address, ready: list[Ready], identity: SenderIdentity, now: float
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
        limit = identity.newest_produce
        newest = newest if limit is None else min(newest, limit)
        by_name = newest < FIRST_VERSION_WITH_TOPIC_IDS
        for queue, _, _ in ready:
            by_name = by_name or queue.by_name
        if by_name and not self._check.passed(connection, now):
            return False
        size, numbered = 0, identity.idempotent
        chosen: list[ProducerBatch] = []
        for queue, batch, epoch in ready:
            if chosen and size + batch.builder.estimated_size > self._max_request:
                continue
            size += batch.builder.estimated_size
            queue.send(batch, epoch, numbered=numbered)
            chosen.append(batch)
        self.sent_at[address] = now
        self._request(connection, chosen, identity, now)
        return True

    def _request(
        self,
        connection: Connection,
        batches: list[ProducerBatch],
        identity: SenderIdentity,
        now: float,
    ) -> None:
        try:
            version = connection.version_for(ProduceRequest)
            limit = identity.newest_produce
            version = version if limit is None else min(version, limit)
            exchange = ProduceExchange(
                batches,
                self._metadata.snapshot,
                version,
                self._timeout_ms,
                identity.transactional_id,
                self._acks,
                self.counts,
                now,
            )
            request = self._network.send_version(
                connection, exchange.body, exchange.version, now, answered=bool(self._acks)
            )
        except (KafkaError, MemoryError) as error:
            if isinstance(error, MemoryError):  # retried, as memory may be freed
                error = SystemLimitError(ENOMEM, "no memory to compress or copy a record batch")
            for batch in batches:
                self.batch_completion.fail_unsent(batch, error)
            return
        # With acks=all the broker waits for replicas: a late response doesn't prove it is silent.
        request.held = self._acks == ALL_REPLICAS
        self._requests[connection.id] = self._requests.get(connection.id, 0) + 1
        request.reply.when_done(partial(self._answered, connection, batches, exchange))

    # Responses

    def _answered(
        self,
        connection: Connection,
        batches: list[ProducerBatch],
        exchange: ProduceExchange,
        reply: Completion[Message],
    ) -> None:
        self._requests[connection.id] -= 1
        if not self._requests[connection.id]:
            del self._requests[connection.id]
        if self._engine.ended is not None:
            return
        settle, address = self.batch_completion.settle, connection.address
        if reply.error is not None:
            for batch in batches:
                settle(batch, None, reply.error, address=address)
            return
        response = reply.result()
        answers = exchange.answers(response)
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                missing = DisconnectedError(f"{batch.partition} is missing from the response")
                settle(batch, None, missing, address=address)
                continue
            if answer.error_code == UnknownTopicIdError.code:
                self._check.doubt(address, self._engine.now)
            leader, hinted = answer.current_leader, False
            if answer.error_code and leader.leader_id >= 0:  # the response names the new leader
                leads = leader.leader_id, leader.leader_epoch
                named = response.node_endpoints if isinstance(response, ProduceResponse) else []
                brokers = [Broker(n.node_id, Address(n.host, n.port), n.rack) for n in named]
                hinted = self._metadata.hint(*batch.partition, *leads, brokers)
            settle(batch, answer, None, address=address, hinted=hinted)
