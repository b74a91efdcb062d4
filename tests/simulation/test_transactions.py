"""Read-process-write in virtual time, during faults of brokers and members.

Chains of a group consumer and a transactional producer each turn one topic into another, while
brokers crash, freeze, are cut off, resign and move, members leave and join, and producers hang in
the middle of a transaction and resume later. In the end all input must be processed, and the
history is checked as Elle does: no record lost or duplicated, each transaction atomic.

`ODRADEK_CHAIN_SEEDS=2000` runs more seeds, `ODRADEK_CHAIN_FIRST=100` starts with another.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.soak.chain import Chain, Tally
from tests.soak.ways import AnyConsumer, AnyProducer, HastyConsumer, finished
from tests.volume import WHOLE

from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.record.columns import Row
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker_faults import late_packets, late_requests
from odradek.simulation.checkers.history import CallResult, History, Operation
from odradek.simulation.checkers.history_check import Kind, check
from odradek.simulation.faults.response_faults import TRANSACTION_APIS
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.world.client_host import ClientHost
from odradek.simulation.world.link import Mode
from odradek.testing import VirtualLoop

PARTITIONS = 3
SEEDS = int(os.environ.get("ODRADEK_CHAIN_SEEDS", 480 if WHOLE else 6))
FIRST = int(os.environ.get("ODRADEK_CHAIN_FIRST", "0"))
GROUPS = 4 if WHOLE else 1
"""Number of tests that share the seeds."""
TROUBLED = 12.0
"""Virtual seconds with faults."""
WORKED_OFF = 400.0
"""Virtual seconds after the last fault until all input must be processed."""


class Scene:
    """One seed: a cluster, a source, some members, and their faults."""

    thinned = 1
    """Only one in this number of seeds is run, because each takes long."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, 3)
        self.cluster.transactions.finalize(rng.choice([0, 1, 2, 2]))
        self.cluster.min_insync_replicas = rng.choice([1, 2])
        self.cluster.transactions.marker_delay = rng.choice([0.001, 0.02, 0.5])
        self.mode: Mode = rng.choice(["bytes", "messages", "messages"])
        for topic in ("in", "out"):
            self.cluster.create_topic(topic, PARTITIONS)
        self.history, self.tally = History(lambda: self.world.now), Tally()
        self.protocol = rng.choice(["classic", "consumer"])
        self.static = rng.random() < 0.2
        self.assignor = rng.choice(["range", "roundrobin", "sticky", "cooperative-sticky"])
        self.limits: dict[str, Any] = {"bootstrap.servers": self.cluster.bootstrap_servers}
        if rng.random() < 0.5:
            self.limits["request.timeout.ms"] = 4000
        self.members = [self.member(n) for n in range(rng.choice([1, 2, 3]))]
        self.source = on_host(
            self.host("source"), Producer, {**self.limits, "delivery.timeout.ms": 600_000}
        )
        self.sent: list[tuple[Operation, RecordFuture]] = []

    def member(self, number: int) -> Chain:
        """Run a chain with its own clients."""
        name, rng = f"chain-{number}", self.rng
        reads: dict[str, Any] = {
            **self.limits,
            "group.id": "g",
            "group.protocol": self.protocol,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if self.protocol == "classic":
            reads["partition.assignment.strategy"] = self.assignor
            reads["session.timeout.ms"] = 10_000
        if self.static:
            reads["group.instance.id"] = name
        writes = {
            **self.limits,
            "transactional.id": name,
            "transaction.timeout.ms": rng.choice([5_000, 30_000]),
            "max.block.ms": rng.choice([5_000, 20_000]),
            "linger.ms": rng.choice([0, 5]),
            "compression.type": rng.choice(["none", "lz4"]),
        }
        return Chain(
            name,
            "g",
            self.history,
            lambda: on_host(self.host(f"{name}/consumer"), self.consumer, reads),
            lambda: on_host(self.host(f"{name}/producer"), self.producer, writes),
            source="in",
            target="out",
            tally=self.tally,
        )

    def consumer(self, settings: dict[str, Any]) -> AnyConsumer:
        """Create a member's consumer."""
        return Consumer(settings)

    def producer(self, settings: dict[str, Any]) -> AnyProducer:
        """Create a member's producer."""
        return Producer(settings)

    def carry_out(self, step: Coroutine[Any, Any, Any]) -> None:
        """Run a step of a member to its end."""
        finished(step)

    def host(self, name: str) -> ClientHost:
        """Return a client's I/O host; exchanging messages instead of bytes is twice as fast."""
        return self.world.host(name, mode=self.mode, traced=False)

    # Faults

    def trouble(self) -> None:
        """Cause one fault, which ends by itself."""
        world, cluster, rng = self.world, self.cluster, self.rng
        i = rng.choice(list(cluster.brokers))
        lasts = rng.choice([0.05, 0.5, 3.0, 8.0])
        topic = rng.choice(["in", "out", "__transaction_state", "__consumer_offsets"])

        def for_a_while(begin: Callable[[int], None]) -> None:
            begin(i)
            world.after(lasts, lambda: cluster.repair(i))

        def hand_over() -> None:
            if topic in cluster.topics:
                for partition in range(len(cluster.topics[topic].partitions)):
                    cluster.hand_over(topic, partition)

        def cut() -> None:
            cluster.partition(i, rng.choice(list(world.hosts)))
            world.after(lasts, lambda: cluster.repair(i))

        verbs: list[Callable[[], object]] = [
            lambda: cluster.bounce(i, after=lasts),
            lambda: cluster.bounce(i, after=lasts),
            lambda: for_a_while(cluster.pause),
            lambda: for_a_while(cluster.blackhole),
            lambda: for_a_while(cluster.go_silent),
            lambda: for_a_while(cluster.accept_then_reset),
            lambda: for_a_while(cluster.stale_metadata),
            lambda: for_a_while(lambda b: cluster.throttle(b, 0.3)),
            lambda: for_a_while(lambda b: cluster.slow_handshake(b, 2.0)),
            lambda: cluster.half_open(i),
            lambda: late_packets(cluster, i, min(lasts, 3.0)),
            lambda: late_requests(cluster, rng.choice(TRANSACTION_APIS), min(lasts, 3.0), 2),
            lambda: late_requests(cluster, rng.choice(TRANSACTION_APIS), min(lasts, 3.0), 2),
            hand_over,
            hand_over,
            cut,
            lambda: cluster.move(after=lasts),
        ]
        rng.choice(verbs)()

    def upgrade(self) -> None:
        """Enable KIP-890 in the cluster."""
        self.cluster.transactions.finalize(2)

    def send(self) -> None:
        """Send some records to the chains."""
        for _ in range(self.rng.randrange(6)):
            partition = self.rng.randrange(PARTITIONS)
            value = f"i/{len(self.sent)}"
            made = self.history.sent("source", TopicPartition("in", partition), value)
            try:
                future = self.source.send("in", value.encode(), partition=partition)
            except KafkaError:  # the send timed out before metadata of the topic arrived
                made.ended(CallResult.FAIL)
            else:
                self.sent.append((made, future))

    def play(self) -> None:
        """Run the seed and its checks; raise violations."""
        rng, world = self.rng, self.world
        for _ in range(rng.choice([1, 2, 3, 4, 8])):
            world.at(rng.uniform(0.5, TROUBLED), self.trouble)
        if rng.random() < 0.3:
            world.at(rng.uniform(0.0, TROUBLED), self.upgrade)
        while world.now < TROUBLED:
            self.send()
            member = rng.choice(self.members)
            if member.zombie is not None and rng.random() < 0.4:
                self.carry_out(member.wake_zombie())
            elif rng.random() < 0.03:
                self.carry_out(member.leave_group())
            else:
                leave = member.zombie is None and rng.random() < 0.04
                regret = not leave and rng.random() < 0.05
                self.carry_out(member.step(rng.choice([0.0, 0.1, 1.0]), leave=leave, regret=regret))
            world.advance(rng.uniform(0.0, 0.5))
        self.cluster.heal()
        self.work_off()
        self.judge()

    def work_off(self) -> None:
        """Wait after the last fault until all input is processed."""
        end = self.world.now + WORKED_OFF
        self.source.flush(WORKED_OFF)
        for made, future in self.sent:
            made.acknowledged(future.result(0).offset)
        while self.left():
            assert self.world.now < end, f"not worked off: {self.left()}, {self.tally}"
            for member in self.members:
                self.carry_out(member.wake_zombie())
                self.carry_out(member.step(0.2))
            self.world.advance(0.1)
        for member in self.members:
            self.carry_out(member.close())
        self.source.close()
        self.world.advance(self.cluster.transactions.longest)  # until open transactions time out

    def left(self) -> dict[int, tuple[int, int]]:
        """Return the committed offset and the log end offset by partition."""
        found = {}
        for partition in range(PARTITIONS):
            end = self.cluster.log("in", partition).high_watermark
            committed = self.committed().get(TopicPartition("in", partition), 0)
            if committed < end:
                found[partition] = (committed, end)
        return found

    def committed(self) -> dict[TopicPartition, int]:
        """Return the group's offsets in its coordinator."""
        for shard in self.cluster.groups.shards():
            if "g" in shard.offsets:
                return {p: c.offset for p, c in shard.offsets["g"].stable.items()}
        return {}

    def read(self, reader: str, topic: str, rows: Callable[[PartitionLog], list[Row]]) -> None:
        """Read all records of a topic, and add them to the history."""
        for index in range(PARTITIONS):
            log = self.cluster.log(topic, index)
            assert log.transactions.open == {}
            seen = [(row[0], row[4]) for row in rows(log)]
            self.history.read(reader, TopicPartition(topic, index), seen, complete=True)

    def judge(self) -> None:
        """Read all topics, and check that the history is possible."""
        for topic in ("in", "out"):
            self.read("committed", topic, PartitionLog.visible_rows)
        self.history.group_ends("g", self.committed().items())
        anomalies = check(self.history)
        assert anomalies == [], "\n".join(map(str, anomalies[:10]))
        assert self.tally.errors["ClientBrokenError"] == 0
        assert not self.world.hot_loops


class LoopScene(Scene):
    """A scene with asyncio clients in virtual time, some of whose polls are cancelled."""

    thinned = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.hasty = random.Random(-seed)
        self._loop = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.world))

    def consumer(self, settings: dict[str, Any]) -> AnyConsumer:
        """Create an asyncio consumer."""
        return HastyConsumer(settings).hurried(self.hasty, self.tally.counts)

    def producer(self, settings: dict[str, Any]) -> AnyProducer:
        """Create an asyncio producer."""
        return AsyncProducer(settings)

    def carry_out(self, step: Coroutine[Any, Any, Any]) -> None:
        """Run the event loop until the step is done."""
        self._loop.run(step)

    def play(self) -> None:
        """Run the seed and its checks in the event loop."""
        with self._loop:
            super().play()


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("made", [Scene, LoopScene])
def test_chains_are_exactly_once_during_faults(made: type[Scene], group: int) -> None:
    together: Counter[str] = Counter()
    for seed in range(FIRST + group, FIRST + SEEDS, GROUPS * made.thinned):
        scene = made(seed)
        try:
            scene.play()
        except Exception as error:
            error.add_note(f"seed {seed}, {scene.protocol}, {scene.cluster.transactions.version}")
            raise
        together.update(scene.tally.counts)
    seen = ["committed", "aborted", "zombies", "fenced"]
    seen += ["polls cancelled"] if made is LoopScene else []
    assert min(together[what] for what in seen) > 0, together


def test_a_reader_of_aborted_records_is_detected() -> None:
    """The check must fail for a reader of the same logs without read_committed."""
    found: set[Kind] = set()
    for seed in range(5 * GROUPS):
        scene = Scene(seed)
        scene.play()
        if scene.tally.counts["aborted"]:
            scene.read("uncommitted", "out", PartitionLog.rows)
            found = {anomaly.kind for anomaly in check(scene.history)}
            if Kind.ABORTED_READ in found:
                break
    assert Kind.ABORTED_READ in found
