"""How many functions of ours each record costs through the modules in other clients' places.

Counted exactly, as in `tests/unit/api/test_python_calls.py`, whose counter this is; futures of
asyncio's own and what the program itself calls don't count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.unit.api.test_python_calls import counted

from odradek.common.types import FREE_THREADS
from odradek.compat import aiokafka, confluent_kafka
from odradek.testing import KafkaSimulation

N = 100
TWO_LOCKS = 3 if FREE_THREADS else 0
"""A record of a loop takes them where there is no GIL."""


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=3, brokers=1) as simulation:
        simulation.create_topic("t", partitions=1)
        yield simulation


def each(action: Callable[[], object]) -> int:
    """Functions for each of `N` records; fewer than `N` are about all of them together, or about
    clients of other tests that the garbage collector ends.
    """
    return counted(action) // N


def confluent_consumer(simulation: KafkaSimulation) -> Any:
    simulation.produce("t", [b"%d" % n for n in range(6 * N)])
    settings = {"bootstrap.servers": simulation.bootstrap_servers, "group.id": "g"}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0)])
    while consumer.poll(1.0) is None:
        pass
    return consumer


def test_confluent_kafka_produces(simulation: KafkaSimulation) -> None:
    settings = {"bootstrap.servers": simulation.bootstrap_servers, "linger.ms": 1000}
    producer = confluent_kafka.Producer({**settings, "partitioner": "murmur2_random"})
    told: list[object] = []
    on_delivery = lambda _, message: told.append(message)  # noqa: E731
    producer.produce("t", b"-", b"k", on_delivery=on_delivery)
    producer.flush(10)
    producer.produce("t", b"-", b"k", on_delivery=on_delivery)

    def produce() -> None:
        for _ in range(N):
            producer.produce("t", b"-", b"k", on_delivery=on_delivery)

    # produce, its room in the queue, send, the place, and the batch's reports
    assert each(produce) <= 5
    producer._producer.flush()
    # each report's message; the program's own function isn't counted
    assert each(lambda: producer.poll(1)) <= 1
    assert len(told) == N + 2


def test_confluent_kafka_consumes(simulation: KafkaSimulation) -> None:
    consumer = confluent_consumer(simulation)

    def poll() -> None:
        for _ in range(N):
            assert consumer.poll(1.0) is not None

    # poll, its fast way, the message at hand, its walk, the time for the group
    assert each(poll) <= 5 + TWO_LOCKS
    found: list[Any] = []
    calls = counted(lambda: found.extend(consumer.consume(3 * N, 1.0)))
    assert len(found) == 3 * N
    assert calls < 2 * N  # for all of them together
    message = found[0]
    assert counted(lambda: (message.error(), message.key(), message.value(), len(message))) == 4


def stepped(awaitable: Awaitable[Any]) -> Any:
    """The result of what has nothing to wait for."""
    steps = awaitable.__await__()
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


def test_aiokafka_produces(simulation: KafkaSimulation) -> None:
    async def run() -> None:
        servers = simulation.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=100) as producer:
            await producer.send_and_wait("t", b"-", b"k")
            futures = [await producer.send("t", b"-", b"k")]

            def send() -> None:
                futures.extend([stepped(producer.send("t", b"-", b"k")) for _ in range(N)])

            # send, that beneath, the future
            assert each(send) <= 3
            places: list[Any] = await asyncio.gather(*futures)
            assert [place.offset for place in places] == list(range(1, N + 2))

    simulation.run(run())


def test_aiokafka_consumes(simulation: KafkaSimulation) -> None:
    simulation.produce("t", [b"%d" % n for n in range(6 * N)])

    async def run() -> None:
        servers = simulation.bootstrap_servers
        async with aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getone()

            def getone() -> None:
                for _ in range(N):
                    stepped(consumer.getone())

            def loop() -> None:
                for _ in range(N):
                    stepped(anext(consumer))

            # getone, its fast way, the record at hand, its walk
            assert each(getone) <= 4 + TWO_LOCKS
            assert each(loop) <= 4 + TWO_LOCKS
            found: list[Any] = []

            def getmany() -> None:
                many = stepped(consumer.getmany(timeout_ms=10, max_records=3 * N))
                found.extend(many.values())

            assert counted(getmany) < 2 * N  # for all of them together
            assert [len(run) for run in found] == [3 * N]

    simulation.run(run())
