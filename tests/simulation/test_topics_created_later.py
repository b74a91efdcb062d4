"""A classic group's leader finds each topic of the group soon after it is created."""

from __future__ import annotations

import pytest
from tests.simulation.group_scene import Scene
from tests.volume import some

from odradek.api.consumer import Consumer

LATER = "later"
SOON = 15.0
"""Allowed seconds: the leader refreshes every 10 s, though metadata.max.age.ms is 300 s."""


def owners_are(wanted: int, members: list[Consumer], scene: Scene, seconds: float) -> bool:
    """Return whether all partitions of the topic have an owner within `seconds`."""
    end = scene.world.now + seconds
    while sum(p.topic == LATER for member in members for p in member.assignment()) != wanted:
        if scene.world.now >= end:
            return False
        for member in members:
            member.poll(0.2)
    return True


@pytest.mark.parametrize("seed", some(range(1, 6), 2))
def test_a_new_topic_that_only_a_follower_subscribes_to_is_assigned(seed: int) -> None:
    scene = Scene("classic", seed)
    leader, follower = scene.member("leader"), scene.member("follower")
    leader.subscribe(["t"])
    leader.poll(5)
    follower.subscribe(["t", LATER])
    while not follower.assignment():
        leader.poll(0.2)
        follower.poll(0.2)
    scene.world.advance(60)
    scene.cluster.create_topic(LATER, partitions=1)
    assert owners_are(1, [leader, follower], scene, SOON)


@pytest.mark.parametrize("seed", some(range(1, 6), 2))
def test_a_topic_missing_during_an_assignment_is_assigned_later(seed: int) -> None:
    """The leader uses a pattern; earlier, the topic had no owner until topics were listed again."""
    scene = Scene("classic", seed)
    scene.cluster.create_topic(LATER, partitions=1)
    leader = scene.member("leader", enable_auto_commit=False)
    follower = scene.member("follower")
    leader.subscribe(pattern=f"t|{LATER}")
    leader.poll(5)
    scene.cluster.delete_topic(LATER)
    follower.subscribe(["t"])
    assert owners_are(0, [leader, follower], scene, 60)
    for _ in range(60):
        leader.poll(0.5)
        follower.poll(0.5)
    scene.cluster.create_topic(LATER, partitions=1)
    assert owners_are(1, [leader, follower], scene, SOON)


def test_a_pattern_is_resolved_again_at_each_rebalance() -> None:
    """Earlier, partitions of a member that left had no owner until metadata was refreshed."""
    scene = Scene("classic")
    follower, leader = scene.member("follower"), scene.member("leader")
    leader.subscribe(pattern=f"t|{LATER}")
    leader.poll(5)
    scene.cluster.create_topic(LATER, partitions=1)
    follower.subscribe([LATER])
    assert owners_are(1, [leader, follower], scene, SOON)
    follower.close()
    assert owners_are(1, [leader], scene, SOON)
