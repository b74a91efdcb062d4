"""An address fails while another connection attempt still resolves a name to the same address."""

from __future__ import annotations

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import ADMIN, Config
from odradek.network.connection import METADATA
from odradek.simulation import LinkProfile, SimulatedCluster, World
from odradek.simulation.checkers.invariants import Checkers
from odradek.simulation.world.world import DNS_DELAY


def test_an_attempt_that_waits_for_dns_keeps_the_backoff_of_its_address() -> None:
    world = World(5, link=LinkProfile(latency=0.02, jitter=0.0))
    cluster = SimulatedCluster(world, brokers=1)
    host = world.host()
    config = Config(ADMIN, {"bootstrap.servers": cluster.bootstrap_servers})
    engine = ClientEngine(config, host.rng())
    host.attach(engine)
    checkers = Checkers(world)
    checkers.watch(engine.events, config)
    (address,) = engine.updater.bootstrap
    world.at(0.085, lambda: cluster.go_silent(1))  # connected by then, metadata not answered yet
    host.wake()

    def dial_once_more() -> None:
        engine.post(lambda now: (engine.network.dial(address, now, purpose=METADATA), None)[1])
        host.wake()

    world.at(1.0, dial_once_more)
    arrives = 1.0 + DNS_DELAY / 2
    world.at(arrives - 0.02, lambda: cluster.brokers[1].disconnect_all(reset=True))
    world.run_until(3.0)
    (lost,) = host.trace.of_kind("disconnected")
    again = next(e for e in host.trace.of_kind("dial") if e.fields["purpose"] == METADATA)
    assert 1.0 < lost.at < 1.0 + DNS_DELAY < again.at
    assert again.at >= lost.at + float(lost.fields["backoff"]) - 1e-6
    checkers.verify()
