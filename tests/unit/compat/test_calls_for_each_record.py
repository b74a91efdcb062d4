"""Test the number of Python calls per record in the compat modules.

Calls are counted as in `tests/unit/api/test_python_calls.py`; calls of asyncio's own futures and
of the program don't count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.unit.api.test_python_calls import count_calls

from odradek.common.types import FREE_THREADS
from odradek.compat import aiokafka, confluent_kafka
from odradek.testing import KafkaSimulation

N = 100
TWO_LOCKS = 3 if FREE_THREADS else 0
"""Calls for two locks per record in CPython without the GIL."""


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=3, brokers=1) as simulation:
        simulation.create_topic("t", partitions=1)
        yield simulation


def calls_per_record(action: Callable[[], object]) -> int:
    """Return the number of calls per record.

    Calls made once for all records, or by garbage-collected clients, are rounded down to zero.
    """
    return count_calls(action) // N


def confluent_consumer(simulation: KafkaSimulation) -> Any:
    simulation.produce("t", [b"%d" % n for n in range(6 * N)])
    settings = {"bootstrap.servers": simulation.bootstrap_servers, "group.id": "g"}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0)])
    while consumer.poll(1.0) is None:
        pass
    return consumer


def test_produce_of_confluent_kafka_makes_at_most_five_python_calls_per_record(
    simulation: KafkaSimulation,
) -> None:
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

    # The calls: produce, a place in the queue, send, the record's offset, the batch's reports.
    assert calls_per_record(produce) <= 5
    producer._producer.flush()
    # One call creates the message of a report; the program's callback isn't counted.
    assert calls_per_record(lambda: producer.poll(1)) <= 1
    assert len(told) == N + 2


def test_poll_of_confluent_kafka_makes_at_most_five_python_calls_per_record(
    simulation: KafkaSimulation,
) -> None:
    consumer = confluent_consumer(simulation)

    def poll() -> None:
        for _ in range(N):
            assert consumer.poll(1.0) is not None

    # The calls: poll, its fast path, the buffered message, its iterator, the time for the group.
    assert calls_per_record(poll) <= 5 + TWO_LOCKS
    found: list[Any] = []
    calls = count_calls(lambda: found.extend(consumer.consume(3 * N, 1.0)))
    assert len(found) == 3 * N
    assert calls < 2 * N  # for all 3 * N messages
    message = found[0]
    assert count_calls(lambda: (message.error(), message.key(), message.value(), len(message))) == 4


def stepped(awaitable: Awaitable[Any]) -> Any:
    """Return the result of an awaitable that doesn't suspend."""
    steps = awaitable.__await__()
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


def test_send_of_aiokafka_makes_at_most_three_python_calls_per_record(
    simulation: KafkaSimulation,
) -> None:
    async def run() -> None:
        servers = simulation.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=100) as producer:
            await producer.send_and_wait("t", b"-", b"k")
            futures = [await producer.send("t", b"-", b"k")]

            def send() -> None:
                futures.extend([stepped(producer.send("t", b"-", b"k")) for _ in range(N)])

            # The calls: send, the wrapped client's send, the future.
            assert calls_per_record(send) <= 3
            places: list[Any] = await asyncio.gather(*futures)
            assert [place.offset for place in places] == list(range(1, N + 2))

    simulation.run(run())


def test_getone_of_aiokafka_makes_at_most_four_python_calls_per_record(
    simulation: KafkaSimulation,
) -> None:
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

            # The calls: getone, its fast path, the buffered record, its iterator.
            assert calls_per_record(getone) <= 4 + TWO_LOCKS
            assert calls_per_record(loop) <= 4 + TWO_LOCKS
            found: list[Any] = []

            def getmany() -> None:
                many = stepped(consumer.getmany(timeout_ms=10, max_records=3 * N))
                found.extend(many.values())

            assert count_calls(getmany) < 2 * N  # for all 3 * N records
            assert [len(run) for run in found] == [3 * N]

    simulation.run(run())
