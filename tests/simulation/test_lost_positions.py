"""A leader that takes no position, not even the one that it has just named, meets no storm."""

from __future__ import annotations

import pytest
from tests.simulation.spoilt_answers import spoil_answers

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.simulation import SimulatedCluster, World

OUT_OF_RANGE = 1
BAD, SOUND = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene:
    """Two partitions; answers refuse the position of one, so often."""

    def __init__(self, patch: pytest.MonkeyPatch, *partitions: TopicPartition) -> None:
        self.refused, self.left = 0, 0
        spoil_answers(patch, FetchRequest.API_KEY, self._spoil)
        self.world = World(seed=3)
        cluster = SimulatedCluster(self.world, brokers=1)
        cluster.create_topic("t", partitions=2)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with on_host(self.world.host("p"), Producer, servers) as producer:
            for n in range(10):
                producer.send("t", b"%d" % n, partition=n % 2)
        config = {**servers, "auto.offset.reset": "earliest"}
        self.client = on_host(self.world.host("c"), Consumer, config)
        self.client.assign(partitions)

    def _spoil(self, answer: FetchResponse) -> None:
        for topic in answer.responses:
            for data in topic.partitions:
                if data.partition_index == 0 and self.left:
                    self.left -= 1
                    self.refused += 1
                    data.error_code, data.records = OUT_OF_RANGE, None

    def read(self, seconds: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        end = self.world.now + seconds
        while self.world.now < end:
            found += [(r.partition, r.offset) for r in self.client.poll(1.0)]
        return found

    def reads_at_once(self) -> bool:
        """All five records of a partition come without a pause."""
        begin, found = self.world.now, 0
        while found < 5:
            found += len(self.client.poll(1.0))
        return self.world.now - begin < 0.1


def test_resets_in_a_row_wait_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(monkeypatch, BAD)  # alone: another one's long poll would slow it down
    scene.left = 1_000_000
    assert scene.read(20.0) == []
    assert 15 <= scene.refused <= 40
    assert len([r for r in caplog.records if "isn't in its log" in r.message]) == scene.refused
    scene.left = 0
    assert scene.read(2.0) == [(0, n) for n in range(5)]


def test_the_other_partitions_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, BAD, SOUND)
    scene.left = 1_000_000
    assert scene.read(5.0) == [(1, n) for n in range(5)]


def test_a_single_reset_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, BAD)
    scene.left = 1
    assert scene.reads_at_once()


def test_the_count_begins_anew_with_a_good_answer_and_with_a_seek(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, BAD)
    for refused in (8, 1_000_000):  # a good answer comes in the end, or none
        scene.left = refused
        scene.read(10.0)
        scene.left = 1
        scene.client.seek(BAD, 0)
        assert scene.reads_at_once()
        scene.client.seek(BAD, 0)
