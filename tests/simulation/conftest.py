"""Fixtures of the simulation tests: simulated environments, clusters and clients, with checkers.

With ODRADEK_SIMULATION_HOST=asyncio, the clients run on the package's asyncio I/O host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.simulation.group_scene import MADE
from tests.simulation.produce_script import ProduceScript, Scripted, make

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.simulation import LinkProfile, SimulatedCluster, World
from odradek.simulation.checkers.invariants import Checkers
from odradek.simulation.world.link import Mode
from odradek.testing.virtual.world_host import WorldAsyncioHost

if os.environ.get("ODRADEK_SIMULATION_HOST") == "asyncio":
    World.make_host = WorldAsyncioHost


@pytest.fixture
def world() -> World:
    """Create a simulated environment with seed 1; tests that need other seeds create their own."""
    return World(seed=1)


@pytest.fixture
def cluster(world: World) -> SimulatedCluster:
    """Create three brokers with one bootstrap address."""
    return SimulatedCluster(world, brokers=3)


@pytest.fixture
def checkers(world: World) -> Iterator[Checkers]:
    """Check each client that is passed to `watch`; raise at the end of the test."""
    made = Checkers(world)
    yield made
    made.verify()


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    """Close the consumers that a test has left open."""
    yield
    while MADE:
        MADE.pop(0).close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """Create producers whose leaders follow a script; partition 0 already contains one record."""
    script, producers = ProduceScript().install(monkeypatch), []

    def scripted_of(seed: int, **config: Any) -> tuple[Any, Any, Producer, ProduceScript]:
        world, cluster, producer = make(seed, **{"linger.ms": 0, "batch.size": 100, **config})
        producers.append(producer)
        producer.send("t", b"first", partition=0).result(timeout=5)
        return world, cluster, producer, script

    yield scripted_of
    for producer in producers:
        producer.close()


@pytest.fixture
def simulated_client(
    world: World, cluster: SimulatedCluster, checkers: Checkers
) -> Iterator[Callable[..., Any]]:
    """Create a client in the simulation: `simulated_client("producer", linger_ms=0)`.

    `name`, `mode`, `background` and `link` configure its I/O host. The client is closed and checked
    at the end of the test.
    """
    clients = []

    def make(
        kind: str,
        *,
        name: str | None = None,
        mode: Mode = "bytes",
        background: bool = True,
        link: LinkProfile | None = None,
        **config: Any,
    ) -> Any:
        facade = getattr(import_module(f"odradek.api.{kind}"), kind.capitalize())
        host = world.host(name or kind, mode=mode, background=background, link=link)
        config.setdefault("bootstrap_servers", cluster.bootstrap_servers)
        client = on_host(host, facade, **config)
        assert host.events is not None
        checkers.watch(host.events, client._calls.config)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
