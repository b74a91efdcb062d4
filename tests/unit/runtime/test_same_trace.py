"""Compare traces of one scenario in the simulated and the real I/O hosts (loop or thread).

If they differed, results of simulations would not hold for real clients. The scenario: one of two
bootstrap addresses is dead; the client gets metadata from the other one and sends a request; during
the next request the broker closes the connection; the client reconnects.
"""

from __future__ import annotations

import datetime
import ipaddress
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import ADMIN, Config
from odradek.common.errors import DisconnectedError
from odradek.common.types import Address
from odradek.network.flow import START, Flow, Wait
from odradek.network.host import Host
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.simulation import (
    SimulatedBroker,
    SimulatedCluster,
    Trace,
    World,
    assert_same,
    run_twice,
)
from odradek.simulation.world.environment import Environment, ReceivedRequest
from odradek.simulation.world.link import Mode
from odradek.testing.fake.loopback import LoopbackServer

T = TypeVar("T")

SEED = 23
"""A seed with which the client tries the dead address first."""


@dataclass
class Setting:
    """A cluster of one broker, a dead address, and a function that makes the broker disconnect."""

    cluster: SimulatedCluster
    dead: Address
    hang_up: Callable[[], None]

    @property
    def roles(self) -> dict[str, str]:
        return {str(self.broker): "broker 1", str(self.dead): "dead"}

    @property
    def broker(self) -> Address:
        return self.cluster.brokers[1].address


def build(environment: Environment) -> Setting:
    cluster = SimulatedCluster(environment, brokers=1, bootstrap_name=None)
    cluster.create_topic("flights", 3)

    def hang_up() -> None:
        """Let the broker close all connections instead of answering the next DescribeCluster."""

        def observe(broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
            if isinstance(request.body, DescribeClusterRequest):
                cluster.observers.remove(observe)
                broker.disconnect_all()

        cluster.observers.append(observe)

    return Setting(cluster, environment.new_address(), hang_up)


def refreshed(engine: ClientEngine) -> Flow[None]:
    """Wait until all requested metadata refreshes are done."""
    yield START
    while engine.metadata.requested:
        yield Wait((engine.metadata.changed,))


def play(host: Host, setting: Setting, hang_up: Callable[[], object]) -> Trace:
    servers = f"{setting.dead},{setting.broker}"
    # On a busy machine a connection may take longer than the usual 0.1 s, after which metadata
    # would be requested again.
    patience = {"retry.backoff.ms": 2000, "retry.backoff.max.ms": 2000}
    config = Config(ADMIN, {"bootstrap.servers": servers, **patience})
    engine = ClientEngine(config, random.Random(SEED))
    trace = Trace()
    trace.follow(engine.events)
    host.attach(engine)

    def run(flow: Flow[T]) -> T:
        completion = engine.start(flow)
        host.wake()
        assert host.run(completion, host.now() + 20.0)
        return completion.result()

    def ask() -> DescribeClusterResponse:
        return run(
            engine.ask(
                setting.broker, DescribeClusterRequest(), DescribeClusterResponse, host.now() + 10.0
            )
        )

    snapshot = run(engine.snapshot(host.now() + 10.0))
    assert [b.address for b in snapshot.brokers.values()] == [setting.broker]
    assert ask().cluster_id == setting.cluster.cluster_id
    hang_up()
    with pytest.raises(DisconnectedError):
        ask()
    assert ask().cluster_id == setting.cluster.cluster_id
    run(refreshed(engine))
    engine.shut()
    host.wake()
    host.close(host.now() + 1.0)
    return trace


def simulated(mode: Mode, seed: int = 1) -> tuple[Trace, Setting]:
    world = World(seed)
    setting = build(world)
    trace = play(world.host("client", mode=mode), setting, setting.hang_up)
    assert world.hot_loops == []
    return trace, setting


@contextmanager
def loopback(tls: ssl.SSLContext | None) -> Iterator[tuple[LoopbackServer, Setting]]:
    with LoopbackServer(tls=tls) as server:
        yield server, server.call(lambda: build(server))


@pytest.fixture(scope="module")
def expected() -> dict[str, list[str]]:
    trace, setting = simulated("bytes")
    return trace.by_connection(setting.roles)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return TLS contexts for server and client, with a self-signed certificate."""
    place: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    place.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(place)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(place)
    return server, client


def test_the_scenario_contains_the_expected_events(expected: dict[str, list[str]]) -> None:
    kinds = {key: [line.split(" ")[0] for line in lines] for key, lines in expected.items()}
    assert list(kinds) == ["dead #1", "broker 1 #1", "broker 1 #2", "client"]
    assert "dial_failed" in kinds["dead #1"]
    first, second = kinds["broker 1 #1"], kinds["broker 1 #2"]
    assert first[:4] == ["dial", "connected", "ready", "metadata_request"]
    assert first[-1] == "disconnected"
    assert [k for k in second if k in ("ready", "metadata", "proved")] == [
        "ready",
        "proved",
        "metadata",
    ]
    assert kinds["client"] == ["closed"]


def test_simulations_of_messages_and_of_bytes_have_equal_traces_and_times() -> None:
    assert_same(simulated("bytes")[0].lines(), simulated("messages")[0].lines())


def test_equal_seeds_lead_to_equal_traces() -> None:
    lines = run_twice(lambda: simulated("bytes", 4)[0].lines())
    assert lines != simulated("bytes", 5)[0].lines()


@pytest.mark.slow
def test_the_io_loop_in_the_callers_thread_has_the_trace_of_the_simulated_io_loop(
    expected: dict[str, list[str]],
) -> None:
    with loopback(None) as (server, setting):
        trace = play(SelectorHost(), setting, lambda: server.call(setting.hang_up))
        assert_same(expected, trace.by_connection(setting.roles), ("simulated", "selector"))


@pytest.mark.slow
def test_the_io_loop_with_tls_has_the_trace_of_the_simulated_io_loop(
    expected: dict[str, list[str]], contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with loopback(contexts[0]) as (server, setting):
        host = SelectorHost(tls=lambda: contexts[1])
        trace = play(host, setting, lambda: server.call(setting.hang_up))
        assert_same(expected, trace.by_connection(setting.roles), ("simulated", "TLS"))


@pytest.mark.slow
def test_the_io_thread_has_the_trace_of_the_simulated_io_loop(
    expected: dict[str, list[str]],
) -> None:
    """Try again if traces differ: while the caller is delayed, the thread requests metadata."""
    for _ in range(5):
        with loopback(None) as (server, setting):
            trace = play(ThreadHost(), setting, lambda: server.call(setting.hang_up))
        found = trace.by_connection(setting.roles)
        if found == expected:
            return
    assert_same(expected, found, ("simulated", "thread"))
