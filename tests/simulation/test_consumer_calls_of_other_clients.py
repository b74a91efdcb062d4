"""Features that users of other clients expect of a consumer: wakeup, lag, offsets, seeks."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker
from tests.simulation.test_consumer import PARTITIONS as THREE
from tests.simulation.test_consumer import make, write

from odradek import AsyncConsumer
from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata, OffsetAndTimestamp
from odradek.common.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
    WakeupError,
)
from odradek.common.types import TopicPartition

P0 = THREE[0]
WAYS = {
    "poll": lambda c: c.poll(1000.0),
    "poll_arrow": lambda c: c.poll_arrow(1000.0),
    "records": lambda c: next(c.records()),
    "batches": lambda c: next(c.batches()),
    "for": lambda c: next(iter(c)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_wakeup_interrupts_the_waiting_call_or_else_the_next_one(way: str) -> None:
    world, _, consumer = make(1, count=0, background=True)
    consumer.assign(THREE)
    for delay in (None, 50.0):
        if delay is None:
            consumer.wakeup()
            consumer.wakeup()  # two wakeups count as one
        else:
            world.at(world.now + delay, consumer.wakeup)
        begun = world.now
        with pytest.raises(WakeupError):
            WAYS[way](consumer)
        assert world.now - begun == pytest.approx(delay or 0.0, abs=0.01)
        assert consumer.poll(1.0) == []  # the wakeup has no further effect
    consumer.wakeup()
    consumer.close()
    consumer.wakeup()


def test_a_wakeup_loses_no_record_and_none_is_read_twice() -> None:
    _, _, consumer = make(1)
    consumer.assign(THREE)
    found = []
    records = iter(consumer)
    for n in range(150):
        found.append(next(records))
        if n % 50 == 17:
            consumer.wakeup()
            with pytest.raises(WakeupError):
                next(records)
            records = iter(consumer)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(5.0)
    while len(found) < 300:
        found += consumer.poll(5.0)
    assert sorted(int(r.value or b"") for r in found) == list(range(300))


@PROTOCOLS
def test_a_wakeup_affects_neither_commits_nor_close(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(enable_auto_commit=False)
    scene.read(a, 40)
    a.wakeup()
    assert a.commit()
    assert a.committed(PARTITIONS)[PARTITIONS[0]] == OffsetAndMetadata(10, leader_epoch=0)
    a.close()
    assert scene.committed() == [10, 10, 10, 10]


def test_the_last_record_of_a_loop_ended_by_a_wakeup_is_committed() -> None:
    """The wakeup ends the wait for the next record, so the last record counts as processed."""
    scene = Scene()
    scene.write(range(40))
    with pytest.raises(WakeupError), scene.subscribed() as a:
        for n, _ in enumerate(a, 1):
            if n == 7:
                a.wakeup()
    assert sum(o or 0 for o in scene.committed()) == 7


def test_the_lag_is_computed_from_the_last_response() -> None:
    world, cluster, consumer = make(1)
    with pytest.raises(IllegalStateError, match="isn't assigned"):
        consumer.lag(P0)
    consumer.assign({P0: 90})
    assert consumer.lag(P0) is None
    assert len(consumer.poll(5.0, 3)) == 3
    assert consumer.lag(P0) == 7
    assert len(consumer.poll(5.0)) == 7
    assert consumer.lag(P0) == 0
    write(world, cluster, range(300, 330))
    consumer.poll(5.0, 1)
    assert consumer.lag(P0) == 9
    consumer.seek_to_end([P0])
    assert consumer.lag(P0) is None
    consumer.seek(("t", 0), 10)  # type: ignore[arg-type]
    assert consumer.lag(P0) == 100


@pytest.mark.parametrize(("isolation", "lag"), [("read_committed", 0), ("read_uncommitted", 5)])
def test_the_lag_with_read_committed_omits_records_of_an_open_transaction(
    isolation: str, lag: int
) -> None:
    world, cluster, consumer = make(1, isolation_level=isolation)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}
    with on_host(world.host("x"), Producer, settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(5):
            producer.send("t", b"9", partition=0)
        producer.flush()
        consumer.assign([P0])
        assert len(consumer.poll(5.0, 100)) == 100
        assert consumer.lag(P0) == lag


def test_reading_starts_at_the_offsets_of_an_assignment() -> None:
    _, _, consumer = make(1)
    consumer.assign({THREE[0]: 99, ("t", 1): OffsetAndMetadata(98, "", 0)}, until={THREE[1]: 99})  # type: ignore[dict-item]
    found = [(r.partition, r.offset) for r in consumer.records(5.0)]
    assert sorted(found) == [(0, 99), (1, 98)]
    consumer.assign({THREE[0]: 98, THREE[2]: OffsetAndTimestamp(99, 0)})
    assert sorted((r.partition, r.offset) for r in consumer.records(5.0)) == [
        (0, 98),
        (0, 99),
        (2, 99),
    ]
    for bad in ({THREE[1]: None}, {THREE[1]: 1.5}, {"t": 1}):
        with pytest.raises(ConfigurationError):
            consumer.assign(bad)  # type: ignore[arg-type]
    assert consumer.assignment() == [THREE[0], THREE[2]]


def test_an_offset_returned_by_another_call_can_be_sought() -> None:
    _, _, consumer = make(1)
    consumer.assign([P0])
    found = consumer.offsets_for_times({P0: 0})[P0]
    assert found is not None
    consumer.poll(5.0)
    consumer.seek(P0, found)
    (record,) = consumer.poll(5.0, 1)
    assert record.offset == found.offset
    assert record.topic_partition == P0
    assert type(record.topic_partition) is TopicPartition


def test_the_epoch_of_a_committed_offset_is_checked_like_that_of_a_record() -> None:
    """KIP-320: the epoch shows whether the log was truncated; an offset alone doesn't."""
    _, _, consumer = make(1)
    consumer.assign([P0])
    subscription = consumer._engine.subscription
    for place, epoch in ((OffsetAndMetadata(5, "", 3), 3), (5, -1), (OffsetAndTimestamp(5, 0), -1)):
        consumer.seek(P0, place)
        state = subscription.get(P0)
        assert (state.position, state.position_epoch, state.fetch_epoch) == (5, epoch, epoch)


def test_partitions_are_paused_individually() -> None:
    _, _, consumer = make(1)
    consumer.assign(THREE)
    consumer.pause(*THREE[:2])
    assert consumer.paused() == THREE[:2]
    consumer.resume(THREE[0])
    consumer.pause(("t", 2), [])  # type: ignore[arg-type]
    assert consumer.paused() == THREE[1:]
    consumer.resume(*consumer.paused())
    consumer.pause()
    assert consumer.paused() == []


def test_the_argument_timeout_ms_of_poll_is_deprecated(caplog: pytest.LogCaptureFixture) -> None:
    world, _, consumer = make(1, count=0)
    consumer.assign(THREE)
    consumer.poll(5.0)
    begun = world.now
    with pytest.warns(DeprecationWarning, match=r"write poll\(timeout=1\.5\)$") as warned:
        assert consumer.poll(timeout_ms=1500) == []
    assert [one.filename for one in warned] == [__file__]
    assert world.now - begun == pytest.approx(1.5)
    with pytest.raises(ConfigurationError, match="timeout_ms must be a number of milliseconds"):
        consumer.poll(timeout_ms="5")  # type: ignore[arg-type]
    assert caplog.records == []


def test_the_argument_timeout_ms_of_an_asyncio_poll_is_deprecated() -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1") as consumer:
            consumer.assign(THREE)
            with pytest.warns(DeprecationWarning, match=r"write poll\(timeout=0\.0\)$") as warned:
                assert await consumer.poll(timeout_ms=0) == []
            assert [one.filename for one in warned] == [__file__]

    asyncio.run(main())


@PROTOCOLS
def test_seek_to_committed_moves_positions_to_committed_offsets(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(enable_auto_commit=False)
    scene.read(a, 40)
    a.commit({PARTITIONS[0]: 4, PARTITIONS[1]: 5})
    a.seek_to_committed()
    assert [a.position(p, 0) for p in PARTITIONS] == [4, 5, 0, 0]  # auto.offset.reset: earliest
    assert len(scene.read(a, 31)) == 31
    a.seek_to_committed([PARTITIONS[1]])
    assert [a.position(p, 0) for p in PARTITIONS] == [10, 5, 10, 10]
    with pytest.raises(IllegalStateError, match="t-9 isn't assigned"):
        a.seek_to_committed([TopicPartition("t", 9)])


def test_seek_to_committed_needs_a_group_and_a_reset_policy() -> None:
    _, _, alone = make(1)
    alone.assign(THREE)
    with pytest.raises(IllegalStateError, match=r"seek_to_committed\(\) needs group.id"):
        alone.seek_to_committed()
    alone.close()
    scene = Scene()
    a = scene.member(auto_offset_reset="none")
    a.assign({PARTITIONS[0]: 0})
    with pytest.raises(IllegalStateError, match="has no committed offset"):
        a.seek_to_committed()


def test_no_record_is_returned_until_a_timed_out_seek_to_committed_has_finished() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(enable_auto_commit=False)
    a.assign(PARTITIONS)
    a.commit(dict.fromkeys(PARTITIONS, 9))
    scene.read(a, 4)
    every_broker(scene.cluster, "go_silent")
    with pytest.raises(KafkaTimeoutError, match="timed out waiting for the position of t-0"):
        a.seek_to_committed(timeout=1.0)
    assert a.poll(5.0) == []
    scene.cluster.heal()
    assert len(scene.read(a, 4)) == 4


@pytest.mark.parametrize("kind", ["record", "records", "batch", "table"])
def test_offsets_of_processed_records_are_sent_with_a_transaction(kind: str) -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(enable_auto_commit=False)
    a.assign(PARTITIONS[:1])
    given: Any = a.poll_arrow(5.0) if kind in ("batch", "table") else a.poll(5.0, 10)
    assert len(given) == 10
    made = {
        "record": lambda: given[6],
        "records": lambda: list(reversed(given)),
        "batch": lambda: given,
        "table": lambda: pa.Table.from_batches([given.slice(0, 3)]),
    }
    with scene.transactional() as producer:
        with producer.transaction():
            worked_on: Any = made[kind]  # pyarrow's stubs lack these types
            producer.send_offsets_to_transaction(worked_on(), a.group_metadata())
        with producer.transaction(), pytest.raises(ConfigurationError, match="send_offsets_to"):
            producer.send_offsets_to_transaction(pa.table({"topic": ["t"]}), "g")
    behind = {"record": 7, "records": 10, "batch": 10, "table": 3}[kind]
    assert scene.committed()[0] == behind
    a.seek_to_committed()
    assert a.position(PARTITIONS[0], 0) == behind
