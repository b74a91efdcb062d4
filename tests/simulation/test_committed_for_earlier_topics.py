"""Offsets committed by name for a topic that is deleted and recreated (R-ID-3, R-MD-7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import NoSuchOffsetError, OffsetAndMetadata
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.coordinators.group_coordinator import GroupShard

TP = TopicPartition("t", 0)


class Scene(Stage):
    """A topic with 20 records of leader epoch 2, and a group's committed offset."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.cluster.move_leader("t", 0)
        self.cluster.move_leader("t", 0)
        self.world.advance(1)
        self.epoch = self.cluster.topics["t"].partitions[0].leader_epoch
        with self.producer() as producer:
            for n in range(20):
                producer.send("t", b"%d" % n, partition=0)

    def commit(self, offset: int, epoch: int) -> None:
        with self.member() as other:
            other.commit({TP: OffsetAndMetadata(offset, "", epoch)})

    def member(self, reset: str = "latest") -> Consumer:
        given: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        return self.consumer(auto_offset_reset=reset, **given)

    def offsets(self, reset: str = "latest") -> list[int]:
        consumer, found = self.member(reset), []
        consumer.assign([TP])
        end = self.world.now + 15  # metadata with a lower epoch is refreshed first (R-ID-4)
        while self.world.now < end:
            found += [r.offset for r in consumer.poll(0.5)]
        return found


@pytest.mark.parametrize("newer", [0, 3], ids=["same epoch", "newer epoch"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_offset_beyond_the_end_without_an_election_is_reset_to_the_beginning(
    newer: int, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The offset belongs to an earlier topic; starting at the end would skip all 20 records."""
    scene = Scene()
    scene.commit(50, scene.epoch + newer)
    assert scene.offsets(reset) == list(range(20))
    reason = "the topic was deleted and recreated" if newer else "earlier topic of this name"
    assert reason in caplog.text


def test_an_offset_beyond_the_end_raises_with_auto_offset_reset_none() -> None:
    scene = Scene()
    scene.commit(50, scene.epoch)
    with pytest.raises(NoSuchOffsetError, match="offset 50"):
        scene.offsets("none")


def test_the_log_names_both_causes_of_an_offset_beyond_the_end_with_an_older_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Reading continues at the offset where the logs diverge, as after an election (KIP-320)."""
    scene = Scene()
    scene.commit(20, scene.epoch)
    scene.cluster.log("t", 0).truncate(12)
    scene.cluster.move_leader("t", 0)
    assert scene.offsets() == []
    assert "unclean election, or the offset was committed for an earlier topic" in caplog.text


def test_a_committed_offset_within_the_log_is_used(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.commit(15, scene.epoch)
    assert scene.offsets() == list(range(15, 20))
    assert "earlier topic" not in caplog.text


def test_a_deleted_topic_raises_an_error_although_its_offset_still_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator that isn't loaded when a topic is deleted keeps the topic's offsets."""
    monkeypatch.setattr(GroupShard, "forget_topic", lambda *_: None)
    monkeypatch.setattr(StoredGroupOffsets, "forget_topic", lambda *_: None)
    stage = Stage(brokers=1, partitions=1)
    stage.write(range(10))
    consumer = stage.consumer(group_id="g", enable_auto_commit=False, default_api_timeout_ms=5000)
    consumer.assign([TP])
    stage.read(consumer, 10)
    consumer.commit()
    stage.cluster.delete_topic("t")
    stage.world.advance(3.0)
    consumer.seek_to_committed(timeout=1.0)
    asked = stage.cluster.brokers[1].requests["OffsetFetch"]
    with pytest.raises(UnknownTopicOrPartitionError, match="t-0 doesn't exist"):
        for _ in range(20):
            consumer.poll(0.5)
    assert stage.cluster.brokers[1].requests["OffsetFetch"] == asked
