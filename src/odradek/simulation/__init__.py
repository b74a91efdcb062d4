"""Simulate brokers, connections and time for the released engine.

Everything runs in the caller's thread and in virtual time; a minute of outage takes milliseconds:

    from odradek.api.base import on_host
    from odradek.simulation import SimulatedCluster, World

    world = World(seed=7)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("flights", partitions=6)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = on_host(world.host("producer"), odradek.Producer, config)
    future = producer.send("flights", b"value")         # clients work as they do on real sockets
    world.after(2.0, lambda: cluster.move(after=30.0))
    future.result(timeout=10)                           # virtual seconds
    world.advance(60)                                   # all clients continue
    cluster.records("flights", 0)                       # (offset, timestamp, type, key, value …)
    world.hosts["producer"].trace.lines()               # what the client did, with times

`world.host(name, mode="messages")` passes messages as objects, without encoding them (for fleets);
with `background=False` a client only runs inside its own calls, as with `SelectorHost`.
"""

from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.cluster import SimulatedCluster, SimulatedFrontDoor
from odradek.simulation.brokers.cluster_state import Misbehaviour
from odradek.simulation.world.host import SimulatedHost
from odradek.simulation.world.link import LinkProfile
from odradek.simulation.world.trace import Trace, assert_same, difference, run_twice
from odradek.simulation.world.virtual_time import StuckError, VirtualTime, derived_rng
from odradek.simulation.world.world import Dial, World

__all__ = [
    "Dial",
    "LinkProfile",
    "Misbehaviour",
    "SimulatedBroker",
    "SimulatedCluster",
    "SimulatedFrontDoor",
    "SimulatedHost",
    "StuckError",
    "Trace",
    "VirtualTime",
    "World",
    "assert_same",
    "derived_rng",
    "difference",
    "run_twice",
]
