"""An orderly close() or unsubscribe() beside a join of the member commits what was processed."""

from __future__ import annotations

import pytest
from tests.simulation.group_scene import Scene

from odradek.api.consumer import Consumer
from odradek.protocol.messages.join_group import API as JOIN
from odradek.protocol.messages.sync_group import API as SYNC

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


def joining(scene: Scene, key: int, seconds: float) -> tuple[Consumer, Consumer]:
    """Return a member with uncommitted records whose next join is in flight, and another one."""
    scene.write(range(40))
    given = {**COOPERATIVE, "auto.commit.interval.ms": 1_000_000}
    a = scene.subscribed("a", **given)
    scene.read(a, 40)
    assert a.poll(0) == []
    for broker in scene.cluster.brokers.values():
        broker.delay(key, seconds)
    return a, scene.subscribed("b", **given)


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
@pytest.mark.parametrize("after", [3.2, 4.2, 5.2, 6.2])
@pytest.mark.parametrize("key", [JOIN.key, SYNC.key])
def test_what_was_processed_is_committed(key: int, after: float, ends: str) -> None:
    scene = Scene()
    a, b = joining(scene, key, 3.0)
    until = scene.world.now + after
    while scene.world.now < until:
        b.poll(0.1)
    started = scene.world.now
    getattr(a, ends)()
    assert scene.world.now - started < 10.0
    assert sum(offset or 0 for offset in scene.committed()) == 40
