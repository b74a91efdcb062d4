"""`odradek cluster`: start, status and stop as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

from odradek.api.admin import Admin
from odradek.common.types import Address
from odradek.errors import RegistryUnreachableError
from odradek.runtime.properties import read_properties
from odradek.serialization import Schema, SchemaRegistryClient
from odradek.testing.brokers import probe
from odradek.testing.brokers.detached import start_time

ODRADEK = Path(sys.executable).parent / "odradek"


@pytest.fixture
def odradek(tmp_path: Path) -> object:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ODRADEK, *arguments], capture_output=True, text=True, check=False, timeout=HANG_S,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )  # fmt: skip

    return run


def test_start_status_stop(odradek) -> None:  # type: ignore[no-untyped-def]
    """With a schema registry beside the brokers."""
    assert odradek("cluster", "status").returncode == 1
    started = odradek("cluster", "start", "--brokers", "1", "--port", "0", "--registry", "--json")
    try:
        assert started.returncode == 0, started.stderr
        told = json.loads(started.stdout)
        host, port = told["bootstrap_servers"].split(":")
        assert probe.ask(Address(host, int(port))) is not None
        assert json.loads(odradek("cluster", "status", "--json").stdout) == told
        again = odradek("cluster", "start", "--brokers", "1")
        assert again.returncode == 1
        assert told["bootstrap_servers"] in again.stderr
        url = told["schema_registry_url"]
        registry = SchemaRegistryClient({"schema.registry.url": url})
        assert registry.register_schema("t-value", Schema('{"type": "string"}')) == 1
        assert f"schema registry    {url}" in odradek("cluster", "status").stdout
    finally:
        stopped = odradek("cluster", "stop")
    assert stopped.returncode == 0
    assert start_time(told["pid"]) is None
    assert start_time(told["brokers"][0]["pid"]) is None
    assert not Path(told["directory"]).exists()
    assert odradek("cluster", "status").stdout == (
        "no cluster is running; start one with: odradek cluster start "
        "(three brokers, bootstrap address localhost:9092)\n"
    )
    quick = {"schema.registry.url": url, "default.api.timeout.ms": 100}
    with pytest.raises(RegistryUnreachableError):
        SchemaRegistryClient(quick).get_subjects()


def test_a_secured_cluster_leaves_settings_for_its_users(odradek) -> None:  # type: ignore[no-untyped-def]
    words = ["--brokers", "1", "--port", "0", "--security", "sasl_ssl", "--user", "alice"]
    started = odradek("cluster", "start", *words, "--mutual-tls", "--json")
    try:
        assert started.returncode == 0, started.stderr
        told = json.loads(started.stdout)
        assert told["security"] == "SASL_SSL"
        (file,) = told["client_properties"].values()
        with Admin(read_properties(file)) as admin:
            assert admin.list_topics(timeout=20) == []
        assert "alice" in odradek("cluster", "status").stdout
    finally:
        odradek("cluster", "stop")
    assert not Path(file).exists()


def test_security_that_does_not_fit_together_is_refused(odradek) -> None:  # type: ignore[no-untyped-def]
    refused = odradek("cluster", "start", "--security", "SSL", "--acls")
    assert (refused.returncode, "acls=True needs users" in refused.stderr) == (2, True)


def test_a_taken_port_is_a_clear_error(odradek) -> None:  # type: ignore[no-untyped-def]
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = odradek("cluster", "start", "--brokers", "1", "--port", str(port))
    assert failed.returncode == 1
    assert str(port) in failed.stderr
    assert "is in use by another program (perhaps other brokers); use --port 0" in failed.stderr


def test_a_process_that_only_has_the_pid_of_a_dead_cluster_is_left_alone(odradek, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        state = {"pid": innocent.pid, "start_time": "another boot:1", "brokers": []}
        (tmp_path / "odradek").mkdir()
        (tmp_path / "odradek" / "cluster.json").write_text(json.dumps(state))
        assert odradek("cluster", "stop").stdout == "no cluster is running\n"
        assert innocent.poll() is None
        innocent.communicate(b"\n", timeout=HANG_S)
    assert innocent.returncode == 0
