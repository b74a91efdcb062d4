"""Describe why a record has no outcome yet.

In: a producer's parts, read from any thread. Out: texts. Must not: change anything. The sender
decides; this module repeats its checks in their order (`Sender._drain`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.clients.producer.batch import NO_SEQUENCE, OPEN, ProducerBatch
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.clients.producer.producer_id import SenderIdentity
from odradek.clients.producer.records_without_metadata import RecordWithoutMetadata
from odradek.common.errors.kafka import error_for
from odradek.common.outage import number
from odradek.common.types import Address, TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.connection import DATA
from odradek.network.connection_policy import next_dial
from odradek.network.connection_state import worded
from odradek.network.network_client import NetworkClient

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_manager import TransactionManager


class WaitReasons:
    """Texts on what the batches of one producer wait for."""

    def __init__(
        self,
        metadata: Metadata,
        network: NetworkClient,
        queues: Mapping[TopicPartition, PartitionQueue],
        identity: SenderIdentity,
        transactions: TransactionManager | None,
        linger: float,
    ) -> None:
        self._metadata = metadata
        self._network = network
        self._queues = queues
        self._identity = identity
        self._transactions = transactions
        self._linger = linger

    def of(self, batch: ProducerBatch, now: float) -> str:
        """Return a text that completes "waits for …"."""
        topic, partition = batch.partition.topic, batch.partition.partition
        metadata, queue = self._metadata, self._queues.get(batch.partition)
        snapshot = metadata.snapshot
        if snapshot is None:
            return "the metadata of the cluster, which no broker has returned yet"
        code = metadata.topic_errors.get(topic, 0)
        if code and snapshot.topic(topic) is None:
            return f"the metadata of its topic ({error_for(code, f'topic {topic}')})"
        if isinstance(batch, RecordWithoutMetadata):
            found = snapshot.topic(topic)
            if found is None or not found.partitions:
                return "the metadata of its topic"
            absent = f"partition {partition} of topic {topic!r} doesn't exist"
            return f"its partition: {absent}, it has {number(len(found.partitions), 'partition')}"
        leader = snapshot.leader(topic, partition)
        if leader is None:
            return "a leader of its partition to be elected"
        to = f"broker {leader.id} ({leader.address}, the leader of its partition)"
        if queue is not None and batch in queue.in_flight:
            return f"the response of {to}{self._asked(leader.address, now)}"
        if batch.serial == OPEN and batch.lingers_from + self._linger > now:
            return "more records in its batch (linger.ms)"
        if batch.attempts and batch.retry_at > now:
            refusal = None if batch.refusals is None else batch.refusals.latest
            why = "" if refusal is None else f", after {type(refusal).__name__}: {refusal}"
            return f"the next attempt in {batch.retry_at - now:.2f} s{why}"
        missing = self._connection(leader.address, now)
        if missing:
            return f"a connection to {to}: {missing}"
        identity, transactions = self._identity, self._transactions
        if identity.idempotent and identity.current[0] < 0:
            return "a producer id (InitProducerId)"
        if transactions is not None and not transactions.usable():
            return f"its transaction ({worded(transactions.state)})"
        if queue is not None and batch.sequence == NO_SEQUENCE and queue.numbering.ended:
            return "the outcome of older batches, which may or may not have been written"
        return f"other batches in flight to {to}"

    def _asked(self, address: Address, now: float) -> str:
        found = self._network.connection(address, DATA)
        head = None if found is None else found.in_flight.head
        if head is None:
            return ""
        return f"; the oldest request in flight there is {max(0.0, now - head.sent_at):.1f} s old"

    def _connection(self, address: Address, now: float) -> str:
        """Return a text on why no connection to a broker can be used; empty if one can."""
        found = self._network.connection(address, DATA)
        if found is not None and found.ready:
            quiet = found.throttled_until - now
            return f"the broker throttles this client for {quiet:.1f} s" if quiet > 0 else ""
        if found is not None:
            seconds = max(0.0, now - found.dialled_at)
            return f"{worded(found.state)} for {seconds:.1f} s"
        record = self._network.states.find(address)
        error = None if record is None else record.last_error
        if record is None or error is None:
            return "no connection attempt so far"
        dial = self._network.dials.when(address, now)
        left = dial.at - now if dial.at < math.inf else None
        when = f", {next_dial(left, dial.why)}" if dial.why else ""
        return f"{type(error).__name__}: {error}{when}"
