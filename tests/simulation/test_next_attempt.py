"""R-EV-1: during an outage explain() returns the time of the next attempt."""

from __future__ import annotations

import pytest
from tests.simulation.produce_script import every_broker

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import PRODUCER, Config
from odradek.simulation import SimulatedCluster, World


@pytest.mark.parametrize("seed", range(5))
def test_the_next_attempt_is_never_in_the_past(seed: int) -> None:
    world = World(seed)
    cluster = SimulatedCluster(world, 3)
    host = world.host("client", mode="messages")
    config = Config(PRODUCER, {"bootstrap.servers": cluster.bootstrap_servers})
    engine = ClientEngine(config, host.rng())
    host.attach(engine)
    host.wake()
    world.run_until(1.0)
    every_broker(cluster, "crash")
    engine.metadata.request("the test asks")
    host.wake()
    while world.now < 20.0:
        world.advance(0.01)
        at = engine.updater.next_attempt_at
        assert at is not None
        assert at >= world.now - 1e-9, "it is over already"
    assert engine.events.counts["round_failed"] > 3
