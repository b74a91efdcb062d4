"""Leaders that append and refuse, refuse and forget, and packets that come late (R-PR-1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.simulation.produce_script import (
    APPENDED,
    PARTITIONS,
    REFUSED,
    Arrival,
    ProduceScript,
    make,
)

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.record_future import RecordFuture

SCHEDULES = 32
AFTER = (7, 20, 6, 56, 3, -1)
BEFORE = (19, 6, 3, 5, 2, 7, -1, 56)


class Doubt:
    """One schedule from a seed."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.rng = rng = random.Random(seed)
        self.script = ProduceScript(self.rule).install(patch)
        self.world, self.cluster, self.producer = make(
            seed,
            delivery_timeout_ms=rng.choice((3000, 8000, 60000)),
            request_timeout_ms=rng.choice((500, 1500)),
            retries=rng.choice((2, 2**31 - 1, 2**31 - 1)),
            linger_ms=rng.choice((0, 5)),
            batch_size=rng.choice((100, 400, 10000)),
        )
        self.world.change_link(latency=rng.choice((0.0005, 0.02)))
        for partition in range(PARTITIONS):
            self.cluster.log("t", partition).compacted = rng.random() < 0.3
        self.trouble = rng.choice((0.05, 0.3, 0.6))
        self.quiet = False
        self.sent: list[tuple[int, int, RecordFuture]] = []

    def rule(self, arrival: Arrival) -> tuple[str, int] | None:
        rng = self.rng
        if self.quiet or rng.random() > self.trouble:
            return None
        choice = rng.random()
        if choice < 0.5:
            return APPENDED, rng.choice(AFTER)
        if choice < 0.8:
            return REFUSED, rng.choice(BEFORE)
        # Its connection breaks; perhaps the bytes are read nevertheless, long after.
        broker = arrival.broker
        self.world.after(0.0, broker.disconnect_all)
        if rng.random() < 0.7:
            self.world.after(rng.uniform(0.01, 12.0), lambda: self.script.arrive_late(arrival))
        return REFUSED, -1

    def run(self) -> None:
        rng, cluster = self.rng, self.cluster
        acts: list[Callable[[], object]] = [
            lambda: cluster.hand_over("t", rng.randrange(PARTITIONS)),
            lambda: cluster.log("t", rng.randrange(PARTITIONS)).started_anew(),
            lambda: setattr(cluster, "min_insync_replicas", rng.choice((1, 4))),
        ]
        for _ in range(60):
            if rng.random() < 0.1:
                rng.choice(acts)()
            for _ in range(rng.randrange(12)):
                n = len(self.sent)
                partition = rng.randrange(PARTITIONS)
                key = None if rng.random() < 0.1 else b"k"
                try:
                    future = self.producer.send(
                        "t", b"%d/" % n + bytes(rng.randrange(150)), key, partition=partition
                    )
                except KafkaTimeoutError:
                    continue
                self.sent.append((n, partition, future))
                self.world.advance(rng.choice((0.0, 0.005, 0.05)))
            self.world.advance(rng.uniform(0, 0.3))
        self.quiet = True
        cluster.min_insync_replicas = 1
        self.world.advance(130.0)

    def check(self) -> None:
        written = {p: self.written(p) for p in range(PARTITIONS)}
        for n, partition, future in self.sent:
            assert future.done(), f"record {n} has no outcome"
            error = future.exception(timeout=0)
            if error is not None:
                assert isinstance(error, KafkaError)
                continue
            offset = future.result(timeout=0).offset
            assert n in written[partition], f"{n} is lost"
            assert offset in (-1, written[partition][n]), f"{n} is elsewhere"
        engine = self.producer._engine
        assert engine.ended is None
        assert engine.accumulator.used == 0
        assert not engine.sender.queues
        for partition in range(PARTITIONS):
            self.producer.send("t", b"99999999/", b"k", partition=partition).result(timeout=10)

    def written(self, partition: int) -> dict[int, int]:
        rows = self.cluster.records("t", partition)
        found = [(int(bytes(row[4] or b"").split(b"/")[0]), row[0]) for row in rows]
        doubled = [n for n, count in Counter(n for n, _ in found).items() if count > 1]
        assert not doubled, f"{TopicPartition('t', partition)}: written twice: {doubled}"
        assert found == sorted(found), f"{TopicPartition('t', partition)}: out of order"
        return dict(found)


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_out_of_order(part: int) -> None:
    quarter = SCHEDULES // 4
    for seed in range(part * quarter, (part + 1) * quarter):
        with pytest.MonkeyPatch.context() as patch:
            one = Doubt(seed, patch)
            one.run()
            try:
                one.check()
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
