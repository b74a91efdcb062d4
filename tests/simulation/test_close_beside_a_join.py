"""An orderly close() or unsubscribe() beside a join of the member commits what was processed."""

from __future__ import annotations

import pytest
from tests.simulation.group_scene import Scene

from odradek.api.consumer import Consumer
from odradek.common.errors.kafka import UnknownServerError
from odradek.protocol.messages.join_group import API as JOIN
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import API as LEAVE
from odradek.protocol.messages.offset_commit import API as COMMIT
from odradek.protocol.messages.sync_group import API as SYNC
from odradek.simulation.brokers.disturbances import answer_error
from odradek.simulation.world.environment import ReceivedRequest

LATE = 3.0
"""Seconds by which answers are late."""
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
    a, b = joining(scene, key, LATE)
    until = scene.world.now + after
    while scene.world.now < until:
        b.poll(0.1)
    started = scene.world.now
    getattr(a, ends)()
    assert scene.world.now - started < LATE + 0.5
    assert sum(offset or 0 for offset in scene.committed()) == 40


@pytest.mark.parametrize("after", [4.2, 6.2, 7.2, 8.2])
def test_a_goodbye_waits_for_the_join_once_and_for_two_commits(after: float) -> None:
    """A commit beside the join is refused and repeated; then LeaveGroup is late as well."""
    scene = Scene()
    a, b = joining(scene, JOIN.key, LATE)
    for broker in scene.cluster.brokers.values():
        for key in (SYNC.key, COMMIT.key, LEAVE.key):
            broker.delay(key, LATE)
    until = scene.world.now + after
    while scene.world.now < until:
        b.poll(0.1)
    started = scene.world.now
    a.unsubscribe()
    assert scene.world.now - started < 3 * LATE + 0.5
    scene.cluster.heal()
    assert sum(offset or 0 for offset in scene.committed()) == 40


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_a_join_that_fails_meanwhile_is_repeated(ends: str) -> None:
    """The coordinator has begun the next generation and accepts commits of no other."""
    scene = Scene()
    a, b = joining(scene, JOIN.key, 1.0)
    failed = False

    def note(_: object, client: str, request: ReceivedRequest) -> None:
        nonlocal failed
        if client == "a" and isinstance(request.body, JoinGroupRequest) and not failed:
            failed = True
            answer_error(scene.cluster, "JoinGroup", UnknownServerError.code or 0, 1, done=True)

    scene.cluster.observers.append(note)
    while not failed:
        b.poll(0.1)
    started = scene.world.now
    getattr(a, ends)()
    assert scene.world.now - started < 5.0
    assert sum(offset or 0 for offset in scene.committed()) == 40
