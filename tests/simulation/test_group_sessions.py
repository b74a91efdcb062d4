"""Sessions of classic groups that end, or seem to."""

from __future__ import annotations

import pytest
from tests.simulation.group_scene import PARTITIONS, Scene

pytestmark = pytest.mark.simulation


def test_an_outage_of_everything_that_outlasts_the_session_doubles_nothing() -> None:
    """Java hands on what it has; here nothing is handed out until the coordinator has spoken."""
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed("a", session_timeout_ms=10_000, heartbeat_interval_ms=1000)
    assert len(scene.read(a, 20, most=20)) == 20
    for broker in (1, 2, 3):
        scene.cluster.pause(broker)
    a.poll(0.1, 1)  # what is buffered is still handed out: the session may be a good one
    end = scene.world.now + 12.0
    while not a._engine.subscription.suspended and scene.world.now < end:
        a.poll(0.5, 1)
    assert a.poll(5.0) == []
    assert "nothing is handed out until one is" in str(a.explain())
    for broker in (1, 2, 3):
        scene.cluster.repair(broker)
    positions = {p: a.position(p) for p in PARTITIONS}
    left = 40 - sum(positions.values())
    scene.write(range(40, 44))
    assert len(scene.read(a, left + 4)) == left + 4
    assert [a.position(p) for p in PARTITIONS] == [11, 11, 11, 11]
    assert scene.log == ["a assigned 0 1 2 3"]
    a.close()
