"""Compare small programs with aiokafka and with odradek's module in its place."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from tests.integration.aiokafka_programs import PROGRAMS, Program
from tests.integration.aiokafka_scene import Scene

from odradek.testing import FakeCluster

OURS, THEIRS = "odradek.compat.aiokafka", "aiokafka"
TIMEOUT = 60.0
numbers = itertools.count(100)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


def said(program: Program, library: str, cluster: FakeCluster) -> list[str]:
    async def run(scene: Scene) -> None:
        async with asyncio.timeout(TIMEOUT):
            await program(scene)

    scene = Scene(library, cluster, next(numbers))
    try:
        asyncio.run(run(scene))
    finally:
        cluster.heal()
    return scene.said


@pytest.mark.filterwarnings("default")  # aiokafka's own warnings
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_observes_the_same_with_aiokafka_and_with_odradek(
    program: Program, cluster: FakeCluster
) -> None:
    theirs = said(program, THEIRS, cluster)
    assert theirs
    assert said(program, OURS, cluster) == theirs


# Programs that fail with aiokafka itself


def ours(program: Program, cluster: FakeCluster) -> list[str]:
    return said(program, OURS, cluster)


async def subscribes_to_the_same(scene: Scene) -> None:
    topic = scene.topic()
    await scene.fill(topic, 2)
    async with scene.consumer(topic, group_id=scene.group()) as consumer:
        scene.say(await scene.values(consumer, 1))
        for _ in range(3):
            consumer.subscribe([topic])
        scene.say(await scene.values(consumer, 1))


def test_subscribing_to_the_same_topic_again_keeps_the_position(cluster: FakeCluster) -> None:
    assert ours(subscribes_to_the_same, cluster) == ["[b'0']", "[b'1']"]


async def reads_and_writes_during_a_move(scene: Scene) -> None:
    source, target = scene.topic(2), scene.topic(name="u")
    group = scene.group()
    consumer = scene.consumer(source, group_id=group, enable_auto_commit=False)
    producer = scene.producer(enable_idempotence=True)
    async with consumer, producer:
        for n in range(30):
            if n % 10 == 5:
                for broker in scene.cluster.broker_ids:
                    await asyncio.to_thread(scene.cluster.move, broker)
            await producer.send_and_wait(source, b"%d" % n, partition=n % 2)
            async with asyncio.timeout(20):
                record = await consumer.getone()
                await producer.send_and_wait(target, record.value)
                await consumer.commit()
        scene.say(len(await consumer.end_offsets([scene.tp(target)])))
        for partition in range(2):
            scene.say(await consumer.committed(scene.tp(source, partition)))
    rows = scene.cluster.records(target)
    scene.say([int(row[4] or b"") for row in rows] == list(range(30)))


def test_a_program_recovers_after_all_brokers_moved(cluster: FakeCluster) -> None:
    assert ours(reads_and_writes_during_a_move, cluster) == ["1", "15", "15", "True"]


async def cancels_waits(scene: Scene) -> None:
    topic = scene.topic()
    await scene.fill(topic, 300)
    found: list[int] = []
    async with scene.consumer(topic) as consumer:
        while len(found) < 300:
            for patience in (0.0, 0.0005, 0.002):
                try:
                    async with asyncio.timeout(patience):
                        while True:
                            found.append((await consumer.getone()).offset)
                except TimeoutError:
                    continue
    scene.say(found == list(range(300)))


def test_a_cancelled_wait_loses_no_record(cluster: FakeCluster) -> None:
    assert ours(cancels_waits, cluster) == ["True"]


async def reads_after_deserializer_errors(scene: Scene) -> None:
    topic = scene.topic(2)
    await scene.fill(topic, 3)
    await scene.fill(topic, 3, partition=1, first=10)
    wrong = [b"1", b"11"]

    def read(value: bytes) -> bytes:
        if value in wrong:
            wrong.remove(value)
            raise ValueError(value)
        return value

    consumer = scene.consumer(topic, group_id=scene.group(), value_deserializer=read)
    found: list[bytes] = []
    async with consumer, asyncio.timeout(20):
        while len(found) < 6:
            try:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
            except ValueError as error:
                scene.say(str(error))
    scene.say(sorted(found))


def test_a_deserializer_that_raises_loses_no_record(cluster: FakeCluster) -> None:
    said = ours(reads_after_deserializer_errors, cluster)
    assert sorted(said[:2]) == ["b'1'", "b'11'"]
    assert said[2] == "[b'0', b'1', b'10', b'11', b'12', b'2']"


def test_a_pending_getone_continues_after_another_tasks_subscribe(cluster: FakeCluster) -> None:
    async def reads(scene: Scene) -> None:
        first, second = scene.topic(), scene.topic(name="second")
        await scene.fill(second, 1)
        async with scene.consumer(first, group_id=scene.group()) as consumer:
            consumer.subscribe([first])
            reader = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0)
            consumer.subscribe([second])
            assert (await reader).topic == second

    ours(reads, cluster)
