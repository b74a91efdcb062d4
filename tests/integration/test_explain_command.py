"""Test that `odradek explain` reports the cause of each kind of failure, on loopback."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek.cli import build
from odradek.common.types import Address
from odradek.simulation import SimulatedCluster
from odradek.testing.fake.loopback import LoopbackServer

LOOPBACK = "127.0.0.1"
COMMAND = Path(sys.executable).parent / "odradek"


def explain(*words: str, timeout: float = 1.0) -> tuple[int, dict[str, Any]]:
    """Run the command and return its exit status and JSON output."""
    done = CliRunner().invoke(
        build("explain"), ["explain", *words, "--json", f"--timeout={timeout}"]
    )
    return done.exit_code, json.loads(done.stdout)


def the_address(picture: dict[str, Any]) -> dict[str, Any]:
    (found,) = picture["addresses"]
    return dict(found)


@contextmanager
def listening(serve: Callable[[socket.socket], None] | None = None) -> Iterator[str]:
    """Listen on a port that accepts each connection and calls `serve`, if given."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(16)
        accepted: list[socket.socket] = []

        def run() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                accepted.append(sock)
                if serve is not None:
                    serve(sock)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10.0)
        for sock in accepted:
            sock.close()


@pytest.fixture
def unused_address() -> Iterator[str]:
    """Return an address where nothing listens."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield f"{LOOPBACK}:{bound.getsockname()[1]}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


def cluster_on(server: LoopbackServer, **options: Any) -> SimulatedCluster:
    return server.call(lambda: SimulatedCluster(server, 3, bootstrap_name=None, **options))


def test_explain_reports_a_cluster_without_faults(server: LoopbackServer) -> None:
    cluster = cluster_on(server)
    status, picture = explain(cluster.bootstrap_servers, timeout=10.0)
    assert status == 0
    assert picture["reached"]
    assert picture["error"] is None
    assert picture["cluster_id"] == cluster.cluster_id
    assert "It works: cluster simulated-cluster-0001" in picture["diagnosis"]
    roles = {a["role"] for a in picture["addresses"]}
    assert roles == {"broker 1", "broker 2", "broker 3", "bootstrap"}
    assert any(a["state"] == "ready" for a in picture["addresses"])


def test_explain_reports_an_unreachable_broker(server: LoopbackServer) -> None:
    cluster = cluster_on(server)
    server.call(partial(cluster.create_topic, "flights", 6))
    dead = server.call(server.new_address)
    broker = next(iter(cluster.brokers.values()))

    def elsewhere() -> None:
        broker.address = dead

    server.call(elsewhere)
    status, picture = explain(cluster.bootstrap_servers, timeout=10.0)
    assert status == 3
    assert (picture["state"], picture["reached"]) == ("partly", True)
    assert picture["trouble"][0] == "2 of 3 brokers answer."
    assert picture["trouble"][1].startswith(f"Broker {broker.id} ({dead}) doesn't answer: nothing")
    assert "It leads 2 partitions" in picture["trouble"][1]
    status, picture = explain(cluster.bootstrap_servers, "--topic", "flight", timeout=10.0)
    assert status == 3
    assert picture["trouble"][2] == (
        "Topic flight doesn't exist (did you mean flights?). "
        "Create it with: odradek topics create flight "
        f"--bootstrap-server {cluster.bootstrap_servers}"
    )
    shown = CliRunner().invoke(
        build("explain"), ["explain", cluster.bootstrap_servers], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 3
    assert "2 of 3 brokers answer." in shown.stdout
    assert "partly: 2 of 3 brokers answer" in shown.stdout


def test_explain_reports_an_address_where_nothing_listens(unused_address: str) -> None:
    status, picture = explain(unused_address)
    assert status == 1
    found = the_address(picture)
    assert found["ip"] == LOOPBACK
    assert found["failures"] >= 2
    assert "connection refused" in found["last_error"]
    assert "nothing listens there" in picture["diagnosis"]
    assert "NoBrokerAvailableError" in picture["error"]
    assert picture["outage"]["dials_of_bootstrap"] >= 2


def test_explain_reports_a_connection_attempt_that_times_out() -> None:
    """Connect to a listener with a full queue, which drops SYN packets as a firewall does."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        status, picture = explain(f"{LOOPBACK}:{address[1]}", timeout=4.0)
        for filler in fillers:
            filler.close()
    assert status == 1
    found = the_address(picture)
    assert (found["state"], found["silent"]) == ("connecting", True)
    assert found["pending_for"] >= 2.0
    assert found["setup_left"] > 0
    assert "connection attempts get no reply: a firewall" in picture["diagnosis"]


def http(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def tls(sock: socket.socket) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    end = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(sock.recv(1000))
    with pytest.raises(ssl.SSLError):
        end.do_handshake()
    sock.sendall(outgoing.read() or b"\x15\x03\x01\x00\x02\x02\x28")  # a TLS alert
    sock.close()


@pytest.mark.parametrize(
    ("serve", "seconds", "found", "diagnosis"),
    [
        (None, 2.5, "checking_api_versions", "it accepts connections but never answers"),
        (http, 1.0, "not Kafka: the peer speaks HTTP", "another service listens there"),
        (tls, 1.0, "the peer speaks TLS", "TLS"),
        (socket.socket.close, 1.0, "", "it closes connections before it answers"),
    ],
)
def test_explain_reports_a_port_of_another_service(
    serve: Callable[[socket.socket], None] | None, seconds: float, found: str, diagnosis: str
) -> None:
    with listening(serve) as address:
        status, picture = explain(address, timeout=seconds)
    assert status == 1
    assert found in f"{the_address(picture)['state']} {the_address(picture)['last_error']}"
    assert diagnosis in picture["diagnosis"]


def test_explain_reports_brokers_that_reset_or_close_connections(server: LoopbackServer) -> None:
    cluster = cluster_on(server)
    for verb in ("accept_then_reset", "ready_then_close"):
        for i in cluster.brokers:
            server.call(partial(getattr(cluster, verb), i))
        status, picture = explain(cluster.bootstrap_servers, timeout=2.0)
        assert status == 1
        found = the_address(picture)
        assert found["failures"] >= 2
        # The connection may be ready at this moment, before the broker closes it again.
        assert found["meaning"] or found["state"] == "ready", found
        assert found["last_error"]
        assert picture["outage"]["total"]


def test_explain_reports_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    status, picture = explain("kafka.example:9092")
    assert status == 1
    assert "'kafka.example' doesn't resolve" in the_address(picture)["last_error"]
    assert "the name doesn't resolve on this machine" in picture["diagnosis"]


def test_explain_reports_brokers_that_advertise_unused_addresses(server: LoopbackServer) -> None:
    cluster = cluster_on(server)
    dead = [server.call(server.new_address) for _ in cluster.brokers]

    def advertise() -> None:
        for broker, address in zip(cluster.brokers.values(), dead, strict=True):
            broker.address = address  # the broker still listens at its old address

    server.call(advertise)
    status, picture = explain(cluster.bootstrap_servers, timeout=3.0)
    assert status == 1
    assert picture["cluster_id"] == cluster.cluster_id
    assert "none of the brokers in its metadata" in picture["diagnosis"]
    assert "advertised.listeners" in picture["diagnosis"]
    assert str(dead[0]) in picture["diagnosis"]


def test_explain_reports_a_cluster_with_an_unexpected_id(
    server: LoopbackServer, tmp_path: Path
) -> None:
    cluster = cluster_on(server)
    file = tmp_path / "client.properties"
    file.write_text("# ours\ncluster.id.expected = the-one-we-want\nclient.id=mine\n")
    status, picture = explain(cluster.bootstrap_servers, "--command-config", str(file))
    assert status == 1
    assert picture["client_id"] == "mine"
    assert "ClusterIdMismatchError" in picture["error"]
    assert "The client has stopped" in picture["diagnosis"]
    assert "the-one-we-want" in picture["ended"]
    assert "simulated-cluster-0001" in picture["ended"]
    status, picture = explain(
        cluster.bootstrap_servers, "--config", "cluster.id.expected=simulated-cluster-0001"
    )
    assert status == 0


def test_the_text_output_describes_an_unreachable_cluster(unused_address: str) -> None:
    done = CliRunner().invoke(
        build("explain"), ["explain", unused_address, "--timeout=0.5"], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 1
    for part in (
        "The cluster can't be reached",
        "nothing listens there",
        "bootstrap",
        "in a row",
        "metadata: none yet; refresh due",
        "began with bootstrap address",
        "no rebootstrap so far (metadata.recovery.strategy=rebootstrap)",
    ):
        assert part in done.stdout, done.stdout
    assert re.search(r"wasn't reached in \d\.\d s \(NoBrokerAvailableError\)", done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["h:1", "--config", "no.such.option=1"],
        ["h:1", "--config", "=1"],
        ["h:1", "--command-config", "not-there.properties"],
        ["h:1", "3"],
        ["h:1", "--watch", "0"],
        ["h:1", "--topic", ""],
        [],
    ],
    ids=" ".join,
)
def test_invalid_command_lines_exit_with_2(words: list[str]) -> None:
    assert CliRunner().invoke(build("explain"), ["explain", *words]).exit_code == 2


def test_a_number_without_an_option_is_explained_by_a_hint() -> None:
    done = CliRunner().invoke(build("explain"), ["explain", "h:1", "2"])
    assert (
        "SECONDS (2) is the interval of --watch; to limit the time, use --timeout 2" in done.stderr
    )


def test_explain_accepts_bootstrap_server_as_kafkas_tools_do(unused_address: str) -> None:
    status, picture = explain("--bootstrap-server", unused_address)
    assert status == 1
    assert the_address(picture)["address"] == unused_address


def test_explain_watch_reports_an_outage_and_its_end(server: LoopbackServer) -> None:
    cluster = cluster_on(server)
    with subprocess.Popen(
        [COMMAND, "explain", cluster.bootstrap_servers, "--watch", "0.1", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None

        def until(wanted: str, *, reached: bool) -> dict[str, Any]:
            assert process.stdout is not None
            for line in process.stdout:
                picture: dict[str, Any] = json.loads(line)
                if wanted in picture["diagnosis"] and picture["reached"] == reached:
                    return picture
            raise AssertionError(wanted)

        picture = until("It works: ", reached=True)
        assert picture["cluster_id"] == cluster.cluster_id
        for i in cluster.brokers:
            server.call(partial(cluster.crash, i))
        picture = until("No broker has answered", reached=False)
        assert picture["outage"]["total"]
        assert picture["attempts"]
        for i in cluster.brokers:
            server.call(partial(cluster.restart, i))
        picture = until("It works", reached=True)
        assert len(picture["rebootstraps"]) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(10.0) == 130


def test_the_text_output_of_watch_ends_at_the_timeout(unused_address: str) -> None:
    command = [str(COMMAND), "explain", unused_address, "--watch", "0.1", "--timeout", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1
    assert "nothing listens there" in " ".join(done.stdout.split())


def test_a_short_watch_reports_a_broker_that_never_answers(server: LoopbackServer) -> None:
    """Report the brokers that answer before the end, although one address never answers."""
    cluster = cluster_on(server)
    broker = next(iter(cluster.brokers.values()))
    with listening() as mute:
        host, _, port = mute.partition(":")
        server.call(partial(setattr, broker, "address", Address(host, int(port))))
        words = [cluster.bootstrap_servers, "--watch", "0.1", "--timeout", "4", "--json"]
        command = [str(COMMAND), "explain", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 3, done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["trouble"][0] == "2 of 3 brokers answer."
