"""A producer whose topic is deleted and created again (R-ID-3, R-PR-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest

WITHOUT_IDS = {
    MetadataRequest.API_KEY: (0, 9),
    ProduceRequest.API_KEY: (3, 9),
    FetchRequest.API_KEY: (4, 11),
}


class Scene(Stage):
    """A topic with six partitions, and a producer with metadata.max.age.ms below its linger.ms."""

    def __init__(self, **cluster: Any) -> None:
        super().__init__(partitions=6, **cluster)
        self.writer = self.producer(linger_ms=3000, metadata_max_age_ms=1000)
        self.writer.partitions_for("t")
        self.world.advance(0.5)

    def send(self, partitions: Sequence[int] = range(6)) -> list[Any]:
        return [self.writer.send("t", b"%d" % p, partition=p) for p in partitions]

    def recreate(self, partitions: int) -> None:
        self.cluster.delete_topic("t")
        self.cluster.create_topic("t", partitions=partitions)

    def outcomes(self, sent: list[Any], within: float) -> list[KafkaError | None]:
        end = self.world.now + within
        while not all(f.done() for f in sent) and self.world.now < end:
            self.world.advance(0.1)
        assert all(f.done() for f in sent)
        return [f.exception() for f in sent]

    def written(self) -> int:
        return sum(
            len(self.cluster.records("t", p))
            for p in range(len(self.cluster.topics["t"].partitions))
        )


@pytest.mark.parametrize("partitions", [3, 12])
@pytest.mark.parametrize("used", [False, True], ids=["first records", "later records"])
def test_unsent_records_fail_if_the_number_of_partitions_differs(
    partitions: int, used: bool
) -> None:
    """Earlier, records of partitions 3 to 5 failed only after delivery.timeout.ms (two minutes)."""
    scene = Scene()
    if used:
        assert scene.outcomes(scene.send(), 10) == [None] * 6
    sent = scene.send()
    scene.recreate(partitions)
    for number, error in enumerate(scene.outcomes(sent, 10)):
        assert isinstance(error, TopicRecreatedError)
        assert error.partition.partition == number
        assert (error.retriable, error.maybe_stored) == (False, False)
        assert f"{partitions} partitions now, and had 6" in str(error)
        assert None not in (error.read_id, error.current_id)
    assert scene.written() == 0
    assert scene.outcomes(scene.send(range(3)), 10) == [None] * 3


def test_unsent_records_are_written_if_the_number_of_partitions_is_equal() -> None:
    scene = Scene()
    sent = scene.send()
    scene.recreate(6)
    assert scene.outcomes(sent, 10) == [None] * 6
    assert scene.written() == 6


def test_records_that_may_be_in_the_deleted_topic_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the records were sent again, readers of the deleted topic could get them twice."""
    scene = Scene()
    for broker in scene.cluster.brokers.values():
        broker.delays[ProduceRequest.API_KEY] = 20.0
    sent = scene.send()
    scene.world.advance(4)
    for broker in scene.cluster.brokers.values():
        broker.delays.clear()
    scene.disconnect()  # the responses are lost
    scene.recreate(6)
    for error in scene.outcomes(sent, 10):
        assert isinstance(error, TopicRecreatedError)
        assert error.maybe_stored
        assert "may have been written to the deleted topic" in str(error)
    assert scene.written() == 0
    assert scene.outcomes(scene.send(), 10) == [None] * 6


def test_records_for_a_removed_partition_fail_within_seconds_without_topic_ids() -> None:
    scene = Scene(versions=WITHOUT_IDS)
    sent = scene.send()
    scene.recreate(3)
    failed = scene.outcomes(sent, 15)
    assert failed[:3] == [None] * 3
    for error in failed[3:]:
        assert isinstance(error, UnknownTopicOrPartitionError)
        assert "the topic has 3 partitions" in str(error)
