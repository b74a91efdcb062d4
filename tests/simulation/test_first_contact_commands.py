"""Commands without a reachable cluster end after 10 s, unless an argument says otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker

from odradek.cli import build
from odradek.testing import KafkaSimulation

LIMIT = 10.0
COMMANDS = [
    "topics list",
    "topics describe t",
    "topics create new",
    "topics delete t --yes",
    "partitions list",
    "configs describe topic t",
    "groups list",
    "groups lag g",
    "offsets list t",
    "acls list",
    "users list",
    "quotas list",
    "cluster describe",
    "logdirs describe",
    "transactions list",
    "broker-api-versions",
    "consume --topic t",
    "consume --include t.*",
    "consume --include t.* --group g",
    "consume --topic t --group g",
    "produce --topic t",
    "copy t u",
]


@pytest.fixture
def cluster(kafka_simulation: KafkaSimulation) -> KafkaSimulation:
    """Create a cluster that no client can reach."""
    kafka_simulation.create_topic("t")
    every_broker(kafka_simulation.cluster, "crash")
    return kafka_simulation


Run = Callable[[str], tuple[float, str, str]]


@pytest.fixture
def failed(
    cluster: KafkaSimulation,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    """Run a command that must exit with 1; return its virtual duration and its output."""

    def run(command: str) -> tuple[float, str, str]:
        words = [*command.split(), "--bootstrap-server", cluster.bootstrap_servers]
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"a line\n")))
        began = cluster.now
        with pytest.raises(SystemExit) as ended:
            build(words[0])(words)
        output, errors = capfd.readouterr()
        assert ended.value.code == 1, errors
        return cluster.now - began, output, errors

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_after_ten_seconds(
    command: str, cluster: KafkaSimulation, failed: Run
) -> None:
    seconds, _, errors = failed(command)
    assert seconds == pytest.approx(LIMIT, abs=0.5)
    front = cluster.bootstrap_servers
    assert "NoBrokerAvailableError" in errors
    assert f"{front}: connect: ConnectionRefusedByPeerError" in errors
    assert errors.count(f"odradek doctor --bootstrap-server {front}") == 1, errors


@pytest.mark.parametrize("command", ["topics list", "groups describe g", "copy t u"])
def test_the_json_error_contains_the_error_class_the_code_and_a_message(
    command: str, cluster: KafkaSimulation, failed: Run
) -> None:
    _, output, _ = failed(f"{command} --json")
    told: dict[str, Any] = json.loads(output)["error"]
    assert (told["error"], told["code"]) == ("NoBrokerAvailableError", None)
    assert cluster.bootstrap_servers in told["message"]


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        ("topics list --timeout 25", 25.0),
        ("topics list --timeout 3", 3.0),
        ("topics list --command-property default.api.timeout.ms=30000", 30.0),
        ("topics list --command-property default_api_timeout_ms=30000", 30.0),
        ("topics list --command-property bootstrap.timeout.ms=30000", 30.0),
        ("topics list --command-property metadata.unavailable.timeout.ms=20000", 20.0),
        ("broker-api-versions --command-config FILE", 20.0),
        ("consume --topic t --command-property default.api.timeout.ms=30000", 30.0),
        ("consume --topic t --timeout-ms 3000", 3.0),
        ("produce --topic t --max-block-ms 20000", 20.0),
        ("produce --topic t --command-property bootstrap.timeout.ms=20000", 20.0),
    ],
)
def test_timeout_arguments_take_precedence_over_the_default_of_ten_seconds(
    command: str, ends: float, failed: Run, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=20000\n")
    seconds, _, _ = failed(command.replace("FILE", str(file)))
    assert seconds == pytest.approx(ends, abs=0.5)
