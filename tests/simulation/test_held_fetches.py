"""A broker holds a fetch while it has nothing. What else it is asked doesn't wait for that."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition
from odradek.simulation.world.environment import Verdict

WAIT = 10.0
"""fetch.max.wait.ms of these consumers: what waited for a held fetch would take about as long."""
SOON = 0.05
TPS = [TopicPartition("t", number) for number in range(3)]


class Scene(Stage):
    """One broker with thirty numbers in three partitions, and who has read all of some of them."""

    def __init__(self, partitions: int = 3, **config: object) -> None:
        super().__init__(brokers=1)
        self.write(range(30))
        self.reader: Consumer = self.consumer(fetch_max_wait_ms=int(WAIT * 1000), **config)
        self.reader.assign(TPS[:partitions])
        self.read(self.reader, 10 * partitions)
        self.world.advance(1.0)  # the fetch at the ends of the logs is held from here on

    @property
    def fetches(self) -> int:
        return self.cluster.brokers[1].requests["Fetch"]

    @property
    def purposes(self) -> list[str]:
        """What each of the reader's connections is for."""
        network = self.reader._engine.network
        return sorted(purpose for _, purpose in network.connections)

    def soon(self, count: int) -> list[int]:
        """Numbers that have come within a moment."""
        begin = self.world.now
        found: list[int] = []
        while len(found) < count:
            found += [int(r.value or b"") for r in self.reader.poll(SOON)]
            assert self.world.now - begin < SOON, found
        return sorted(found)


def test_a_seek() -> None:
    scene = Scene()
    for number in (0, 1, 0):
        scene.reader.seek(TPS[number], 7)
        assert scene.soon(3) == [21 + number, 24 + number, 27 + number]
    assert scene.purposes == ["beside", "data"], "one more connection, for all of them"
    assert scene.reader.poll(SOON) == []
    before = scene.fetches
    scene.world.advance(WAIT / 2)
    assert scene.fetches == before, "what has nothing isn't asked for again and again"


def test_a_seek_to_the_beginning_looks_it_up() -> None:
    scene = Scene()
    scene.reader.seek_to_beginning(TPS[2:])
    assert scene.soon(10) == list(range(2, 30, 3))


def test_a_resume() -> None:
    scene = Scene()
    scene.reader.pause(TPS[:1])
    scene.reader.seek(TPS[0], 0)
    scene.world.advance(WAIT)  # it is in no fetch now
    scene.reader.resume(TPS[:1])
    assert scene.soon(10) == list(range(0, 30, 3))


def test_an_assignment() -> None:
    scene = Scene(partitions=1)
    scene.reader.assign(TPS)
    assert len(scene.soon(20)) == 20


def test_a_partition_that_another_broker_leads_now() -> None:
    stage = Stage(brokers=2, partitions=2)
    stage.write(range(10))
    reader = stage.consumer(fetch_max_wait_ms=int(WAIT * 1000))
    reader.assign(TPS[:2])
    stage.read(reader, 10)
    reader.pause(TPS[:1])
    stage.write(range(10, 20))
    stage.read(reader, 5)
    stage.world.advance(1.0)
    stage.cluster.move_leader("t", 0)
    reader.resume(TPS[:1])
    begin = stage.world.now
    assert stage.read(reader, 5) == [10, 12, 14, 16, 18]
    assert stage.world.now - begin < SOON


def test_new_records_come_as_they_are_written() -> None:
    """What was sought beside the held fetch and found empty joins it at its end at the latest."""
    scene = Scene()
    scene.reader.seek(TPS[0], 10)
    assert scene.reader.poll(SOON) == []
    begin = scene.world.now
    scene.write(range(30, 33))
    assert scene.read(scene.reader, 3) == [30, 31, 32]
    assert scene.world.now - begin < 1.0, "the others' records end the held fetch"


@pytest.mark.parametrize("call", ["end_offsets", "beginning_offsets", "offsets_for_times"])
def test_a_question_for_offsets(call: str) -> None:
    scene = Scene()
    begin = scene.world.now
    if call == "offsets_for_times":
        assert scene.reader.offsets_for_times(dict.fromkeys(TPS, 0))[TPS[0]] is not None
    else:
        found = getattr(scene.reader, call)(TPS)
        assert found == dict.fromkeys(TPS, 10 if call == "end_offsets" else 0)
    assert scene.world.now - begin < SOON


def test_who_only_reads_has_one_connection() -> None:
    stage = Stage(brokers=1)
    stage.write(range(3_000), batch_size=1_000)
    reader = stage.consumer(max_partition_fetch_bytes=1_000, fetch_max_bytes=4_000)
    reader.assign(TPS)
    assert stage.read(reader, 3_000, most=7) == list(range(3_000))
    assert stage.cluster.brokers[1].requests["Fetch"] > 10
    stage.world.advance(2.0)
    assert [purpose for _, purpose in reader._engine.network.connections] == ["data"]


@pytest.mark.parametrize("verdict", Verdict)
def test_a_broker_that_takes_no_further_connection(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    dials = len(scene.world.dials)
    monkeypatch.setattr(scene.cluster.brokers[1], "accept", lambda _: verdict)
    scene.reader.seek(TPS[0], 0)
    begin = scene.world.now
    assert scene.read(scene.reader, 10) == list(range(0, 30, 3))
    assert scene.world.now - begin <= WAIT
    assert scene.reader.end_offsets(TPS[:1], 30.0) == {TPS[0]: 10}
    assert len(scene.world.dials) - dials <= 12
