"""Committed offsets of recreated topics on brokers that store them by name (R-ID-3, before 4.1).

Kafka's coordinator deletes the offsets of a deleted topic a little later, and keeps them if it
isn't loaded meanwhile. A member then must not take them for offsets of the new topic.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import MADE
from tests.simulation.test_offsets_keep_topic_ids import TP, Recreated, values

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import (
    NoOffsetForPartitionError,
    NoSuchOffsetError,
    OffsetAndMetadata,
)
from odradek.simulation.brokers.broker_faults import release_of_all
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.coordinators.group_coordinator import GroupShard

GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


class Paused(Recreated):
    """A member whose partition is paused at the committed offset 50 of topic t."""

    def __init__(self, release: str, reset: str, epoch: int) -> None:
        super().__init__("classic")
        release_of_all(self.cluster, release)
        self.fill(50, "old")
        with self.consumer(name="b", **GROUP) as other:
            other.commit({TP: OffsetAndMetadata(50, "", epoch)})
        config = {**GROUP, "auto_offset_reset": reset, "metadata_max_age_ms": 5000}
        self.paused: Consumer = self.consumer(name="a", **config)
        MADE.append(self.paused)
        self.paused.subscribe(["t"], on_assigned=lambda consumer, p: consumer.pause(p))
        assert self.poll_for(self.paused, 5) == []
        assert self.paused.position(TP) == 50

    def keep_offsets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the coordinator keep the offsets of deleted topics."""
        monkeypatch.setattr(GroupShard, "forget_topic", lambda *_: None)
        monkeypatch.setattr(StoredGroupOffsets, "forget_topic", lambda *_: None)

    def delete_offsets_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the coordinator delete the offsets of a deleted topic after a second."""
        delete, after = GroupShard.forget_topic, self.world.time.after
        monkeypatch.setattr(
            GroupShard,
            "forget_topic",
            lambda shard, topic: after(1.0, lambda: delete(shard, topic)),
        )


@pytest.mark.parametrize("release", ["3.5", "3.9", "newest"])
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "deleted later"])
def test_a_recreated_topic_is_read_from_its_beginning_after_a_pause(
    release: str, reset: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata named the old topic after the look-up, so the offset isn't one of the new topic."""
    scene = Paused(release, reset, 0)
    scene.poll_for(scene.paused, 60)
    if kept:
        scene.keep_offsets(monkeypatch)
    else:
        scene.delete_offsets_later(monkeypatch)
    scene.recreate(count=100, noticed=False)
    scene.paused.resume([TP])
    if reset == "none":
        with pytest.raises((NoSuchOffsetError, NoOffsetForPartitionError)):
            scene.poll_for(scene.paused, 20)
    else:
        records = scene.poll_for(scene.paused, 30)
        assert values(records) == [b"new %d" % n for n in range(100)]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("elections", [0, 2])
def test_a_kept_offset_beyond_the_end_of_the_new_topic_skips_no_record(
    reset: str, epoch: int, elections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset 50 is looked up again, and is out of range in a topic of 30 records."""
    scene = Paused("3.9", reset, epoch)
    scene.keep_offsets(monkeypatch)
    scene.cluster.delete_topic("t")
    scene.cluster.create_topic("t", partitions=1)
    for _ in range(elections):
        scene.cluster.move_leader("t", 0)
    scene.world.advance(1)
    scene.fill(30, "new")
    scene.paused.resume([TP])
    records = scene.poll_for(scene.paused, 40)
    assert values(records) == [b"new %d" % n for n in range(30)]


def test_the_recreation_of_another_topic_does_not_hide_that_metadata_had_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metadata that was requested after the look-up has a new id of u and the old id of t."""
    scene = Recreated("classic")
    release_of_all(scene.cluster, "3.9")
    scene.fill(50, "old")
    with scene.consumer(name="b", **GROUP) as other:
        other.commit({TP: OffsetAndMetadata(50, "", 0)})

    def assigned(consumer: Any, partitions: Any) -> None:
        consumer.pause(partitions)
        scene.cluster.delete_topic("u")
        scene.cluster.create_topic("u", partitions=1)

    member: Consumer = scene.consumer(name="a", **GROUP)
    MADE.append(member)
    member.subscribe(["t", "u"], on_assigned=assigned)
    scene.poll_for(member, 60)
    monkeypatch.setattr(GroupShard, "forget_topic", lambda *_: None)
    monkeypatch.setattr(StoredGroupOffsets, "forget_topic", lambda *_: None)
    scene.recreate(count=100, noticed=False)
    member.resume([TP])
    assert values(scene.poll_for(member, 40)) == [b"new %d" % n for n in range(100)]


def test_an_offset_that_retention_deleted_is_reset_by_the_policy_after_a_recreation() -> None:
    scene = Recreated("classic")
    release_of_all(scene.cluster, "3.9")
    scene.fill(5, "old")
    member: Consumer = scene.consumer(name="a", **{**GROUP, "auto_offset_reset": "latest"})
    MADE.append(member)
    member.subscribe(["t"])
    scene.poll_for(member, 5)
    scene.recreate(count=10, noticed=False)
    scene.poll_for(member, 15)
    assert member.position(TP) == 10
    member.commit()
    member.pause([TP])
    scene.fill(90, "more")
    with scene.client(Admin, "admin") as admin:
        admin.delete_records({TP: 60})
    member.seek_to_committed([TP], timeout=5)
    member.resume([TP])
    assert scene.poll_for(member, 30) == []
    assert member.position(TP) == 100


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "deleted"])
def test_no_record_is_skipped_if_the_topic_is_recreated_right_after_the_look_up(
    reset: str, epoch: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset lies beyond the end, or is deleted; a leader is elected between the records."""
    scene = Recreated("classic")
    release_of_all(scene.cluster, "3.9")
    scene.fill(50, "old")
    with scene.consumer(name="b", **GROUP) as other:
        other.commit({TP: OffsetAndMetadata(50, "", epoch)})
    if kept:
        monkeypatch.setattr(GroupShard, "forget_topic", lambda *_: None)
        monkeypatch.setattr(StoredGroupOffsets, "forget_topic", lambda *_: None)
    look_up, done = PartitionState.looked_up_by_name, list[float]()

    def looked_up(state: PartitionState, now: float) -> None:
        look_up(state, now)
        if not done:
            done.append(now)
            scene.cluster.delete_topic("t")
            scene.cluster.create_topic("t", partitions=1)

    monkeypatch.setattr(PartitionState, "looked_up_by_name", looked_up)
    member: Consumer = scene.consumer(name="a", **{**GROUP, "auto_offset_reset": reset})
    MADE.append(member)
    member.subscribe(["t"], on_assigned=lambda consumer, p: consumer.pause(p))
    scene.poll_for(member, 5)
    assert done
    scene.fill(10, "new")
    scene.cluster.move_leader("t", 0)
    scene.world.advance(1)
    scene.fill(20, "newer")
    member.resume([TP])
    assert len(scene.poll_for(member, 40)) == 30
