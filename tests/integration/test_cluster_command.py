"""Test `odradek cluster` start, status and stop as a user types them."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek.api.admin import Admin
from odradek.cli import build
from odradek.cli.brokers import cluster as command
from odradek.common.types import Address
from odradek.errors import RegistryUnreachableError
from odradek.runtime.properties import read_properties
from odradek.serialization import Schema, SchemaRegistryClient
from odradek.testing.brokers import detached, probe
from odradek.testing.brokers.detached import start_time
from odradek.testing.brokers.security import INNER_USER

Odradek = Callable[..., Any]


@pytest.fixture
def odradek(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Odradek:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return lambda *words: CliRunner().invoke(build(words[0]), [*words])


def start(*words: str) -> dict[str, Any]:
    """Start a cluster of one broker with the program itself, and return its JSON output."""
    command = [str(Path(sys.executable).parent / "odradek"), "cluster", "start", "--brokers", "1"]
    done = subprocess.run(
        [*command, "--port", "0", "--json", *words],
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_cluster_is_started_reported_by_status_and_stopped(odradek: Odradek) -> None:
    """Start a cluster as a separate process; a secured one writes client settings for its users."""
    assert odradek("cluster", "status").exit_code == 1
    try:
        told = start("--security", "sasl_ssl", "--user", "alice", "--mutual-tls")
        assert told["security"] == "SASL_SSL"
        (file,) = told["client_properties"].values()
        with Admin(read_properties(file)) as admin:
            assert admin.list_topics(timeout=60) == []
        assert json.loads(odradek("cluster", "status", "--json").stdout) == told
        assert "alice" in odradek("cluster", "status").stdout
        again = odradek("cluster", "start", "--brokers", "1")
        assert again.exit_code == 1
        assert told["bootstrap_servers"] in again.stderr
    finally:
        stopped = odradek("cluster", "stop")
    assert stopped.exit_code == 0
    assert start_time(told["pid"]) is None
    assert start_time(told["brokers"][0]["pid"]) is None
    assert not Path(told["directory"]).exists()
    assert not Path(file).exists()
    assert odradek("cluster", "status").stdout == (
        "no cluster is running; start one with: odradek cluster start "
        "(three brokers, bootstrap address localhost:9092)\n"
    )


@pytest.mark.long  # shorter tests: the tests above and below, interop/test_local_registry.py
def test_start_with_registry_opens_a_schema_registry_and_stop_closes_it(odradek: Odradek) -> None:
    try:
        told = start("--registry")
        host, port = told["bootstrap_servers"].split(":")
        assert probe.ask(Address(host, int(port))) is not None
        url = told["schema_registry_url"]
        registry = SchemaRegistryClient({"schema.registry.url": url})
        assert registry.register_schema("t-value", Schema('{"type": "string"}')) == 1
        assert f"schema registry    {url}" in odradek("cluster", "status").stdout
    finally:
        odradek("cluster", "stop")
    quick = {"schema.registry.url": url, "default.api.timeout.ms": 100}
    with pytest.raises(RegistryUnreachableError):
        SchemaRegistryClient(quick).get_subjects()


def test_a_registry_stops_with_its_cluster(
    odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that `cluster start --registry` opens and closes cluster and registry, both fakes."""
    open_now: list[str] = []

    class StandIn:
        bootstrap_servers, url = "127.0.0.1:1", "http://127.0.0.1:2/apis"
        cluster_id = version = directory = security = ""
        client_names = broker_addresses = ()

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            open_now.append(self.name)

        def __exit__(self, *_: object) -> None:
            open_now.remove(self.name)

        def pids(self) -> dict[int, int]:
            return {}

    def wait(_: object) -> bool:
        assert open_now == ["cluster", "registry"]
        assert f"schema registry    {StandIn.url}" in odradek("cluster", "status").stdout
        return True

    monkeypatch.setattr(detached, "LocalCluster", lambda **_: StandIn("cluster"))
    monkeypatch.setattr(detached, "LocalRegistry", lambda **_: StandIn("registry"))
    monkeypatch.setattr(detached, "_say", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(threading.Event, "wait", wait)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"directory": null, "registry": true}'))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    detached.main()
    assert open_now == []
    assert detached.read_state() is None


def test_contradictory_security_options_are_rejected(odradek: Odradek) -> None:
    refused = odradek("cluster", "start", "--security", "SSL", "--acls")
    assert (refused.exit_code, "--acls needs --security SASL_SSL" in refused.stderr) == (2, True)


def test_start_with_acls_makes_the_first_user_a_super_user(
    odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the first user a super user, because otherwise no command could create an ACL."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(command, "_detach", asked.append)
    users = ["--user", "root:a", "--user", "alice:b"]
    odradek("cluster", "start", "--security", "SASL_PLAINTEXT", "--acls", *users)
    assert asked[0]["config"] == {"super.users": f"User:{INNER_USER};User:root"}


def test_a_port_in_use_is_reported(odradek: Odradek) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = odradek("cluster", "start", "--brokers", "1", "--port", str(port))
    assert failed.exit_code == 1
    assert str(port) in failed.stderr
    assert "is in use by another program (perhaps other brokers); use --port 0" in failed.stderr


def test_stop_does_not_kill_another_process_with_the_pid_of_a_dead_cluster(
    odradek: Odradek, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        state = {"pid": other.pid, "start_time": "another boot:1", "brokers": []}
        (tmp_path / "odradek").mkdir()
        (tmp_path / "odradek" / "cluster.json").write_text(json.dumps(state))
        assert odradek("cluster", "stop").stdout == "no cluster is running\n"
        assert other.poll() is None
        other.communicate(b"\n", timeout=HANG_S)
    assert other.returncode == 0
