"""Simulate clients that write and read records, and check the records.

In: a client of a schedule, a stage (simulation and cluster). Out: a producer's or consumer's calls;
at the end a comparison of acknowledged and read records with logs. Must not cause faults.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.network.flow import START
from odradek.simulation.brokers.broker_faults import disturbed, size
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.call_checkers import check_limits
from odradek.simulation.checkers.history import CallKind, CallResult, Operation
from odradek.simulation.checkers.invariants import (
    PositionsGoForward,
    RecordLedger,
    RecordsOnce,
    Violation,
    wrong_epoch,
)
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.runs.caller import InVirtualTime
from odradek.simulation.runs.workload import TOPIC, Driver

F = TypeVar("F")

POLL_AGAIN = 0.05
"""Delay in seconds after a failed poll."""


class WritingDriver(Driver):
    """A driver with a producer."""

    engine: ProducerEngine

    def build(self, config: Config) -> ProducerCalls:
        """Create the producer."""
        self.serial = 0
        self.producer = ProducerCalls(
            self.name,
            config,
            self.host,
            lambda host: ProducerEngine(config, host.rng(), host.lock),
            InVirtualTime(),
            lambda: self.caller.running,
        )
        return self.producer

    def value(self, text: str) -> bytes:
        """Return a value that no other record of the run has."""
        self.serial += 1
        return f"{text}/{self.serial - 1}".encode()

    def send(
        self, partition: int, value: bytes, made: Callable[[ProducerBatch, int, int], F]
    ) -> CallerFlow[F]:
        """Send a record as a producer does; `made` is called with its batch and index."""
        lane = self.producer.lanes.get(TOPIC)
        if lane is None or lane.snapshot is not self.engine.metadata.snapshot:
            lane = self.producer.lane(TOPIC)
        record = (None, value, (), int(self.world.wall_clock() * 1000))
        now = yield START
        found = self.producer.append(TOPIC, lane, record, partition, made, now)
        return (yield from found) if isinstance(found, Generator) else found


class ProducerDriver(WritingDriver):
    """Sends records with unique values, and compares acknowledgements with the log."""

    def build(self, config: Config) -> ProducerCalls:
        """Create the producer's calls, and the ledger of sent and acknowledged records."""
        self.ledger = RecordLedger()
        self.unsettled: dict[bytes, Operation] = {}
        self.reached: dict[TopicPartition, None] = {}
        """Partitions with a record that was acknowledged after the faults."""
        return super().build(config)

    def operate(self) -> None:
        """Send one or more records."""
        volume = self.client.volume
        for _ in range(self.rng.choice((1, volume // 2, volume) if volume else (1, 1, 2, 5, 12))):
            there = self.cluster.topics.get(TOPIC)
            count = len(there.partitions) if there else 1
            self.put(self.rng.randrange(1 << 16) % count)
        if self.rng.random() < 0.2:
            self.call("flush", self.producer.flush(self.seconds(self.rng.uniform(0.0, 5.0))))

    def put(self, partition: int) -> None:
        """Send one record; several sends may wait for memory."""
        value = self.value(self.name)

        def made(batch: ProducerBatch, index: int, _: int) -> None:
            place = TopicPartition(TOPIC, partition)
            self.ledger.sent(place, value)
            self.unsettled[value] = self.history.sent(self.name, place, value.decode())
            self.await_outcome(batch, batch, index, value)
            check_limits(self.engine, len(self.calls))

        self.call("room in buffer.memory", self.send(partition, value, made))

    def await_outcome(
        self, batch: ProducerBatch, first: ProducerBatch, index: int, value: bytes
    ) -> None:
        """Track a batch, which must be completed by its deadline."""
        self.calls.begin(batch.done, f"{self.name}: batch of {batch.partition}", batch.deadline)
        batch.done.when_done(lambda _: self.settled(first, index, value))

    def settled(self, first: ProducerBatch, index: int, value: bytes) -> None:
        """Note the outcome of a record; if its batch was split, wait for the record's new batch."""
        batch = first.find(index)[0]
        if not batch.done.done:
            self.await_outcome(batch, first, index, value)
            return
        sent = self.unsettled.pop(value)
        if batch.done.error is None:
            if self.probed_at is not None and batch.created_at >= self.probed_at:
                self.reached[batch.partition] = None
            offset = first.metadata(index, 0).offset
            sent.acknowledged(offset)
            if offset >= 0:
                self.ledger.acknowledged(batch.partition, value, offset)
            else:  # a duplicate whose offset is unknown, but whose record must exist
                self.ledger.acknowledged(batch.partition, value, None)
        else:
            sent.ended(CallResult.INFO)
            self.judged(batch.done.error, f"record {value!r}")

    def probe(self) -> None:
        """Send one record to each partition."""
        for partition in range(len(self.cluster.topics[TOPIC].partitions)):
            self.put(partition)

    def finished(self) -> bool:
        """Return whether all records have outcomes and all partitions acknowledged one of them."""
        count = len(self.cluster.topics[TOPIC].partitions)
        return not self.unsettled and not len(self.calls) and len(self.reached) == count

    def verify(self) -> None:
        """Compare sent and acknowledged records with the logs of the client's cluster."""
        mine = self.engine.metadata.cluster_id
        for cluster in (*self.stage.left, self.stage.cluster, *self.stage.bystanders):
            if cluster.cluster_id == mine:
                self.ledger.verify(cluster)
            elif mine is not None and TOPIC in cluster.topics:  # the topic may be deleted there
                self._none_in(cluster)

    def _none_in(self, cluster: SimulatedCluster) -> None:
        """Check R-RB-5: no log of another cluster has a record of this client."""
        mark = self.name.encode() + b"/"
        for partition in range(len(cluster.topics[TOPIC].partitions)):
            for row in cluster.records(TOPIC, partition):
                if row[4] is not None and row[4].startswith(mark):
                    raise Violation(f"{cluster.cluster_id} holds {row[4]!r} of {self.name}")


class ReadingDriver(Driver):
    """A driver with a consumer."""

    engine: ConsumerEngine

    def build(self, config: Config) -> ConsumerCalls:
        """Create the consumer."""
        self.consumer = ConsumerCalls(
            self.name,
            config,
            self.host,
            lambda host: ConsumerEngine(
                config, host.rng(), wall_clock=host.wall_clock, readers_first=host.callers_first
            ),
            InVirtualTime(),
        )
        return self.consumer


class ConsumerDriver(ReadingDriver):
    """Reads all partitions, from the beginning or from stored positions.

    Each returned record must follow the one before.
    """

    def build(self, config: Config) -> ConsumerCalls:
        """Create the consumer's calls and the checks of its records."""
        self.once = RecordsOnce()
        self.forward = PositionsGoForward()
        self.read: dict[tuple[int, int], bytes | None] = {}
        self.seen: set[bytes | None] = set()
        """Values of all returned records, also of deleted topics."""
        self.polling = False
        self._in_turn = self._more = False
        self.kept_of: SimulatedCluster | None = None
        """The cluster in which the stored positions were taken."""
        return super().build(config)

    def begin(self) -> None:
        """Assign every partition of the topic."""
        count = size(self.cluster, TOPIC)
        self.partitions = [TopicPartition(TOPIC, p) for p in range(count)]
        self.history.note(CallKind.ASSIGN, self.name, partitions=self.partitions)
        kept = self.world.rng(f"kept/{self.name}")
        if not self.client.start or kept.random() < 0.5:
            self.consumer.assign(self.partitions, None)
            return
        self.kept_of = self.cluster
        places = {p: self._place(p, kept.random()) for p in self.partitions}
        self.consumer.assign(places, None)
        for partition, place in places.items():
            self.once.sought(partition, place.offset)
            self.forward.sought(partition, place.offset)

    def _place(self, partition: TopicPartition, share: float) -> OffsetAndMetadata:
        """Return a random offset, with the leader epoch of the record before it (KIP-320)."""
        topic = self.cluster.topics.get(TOPIC)
        if topic is None or partition.partition >= len(topic.partitions):
            return OffsetAndMetadata(0)
        log = topic.partitions[partition.partition].log
        offset = log.start_offset + round(share * (log.high_watermark - log.start_offset))
        return OffsetAndMetadata(offset, leader_epoch=log.leader_epoch_at(offset - 1))

    def operate(self) -> None:
        """Poll, sometimes after seeking back."""
        if self.rng.random() < 0.1 and not self.polling:
            self.seek()
        if self.patient:
            self.probe()
        else:
            self.poll(self.rng.uniform(0.0, 2.0))

    def seek(self) -> None:
        """Seek back to an earlier offset, to read some records again."""
        partition = self.rng.choice(self.partitions)
        position = self.engine.subscription.get(partition).position
        if position:
            offset = self.rng.randrange(position + 1)
            self.consumer.seek(partition, offset)
            self.history.note(CallKind.SEEK, self.name, 0, [partition], offset)
            self.once.sought(partition, offset)
            self.forward.sought(partition, offset)

    def poll(self, timeout: float, then: Callable[[], None] | None = None) -> None:
        """Poll, unless a poll is running."""
        if self.polling:
            return
        self.polling = True
        uncommitted = self.engine.config["isolation.level"] != "read_committed"
        made = self.history.invoke(CallKind.POLL, self.name, uncommitted=uncommitted)

        def returned(records: list[ConsumerRecord] | None) -> None:
            for record in records or ():
                made.saw(record.topic_partition, record.offset, record.value)
            made.ended()
            self.take(records or [], then)

        def failed(error: Exception) -> None:
            made.ended(CallResult.FAIL)
            if not isinstance(error, KafkaError):
                self.judged(error, "poll")
            # The caller gets an error of a partition, and may poll again after a moment.
            self.world.after(POLL_AGAIN, lambda: self.take([], then))

        flow = self.consumer.poll(timeout, self.rng.randrange(1, 30))
        self.caller.begin(f"{self.name}: poll", flow, returned, failed)

    def take(self, records: list[ConsumerRecord], then: Callable[[], None] | None) -> None:
        """Check the records that `poll` returned."""
        self.polling = False
        if self.engine.ended is not None:
            return
        self.engine.delivery.handed_over()
        hidden = {p: self._hidden(p) for p in self.partitions} if records else {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._excuse(partition, record.offset)
            self.once.hidden(partition, hidden[partition])
            self.once.read(partition, record.offset)
            self.forward.moved(partition, record.offset + 1)
            self.seen.add(record.value)
            if not self._disturbed(partition):
                self.read[record.partition, record.offset] = record.value
        for partition in self.partitions:
            state = self.engine.subscription.get(partition)
            if state.position is not None:
                self._excuse(partition, state.position, forward=False)
                self.forward.moved(partition, state.position)
                self._check_epoch(partition, state.position, state.position_epoch)
        check_limits(self.engine, len(self.calls))
        self.host.wake()
        if then is not None:
            then()

    def served(self) -> None:
        """Raise an error unless all records are read, as polls of slow brokers may return none."""
        if self.done and not self.finished():
            where = {p.partition: self.engine.subscription.get(p).position for p in self.partitions}
            raise Violation(f"{self.world.now}: {self.name} reads up to {where} for ever")

    def _excuse(self, partition: TopicPartition, offset: int, *, forward: bool = True) -> None:
        """Allow an offset to be repeated if its log was truncated, or skipped if it was deleted."""
        if self._disturbed(partition):
            self.once.sought(partition, offset)
            self.forward.sought(partition, offset)
        elif forward and offset <= self._start(partition):
            self.once.skipped(partition, offset)

    def _check_epoch(self, partition: TopicPartition, position: int, epoch: int) -> None:
        """Check that a position's leader epoch is the epoch of the records around it (KIP-320)."""
        log = self._log(partition)
        if log is None or self._disturbed(partition):
            return
        if wrong := wrong_epoch(log, epoch, position):
            raise Violation(
                f"{self.world.now}: {self.name} is at {position} of {partition}, with {wrong}"
            )

    @property
    def _home(self) -> SimulatedCluster:
        """The cluster of the client's metadata: late responses may come from an earlier cluster."""
        mine = self.engine.metadata.cluster_id
        known = [c for c in (*self.stage.left, self.stage.cluster) if c.cluster_id == mine]
        return known[-1] if known else self.cluster

    def _log(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition in the client's cluster, if it exists."""
        topic = self._home.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition].log

    def _hidden(self, partition: TopicPartition) -> set[int]:
        log = self._log(partition)
        committed = self.engine.config["isolation.level"] == "read_committed"
        return set() if log is None else log.hidden(read_committed=committed)

    def _disturbed(self, partition: TopicPartition) -> bool:
        if self.kept_of not in (None, self._home):
            return True  # the stored positions belong to another cluster
        return any(disturbed(c, *partition) for c in (*self.stage.left, self.stage.cluster))

    def _start(self, partition: TopicPartition) -> int:
        log = self._log(partition)
        return 0 if log is None else log.start_offset

    def probe(self) -> None:
        """Poll until the ends of all partitions are reached.

        This is a loop because polls may end at once: with many buffered records, recursion would
        overflow the stack.
        """
        self._more = self._in_turn = True
        while self._more:
            self._more = False
            self.poll(1.0, self.go_on)
        self._in_turn = False

    def go_on(self) -> None:
        """Poll again while records are left, or may still be sent by a slow producer."""
        if (self.patient or not self.finished()) and self.engine.ended is None:
            if self._in_turn:
                self._more = True
            else:
                self.probe()

    def finished(self) -> bool:
        """Return whether every committed record was read."""
        topic = self.cluster.topics.get(TOPIC)
        return topic is not None and all(
            p.partition < len(topic.partitions)
            and self.engine.subscription.get(p).position
            == topic.partitions[p.partition].log.high_watermark
            for p in self.partitions
        )

    def verify(self) -> None:
        """Compare the returned records with the log.

        No returned record may be lost later, and all records of the log must be returned, including
        those of a recreated topic.
        """
        mine = self.engine.metadata.cluster_id
        if self.engine.ended is None and self.cluster.cluster_id == mine:
            self._all_seen()
        for cluster in (*self.stage.left, self.stage.cluster):
            if cluster.cluster_id == mine:
                stored = {
                    (p.partition, row[0]): row[4]
                    for p in self.partitions
                    if TOPIC in cluster.topics
                    and p.partition < len(cluster.topics[TOPIC].partitions)
                    for row in cluster.records(TOPIC, p.partition)
                }
                for place, value in self.read.items():
                    if disturbed(cluster, TOPIC, place[0]):
                        continue
                    if place not in stored or stored[place] != value:
                        raise Violation(
                            f"{self.name} read {value!r} at {place}, where "
                            f"{stored.get(place)!r} is stored"
                        )

    def _all_seen(self) -> None:
        committed = self.engine.config["isolation.level"] == "read_committed"
        for partition in self.cluster.topics[TOPIC].partitions:
            log = partition.log
            for row in log.visible_rows() if committed else log.rows():
                if row[0] >= log.start_offset and row[4] not in self.seen:
                    raise Violation(
                        f"{self.name} never received {row[4]!r}, {TOPIC}-{partition.index} at "
                        f"{row[0]}"
                    )
