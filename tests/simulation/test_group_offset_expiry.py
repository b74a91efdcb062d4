"""Committed offsets of idle partitions don't expire while the group is used."""

from __future__ import annotations

from typing import Any

from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene

from odradek.api.consumer import Consumer
from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.simulation.coordinators.committed_offsets import Committed

RETENTION = 900.0


def expiring(protocol: str) -> Scene:
    scene = Scene(protocol)
    settings = scene.cluster.group_settings
    settings.offsets_retention, settings.offsets_check_interval = RETENTION, 10.0
    scene.write(range(40))
    return scene


def stored(scene: Scene) -> dict[Any, Committed]:
    found = (shard.committed("g").stable for shard in scene.cluster.groups.shards())
    return next(f for f in found if f)


def idle(scene: Scene, consumer: Consumer, seconds: float) -> None:
    """Poll without records for this long."""
    until = scene.world.now + seconds
    while scene.world.now < until:
        scene.world.advance(20.0)
        assert consumer.poll(0) == []


def ages(scene: Scene) -> list[float]:
    return [scene.world.now - c.at for c in stored(scene).values()]


@PROTOCOLS
def test_idle_partitions_keep_their_offsets_after_close(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed()
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    idle(scene, a, 2 * RETENTION)
    assert max(ages(scene)) <= RENEW_AFTER  # what a killed member leaves
    a.close()
    assert max(ages(scene)) < 5.0
    scene.world.advance(RETENTION - 60.0)
    assert sum(o or 0 for o in scene.committed()) == 40
    scene.world.advance(120.0)
    assert scene.committed() == [None] * 4


def test_renewals_are_spread_over_time() -> None:
    scene = expiring("consumer")
    a = scene.subscribed()
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    idle(scene, a, 3 * RETENTION)
    assert len({c.at for c in stored(scene).values()}) > 1
    a.close()


@PROTOCOLS
def test_an_offset_that_the_caller_committed_is_repeated_as_it_was(protocol: str) -> None:
    scene = expiring(protocol)
    a = scene.subscribed()
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    own = OffsetAndMetadata(3, "mine", 0)
    a.commit({PARTITIONS[0]: own})
    idle(scene, a, 2 * RETENTION)
    a.close()
    kept = stored(scene)[PARTITIONS[0]]
    assert (kept.offset, kept.metadata, kept.leader_epoch) == (3, "mine", 0)
    assert kept.at > scene.world.now - 5.0


def test_a_program_that_commits_by_itself_renews_its_commits_itself() -> None:
    scene = expiring("consumer")
    a = scene.subscribed(enable_auto_commit=False)
    while sum(len(a.poll(0.5)) for _ in range(3)):
        pass
    a.commit()
    idle(scene, a, 2 * RETENTION)
    assert min(ages(scene)) > RETENTION
    a.close()
    scene.world.advance(20.0)
    assert scene.committed() == [None] * 4
