"""Coordinators that are isolated from their cluster and still claim their role (R-RB-9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.transactional import P0, Scene, send


class Apart(Scene):
    """The coordinator of transactional id x or group g is isolated, and clients ask it first."""

    def __init__(self, coordinator: Callable[[Apart], int]) -> None:
        super().__init__()
        self.zombie = 0
        with self.producer() as producer:
            producer.begin_transaction()
            producer.send_offsets_to_transaction({P0: 1}, "g")
            producer.commit_transaction()
        self.zombie = coordinator(self)

    def cut_off(self) -> None:
        self.cluster.zombie_leader(self.zombie, fenced=0.5)
        self.world.advance(2.0)

    def settings(self, **more: Any) -> dict[str, Any]:
        given = super().settings(**more)
        if self.zombie:
            given["bootstrap.servers"] = str(self.cluster.brokers[self.zombie].address)
        return given


def test_a_transaction_finds_its_new_coordinator_if_the_isolated_one_is_silent() -> None:
    scene = Apart(lambda s: s.coordinator())
    scene.cut_off()
    begin = scene.world.now
    with scene.producer() as producer:
        producer.begin_transaction()
        send(producer, range(3))
        producer.commit_transaction()
    assert scene.world.now - begin < 20.0
    assert scene.visible() == [0, 1, 2]


def test_committed_offsets_come_from_the_new_coordinator_of_the_group() -> None:
    scene = Apart(lambda s: s.coordinator_of_group().id)
    writer = scene.producer()
    writer.begin_transaction()
    writer.send_offsets_to_transaction({P0: 2}, "g")
    scene.cut_off()
    writer.commit_transaction()  # the isolated broker isn't notified
    begin = scene.world.now
    with scene.producer(transactional_id="y") as other:
        assert other.committed_offsets("g")[P0].offset == 2
    assert scene.world.now - begin < 20.0
