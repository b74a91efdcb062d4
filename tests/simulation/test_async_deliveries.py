"""Functions of `asyncio` that take futures also accept deliveries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek import AsyncProducer, NoBrokerAvailableError
from odradek.testing import KafkaSimulation


class Interruption(BaseException):
    """An exception like Ctrl-C in a callback; a KeyboardInterrupt would end the event loop."""


@pytest.fixture
def simulation(kafka_simulation: KafkaSimulation) -> KafkaSimulation:
    kafka_simulation.create_topic("t")
    return kafka_simulation


async def three(producer: AsyncProducer) -> list[Any]:
    return [await producer.send("t", b"%d" % n) for n in range(3)]


async def test_deliveries_work_with_gather_wait_and_shield(simulation: KafkaSimulation) -> None:
    async with AsyncProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
        gathered = await asyncio.gather(*await three(producer))
        done, pending = await asyncio.wait(await three(producer))
        one = await asyncio.shield(await producer.send("t", b"x"))
        other = await asyncio.wait_for(await producer.send("t", b"x"), 5.0)
        offsets = [(await of).offset for of in asyncio.as_completed(await three(producer))]
    assert [found.offset for found in gathered] == [0, 1, 2]
    assert sorted(found.result().offset for found in done) == [3, 4, 5]
    assert pending == set()
    assert (one.offset, other.offset, sorted(offsets)) == (6, 7, [8, 9, 10])


@pytest.mark.parametrize("return_exceptions", [True, False])
async def test_cancelling_a_gather_cancels_its_deliveries(
    simulation: KafkaSimulation, return_exceptions: bool
) -> None:
    async with AsyncProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
        deliveries = await three(producer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.gather(*deliveries, return_exceptions=return_exceptions)
        assert [delivery.cancelled() for delivery in deliveries] == [True] * 3
        await producer.flush()
    assert simulation.values("t") == [b"0", b"1", b"2"]  # records that were sent can't be cancelled


async def test_errors_are_raised_where_deliveries_are_awaited(simulation: KafkaSimulation) -> None:
    producer = AsyncProducer(
        bootstrap_servers=simulation.bootstrap_servers,
        delivery_timeout_ms=4000,
        request_timeout_ms=2000,
    )
    async with producer:
        await producer.send_and_wait("t", b"x")
        for broker in simulation.brokers:
            simulation.crash(broker)
        deliveries = await three(producer)
        found = await asyncio.gather(*deliveries, return_exceptions=True)
    assert {type(error) for error in found} == {NoBrokerAvailableError}
    assert simulation.now == pytest.approx(4.0, abs=0.5)


async def test_an_interruption_in_a_callback_is_raised_by_the_first_waiting_call(
    simulation: KafkaSimulation,
) -> None:
    def interrupted(*_: object) -> None:
        raise Interruption

    async with AsyncProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
        await producer.send("t", b"x", on_delivery=interrupted)
        calls = [producer.partitions_for(f"missing-{n}", timeout=3.0) for n in range(5)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert type(ended[0]) is Interruption
    assert Interruption not in map(type, ended[1:])
