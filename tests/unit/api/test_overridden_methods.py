"""Test that clients call overridden and mocked methods, and raise a callback's error unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from odradek import AsyncConsumer, Consumer, KafkaTimeoutError, Producer, TopicPartition
from odradek.clients.caller_flow import CallerFlow, Do, RaisedGeneratorExitError
from odradek.runtime.hosts.async_caller import carried_out
from odradek.testing.simulated import KafkaSimulation

NAMES = ("begin_transaction", "commit_transaction", "abort_transaction", "flush")


class Logged(Producer):
    """A producer that logs the names of the called methods."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.log: list[str] = []
        super().__init__(*arguments, **options)


def noted(name: str) -> Callable[..., object]:
    def method(self: Logged, *arguments: Any) -> object:
        self.log.append(name.removesuffix("_transaction"))
        return getattr(super(Logged, self), name)(*arguments)

    return method


for name in NAMES:
    setattr(Logged, name, noted(name))


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=3) as simulation:
        simulation.create_topic("t", partitions=1)
        yield simulation


def producer_of(simulation: KafkaSimulation, **options: Any) -> Logged:
    return Logged({"bootstrap.servers": simulation.bootstrap_servers}, **options)


def transactional(simulation: KafkaSimulation) -> Logged:
    producer = producer_of(simulation, transactional_id="x")
    producer.init_transactions()
    return producer


def test_a_forked_child_does_not_abort_the_parents_transaction(
    simulation: KafkaSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = transactional(simulation)
    block = producer.transaction()
    block.__enter__()
    with monkeypatch.context() as child:
        child.setattr(type(producer._host), "cut_off", True)
        assert not block.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert "abort" not in producer.log
    producer.abort_transaction()


def test_transaction_blocks_and_close_call_overridden_methods(simulation: KafkaSimulation) -> None:
    producer = transactional(simulation)
    with producer.transaction():
        producer.send("t", b"1")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        raise ZeroDivisionError
    producer.begin_transaction()
    producer.close()
    assert producer.log == ["begin", "commit", "begin", "abort", "begin", "abort"]
    plain = producer_of(simulation)
    plain.send("t", b"2")
    plain.close()
    assert plain.log == ["flush"]


def test_a_transaction_block_calls_a_mocked_commit(simulation: KafkaSimulation) -> None:
    producer = transactional(simulation)
    late = KafkaTimeoutError("late")
    with mock.patch.object(producer, "commit_transaction", side_effect=late) as commit:
        with pytest.raises(KafkaTimeoutError, match="late"), producer.transaction():
            producer.send("t", b"1")
        commit.assert_called_once_with()
    producer.abort_transaction()
    assert producer.log[-1] == "abort"


def test_a_garbage_collected_transaction_block_aborts(simulation: KafkaSimulation) -> None:
    producer = transactional(simulation)
    block = producer.transaction()
    assert block.__enter__() is producer
    del block
    assert producer.log == ["begin", "abort"]
    with producer.transaction():
        producer.send("t", b"1")


def subscribed(consumer: Consumer, callback: Callable[..., object]) -> None:
    consumer.subscribe(["t"], on_assigned=callback)


def committed(consumer: Consumer, callback: Callable[..., object]) -> None:
    consumer.assign([TopicPartition("t", 0)])
    consumer.commit_async({TopicPartition("t", 0): 0}, callback)


def host_closed(client: Any) -> bool:
    """Return whether the client's I/O host is closed, so that its thread has ended."""
    closed: bool = client._host.closed
    return closed


@pytest.mark.parametrize("begin", [subscribed, committed])
@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, SystemExit])
def test_poll_and_close_raise_a_callbacks_exception_unchanged(
    simulation: KafkaSimulation,
    begin: Callable[..., None],
    close: bool,
    kind: type[BaseException],
) -> None:
    """Calls are generators, in which `StopIteration` and `GeneratorExit` have a special meaning."""
    stop, seen = kind("mine"), []

    def callback(*_: object) -> None:
        seen.append(1)
        raise stop

    consumer = simulation.consumer({"group.id": "g"})
    begin(consumer, callback)
    if close and begin is subscribed:
        consumer.subscribe(["t"], on_revoked=callback)
        while (
            not consumer.group_metadata().member_id or not consumer._engine.subscription.partitions
        ):
            consumer.poll(0.5)
    with pytest.raises(kind) as caught:
        if close:
            consumer.close()
        else:
            for _ in range(20):
                consumer.poll(0.5)
    assert caught.value is stop
    assert seen == [1]
    assert consumer._closed == close
    assert host_closed(consumer) == close
    consumer.close()
    assert host_closed(consumer)


@pytest.mark.parametrize("sort", ["function", "coroutine", "later"])
async def test_async_close_raises_a_callbacks_exception_and_still_closes(
    kafka_simulation: KafkaSimulation, sort: str
) -> None:
    kafka_simulation.create_topic("t", partitions=1)
    stop = GeneratorExit("mine")

    def plain(*_: object) -> None:
        raise stop

    async def coroutine(*_: object) -> None:
        if sort == "later":
            await asyncio.sleep(0)
        raise stop

    callback = plain if sort == "function" else coroutine
    servers = {"bootstrap.servers": kafka_simulation.bootstrap_servers}
    consumer = AsyncConsumer(servers, group_id="g")
    await consumer.subscribe(["t"], on_revoked=callback)
    while not consumer._engine.subscription.partitions:
        await consumer.poll(0.5)
    with pytest.raises(GeneratorExit) as caught:
        await consumer.close()
    assert caught.value is stop
    assert consumer._closed
    assert host_closed(consumer)


def test_a_cancelled_call_cancels_its_callback() -> None:
    """This includes a coroutine that is closed with its event loop, and so can't await any more."""
    log: list[str] = []

    async def callback() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("callback left")

    def flow() -> CallerFlow[None]:
        try:
            yield Do(callback)
        except RaisedGeneratorExitError:
            log.append("taken for the callback's own")
            raise
        finally:
            log.append("flow left")

    async def cancelled() -> None:
        task = asyncio.create_task(carried_out(flow(), host))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def dropped() -> None:
        call = carried_out(flow(), host)
        call.send(None)
        call.close()
        await cancelled()

    host: Any = SimpleNamespace(enter=lambda closing: None, now=lambda: 0.0)
    asyncio.run(dropped())
    assert log == ["callback left", "flow left"] * 2


def test_a_runtime_error_from_a_callback_is_raised_unchanged(
    simulation: KafkaSimulation,
) -> None:
    def callback(*_: object) -> None:
        def broken() -> Iterator[int]:
            yield next(iter(()))

        next(broken())

    consumer = simulation.consumer({"group.id": "g"})
    consumer.subscribe(["t"], on_assigned=callback)
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        for _ in range(20):
            consumer.poll(0.5)
