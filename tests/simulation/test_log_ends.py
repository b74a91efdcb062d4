"""The log end offset is known from the first response on, even if the position has changed.

A broker sends it once in a fetch session, and then when it changes (KIP-227). So a response that
arrives after a seek or an assignment still sets it, though its records are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 10


class Scene(Stage):
    """A consumer at the end of a partition; the broker holds the consumer's first fetch."""

    def __init__(self, **config: Any) -> None:
        super().__init__(brokers=1, partitions=2)
        self.write(range(2 * RECORDS))
        self.reader: Consumer = self.consumer(fetch_max_wait_ms=1000, **config)
        self.reader.assign({P0: RECORDS, P1: RECORDS})
        assert self.reader.poll(0.1) == []
        assert self.reader.lag() == {P0: None, P1: None}, "the fetch isn't answered"

    @property
    def told(self) -> tuple[int | None, int | None]:
        return self.reader.high_watermarks()[P0], self.reader.lag(P0)


def seek(reader: Consumer) -> None:
    reader.seek(P0, RECORDS)


def seek_back_and_read(reader: Consumer) -> None:
    reader.seek(P0, RECORDS - 1)
    assert [record.offset for record in reader.poll(0.5)] == [RECORDS - 1]


def seek_to_end(reader: Consumer) -> None:
    reader.seek_to_end([P0])


def assign_anew(reader: Consumer) -> None:
    reader.assign([P1])
    reader.assign({P0: RECORDS, P1: RECORDS})


def look_at_less(reader: Consumer) -> None:
    reader.assign([P0, P1], until={P0: RECORDS + 5})


@pytest.mark.parametrize(
    "overtake", [seek, seek_back_and_read, seek_to_end, assign_anew, look_at_less]
)
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_response_overtaken_by_a_seek_sets_the_log_end_offset(
    overtake: Callable[[Consumer], None], level: str
) -> None:
    scene = Scene(isolation_level=level)
    overtake(scene.reader)
    assert scene.reader.poll(3.0) == []
    assert scene.told == (RECORDS, 0)
    assert scene.reader._engine.subscription.at_end(P0)


def test_a_response_about_the_deleted_topic_does_not_count_for_the_recreated_one() -> None:
    scene = Scene()
    scene.cluster.delete_topic("t")
    scene.cluster.create_topic("t", partitions=2)
    assert scene.reader.poll(3.0) == []
    assert scene.told == (0, 0)


def test_a_response_overtaken_by_a_seek_does_not_change_the_position() -> None:
    scene = Scene()
    subscription = scene.reader._engine.subscription
    scene.reader.seek(P0, 2)
    assert not subscription.at_end(P0)
    assert [record.offset for record in scene.reader.poll(3.0)] == list(range(2, RECORDS))
    assert scene.told == (RECORDS, 0)
