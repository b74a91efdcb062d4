"""Random outages in virtual time: accounting is right, no client loops, all recover."""

import random
from functools import partial
from typing import Any

import pytest
from tests.spec.world import ClusterPicture, World, parse
from tests.volume import some

from odradek.network.flow import Completion
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.simulation.world.host import SimulatedHost
from odradek.simulation.world.link import Link

MODES = ["up", "up", "up", "refused", "black_hole", "reset", "mute", "handshake"]


def books_are_right(world: World) -> None:
    network = world.engine.network
    by_id = network._by_id.values()
    pending = [c for c in by_id if not c.ready]
    assert network.dials.pending == len(pending)
    assert sum(s.dialling for s in network.states.all()) == len(pending)
    assert {id(c) for c in network.connections.values()} == {id(c) for c in by_id}
    assert set(links(world)) <= set(network._by_id)


def links(world: World) -> dict[int, Link]:
    assert isinstance(world.host, SimulatedHost)
    return world.host.links


def want(world: World, address: str, now: float) -> None:
    world.engine.network.ready(parse(address), now)


@pytest.mark.parametrize("seed", some(range(60), 20))
def test_accounting_is_right_and_clients_recover_after_any_outage(seed: int) -> None:
    rng = random.Random(seed)
    brokers = [f"b{n}:9092" for n in range(rng.choice([1, 2, 3, 8]))]
    strategy = rng.choice(["rebootstrap", "none"])
    world = World(
        {"bootstrap.servers": "front:9092,b0:9092", "metadata.recovery.strategy": strategy},
        seed=seed,
    )
    picture = ClusterPicture(brokers=dict(enumerate(brokers)), topics={"t": [0], "u": [0]})
    world.pictures["*"] = picture
    everything = ["front:9092", *brokers]
    world.modes.update(dict.fromkeys(everything, "up"))
    calls: list[Completion[Any]] = [world.engine.start(world.engine.topic("t", 9999.0))]
    for _ in range(80):
        world.run(world.now + rng.choice([0.001, 0.01, 0.1, 0.5, 3.0]))
        books_are_right(world)
        address = rng.choice(everything)
        match rng.randrange(7):
            case 0 | 1:
                world.mode(address, mode=rng.choice(MODES), cut=rng.random() < 0.7)
            case 2:
                world.cut(address, error=rng.choice([None, "reset"]))
            case 3:
                world.delays[address] = rng.choice([0.0, 0.0, 0.5, 2.5, 40.0])
            case 4:
                world.engine.post(partial(want, world, address))
            case 5:
                flow = world.engine.ask(
                    parse(address), ListOffsetsRequest(), ListOffsetsResponse, world.now + 9.0
                )
                calls.append(world.engine.start(flow))
            case _:
                world.engine.metadata.request("chance")
    assert world.engine.ended is None
    assert world.steps / world.now < 60
    world.modes.update(dict.fromkeys(everything, "up"))
    world.delays.clear()
    start = world.now
    world.engine.metadata.request("all is well again")
    last = world.engine.start(world.engine.topic("u", start + 60.0))
    world.run(start + 60.0)  # 30 s for a connection attempt without a response, 30 s for a request
    books_are_right(world)
    last.result()
    assert all(c.done for c in calls)
    assert world.engine.metadata.snapshot is not None
    world.engine.shut()
    world.run(world.now + 1.0)
    assert not links(world)
    assert world.engine.network.dials.pending == 0
