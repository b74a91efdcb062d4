"""R-GR-3: committed offsets of idle partitions don't expire while the group is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker

from odradek import AsyncConsumer, AsyncWorkers, ConsumerRecord
from odradek.api.consumer import Consumer
from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.errors import KafkaTimeoutError
from odradek.protocol.messages.offset_commit import API as COMMIT
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.testing import KafkaSimulation

RETENTION = 900.0
QUIET: dict[str, Any] = {"fetch_max_wait_ms": 20_000}
"""Settings of consumers that read nothing for long: few fetches."""


def expiring(protocol: str) -> Scene:
    scene = Scene(protocol)
    settings = scene.cluster.group_settings
    settings.offsets_retention, settings.offsets_check_interval = RETENTION, 10.0
    scene.write(range(40))
    return scene


def stored(scene: Scene) -> dict[Any, Committed]:
    found = (shard.committed("g").stable for shard in scene.cluster.groups.shards())
    return next(f for f in found if f)


def idle(scene: Scene, consumer: Consumer, seconds: float) -> None:
    """Poll without receiving records for this time."""
    until = scene.world.now + seconds
    while scene.world.now < until:
        scene.world.advance(20.0)
        assert consumer.poll(0) == []


def ages(scene: Scene) -> list[float]:
    return [scene.world.now - c.at for c in stored(scene).values()]


@PROTOCOLS
def test_idle_partitions_keep_their_offsets_after_close(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed(**QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    idle(scene, a, 2 * RETENTION)
    assert max(ages(scene)) <= RENEW_AFTER  # offset ages if the member were killed now
    a.close()
    assert max(ages(scene)) < 5.0
    scene.world.advance(RETENTION - 60.0)
    assert sum(o or 0 for o in scene.committed()) == 40
    scene.world.advance(120.0)
    assert scene.committed() == [None] * 4


@PROTOCOLS
def test_a_revocation_renews_the_offsets_of_idle_partitions(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed("a", **QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    idle(scene, a, 100.0)
    assert min(ages(scene)) > 90.0
    b = scene.subscribed("b", **QUIET)
    begun = scene.world.now
    while not b.assignment():
        a.poll(0.2)
        b.poll(0.2)
    assert all(stored(scene)[p].at > begun for p in b.assignment())


def test_renewals_are_spread_over_time() -> None:
    scene = expiring("consumer")
    a = scene.subscribed(**QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    idle(scene, a, 3 * RETENTION)
    assert len({c.at for c in stored(scene).values()}) > 1
    a.close()


@PROTOCOLS
def test_an_offset_that_the_caller_committed_is_renewed_unchanged(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed(**QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    own = OffsetAndMetadata(3, "mine", 0)
    a.commit({PARTITIONS[0]: own})
    idle(scene, a, 2 * RETENTION)
    a.close()
    kept = stored(scene)[PARTITIONS[0]]
    assert (kept.offset, kept.metadata, kept.leader_epoch) == (3, "mine", 0)
    assert kept.at > scene.world.now - 5.0


def test_committed_offsets_are_not_renewed_without_auto_commit() -> None:
    scene = expiring("consumer")
    a = scene.subscribed(enable_auto_commit=False, **QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    a.commit()
    idle(scene, a, 2 * RETENTION)
    assert min(ages(scene)) > RETENTION
    a.close()
    scene.world.advance(20.0)
    assert scene.committed() == [None] * 4


@PROTOCOLS
def test_commits_of_all_positions_renew_idle_partitions(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed(enable_auto_commit=False, **QUIET)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    for _ in range(3):
        a.commit()
        idle(scene, a, RETENTION)
    a.commit()
    a.close()
    scene.world.advance(RETENTION - 60.0)
    assert sum(o or 0 for o in scene.committed()) == 40


@PROTOCOLS
def test_workers_renew_the_offsets_of_idle_partitions(protocol: str) -> None:
    with KafkaSimulation(seed=1) as simulation:
        settings = simulation.cluster.group_settings
        settings.offsets_retention, settings.offsets_check_interval = RETENTION, 10.0
        simulation.create_topic("in", partitions=2)
        for partition in (0, 1):
            simulation.produce("in", [b"1"], partition=partition)
        given = {
            "bootstrap.servers": simulation.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": QUIET["fetch_max_wait_ms"],
        }
        shards = simulation.cluster.groups.shards
        done: list[int] = []

        async def work(record: ConsumerRecord) -> None:
            done.append(record.partition)

        async def main() -> None:
            consumer = AsyncConsumer(given)
            workers = AsyncWorkers(consumer, work)

            async def run() -> None:
                async with consumer:
                    await workers.run("in")

            task = asyncio.create_task(run())
            await asyncio.sleep(2 * RETENTION)
            kept = [c.at for shard in shards() for c in shard.committed("g").stable.values()]
            # times of the commits that would remain if the worker were killed now
            assert min(kept) > simulation.world.now - RENEW_AFTER
            workers.stop()
            await task
            await asyncio.sleep(RETENTION - 60.0)

        simulation.run(main())
        assert sorted(done) == [0, 1]
        stable = [shard.committed("g").stable for shard in shards()]
        kept = {p.partition: c.offset for found in stable for p, c in found.items()}
        assert kept == {0: 1, 1: 1}


@PROTOCOLS
@pytest.mark.parametrize("auto", [True, False])
def test_a_commit_whose_response_is_late_is_not_overwritten_by_close(
    protocol: str, auto: bool
) -> None:
    """The caller's commit is stored and times out; close() must not renew the older offset."""
    scene = expiring(protocol)
    with scene.subscribed("first") as first:
        scene.read(first, 40)
        assert first.poll(0) == []
    scene.write(range(40, 80))
    a = scene.subscribed("a", enable_auto_commit=auto)
    if not auto:  # an option of Workers
        a._calls.group("").remember_positions(True)
    record = a.poll(5.0)[-1]
    last = {record.topic_partition: record.offset + 1}
    idle_since = scene.world.now
    for broker in scene.cluster.brokers.values():
        broker.delay(COMMIT.key, 1.0)
    with pytest.raises(KafkaTimeoutError), a:
        a.commit(last, timeout=0.5)
    scene.world.advance(3.0)
    assert scene.world.now < idle_since + RENEW_AFTER
    assert {p: stored(scene)[p].offset for p in last} == last


@PROTOCOLS
def test_a_commit_in_flight_is_not_overwritten_by_close(protocol: str) -> None:
    """close() begins before the caller's commit is answered."""
    scene = expiring(protocol)
    with scene.subscribed("first") as first:
        scene.read(first, 40)
        assert first.poll(0) == []
    scene.write(range(40, 80))
    a = scene.subscribed("a", enable_auto_commit=False)
    a._calls.group("").remember_positions(True)  # an option of Workers
    record = a.poll(5.0)[-1]
    last = {record.topic_partition: record.offset + 1}
    for broker in scene.cluster.brokers.values():
        broker.delay(COMMIT.key, 1.0)
    a.commit_async(last)
    a.close()
    assert {p: stored(scene)[p].offset for p in last} == last


@PROTOCOLS
def test_a_renewal_does_not_overwrite_an_offset_of_a_transaction(protocol: str) -> None:
    scene = expiring(protocol)
    with scene.subscribed("first") as first:
        scene.read(first, 40)
        assert first.poll(0) == []
    a = scene.subscribed("a", **QUIET)
    while not a.assignment():
        a.poll(0.5)
    producer = scene.transactional()
    member = ConsumerGroupMetadata(*a.group_metadata())  # as in another process
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PARTITIONS[0]: 60}, member)
    producer.commit_transaction()
    idle(scene, a, RENEW_AFTER)
    a.close()
    assert stored(scene)[PARTITIONS[0]].offset == 60
    producer.close()


@pytest.mark.parametrize("first", [True, False])
def test_close_names_the_records_that_will_be_read_again_if_its_commit_fails(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed("a", auto_commit_interval_ms=1_000_000)
    scene.read(a, 40)
    if not first:
        assert a.poll(0) == []
        a.commit()
        scene.write(range(40, 44))
        scene.read(a, 4)
    assert a.poll(0) == []
    every_broker(scene.cluster, "crash")
    a.close(timeout=2.0)
    (told,) = [r.getMessage() for r in caplog.records if "will be read again" in r.getMessage()]
    assert f": {40 if first else 4} records will be read again" in told
