"""A pause keeps fetched records for the resume (KAFKA-7548)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.call_checkers import check_limits

PARTITIONS = [TopicPartition("t", p) for p in range(4)]
RECORDS, SIZE = 1000, 1000


class Scene(Stage):
    """A consumer of four partitions with a megabyte in all; counts fetched records."""

    def __init__(self, **config: Any) -> None:
        super().__init__(5, brokers=1, partitions=4)
        self.write(range(RECORDS), size=SIZE)
        self.reader = self.consumer(**config)
        self.fetched: Counter[TopicPartition] = Counter()
        waiting = self.reader._engine.fetcher.waiting
        add = waiting.add

        def counted(entry: CompletedFetch) -> None:
            self.fetched[entry.state.partition] += entry.size
            add(entry)

        waiting.add = counted  # type: ignore[method-assign]
        self.seen: Counter[int] = Counter()
        self.reader.assign(PARTITIONS)

    def poll(self, most: int = 500) -> set[int]:
        records = self.reader.poll(1.0, most)
        for r in records:
            assert r.offset == self.seen[r.partition]
            self.seen[r.partition] += 1
        check_limits(self.reader._engine, 1)
        return {r.partition for r in records}

    @property
    def bytes(self) -> int:
        return self.fetched.total()


def test_fetched_records_are_returned_after_the_resume() -> None:
    scene = Scene()
    while scene.seen.total() < RECORDS:
        scene.poll(10)
        scene.reader.pause(PARTITIONS)
        assert scene.reader.poll(0.05) == []
        scene.reader.resume(PARTITIONS)
    assert scene.bytes < 1.1 * RECORDS * (SIZE + 20)  # each byte is fetched once
    assert set(scene.seen.values()) == {RECORDS // 4}


def test_other_partitions_are_read_while_some_are_paused() -> None:
    scene = Scene()
    scene.poll(1)
    first = scene.bytes
    scene.reader.pause(PARTITIONS[1:])
    assert scene.reader.paused() == PARTITIONS[1:]
    while scene.seen[0] < RECORDS // 4:
        assert scene.poll(50) == {0}
    assert scene.reader.poll(1.0) == []
    scene.reader.resume(PARTITIONS[1:])
    while scene.seen.total() < RECORDS:
        scene.poll()
    assert first <= scene.bytes < 1.1 * RECORDS * (SIZE + 20)


@pytest.mark.parametrize("what", ["seek", "assign", "unassign"])
def test_buffered_records_of_a_paused_partition_are_dropped_if_invalid(what: str) -> None:
    scene = Scene()
    scene.poll(1)
    client, tp = scene.reader, PARTITIONS[2]
    client.pause([tp])
    assert scene.poll(1)
    waiting = client._engine.fetcher.waiting
    assert [state.partition for state in waiting.paused] == [tp]
    if what == "seek":
        client.seek(tp, 7)
    else:
        client.assign([p for p in PARTITIONS if p != tp])
    assert scene.poll(1)
    assert not waiting.paused
    assert not waiting._aside
    if what == "seek":
        client.resume([tp])
        scene.seen[2] = 7
    elif what == "assign":
        client.assign(PARTITIONS)
        client.seek(tp, 0)
        scene.seen[2] = 0
    while scene.poll():
        pass
    left_out = RECORDS // 4 if what == "unassign" else 0
    assert sum(scene.seen.values()) == RECORDS - left_out


def test_records_of_a_response_that_arrives_after_the_pause_are_kept() -> None:
    scene = Scene()
    asked = scene.reader._engine.fetcher._asked
    while not any(one.under_way for one in asked.values()):
        assert scene.reader.poll(0) == []
        scene.world.advance(0.0005)
    scene.reader.pause(PARTITIONS)
    assert scene.reader.poll(1.0) == []
    before = scene.bytes
    assert before
    scene.reader.resume(PARTITIONS)
    assert scene.reader.poll(0)
    assert scene.bytes == before


def test_paused_partitions_leave_memory_for_other_partitions() -> None:
    limits = {"fetch.max.bytes": 100_000, "max.partition.fetch.bytes": 60_000}
    scene = Scene(**limits)
    for tp in PARTITIONS[1:]:  # pause each partition once some of its records are buffered
        waiting = scene.reader._engine.fetcher.waiting
        while not any(e.state.partition == tp for e in waiting.fetched):
            assert scene.poll(20)
        scene.reader.pause([tp])
    while scene.seen[0] < RECORDS // 4:
        assert scene.poll(20) == {0}  # although the buffer holds records of paused partitions
    scene.reader.resume(PARTITIONS)
    while scene.seen.total() < RECORDS:
        assert scene.poll()
