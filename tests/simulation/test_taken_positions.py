"""R-GR-6: offsets from `auto.offset.reset` are committed before a later record can be skipped.

A later reset could skip it after a restart, a crash, or a rebalance that moves an idle partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene

from odradek import AsyncConsumer, AsyncWorkers, ConsumerRecord
from odradek.common.errors.kafka import OffsetMetadataTooLargeError
from odradek.network.flow import START, Flow
from odradek.simulation import SimulatedBroker
from odradek.simulation.brokers.broker_faults import slow_api
from odradek.simulation.world.environment import ReceivedRequest
from odradek.testing import KafkaSimulation

RESETS = pytest.mark.parametrize("reset", ["latest", "by_duration:PT1S"])
TOPIC = "in"
JOINS = 3
"""JoinGroup requests of a classic rebalance: two of the new member, one of the owner."""


class Work:
    """Records of a topic with two partitions that workers have processed."""

    def __init__(self, protocol: str, reset: str, seed: int = 1) -> None:
        self.simulation = KafkaSimulation(seed=seed)
        self.simulation.create_topic(TOPIC, partitions=2)
        self.config = {
            "bootstrap.servers": self.simulation.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
        }
        self.done: set[tuple[int, int]] = set()

    async def work(self, record: ConsumerRecord) -> None:
        self.done.add((record.partition, record.offset))

    def begin(self) -> tuple[AsyncConsumer, AsyncWorkers, asyncio.Task[None]]:
        consumer = AsyncConsumer(self.config)
        workers = AsyncWorkers(consumer, self.work)

        async def run() -> None:
            async with consumer:
                await workers.run(TOPIC)

        return consumer, workers, asyncio.create_task(run())

    def write(self, partition: int, count: int = 10) -> None:
        values = [b"%d" % n for n in range(count)]
        self.simulation.produce(TOPIC, values, partition=partition)

    def missing(self, first: dict[int, int]) -> set[tuple[int, int]]:
        ends = {p: len(self.simulation.records(TOPIC, p)) for p in first}
        return {(p, at) for p in first for at in range(first[p], ends[p])} - self.done


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until the condition holds or the timeout expires; the caller asserts the result."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)


def has_positions(consumer: AsyncConsumer, count: int) -> bool:
    states = consumer._engine.subscription.partitions.values()
    return len(states) == count and all(s.position is not None for s in states)


@PROTOCOLS
@RESETS
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restarted_workers_skip_no_record_of_an_idle_partition(
    protocol: str, reset: str, how: str
) -> None:
    scene = Work(protocol, reset)

    async def main() -> None:
        scene.write(0, 5)
        scene.write(1, 5)
        await asyncio.sleep(10.0)  # now the record is too old for by_duration
        consumer, workers, task = scene.begin()
        await until(lambda: has_positions(consumer, 2))
        scene.write(0, 1)  # the other partition gets no records
        await until(lambda: scene.done)
        await asyncio.sleep(0.5)
        if how == "stop":
            workers.stop()
            await task
        else:
            consumer._host.close(0.0)
            task.cancel()
            await asyncio.wait([task])
        scene.write(0)
        scene.write(1)
        await asyncio.sleep(10.0)
        _, workers, task = scene.begin()
        first = {0: 5, 1: 5}
        await until(lambda: not scene.missing(first), 90.0)
        workers.stop()
        await task
        assert scene.missing(first) == set()

    with scene.simulation:
        scene.simulation.run(main())
    assert min(at for _, at in scene.done) >= 5


@PROTOCOLS
def test_no_record_of_an_idle_partition_is_lost_when_it_moves_to_another_worker(
    protocol: str,
) -> None:
    scene = Work(protocol, "latest")
    first: Any = None
    joins: list[int] = []
    moved = {0: 5, 1: 5}

    def between(_: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        """Write while the partitions have no reader; a reset would skip these records."""
        if request.body is None or len(joins) == JOINS:
            return
        joined = request.body.API_NAME == "JoinGroup"
        left = protocol == "consumer" and not has_positions(first, 2)
        if joined or left:
            joins.append(request.correlation_id)
        if left or len(joins) == JOINS:
            joins[:] = [0] * JOINS
            scene.write(0)
            scene.write(1)

    async def main() -> None:
        nonlocal first
        scene.write(0, 5)
        scene.write(1, 5)
        first, workers, task = scene.begin()
        await until(lambda: has_positions(first, 2))
        await asyncio.sleep(0.5)
        scene.simulation.cluster.observers.append(between)
        second, others, task2 = scene.begin()
        await until(lambda: has_positions(first, 1) and has_positions(second, 1))
        await until(lambda: not scene.missing(moved), 5.0)
        workers.stop()
        others.stop()
        await asyncio.wait([task, task2])
        assert len(joins) == JOINS
        assert scene.missing(moved) == set()

    with scene.simulation:
        scene.simulation.run(main())


def test_workers_that_start_at_the_beginning_commit_with_their_first_record() -> None:
    """Starting at the beginning again skips no record, so an additional request isn't needed."""
    scene = Work("classic", "earliest")
    commits: list[ReceivedRequest] = []

    def note(_: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        if request.body is not None and request.body.API_NAME == "OffsetCommit":
            commits.append(request)

    scene.simulation.cluster.observers.append(note)

    async def main() -> None:
        consumer, workers, task = scene.begin()
        await until(lambda: has_positions(consumer, 2))
        await asyncio.sleep(5.0)
        workers.stop()
        await task

    with scene.simulation:
        scene.simulation.run(main())
    assert commits == []


@PROTOCOLS
@RESETS
@pytest.mark.parametrize("subscribes", [True, False], ids=["subscribe", "assign"])
def test_auto_commit_commits_the_offset_of_a_reset_immediately(
    protocol: str, reset: str, subscribes: bool
) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    scene.world.advance(10)
    a = scene.member(auto_offset_reset=reset)
    if subscribes:
        a.subscribe(["t"])
    else:
        a.assign(PARTITIONS)
    while len(a.lag()) < 4 or None in a.lag().values():
        assert a.poll(0.05) == []
    scene.world.advance(0.5)  # much shorter than auto.commit.interval.ms
    assert scene.committed() == [10] * 4


def test_a_position_set_by_the_caller_is_not_committed_immediately() -> None:
    """Without auto-commit nothing is committed, and a `seek` waits for the interval."""
    scene = Scene()
    scene.write(range(40))
    a = scene.member(auto_offset_reset="latest", enable_auto_commit=False)
    a.subscribe(["t"])
    a.poll(10)
    assert scene.committed() == [None] * 4
    a.commit()
    assert scene.committed() == [10] * 4


def test_the_position_after_an_out_of_range_reset_is_committed_immediately() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(auto_offset_reset="latest")
    a.assign(PARTITIONS[:1])
    a.poll(1)
    a.seek(PARTITIONS[0], 4)
    a.commit()
    a.seek(PARTITIONS[0], 500)
    a.poll(1)
    assert a.position(PARTITIONS[0]) == 10
    scene.world.advance(0.5)
    assert scene.committed()[0] == 10


def test_a_seek_to_the_end_waits_for_the_interval_if_the_group_has_an_offset() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(auto_offset_reset="latest")
    a.assign(PARTITIONS[:1])
    a.commit({PARTITIONS[0]: 4})
    a.seek_to_committed(PARTITIONS[:1])
    a.seek_to_end(PARTITIONS[:1])
    assert a.position(PARTITIONS[0]) == 10
    scene.world.advance(0.5)
    assert scene.committed()[0] == 4
    scene.world.advance(10)
    assert scene.committed()[0] == 10


def test_a_commit_of_the_caller_is_never_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit failed; its retry is due while the caller's commit isn't answered yet."""
    scene = Scene()
    scene.write(range(40))
    a = scene.member(auto_offset_reset="latest", enable_auto_commit=False)
    group: Any = a._engine.group
    with a._engine.lock:
        group.remember_positions(True)

    def refused(*_: object, **__: object) -> Flow[None]:
        yield START
        raise OffsetMetadataTooLargeError

    with monkeypatch.context() as patch:
        patch.setattr(group.commits.stored, "commit", refused)
        a.subscribe(["t"])
        a.poll(3)
    assert scene.committed() == [None] * 4
    slow_api(scene.cluster, "OffsetCommit", 10.0)
    a.commit_async({PARTITIONS[0]: 12})
    scene.world.advance(30)
    assert scene.committed() == [12, 10, 10, 10]
