"""`with producer.transaction()` after an outage: programs with only such blocks can continue."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.simulation.transactional import PROTOCOLS, Scene, send

from odradek import AsyncProducer
from odradek.common.errors import (
    AbortableTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
)
from odradek.compat.aiokafka import AIOKafkaProducer
from odradek.testing import KafkaSimulation

BROKERS = (1, 2, 3)


@PROTOCOLS
@pytest.mark.parametrize("again", [0.0, 50.0])
def test_a_block_begins_after_the_abort_of_the_previous_one_timed_out(
    version: int, again: float
) -> None:
    """`again`: seconds until the next block is tried, before or after the end of the abort."""
    scene = Scene(version)
    producer = scene.producer(max_block_ms=5000)
    with pytest.raises(ValueError, match="mine") as caught, producer.transaction():
        send(producer, range(3))
        producer.flush(timeout=10)
        for broker in BROKERS:
            scene.cluster.bounce(broker, after=12.0)
        raise ValueError("mine")
    assert "abort_transaction() failed" in caught.value.__notes__[0]
    with (
        pytest.raises(KafkaTimeoutError, match=r"end of abort_transaction"),
        producer.transaction(),
    ):
        raise AssertionError
    scene.world.advance(again)
    with producer.transaction():
        send(producer, range(3, 6))
    assert scene.visible() == [3, 4, 5]


def test_a_transaction_begun_by_the_program_is_not_ended_by_a_block() -> None:
    scene = Scene()
    producer = scene.producer(max_block_ms=5000)
    with pytest.raises(ValueError, match="mine"), producer.transaction():
        send(producer, range(3))
        producer.flush(timeout=10)
        for broker in BROKERS:
            scene.cluster.bounce(broker, after=12.0)
        raise ValueError("mine")
    producer.abort_transaction(timeout=60)
    producer.begin_transaction()
    send(producer, range(3, 6))
    with pytest.raises(IllegalStateError, match="a transaction is open"), producer.transaction():
        raise AssertionError
    producer.commit_transaction()
    assert scene.visible() == [3, 4, 5]


class Interrupted(BaseException):
    """A Ctrl-C, or a signal handler that raises."""


def interrupt() -> None:
    raise Interrupted


@PROTOCOLS
@pytest.mark.parametrize("again", [0.0, 50.0])
def test_a_block_begins_after_the_commit_of_the_previous_one_was_interrupted(
    version: int, again: float
) -> None:
    """`again`: seconds until the next block is tried, before or after the end of the commit."""
    scene = Scene(version)
    producer = scene.producer()
    with pytest.raises(Interrupted), producer.transaction():
        send(producer, range(3))
        producer.flush(timeout=10)
        for broker in BROKERS:
            scene.cluster.bounce(broker, after=12.0)
        scene.world.after(1.0, interrupt)
        scene.world.after(2.0, interrupt)
    scene.world.advance(again)
    with producer.transaction():
        send(producer, range(3, 6))
    assert scene.visible() == [0, 1, 2, 3, 4, 5]  # an interrupted commit continues


@PROTOCOLS
def test_a_block_raises_the_error_of_an_interrupted_commit_and_the_next_begins(
    version: int,
) -> None:
    scene = Scene(version)
    producer = scene.producer(delivery_timeout_ms=5000, request_timeout_ms=2000, linger_ms=0)
    with pytest.raises(Interrupted), producer.transaction():
        send(producer, range(3))
        producer.flush(timeout=10)
        for broker in BROKERS:
            scene.cluster.bounce(broker, after=12.0)
        send(producer, range(3))
        scene.world.after(1.0, interrupt)
        scene.world.after(2.0, interrupt)
    with pytest.raises(AbortableTransactionError), producer.transaction():
        raise AssertionError
    with producer.transaction():
        send(producer, range(3, 6))
    assert scene.visible() == [3, 4, 5]


async def test_a_commit_that_fails_after_a_cancellation_is_followed_by_an_abort(
    kafka_simulation: KafkaSimulation,
) -> None:
    kafka_simulation.create_topic("t", partitions=1)
    config = {"bootstrap.servers": kafka_simulation.bootstrap_servers, "transactional.id": "x"}
    async with AsyncProducer(
        config, delivery_timeout_ms=3000, request_timeout_ms=2000, linger_ms=0
    ) as producer:
        await producer.init_transactions()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(1), producer.transaction():
                await producer.send_and_wait("t", b"0")
                for broker in kafka_simulation.brokers:
                    kafka_simulation.bounce(broker, after=10.0)
                await producer.send("t", b"1")
        cancelled = caught.value.__cause__
        assert cancelled is not None
        assert "commit_transaction() failed" in cancelled.__notes__[0]
        async with producer.transaction():
            await producer.send("t", b"2")
        await asyncio.sleep(0.1)  # until the transaction marker is written
    rows = kafka_simulation.cluster.log("t", 0).visible_rows()
    assert [bytes(row[4] or b"") for row in rows] == [b"2"]


async def cancelled_end(
    simulation: KafkaSimulation, producer: AIOKafkaProducer, back: float, *, commit: bool = True
) -> None:
    """Cancel the end of a block while all brokers are down; restart them after this time."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), producer.transaction():
            await producer.send_and_wait("t", b"0")
            for broker in simulation.brokers:
                simulation.bounce(broker, after=back)
            if not commit:
                raise ValueError


@pytest.mark.parametrize("commit", [True, False])
async def test_a_cancelled_commit_of_aiokafka_continues_and_the_next_block_begins(
    kafka_simulation: KafkaSimulation, commit: bool
) -> None:
    kafka_simulation.create_topic("t", partitions=1)
    servers = kafka_simulation.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        await cancelled_end(kafka_simulation, producer, 10.0, commit=commit)
        with pytest.raises(AssertionError, match="is still running"):
            await producer.begin_transaction()
        await asyncio.sleep(20)
        async with producer.transaction():
            await producer.send("t", b"1")
        await asyncio.sleep(0.1)  # until the transaction marker is written
    rows = kafka_simulation.cluster.log("t", 0).visible_rows()
    assert [bytes(row[4] or b"") for row in rows] == [b"0", b"1"][not commit :]


async def test_stop_of_an_aiokafka_producer_ends_tasks_of_cancelled_commits(
    kafka_simulation: KafkaSimulation,
) -> None:
    """Include commits that a second call delayed, and commits whose error wasn't retrieved."""
    kafka_simulation.create_topic("t", partitions=1)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    servers = kafka_simulation.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        await cancelled_end(kafka_simulation, producer, 1000.0)
        with pytest.raises(AssertionError):
            await producer.abort_transaction()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del producer
    gc.collect()
    assert not complaints
