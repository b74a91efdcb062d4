"""An orderly close() or unsubscribe() during a join commits the processed records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.group_scene import Scene

from odradek import AsyncConsumer
from odradek.api.consumer import Consumer
from odradek.common.errors.kafka import UnknownServerError
from odradek.compat import confluent_kafka
from odradek.protocol.messages.join_group import API as JOIN
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import API as LEAVE
from odradek.protocol.messages.offset_commit import API as COMMIT
from odradek.protocol.messages.sync_group import API as SYNC
from odradek.simulation.brokers.broker_faults import answer_error
from odradek.simulation.world.environment import ReceivedRequest
from odradek.testing import KafkaSimulation

LATE = 3.0
"""Delay of responses in seconds."""
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


def joining(scene: Scene, key: int, seconds: float) -> tuple[Consumer, Consumer]:
    """Return a member with uncommitted records whose next join is in flight, and another member."""
    scene.write(range(40))
    given = {**COOPERATIVE, "auto.commit.interval.ms": 1_000_000}
    a = scene.subscribed("a", **given)
    scene.read(a, 40)
    assert a.poll(0) == []
    for broker in scene.cluster.brokers.values():
        broker.delay(key, seconds)
    return a, scene.subscribed("b", **given)


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
@pytest.mark.parametrize("after", [3.2, 4.2, 5.2, 6.2])
@pytest.mark.parametrize("key", [JOIN.key, SYNC.key])
def test_unsubscribe_or_close_during_a_join_commits_processed_records(
    key: int, after: float, ends: str
) -> None:
    scene = Scene()
    a, b = joining(scene, key, LATE)
    until = scene.world.now + after
    while scene.world.now < until:
        b.poll(0.1)
    started = scene.world.now
    getattr(a, ends)()
    assert scene.world.now - started < LATE + 0.5
    assert sum(offset or 0 for offset in scene.committed()) == 40


@pytest.mark.parametrize("after", [4.2, 6.2, 7.2, 8.2])
def test_leave_group_waits_for_one_join_and_two_commits(after: float) -> None:
    """A commit during the join is refused and retried, and all responses are late."""
    scene = Scene()
    a, b = joining(scene, JOIN.key, LATE)
    for broker in scene.cluster.brokers.values():
        for key in (SYNC.key, COMMIT.key, LEAVE.key):
            broker.delay(key, LATE)
    until = scene.world.now + after
    while scene.world.now < until:
        b.poll(0.1)
    started = scene.world.now
    a.unsubscribe()
    assert scene.world.now - started < 3 * LATE + 0.5
    scene.cluster.heal()
    assert sum(offset or 0 for offset in scene.committed()) == 40


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_a_join_that_fails_during_close_is_retried(ends: str) -> None:
    """The coordinator has begun the next generation and accepts only commits of it."""
    scene = Scene()
    a, b = joining(scene, JOIN.key, 1.0)
    failed = False

    def note(_: object, client: str, request: ReceivedRequest) -> None:
        nonlocal failed
        if client == "a" and isinstance(request.body, JoinGroupRequest) and not failed:
            failed = True
            answer_error(scene.cluster, "JoinGroup", UnknownServerError.code or 0, 1, done=True)

    scene.cluster.observers.append(note)
    while not failed:
        b.poll(0.1)
    started = scene.world.now
    getattr(a, ends)()
    assert scene.world.now - started < 5.0
    assert sum(offset or 0 for offset in scene.committed()) == 40


class Front:
    """A simulation in which an asyncio or Confluent-style consumer has read all records."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        self.simulation = simulation
        simulation.create_topic("t", partitions=4)
        for partition in range(4):
            simulation.produce("t", [b"%d" % n for n in range(10)], partition=partition)
        self.config: dict[str, Any] = {
            **COOPERATIVE,
            "bootstrap.servers": simulation.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000_000,
        }

    def answer_late(self) -> None:
        for broker in self.simulation.cluster.brokers.values():
            broker.delay(JOIN.key, LATE)

    def committed(self) -> list[int]:
        stable = [shard.committed("g").stable for shard in self.simulation.cluster.groups.shards()]
        return [committed.offset for found in stable for committed in found.values()]


@pytest.mark.parametrize("after", [4.2, 6.2])
def test_an_asyncio_consumer_commits_during_a_join(after: float) -> None:
    with KafkaSimulation(seed=1) as simulation:
        front = Front(simulation)

        async def main() -> None:
            async with AsyncConsumer(front.config) as a, AsyncConsumer(front.config) as b:
                await a.subscribe(["t"])
                read = 0
                while read < 40:
                    read += len(await a.poll(0.5))
                assert await a.poll(0) == []
                front.answer_late()
                await b.subscribe(["t"])
                until = asyncio.get_running_loop().time() + after
                while asyncio.get_running_loop().time() < until:
                    await b.poll(0.1)
                await a.close()
                assert front.committed() == [10] * 4

        simulation.run(main())


@pytest.mark.parametrize("after", [4.2, 6.2])
def test_a_confluent_consumer_commits_during_a_join(after: float) -> None:
    with KafkaSimulation(seed=1) as simulation:
        front = Front(simulation)
        a = confluent_kafka.Consumer(front.config)
        a.subscribe(["t"])
        read = 0
        while read < 40:
            read += len(a.consume(10, 0.5))
        front.answer_late()
        b = confluent_kafka.Consumer(front.config)
        b.subscribe(["t"])
        until = simulation.world.now + after
        while simulation.world.now < until:
            b.poll(0.1)
        a.close()
        assert front.committed() == [10] * 4
        b.close()
