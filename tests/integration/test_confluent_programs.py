"""Compare small programs with confluent-kafka and with odradek's module in its place.

Reports, messages, callbacks, offsets and errors must be equal. Each runs with
a new `FakeCluster`, in real time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest
from tests.integration.confluent_admin_programs import ADMIN_PROGRAMS
from tests.integration.confluent_aio_programs import AIO_PROGRAMS, AioProgram
from tests.integration.confluent_consumer_programs import CONSUMER_PROGRAMS
from tests.integration.confluent_programs import PROGRAMS, TOPICS, Program, written

import odradek.compat.confluent_kafka
from odradek.compat.confluent_kafka import aio
from odradek.testing import FakeCluster

ours: Any = odradek.compat.confluent_kafka
pytestmark = pytest.mark.filterwarnings("ignore:unclosed")  # the programs don't close their clients


def observed(program: Program, library: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        program(library, cluster, lambda *said: found.append(said))
    gc.collect()  # so that warnings about unclosed clients aren't raised in another test
    return found


ALL = (*PROGRAMS, *CONSUMER_PROGRAMS, *ADMIN_PROGRAMS)


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
def test_a_program_observes_the_same_with_confluent_kafka_and_with_odradek(
    program: Program,
) -> None:
    mine = observed(program, ours)
    theirs = observed(program, confluent_kafka)
    assert mine
    assert mine == theirs


def observed_in_a_loop(program: AioProgram, library: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    aio = import_module(f"{library.__name__}.aio")
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        asyncio.run(program(library, aio, cluster, lambda *said: found.append(said)))
    gc.collect()
    return found


@pytest.mark.parametrize("program", AIO_PROGRAMS, ids=lambda program: program.__name__)
def test_an_asyncio_program_observes_the_same_with_both_libraries(program: AioProgram) -> None:
    mine = observed_in_a_loop(program, ours)
    theirs = observed_in_a_loop(program, confluent_kafka)
    assert mine
    assert mine == theirs


def test_a_cancelled_consume_loses_no_message() -> None:
    """Return messages of a cancelled call with the next call, and don't commit them before."""
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        written(ours, cluster, 3)

        async def cancelled() -> None:
            async with aio.AIOConsumer(reading(cluster)) as consumer:
                await consumer.subscribe(["flights"])
                first = await consumer.consume(1, 20)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.consume(10), 1)
                await consumer.commit(asynchronous=False)
                (place,) = await consumer.committed([ours.TopicPartition("flights", 0)])
                assert place.offset == 1
                rest = [await consumer.poll(20), *await consumer.consume(1, 20)]
                assert [m and m.value() for m in first + rest] == [b"0", b"1", b"2"]

        asyncio.run(cancelled())


def test_a_callback_that_raises_during_consume_loses_no_message() -> None:
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        written(ours, cluster, 3)
        consumer = ours.Consumer(reading(cluster))
        consumer.assign([ours.TopicPartition("flights", 0)])
        told: Callable[[float], int] = consumer._core._queue.serve

        def raising(seconds: float) -> int:
            if calls.pop():
                raise RuntimeError("a callback's")
            return told(seconds)

        calls = [True, False]
        consumer._core._queue.serve = raising
        with pytest.raises(RuntimeError, match="callback's"):
            consumer.consume(10, 20)
        consumer._core._queue.serve = told
        assert [m.value() for m in consumer.consume(3, 20)] == [b"0", b"1", b"2"]
        consumer.close()


def test_aio_futures_complete_if_delivery_report_only_error_is_set() -> None:
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        told: list[Any] = []

        async def produced() -> None:
            config = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "delivery.report.only.error": True,
                "message.timeout.ms": 1000,
            }
            async with aio.AIOProducer(config) as producer:
                good = await producer.produce(
                    "flights", b"x", on_delivery=lambda *_: told.append(1)
                )
                assert (await asyncio.wait_for(good, 20)).offset() == 0
                bad = await producer.produce(
                    "flights", b"x", partition=9, on_delivery=lambda e, _: told.append(e.name())
                )
                with pytest.raises(ours.KafkaException):
                    await asyncio.wait_for(bad, 20)

        asyncio.run(produced())
        assert told == ["_MSG_TIMED_OUT"]


@pytest.mark.parametrize("subscribed", [True, False])
def test_a_consumer_that_is_dropped_in_its_loop_warns(subscribed: bool) -> None:
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:

        async def dropped() -> None:
            consumer = aio.AIOConsumer(reading(cluster))
            if subscribed:
                await consumer.subscribe(["flights"], on_assign=lambda *_: None)
            else:
                await consumer.assign([ours.TopicPartition("flights", 0)])
            await consumer.poll(0.5)
            del consumer
            gc.collect()
            await asyncio.sleep(0.1)

        with pytest.warns(ResourceWarning, match="unclosed AIOConsumer"):
            asyncio.run(dropped())


def reading(cluster: FakeCluster) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "board",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
