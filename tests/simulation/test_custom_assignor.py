"""Custom assignors as entries of partition.assignment.strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.simulation.scene import Stage

import odradek
from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition


class Weighted:
    """Assign each member a share by the weight in its user data."""

    name = "weighted"
    protocol = odradek.types.RebalanceProtocol.EAGER

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.asked: list[tuple[int, int]] = []

    def user_data(self, last: Sequence[TopicPartition], generation: int) -> bytes:
        self.asked.append((len(last), generation))
        return bytes([self.weight])

    def assign(
        self, members: Mapping[str, odradek.types.MemberSubscription], topics: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        turns = [
            m for m, said in sorted(members.items()) for _ in range((said.user_data or b"")[0])
        ]
        given: dict[str, list[TopicPartition]] = {m: [] for m in members}
        for topic, count in sorted(topics.items()):
            for n in range(count):
                given[turns[n % len(turns)]].append(TopicPartition(topic, n))
        return given


class Broken(Weighted):
    def assign(
        self, members: Mapping[str, odradek.types.MemberSubscription], topics: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        raise ZeroDivisionError("no weights")


class Scene(Stage):
    def __init__(self) -> None:
        super().__init__(5, partitions=8)

    def member(self, name: str, assignor: odradek.types.Assignor) -> Consumer:
        consumer = self.consumer(
            name=name,
            group_id="g",
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[assignor],
        )
        consumer.subscribe(["t"])
        return consumer

    def poll(self, *members: Consumer, until: Callable[[], bool]) -> None:
        end = self.world.now + 30
        while not until():
            assert self.world.now < end
            for member in members:
                member.poll(0.1)


def test_members_get_the_assignment_of_the_leaders_assignor() -> None:
    scene = Scene()
    light, heavy = Weighted(1), Weighted(3)
    a = scene.member("a", light)
    scene.poll(a, until=lambda: len(a.assignment()) == 8)
    b = scene.member("b", heavy)
    scene.poll(a, b, until=lambda: (len(a.assignment()), len(b.assignment())) == (2, 6))
    assert light.asked[0] == (0, -1)
    assert light.asked[-1][0] == 8, "it is told what it was given last, though that is revoked"
    assert light.asked[-1][1] >= 1
    b.close()
    scene.poll(a, until=lambda: len(a.assignment()) == 8)
    a.close()


def test_an_assignor_that_blocks_raises_an_error_at_the_leader_only() -> None:
    scene = Scene()
    a = scene.member("a", Weighted(1))
    a._host.worker_delay = 1e6  # type: ignore[attr-defined]
    scene.world.advance(20)
    assert a.partitions_for("t")  # other calls aren't delayed
    with pytest.raises(odradek.errors.AssignorError, match=r"'weighted' didn't finish .*\(45 s\)"):
        scene.poll(a, until=lambda: scene.world.now > 60)
    a.close()


class Nonsense(Weighted):
    def assign(
        self, members: Mapping[str, odradek.types.MemberSubscription], topics: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        return {member: [7] for member in members}  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Broken, "'weighted' raised ZeroDivisionError: no w"),
        (Nonsense, "'weighted' returned an invalid assignment: TypeErr"),
    ],
)
def test_poll_of_the_leader_raises_the_error_of_an_assignor(
    kind: type[Weighted], says: str
) -> None:
    scene = Scene()
    a = scene.member("a", kind(1))
    with pytest.raises(odradek.errors.AssignorError, match=says):
        scene.poll(a, until=lambda: False)
    a.close()
