"""Workers whose topic is recreated, or whose partitions are empty: random scenes.

`ODRADEK_WORKER_SEEDS=1000 pytest tests/simulation/test_workers_identities.py` runs more of them.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from tests.volume import part

from odradek import AsyncConsumer, AsyncWorkers, ConsumerRecord
from odradek.simulation.brokers.broker_faults import recreate_topic
from odradek.testing import KafkaSimulation

SEEDS = int(os.environ.get("ODRADEK_WORKER_SEEDS", part(40, 2)))
PARTITIONS = 3
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
    "consumer": {"group.protocol": "consumer"},
}


class Scene:
    """A group of workers, and the values of the records that they have processed."""

    def __init__(self, simulation: KafkaSimulation, chance: random.Random, **given: Any) -> None:
        self.simulation, self.chance = simulation, chance
        self.config = {
            "group.id": "g",
            "bootstrap.servers": simulation.bootstrap_servers,
            "enable.auto.commit": False,
            **given,
        }
        self.worked: set[bytes] = set()
        self.sent = 0
        simulation.create_topic("in", partitions=PARTITIONS)

    async def work(self, record: ConsumerRecord) -> None:
        await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5, 3.0)))
        assert record.value is not None
        self.worked.add(record.value)

    async def run(self, seconds: float, *, killed: bool = False) -> None:
        """Start workers, let them work for this time, and close or kill them."""
        consumer = AsyncConsumer(self.config)
        workers = AsyncWorkers(consumer, self.work, concurrency=8, drain_timeout=2.0)
        task = asyncio.create_task(workers.run("in"))
        await asyncio.sleep(seconds)
        if killed:
            host: Any = consumer._host
            host.close(0.0)
            task.cancel()
            await asyncio.wait([task])
            return
        workers.stop()
        await task
        await consumer.close()

    def send(self, partition: int, count: int) -> None:
        values = [b"%d" % n for n in range(self.sent, self.sent + count)]
        self.sent += count
        self.simulation.produce("in", values, partition=partition)

    def missing(self) -> list[tuple[int, int]]:
        """Return partitions and offsets of records that no worker has processed."""
        return [
            (partition, row[0])
            for partition in range(PARTITIONS)
            for row in self.simulation.records("in", partition)
            if row[4] not in self.worked
        ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_record_of_a_recreated_topic_is_processed(protocol: str) -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        with KafkaSimulation(seed=seed) as simulation:
            config = {**PROTOCOLS[protocol], "auto.offset.reset": "earliest"}
            scene = Scene(simulation, chance, **config)

            async def main(scene: Scene = scene, chance: random.Random = chance) -> None:
                for partition in range(PARTITIONS):
                    scene.send(partition, chance.randrange(20))
                members = [
                    scene.run(chance.uniform(25.0, 40.0)) for _ in range(chance.choice((1, 2)))
                ]
                running = [asyncio.create_task(one) for one in members]
                await asyncio.sleep(chance.uniform(0.5, 6.0))
                after = chance.choice((0.0, 0.1, 1.0, 4.0))
                recreate_topic(scene.simulation.cluster, "in", after=after)
                await asyncio.sleep(after + chance.uniform(0.0, 3.0))
                for partition in range(PARTITIONS):
                    scene.send(partition, 30)
                await asyncio.gather(*running)
                for _ in range(5):  # the next worker starts at the committed offset
                    if scene.missing():
                        await scene.run(20.0)

            simulation.run(main())
            assert scene.missing() == [], f"seed {seed}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_written_to_an_empty_partition_without_workers_are_processed(protocol: str) -> None:
    """With `latest`, workers start at the ends of partitions; later records must not be skipped."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        with KafkaSimulation(seed=seed) as simulation:
            config = {**PROTOCOLS[protocol], "auto.offset.reset": "latest"}
            scene = Scene(simulation, chance, **config)

            async def main(scene: Scene = scene, chance: random.Random = chance) -> None:
                killed = chance.random() < 0.3
                first = asyncio.create_task(scene.run(20.0, killed=killed))
                await asyncio.sleep(12.0)
                for partition in range(PARTITIONS):
                    if chance.random() < 0.5:
                        scene.send(partition, chance.randrange(5))
                await first
                for partition in range(PARTITIONS):
                    scene.send(partition, 10)
                for _ in range(5):
                    if scene.missing():
                        await scene.run(70.0 if killed else 20.0)

            simulation.run(main())
            assert scene.missing() == [], f"seed {seed}"
