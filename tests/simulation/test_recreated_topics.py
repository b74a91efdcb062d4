"""Topics deleted and recreated between two metadata refreshes, without topic ids (R-MD-7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.producer import Producer
from odradek.common.errors.kafka import OffsetOutOfRangeError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest

TP = TopicPartition("t", 0)
WITHOUT_IDS = {
    MetadataRequest.API_KEY: (0, 9),
    ProduceRequest.API_KEY: (3, 9),
    FetchRequest.API_KEY: (4, 11),
}


class Scene(Stage):
    """A topic with leader epoch 4; with `early`, its records have epoch 0."""

    def __init__(self, records: int = 1, *, early: bool = False, reset: str = "earliest") -> None:
        super().__init__(partitions=1, versions=WITHOUT_IDS)
        if not early:
            self.raise_epoch()
        self.writer = self.producer()
        self.send(self.writer, *(b"old %d" % n for n in range(records)))
        self.reader = self.consumer(auto_offset_reset=reset)
        self.reader.assign([TP])
        if reset == "none":
            self.reader.seek(TP, 0)
        assert len(self.read_for(5)) == records
        if early:
            self.raise_epoch()
            self.world.advance(1)
            self.read_for(5)

    def raise_epoch(self) -> None:
        for broker in (2, 3, 1, 2):
            self.cluster.move_leader("t", 0, broker)
            self.world.advance(1)

    def make_anew(self, *values: bytes) -> None:
        self.cluster.delete_topic("t")
        self.cluster.create_topic("t", partitions=1)
        self.world.advance(1)
        with self.producer() as other:
            self.send(other, *values)

    def send(self, producer: Producer, *values: bytes) -> None:
        for value in values:
            producer.send("t", value).result(timeout=20)

    def read_for(self, seconds: float) -> list[bytes | None]:
        found: list[bytes | None] = []
        end = self.world.now + seconds
        while self.world.now < end:
            found += [r.value for r in self.reader.poll(0.5)]
        return found

    def epoch(self, client: Any) -> int:
        partition = client._engine.metadata.snapshot.partition("t", 0)
        return int(partition.leader_epoch)


def test_a_producer_continues_in_the_new_topic() -> None:
    scene = Scene()
    began = scene.world.now
    scene.make_anew(b"new 0")
    scene.send(scene.writer, b"new 1")  # acknowledged within 20 s
    assert scene.values() == [b"new 0", b"new 1"]
    assert scene.epoch(scene.writer) == 0
    # the first responses don't suffice, as a stale broker may have sent them
    assert scene.world.now - began > 10
    scene.send(scene.writer, *(b"%d" % n for n in range(5)))
    assert len(scene.cluster.records("t", 0)) == 7


def test_a_consumer_reads_the_new_topic_from_its_beginning() -> None:
    scene = Scene()
    scene.make_anew(b"new 0", b"new 1")
    assert scene.read_for(30) == [b"new 0", b"new 1"]
    assert scene.epoch(scene.reader) == 0


def test_a_position_within_the_new_log_is_reset_too() -> None:
    """Without comparing epochs, the consumer would skip the new records below its position."""
    scene = Scene(1)
    scene.make_anew(*(b"new %d" % n for n in range(3)))
    assert scene.read_for(30) == [b"new 0", b"new 1", b"new 2"]


def test_a_position_whose_epoch_exists_in_the_new_log_is_reset_too() -> None:
    """KIP-320's check alone would move the position to the new log's end, as after an election."""
    scene = Scene(5, early=True)
    scene.make_anew(b"new 0", b"new 1")
    assert scene.read_for(30) == [b"new 0", b"new 1"]


def test_a_position_is_reset_although_the_leader_is_unchanged() -> None:
    """The leader has a lower epoch now, so it responds UNKNOWN_LEADER_EPOCH."""
    scene = Scene()
    scene.cluster.delete_topic("t")
    scene.cluster.create_topic("t", assignments={0: [2, 3, 1]})
    assert scene.cluster.leader("t", 0) is scene.cluster.brokers[2]
    scene.send(scene.writer, b"new 0")
    assert scene.read_for(30) == [b"new 0"]


def test_poll_raises_for_a_recreated_topic_without_a_reset_policy() -> None:
    scene = Scene(reset="none")
    scene.make_anew(b"new 0", b"new 1")
    with pytest.raises(OffsetOutOfRangeError):
        scene.read_for(30)
    scene.reader.seek(TP, 0)
    assert scene.read_for(5) == [b"new 0", b"new 1"]


def test_a_recreated_topic_is_used_although_its_old_leader_left_the_cluster() -> None:
    scene = Scene()
    scene.cluster.stop(2)
    scene.make_anew(b"new 0")
    scene.send(scene.writer, b"new 1")
    assert scene.read_for(30) == [b"new 0", b"new 1"]
