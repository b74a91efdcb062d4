"""R-ID-1 and R-ID-2 with asyncio consumers, `Workers`, and the consumers of other clients.

The coordinator refuses each member as unknown, and the member joins again while its program still
holds earlier records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek import AsyncConsumer, AsyncWorkers, TopicPartition
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import CommitFailedError, IllegalStateError, KafkaError
from odradek.compat import aiokafka
from odradek.compat import confluent_kafka as confluent
from odradek.compat.aiokafka import errors as aiokafka_errors
from odradek.simulation.brokers.injected_errors import Injection
from odradek.testing import KafkaSimulation

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
APIS = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}
UNKNOWN_MEMBER_ID = 25
P = TopicPartition("t", 0)


def filled(simulation: KafkaSimulation) -> str:
    simulation.create_topic("t", partitions=1)
    simulation.produce("t", [b"%d" % n for n in range(10)])
    return str(simulation.bootstrap_servers)


def settings(servers: str, protocol: str = "classic") -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "g",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if protocol == "classic":
        found |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
    return found


def remove(
    simulation: KafkaSimulation, protocol: str, engine: ConsumerEngine
) -> Callable[[], bool]:
    """Remove the member; return a function that says whether it hasn't rejoined yet."""
    for broker in simulation.cluster.brokers.values():
        broker.injections.append(Injection(APIS[protocol], UNKNOWN_MEMBER_ID, 1))
    before = engine.subscription.partitions[P]
    return lambda: engine.subscription.partitions.get(P, before) is before


def committed(simulation: KafkaSimulation) -> int | None:
    with simulation.consumer(group_id="g", enable_auto_commit=False) as observer:
        found = observer.committed([P])[P]
    return None if found is None else found.offset


async def until(over: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not over():
            await asyncio.sleep(0.1)


@PROTOCOLS
@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
async def test_callbacks_of_an_async_consumer_commit_for_the_current_ownership(
    kafka_simulation: KafkaSimulation, protocol: str, listens: bool
) -> None:
    calls: list[str] = []

    async def lost(consumer: AsyncConsumer, _: list[TopicPartition]) -> None:
        with pytest.raises(CommitFailedError):
            await consumer.commit({P: 4})
        calls.append("lost")

    async def assigned(consumer: AsyncConsumer, _: list[TopicPartition]) -> None:
        await consumer.commit({P: 7})
        calls.append("assigned")

    servers = filled(kafka_simulation)
    async with AsyncConsumer(settings(servers, protocol)) as consumer:
        callbacks: dict[str, Any] = {"on_lost": lost, "on_assigned": assigned}
        await consumer.subscribe(["t"], **(callbacks if listens else {}))
        records: list[ConsumerRecord] = []
        while len(records) < 5:
            records += await consumer.poll(1.0, 5)
        await consumer.commit({P: 7})
        calls.clear()
        waits = remove(kafka_simulation, protocol, consumer._engine)
        await until(lambda: not waits())
        ends: list[KafkaError | None] = []
        for given in (records[0], {P: 1}, None):
            with pytest.raises(CommitFailedError):
                await consumer.commit(given)
            await consumer.commit_async(given, lambda _, error: ends.append(error))
        changes: list[Callable[[], None]] = [lambda: consumer.seek(P, 1), lambda: consumer.pause(P)]
        for change in changes:
            with pytest.raises(IllegalStateError, match="and then assigned"):
                change()
        assert (await consumer.committed([P]))[P] == (7, "", -1)
        again = await consumer.poll(1.0)
        assert [type(end) for end in ends] == [CommitFailedError] * 3
        assert again[0].offset == 7
        assert calls == (["lost", "assigned"] if listens else [])
        with pytest.raises(CommitFailedError):
            await consumer.commit(records[0])
        await consumer.commit(again[0])
        consumer.seek(P, 1)


@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
async def test_aiokafka_consumers_refuse_commits_of_a_former_ownership(
    kafka_simulation: KafkaSimulation, listens: bool
) -> None:
    """The listener runs concurrently with the program; without a listener `getone` raises."""
    told: list[str] = []

    class Listener(aiokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            told.append("revoked")

        async def on_partitions_assigned(self, assigned: Any) -> None:
            told.append("assigned")

    place = aiokafka.TopicPartition("t", 0)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=filled(kafka_simulation),
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
    )
    consumer.subscribe(["t"], listener=Listener() if listens else None)
    await consumer.start()
    try:
        records = [await consumer.getone() for _ in range(5)]
        await consumer.commit({place: 7})
        told.clear()
        waits = remove(kafka_simulation, "classic", consumer._consumer._engine)
        await until(lambda: not waits())
        await asyncio.sleep(2)  # the consumer's background task has polled
        if listens:
            assert told == ["revoked", "assigned"]
            await consumer.commit({place: 6})
            await consumer.commit({place: 7})
        else:
            with pytest.raises(aiokafka_errors.CommitFailedError):
                await consumer.commit({place: records[0].offset + 1})
            with pytest.raises(aiokafka_errors.CommitFailedError):
                await consumer.commit()
            for change in (consumer.pause, consumer.resume, lambda p: consumer.seek(p, 1)):
                with pytest.raises(aiokafka_errors.IllegalStateError):
                    change(place)
            assert consumer.assignment() == set()
            assert await consumer.committed(place) == 7
        assert (await consumer.getone(place)).offset == 7
        await consumer.commit({place: 8})
        consumer.seek(place, 1)
        assert (await consumer.getone()).offset == 1
    finally:
        await consumer.stop()


def code(call: Callable[[], object]) -> int:
    with pytest.raises(confluent.KafkaException) as caught:
        call()
    found: int = caught.value.args[0].code()
    return found


@PROTOCOLS
@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
def test_confluent_kafka_consumers_refuse_commits_of_a_former_ownership(
    kafka_simulation: KafkaSimulation, protocol: str, listens: bool
) -> None:
    """The errors have librdkafka's codes."""
    ends: list[Any] = []
    config = settings(filled(kafka_simulation), protocol)
    consumer = confluent.Consumer({**config, "on_commit": lambda error, _: ends.append(error)})
    lost: list[int] = []

    def on_lost(its: confluent.Consumer, _: Any) -> None:
        place = confluent.TopicPartition("t", 0, 4)
        lost.append(code(lambda: its.commit(offsets=[place], asynchronous=False)))

    consumer.subscribe(["t"], **({"on_lost": on_lost} if listens else {}))
    messages: list[confluent.Message] = []

    def read(count: int) -> None:
        end = kafka_simulation.now + 60
        while len(messages) < count:
            if (message := consumer.poll(0)) is not None:
                messages.append(message)
            else:
                kafka_simulation.advance(0.1)
            assert kafka_simulation.now < end

    read(5)
    place = confluent.TopicPartition("t", 0, 3)
    consumer.commit(offsets=[place], asynchronous=False)
    waits = remove(kafka_simulation, protocol, consumer._core._consumer._engine)
    assert kafka_simulation.run_while(waits, 60)
    unknown = confluent.KafkaError.UNKNOWN_MEMBER_ID
    early = confluent.TopicPartition("t", 0, 1)
    assert code(lambda: consumer.commit(message=messages[0], asynchronous=False)) == unknown
    assert code(lambda: consumer.commit(offsets=[early], asynchronous=False)) == unknown
    assert code(lambda: consumer.commit(asynchronous=False)) == unknown
    assert consumer.assignment() == []
    assert code(lambda: consumer.pause([early])) == confluent.KafkaError._STATE
    assert code(lambda: consumer.resume([early])) == confluent.KafkaError._STATE
    assert code(lambda: consumer.seek(early)) == confluent.KafkaError._STATE
    ends.clear()
    consumer.commit(message=messages[0])
    kafka_simulation.advance(1.0)
    read(6)
    while not ends:
        consumer.poll(0)
    assert [error.code() for error in ends] == [unknown]
    assert lost == ([unknown] if listens else [])
    assert messages[-1].offset() == 3
    assert code(lambda: consumer.commit(message=messages[1], asynchronous=False)) == unknown
    consumer.commit(message=messages[-1], asynchronous=False)
    consumer.close()
    assert committed(kafka_simulation) == 4


@PROTOCOLS
def test_confluent_kafka_stores_no_message_of_a_former_ownership(
    kafka_simulation: KafkaSimulation, protocol: str
) -> None:
    config = settings(filled(kafka_simulation), protocol)
    consumer = confluent.Consumer({**config, "enable.auto.offset.store": False})
    consumer.subscribe(["t"])
    messages: list[confluent.Message] = []
    while len(messages) < 5:
        if (message := consumer.poll(0)) is not None:
            messages.append(message)
        else:
            kafka_simulation.advance(0.1)
    consumer.store_offsets(message=messages[0])
    place = confluent.TopicPartition("t", 0, 7)
    consumer.commit(offsets=[place], asynchronous=False)
    waits = remove(kafka_simulation, protocol, consumer._core._consumer._engine)
    assert kafka_simulation.run_while(waits, 60)
    for _ in range(2):
        stored = confluent.KafkaError._STATE
        assert code(lambda: consumer.store_offsets(message=messages[1])) == stored
        while consumer.poll(0) is None:  # now the consumer is notified
            kafka_simulation.advance(0.1)
    consumer.close()
    assert committed(kafka_simulation) == 7


@PROTOCOLS
async def test_workers_commit_nothing_of_a_former_ownership(
    kafka_simulation: KafkaSimulation, protocol: str
) -> None:
    """The workers' process is stopped before a commit; the member has rejoined afterwards."""
    consumer = AsyncConsumer(settings(filled(kafka_simulation), protocol))
    commit_async, ends = consumer.commit_async, list[type[BaseException] | None]()
    worked: list[int] = []

    async def late(offsets: Any, callback: Any) -> None:
        def note(offsets: Any, error: KafkaError | None) -> None:
            ends.append(None if error is None else type(error))
            callback(offsets, error)

        if worked and CommitFailedError not in ends:
            waits = remove(kafka_simulation, protocol, consumer._engine)
            await until(lambda: not waits())
        await commit_async(offsets, note)

    async def work(record: ConsumerRecord) -> None:
        worked.append(record.offset)

    consumer.commit_async = late  # type: ignore[method-assign, assignment]
    async with consumer:
        await AsyncWorkers(consumer, work, concurrency=1).run("t", timeout=20.0)
    assert ends.count(CommitFailedError) == 1
    assert set(worked) == set(range(10))
    assert len(worked) > 10, "what wasn't committed is worked on again"
    assert committed(kafka_simulation) == 10


@PROTOCOLS
async def test_a_revocation_waits_for_commits_of_other_tasks(
    kafka_simulation: KafkaSimulation, protocol: str
) -> None:
    kafka_simulation.create_topic("t", partitions=4)
    for partition in range(4):
        kafka_simulation.produce("t", [b"%d" % n for n in range(10)], partition=partition)
    given = settings(str(kafka_simulation.bootstrap_servers), protocol)
    tasks: list[asyncio.Task[object]] = []
    async with AsyncConsumer(given) as a, AsyncConsumer(given) as b:

        async def revoked(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            tasks.extend(asyncio.create_task(consumer.commit({p: 10})) for p in partitions)
            await asyncio.sleep(0)  # the tasks have begun

        await a.subscribe(["t"], on_revoked=revoked)
        count = 0
        while count < 40:
            count += len(await a.poll(1.0))
        await b.subscribe(["t"])
        async with asyncio.timeout(60):
            while not (len(a.assignment()) == 2 and len(b.assignment()) == 2):
                await asyncio.gather(a.poll(0.1), b.poll(0.1))
            await asyncio.gather(*tasks)
        assert len(tasks) >= 2
