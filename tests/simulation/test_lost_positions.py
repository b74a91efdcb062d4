"""Resets back off if a leader refuses each offset, even the one that it has just returned."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse

OUT_OF_RANGE = 1
BAD, SOUND = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene(Stage):
    """Two partitions; the next `often` responses refuse the position of one."""

    def __init__(self, patch: pytest.MonkeyPatch, *partitions: TopicPartition) -> None:
        self.refused, self.left = 0, 0
        spoil_answers(patch, FetchRequest.API_KEY, self._spoil)
        super().__init__(3, brokers=1, partitions=2)
        self.write(range(10))
        self.reader = self.consumer()
        self.reader.assign(partitions)

    def _spoil(self, answer: FetchResponse) -> None:
        for topic in answer.responses:
            for data in topic.partitions:
                if data.partition_index == 0 and self.left:
                    self.left -= 1
                    self.refused += 1
                    data.error_code, data.records = OUT_OF_RANGE, None

    def read_for(self, seconds: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        end = self.world.now + seconds
        while self.world.now < end:
            found += [(r.partition, r.offset) for r in self.reader.poll(1.0)]
        return found

    def reads_at_once(self) -> bool:
        """Read all five records of a partition; return whether they arrived without a pause."""
        begin, found = self.world.now, 0
        while found < 5:
            found += len(self.reader.poll(1.0))
        return self.world.now - begin < 0.1


def test_consecutive_resets_back_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # the long poll of the other partition would delay the fetches
    scene = Scene(monkeypatch, BAD)
    scene.left = 1_000_000
    assert scene.read_for(20.0) == []
    assert 15 <= scene.refused <= 40
    assert len([r for r in caplog.records if "isn't in its log" in r.message]) == scene.refused
    scene.left = 0
    assert scene.read_for(2.0) == [(0, n) for n in range(5)]


def test_other_partitions_are_read_during_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, BAD, SOUND)
    scene.left = 1_000_000
    assert scene.read_for(5.0) == [(1, n) for n in range(5)]


def test_a_single_reset_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, BAD)
    scene.left = 1
    assert scene.reads_at_once()


def test_the_backoff_restarts_after_a_successful_response_and_after_a_seek(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, BAD)
    for refused in (8, 1_000_000):  # with or without a successful response in the end
        scene.left = refused
        scene.read_for(10.0)
        scene.left = 1
        scene.reader.seek(BAD, 0)
        assert scene.reads_at_once()
        scene.reader.seek(BAD, 0)
