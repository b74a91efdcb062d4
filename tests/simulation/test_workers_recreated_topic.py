"""Workers whose topic is recreated while a worker processes a record (R-ID-3)."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from odradek import AsyncConsumer, AsyncWorkers, ConsumerRecord
from odradek.testing import KafkaSimulation


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("gone", [0.0, 4.0])
@pytest.mark.parametrize("busy", [2.0, 12.0])
def test_each_record_of_the_new_topic_is_processed(
    kafka_simulation: KafkaSimulation,
    protocol: Literal["classic", "consumer"],
    gone: float,
    busy: float,
) -> None:
    """`busy`: seconds for which the old record is processed after the topic was created again."""
    simulation, done = kafka_simulation, []
    simulation.create_topic("t", partitions=1)
    simulation.produce("t", [b"old %d" % n for n in range(9)], partition=0)
    held = asyncio.Event()

    async def work(record: ConsumerRecord) -> None:
        if record.value == b"old 8":
            await held.wait()
        done.append(record.value)

    async def main() -> None:
        given: dict[str, Any] = {
            "bootstrap.servers": simulation.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        async with AsyncConsumer(given) as consumer:
            workers = AsyncWorkers(consumer, work, concurrency=4, commit_interval=1.0)
            run = asyncio.create_task(workers.run("t"))
            while len(done) < 8:
                await asyncio.sleep(0.1)
            simulation.cluster.delete_topic("t")
            await asyncio.sleep(gone)
            simulation.create_topic("t", partitions=1)
            simulation.produce("t", [b"new %d" % n for n in range(30)], partition=0)
            await asyncio.sleep(busy)
            held.set()
            await asyncio.sleep(30)
            workers.stop()
            await run

    simulation.run(main())
    new = [value for value in done if value is not None and value.startswith(b"new")]
    assert sorted(new, key=lambda v: int(v[4:])) == [b"new %d" % n for n in range(30)]
    found = simulation.admin().list_group_offsets("g")["g"]
    assert [at.offset for at in found.values()] == [30]
