"""R-RB-7 over many seeds: how soon a live broker is reached after all known ones were replaced."""

from functools import partial

import pytest
from tests.spec.world import ClusterPicture, World, parse, up


def contact(count: int, mode: str, seed: int, *, connected: int, cut: bool = True) -> float:
    """Seconds until the rebootstrap succeeds; checks the dials per second on the way."""
    world = World({"bootstrap.servers": "front:9092"}, seed=seed)
    old = [f"b{n}:9092" for n in range(count)]
    world.pictures["*"] = ClusterPicture(brokers=dict(enumerate(old)), topics={"t": [0]})
    up(world, "front:9092", *old)
    world.wait(world.engine.topic("t", 9.0), 9.0).result()
    for address in old[:connected]:
        world.engine.post(partial(_want, world, address))
    world.run(3.0)
    start = world.now
    for address in old:
        world.mode(address, mode, cut=cut)
    world.pictures["*"] = ClusterPicture(brokers={1: "c1:9092"}, topics={"t": [1]})
    up(world, "c1:9092")
    world.engine.post(lambda now: world.engine.metadata.request("a call wants it"))
    world.run(start + 30.0, lambda: bool(world.kinds("rebootstrapped")))
    assert world.worst_second(start) <= 6
    assert world.engine.events.counts["rebootstrap"] == 1
    return world.kinds("rebootstrapped")[0].at - start


def _want(world: World, address: str, now: float) -> None:
    world.engine.network.ready(parse(address), now)


@pytest.mark.parametrize(
    ("mode", "cut", "goal"),
    [("refused", True, 2.0), ("black_hole", True, 5.0), ("black_hole", False, 12.0)],
    ids=["refused", "black_holed", "silent"],
)
@pytest.mark.parametrize("count", [1, 3, 10])
def test_contact_within_the_goal_at_p99_of_200_seeds(
    count: int, mode: str, cut: bool, goal: float
) -> None:
    times = sorted(contact(count, mode, s, connected=s % (count + 1), cut=cut) for s in range(200))
    assert times[197] <= goal, times[-5:]
