"""Clients of a schedule that write and read records, and the books that they keep.

In: a client of a schedule, a stage. Out: calls on producer and consumer engines as the facades make
them; at the end what was acknowledged and what was read, held against the logs. Must not: cause
faults.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.record import estimate_record_size
from odradek.simulation.call_checkers import check_limits
from odradek.simulation.checkers import (
    PositionsGoForward,
    RecordLedger,
    RecordsOnce,
    Violation,
)
from odradek.simulation.cluster import SimulatedCluster
from odradek.simulation.workload import TOPIC, Driver


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
        for _ in range(self.rng.choice((1, 1, 2, 5, 12))):
            self.send(self.rng.randrange(1 << 16))
        if self.rng.random() < 0.2:
            self.call(self.engine.flush, self.rng.uniform(0.0, 5.0), "flush")

    def send(self, number: int) -> None:
        """As `Producer.send` does: metadata first, then room, then into the batch."""
        snapshot = self.engine.metadata.snapshot
        found = snapshot.topic(TOPIC) if snapshot is not None else None
        if found is not None and found.partitions:
            self.append(TopicPartition(TOPIC, number % len(found.partitions)))
            return
        timeout = min(5.0, self.config["max.block.ms"])
        self.call(
            lambda d: self.engine.topic(TOPIC, d),
            timeout,
            "metadata of the topic",
            lambda topic: self.append(TopicPartition(TOPIC, number % len(topic.partitions))),
        )

    def append(self, partition: TopicPartition) -> None:
        """Into the partition's open batch, once there is room."""
        engine = self.engine
        if engine.ended is not None:
            return
        value = b"%s/%d" % (self.name.encode(), self.serial)
        size = estimate_record_size(None, value, ())
        at = int(self.world.wall_clock() * 1000)
        place = engine.accumulator.append(partition, None, value, (), at, size, self.world.now)
        if place is None:
            self.call(
                lambda d: engine.room(size, d),
                self.config["max.block.ms"],
                "room in buffer.memory",
                lambda room: self.append(partition) if room else None,
            )
            return
        self.serial += 1
        self.ledger.sent(partition, value)
        self.unsettled.add(value)
        batch = place.batch
        self.calls.begin(batch.done, f"{self.name}: batch of {partition}", batch.deadline)
        batch.done.when_done(lambda _: self.settled(batch, place.index, value))
        check_limits(engine, len(self.calls))
        if place.wake:
            self.host.wake()

    def settled(self, batch: ProducerBatch, index: int, value: bytes) -> None:
        """The record's future has its outcome."""
        self.unsettled.remove(value)
        if batch.done.error is None:
            if self.probed_at is not None and batch.created_at >= self.probed_at:
                self.reached[batch.partition] = None
            offset = batch.metadata(index, 0).offset
            if offset >= 0:
                self.ledger.acknowledged(batch.partition, value, offset)
            else:  # a duplicate that the broker couldn't place any more: it must be there
                self.ledger.acknowledged(batch.partition, value, None)
        elif not isinstance(batch.done.error, KafkaError):
            raise Violation(f"{value!r} ended with {batch.done.error!r}")

    def probe(self) -> None:
        """One record for each partition, once those before have their outcomes."""
        for partition in range(len(self.cluster.topics[TOPIC].partitions)):
            self.append(TopicPartition(TOPIC, partition))

    def finished(self) -> bool:
        """All have an outcome, and every partition took one since the faults ended."""
        count = len(self.cluster.topics[TOPIC].partitions)
        return not self.unsettled and not len(self.calls) and len(self.reached) == count

    def verify(self) -> None:
        """The ledger against the log of the cluster that the client belongs to."""
        mine = self.engine.metadata.cluster_id
        for cluster in (*self.stage.left, self.stage.cluster):
            if cluster.cluster_id == mine:
                self.ledger.verify(cluster)
            elif mine is not None and TOPIC in cluster.topics:
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
        count = len(self.cluster.topics[TOPIC].partitions)
        self.partitions = [TopicPartition(TOPIC, p) for p in range(count)]
        self.engine.assign(self.partitions, None)

    def operate(self) -> None:
        """Poll, or seek back a little."""
        if self.rng.random() < 0.1 and not self.polling:
            self.seek()
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
                records = []
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self.once.read(partition, record.offset)
            self.forward.moved(partition, record.offset + 1)
            self.read[record.partition, record.offset] = record.value
        for partition in self.partitions:
            position = self.engine.subscription.get(partition).position
            if position is not None:
                self.forward.moved(partition, position)
        check_limits(self.engine, len(self.calls))
        self.host.wake()
        if then is not None:
            then()

    def probe(self) -> None:
        """Poll until the ends are reached."""
        self.poll(1.0, self.go_on)

    def go_on(self) -> None:
        """Poll again while something is left."""
        if not self.finished() and self.engine.ended is None:
            self.probe()

    def finished(self) -> bool:
        """Every committed record was read."""
        cluster = self.cluster
        return all(
            self.engine.subscription.get(p).position
            == cluster.log(TOPIC, p.partition).high_watermark
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
                    for row in cluster.records(TOPIC, p.partition)
                }
                for place, value in self.read.items():
                    if place not in stored or stored[place] != value:
                        raise Violation(
                            f"{self.name} read {value!r} at {place}, where "
                            f"{stored.get(place)!r} is stored"
                        )
