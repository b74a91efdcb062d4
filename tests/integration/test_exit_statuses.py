"""Check exit statuses: 130 after Ctrl-C; 0 if SIGTERM ends `consume` or `produce`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

COMMAND = Path(sys.executable).parent / "odradek"
PATIENCE = 60.0


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """Return a port that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        listener.settimeout(PATIENCE)
        yield listener


SPEC = """
name: copying
storage: state
clusters: {main: {bootstrap.servers: "SERVERS"}}
sources: {rows: {options: {subscribe: t}}}
sinks: {copy: {from: rows, options: {topic: u}}}
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 0)],
)
def test_a_signal_stops_a_starting_pipeline_in_an_orderly_way(
    mute: socket.socket, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    place = tmp_path / "copying.yml"
    place.write_text(SPEC.replace("SERVERS", f"127.0.0.1:{mute.getsockname()[1]}"))
    with subprocess.Popen(
        [COMMAND, "pipeline", "run", place, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        sock, _ = mute.accept()
        process.send_signal(number)
        output = cast("IO[bytes]", process.stdout).read()
        assert process.wait(PATIENCE) == status
        sock.close()
    assert b'"event": "stopped"' in output


def ended(listener: socket.socket, words: str, number: signal.Signals) -> int:
    """Return the exit status of a command that is signalled once it has connected."""
    servers = f"127.0.0.1:{listener.getsockname()[1]}"
    with subprocess.Popen(
        [COMMAND, *words.format(servers).split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        cast("IO[bytes]", process.stdin).write(b"a line\n")
        cast("IO[bytes]", process.stdin).flush()
        sock, _ = listener.accept()
        process.send_signal(number)
        status = process.wait(PATIENCE)
        sock.close()
    return status


@pytest.mark.parametrize(
    "words",
    [
        "explain {}",
        pytest.param("explain {} --watch", marks=pytest.mark.long),
        "topics list --bootstrap-server {}",
        pytest.param("broker-api-versions --bootstrap-server {}", marks=pytest.mark.long),
        pytest.param("consume --topic t --bootstrap-server {}", marks=pytest.mark.long),
        "produce --topic t --bootstrap-server {}",
        pytest.param("copy t u --bootstrap-server {}", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_exits_with_130(mute: socket.socket, words: str) -> None:
    assert ended(mute, words, signal.SIGINT) == 130


@pytest.mark.parametrize("words", ["consume", "produce"])
def test_sigterm_exits_with_0(mute: socket.socket, words: str) -> None:
    assert ended(mute, f"{words} --topic t --bootstrap-server {{}}", signal.SIGTERM) == 0


def test_ctrl_c_during_a_simulation_exits_with_130() -> None:
    with subprocess.Popen(
        [COMMAND, "simulate", "fleet", "--policy", "constant", "--clients", "300"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert cast("IO[bytes]", process.stderr).readline() == b"0 of 300 clients\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
