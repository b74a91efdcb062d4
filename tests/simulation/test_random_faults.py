"""Random faults against the client engine: the invariants hold, and it always comes back."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import ADMIN, Config
from odradek.network.flow import START, Flow, Wait
from odradek.simulation import LinkProfile, SimulatedCluster, SimulatedHost, World
from odradek.simulation.checkers import Checkers
from odradek.simulation.cluster import OldAddresses
from odradek.simulation.link import Mode

pytestmark = pytest.mark.simulation

SEEDS = 80
FAULTS_UNTIL = 40.0
CALM = 60.0
"""Longer than the setup timeout at its largest: a dial may hang for 30 s."""

ONE_BROKER = (
    "crash",
    "bounce",
    "pause",
    "blackhole",
    "accept_then_reset",
    "ready_then_close",
    "go_silent",
)


def plan_faults(world: World, cluster: SimulatedCluster) -> None:
    """Draw a schedule; at `FAULTS_UNTIL` everything is repaired."""
    rng: random.Random = world.rng("faults")
    at = 1.0
    while (at := at + rng.expovariate(0.4)) < FAULTS_UNTIL:
        verb = rng.choice([*ONE_BROKER, *ONE_BROKER, "repair", "repair", "move", "metadata"])
        i = rng.randint(1, len(cluster.brokers))
        if verb == "move":
            after = rng.uniform(0.5, 15.0)
            old: OldAddresses = "refused" if rng.random() < 0.5 else "blackholed"
            world.at(at, partial(cluster.move, after=after, old=old))
        elif verb == "metadata":
            world.at(at, cluster.answer_empty_brokers)
            world.at(at + 3.0, lambda: cluster.answer_empty_brokers(False))
        else:
            world.at(at, partial(getattr(cluster, verb), i))
    world.at(FAULTS_UNTIL, lambda: repair(cluster))


def repair(cluster: SimulatedCluster) -> None:
    cluster.answer_empty_brokers(False)
    for i, broker in cluster.brokers.items():
        if broker.alive:
            cluster.repair(i)
        else:
            cluster.restart(i)


def use(engine: ClientEngine) -> Flow[None]:
    """A caller that wants something new all the time."""
    now = yield START
    while True:
        engine.metadata.request("a caller asks")
        now = yield Wait((), now + 0.5)


def play(seed: int, mode: Mode, clients: int = 2) -> tuple[World, SimulatedCluster, list[Any]]:
    world = World(seed, link=LinkProfile(jitter=0.003))
    cluster = SimulatedCluster(world, brokers=1 + seed % 4)
    cluster.create_topic("t", 4)
    checkers = Checkers(world)
    plan_faults(world, cluster)
    engines: list[tuple[SimulatedHost, ClientEngine]] = []
    for _ in range(clients):
        host = world.host("client", mode=mode)
        config = Config(ADMIN, {"bootstrap.servers": cluster.bootstrap_servers})
        engine = ClientEngine(config, host.rng())
        host.attach(engine)
        checkers.watch(engine.events, config)
        engine.metadata.want(["t"])
        engine.start(use(engine))
        host.wake()
        engines.append((host, engine))
    world.run_until(FAULTS_UNTIL + CALM)
    checkers.verify()
    return world, cluster, engines


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_invariants_hold_and_every_client_finds_the_living_brokers(seed: int) -> None:
    _, cluster, engines = play(seed, "messages" if seed % 2 else "bytes")
    living = {b.address for b in cluster.brokers.values()}
    for host, engine in engines:
        assert engine.ended is None
        snapshot = engine.metadata.snapshot
        assert snapshot is not None
        assert {b.address for b in snapshot.brokers.values()} == living
        topic = snapshot.topic("t")
        assert topic is not None
        assert topic.leaderless == 0
        assert engine.metadata.refreshed_at is not None
        assert engine.metadata.refreshed_at > FAULTS_UNTIL
        assert host.trace.of_kind("dial")


@pytest.mark.parametrize("seed", [3, 14])
def test_a_run_with_faults_is_the_same_each_time_and_in_both_modes(seed: int) -> None:
    runs = [
        [line for host, _ in play(seed, mode)[2] for line in host.trace.lines()]
        for mode in ("bytes", "bytes", "messages")
    ]
    assert runs[0] == runs[1] == runs[2]
