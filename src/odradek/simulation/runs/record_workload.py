"""Clients of a schedule that write and read records, and the books that they keep.

In: a client of a schedule, a stage. Out: calls on producer and consumer engines as the facades make
them; at the end what was acknowledged and what was read, held against the logs. Must not: cause
faults.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.early_records import EarlyRecord
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.record import estimate_record_size
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.disturbances import disturbed, size
from odradek.simulation.checkers.call_checkers import check_limits
from odradek.simulation.checkers.invariants import (
    PositionsGoForward,
    RecordLedger,
    RecordsOnce,
    Violation,
)
from odradek.simulation.runs.workload import TOPIC, Driver


class ProducerDriver(Driver):
    """Sends records with values that are never the same, and keeps the ledger."""

    engine: ProducerEngine

    def build(self, config: Config) -> ProducerEngine:
        """The producer's engine."""
        self.ledger = RecordLedger()
        self.serial = 0
        self.unsettled: set[bytes] = set()
        self.reached: dict[TopicPartition, None] = {}
        """Partitions that took a record after the faults."""
        return ProducerEngine(config, self.host.rng(), self.host.lock)

    def operate(self) -> None:
        """Send one or some records."""
        volume = self.client.volume
        for _ in range(self.rng.choice((1, volume // 2, volume) if volume else (1, 1, 2, 5, 12))):
            self.send(self.rng.randrange(1 << 16))
        if self.rng.random() < 0.2:
            self.call(self.engine.flush, self.rng.uniform(0.0, 5.0), "flush")

    def send(self, number: int) -> None:
        """To one of the topic's partitions."""
        there = self.cluster.topics.get(TOPIC)
        self.put(TopicPartition(TOPIC, number % (len(there.partitions) if there else 1)))

    def put(self, partition: TopicPartition) -> None:
        """As `Producer.send` does: into a batch, or to those that wait for their topic."""
        found = self.engine.early.topic(TOPIC)
        if found is not None and partition.partition < len(found.partitions):
            self.append(partition)
        elif self.engine.ended is None:
            self.early(partition)

    def early(self, partition: TopicPartition) -> None:
        """To those that wait for metadata, unless `buffer.memory` is full."""
        value, size, at = self.made()
        patience = self.config["max.block.ms"]
        record = EarlyRecord(
            TOPIC, (None, value, (), at), partition.partition, size, self.world.now, patience
        )
        taken = self.engine.early.add(record, turn=False)
        if taken:
            self.note(partition, record, 0, value)
            self.host.wake()
        elif taken is False:  # it has just become known
            self.engine.early.withdraw(record)
            self.append(partition)

    def made(self) -> tuple[bytes, int, int]:
        """A value that no other record has, the size of its record, and its time."""
        value = b"%s/%d" % (self.name.encode(), self.serial)
        size = estimate_record_size(None, value, ())
        return value, size, int(self.world.wall_clock() * 1000)

    def note(
        self, partition: TopicPartition, batch: ProducerBatch, index: int, value: bytes
    ) -> None:
        """A record was taken: its outcome has to come in time."""
        self.serial += 1
        self.ledger.sent(partition, value)
        self.unsettled.add(value)
        self.calls.begin(batch.done, f"{self.name}: batch of {partition}", batch.deadline)
        batch.done.when_done(lambda _: self.settled(batch, index, value))
        check_limits(self.engine, len(self.calls))

    def append(self, partition: TopicPartition, owner: object = None) -> None:
        """Into the partition's open batch, once there is room."""
        engine = self.engine
        if engine.ended is not None:
            return
        value, size, at = self.made()
        place = engine.accumulator.append(
            partition, (None, value, (), at), size, self.world.now, owner
        )
        if place is None:
            owner = object()
            self.call(
                lambda d: engine.line.room(owner, size, d),
                self.config["max.block.ms"],
                "room in buffer.memory",
                lambda room: self.append(partition, owner) if room else None,
            )
            return
        self.note(partition, place.batch, place.index, value)
        if place.wake:
            self.host.wake()

    def settled(self, batch: ProducerBatch, index: int, value: bytes) -> None:
        """The record's future has its outcome, unless its batch was split: then a part's is it."""
        first, batch = batch, batch.find(index)[0]
        if not batch.done.done:
            self.calls.begin(batch.done, f"{self.name}: batch of {batch.partition}", batch.deadline)
            batch.done.when_done(lambda _: self.settled(first, index, value))
            return
        self.unsettled.remove(value)
        if batch.done.error is None:
            if self.probed_at is not None and batch.created_at >= self.probed_at:
                self.reached[batch.partition] = None
            offset = first.metadata(index, 0).offset
            if offset >= 0:
                self.ledger.acknowledged(batch.partition, value, offset)
            else:  # a duplicate that the broker couldn't place any more: it must be there
                self.ledger.acknowledged(batch.partition, value, None)
        else:
            self.judged(batch.done.error, f"record {value!r}")

    def probe(self) -> None:
        """One record for each partition, once those before have their outcomes."""
        for partition in range(len(self.cluster.topics[TOPIC].partitions)):
            self.put(TopicPartition(TOPIC, partition))

    def finished(self) -> bool:
        """All have an outcome, and every partition took one since the faults ended."""
        count = len(self.cluster.topics[TOPIC].partitions)
        return not self.unsettled and not len(self.calls) and len(self.reached) == count

    def verify(self) -> None:
        """The ledger against the log of the cluster that the client belongs to."""
        mine = self.engine.metadata.cluster_id
        for cluster in (*self.stage.left, self.stage.cluster, *self.stage.bystanders):
            if cluster.cluster_id == mine:
                self.ledger.verify(cluster)
            elif mine is not None and TOPIC in cluster.topics:  # (it may be deleted there)
                self._none_in(cluster)

    def _none_in(self, cluster: SimulatedCluster) -> None:
        """R-RB-5: another cluster has none of the client's records."""
        mark = self.name.encode() + b"/"
        for partition in range(len(cluster.topics[TOPIC].partitions)):
            for row in cluster.records(TOPIC, partition):
                if row[4] is not None and row[4].startswith(mark):
                    raise Violation(f"{cluster.cluster_id} holds {row[4]!r} of {self.name}")


class ConsumerDriver(Driver):
    """Reads all partitions from the beginning; each record must be the next one."""

    engine: ConsumerEngine

    def build(self, config: Config) -> ConsumerEngine:
        """The consumer's engine."""
        self.once = RecordsOnce()
        self.forward = PositionsGoForward()
        self.read: dict[tuple[int, int], bytes | None] = {}
        self.polling = False
        return ConsumerEngine(config, self.host.rng(), wall_clock=self.host.wall_clock)

    def begin(self) -> None:
        """Assign every partition of the topic."""
        count = size(self.cluster, TOPIC)
        self.partitions = [TopicPartition(TOPIC, p) for p in range(count)]
        self.engine.assign(self.partitions, None)

    def operate(self) -> None:
        """Poll, or seek back a little."""
        if self.rng.random() < 0.1 and not self.polling:
            self.seek()
        if self.patient:
            self.poll(1.0, self.go_on)
        else:
            self.poll(self.rng.uniform(0.0, 2.0))

    def seek(self) -> None:
        """Read some records again."""
        partition = self.rng.choice(self.partitions)
        position = self.engine.subscription.get(partition).position
        if position:
            offset = self.rng.randrange(position + 1)
            self.engine.subscription.seek(partition, offset)
            self.once.sought(partition, offset)
            self.forward.sought(partition, offset)

    def poll(self, timeout: float, then: Callable[[], None] | None = None) -> None:
        """One poll, unless one is under way."""
        if not self.polling:
            self.polling = True
            deadline = self.world.now + timeout
            completion = self.engine.start(self.engine.data(deadline))
            self.calls.begin(completion, f"{self.name}: poll", deadline)
            completion.when_done(lambda _: self._taken_later(then))
            self.host.wake()

    def _taken_later(self, then: Callable[[], None] | None) -> None:
        self.world.after(0.0, lambda: self.take(then))

    def take(self, then: Callable[[], None] | None) -> None:
        """What the caller of `poll` gets."""
        self.polling = False
        if self.engine.ended is not None:
            return
        records = []
        if self.engine.delivery.ready:
            try:
                records = self.engine.delivery.records(self.rng.randrange(1, 30), self.world.now)
            except KafkaError:  # an error of a partition goes to the caller; it may poll again
                self.engine.delivery.take_back()
                records = []
            self.engine.delivery.handed_over()
        hidden = {p: self._hidden(p) for p in self.partitions} if records else {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._excuse(partition, record.offset)
            self.once.hidden(partition, hidden[partition])
            self.once.read(partition, record.offset)
            self.forward.moved(partition, record.offset + 1)
            if not self._disturbed(partition):
                self.read[record.partition, record.offset] = record.value
        for partition in self.partitions:
            position = self.engine.subscription.get(partition).position
            if position is not None:
                self._excuse(partition, position, forward=False)
                self.forward.moved(partition, position)
        check_limits(self.engine, len(self.calls))
        self.host.wake()
        if then is not None:
            then()

    def served(self) -> None:
        """Polls end without a record, too: what counts is that all are read."""
        if self.done and not self.finished():
            where = {p.partition: self.engine.subscription.get(p).position for p in self.partitions}
            raise Violation(f"{self.world.now}: {self.name} reads up to {where} for ever")

    def _excuse(self, partition: TopicPartition, offset: int, *, forward: bool = True) -> None:
        """A log that was cut or made anew gives offsets twice; what was deleted isn't read."""
        if self._disturbed(partition):
            self.once.sought(partition, offset)
            self.forward.sought(partition, offset)
        elif forward and offset <= self._start(partition):
            self.once.skipped(partition, offset)

    @property
    def _home(self) -> SimulatedCluster:
        """The cluster that the client knows: what it had asked for may come after a foreign one."""
        mine = self.engine.metadata.cluster_id
        known = [c for c in (*self.stage.left, self.stage.cluster) if c.cluster_id == mine]
        return known[-1] if known else self.cluster

    def _hidden(self, partition: TopicPartition) -> set[int]:
        topic = self._home.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return set()
        committed = self.engine.config["isolation.level"] == "read_committed"
        return topic.partitions[partition.partition].log.hidden(read_committed=committed)

    def _disturbed(self, partition: TopicPartition) -> bool:
        return any(disturbed(c, *partition) for c in (*self.stage.left, self.stage.cluster))

    def _start(self, partition: TopicPartition) -> int:
        topic = self._home.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return 0
        return topic.partitions[partition.partition].log.start_offset

    def probe(self) -> None:
        """Poll until the ends are reached."""
        self.poll(1.0, self.go_on)

    def go_on(self) -> None:
        """Poll again while something is left, or may come from a producer that is served late."""
        if (self.patient or not self.finished()) and self.engine.ended is None:
            self.probe()

    def finished(self) -> bool:
        """Every committed record was read."""
        topic = self.cluster.topics.get(TOPIC)
        return topic is not None and all(
            p.partition < len(topic.partitions)
            and self.engine.subscription.get(p).position
            == topic.partitions[p.partition].log.high_watermark
            for p in self.partitions
        )

    def verify(self) -> None:
        """What was handed out is what the log holds: nothing that was lost later was read."""
        mine = self.engine.metadata.cluster_id
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
