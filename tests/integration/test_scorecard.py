"""Run the scorecard's brokers and one cell, with Odradek's own drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.scorecard.clients import CLIENTS
from benchmarks.scorecard.table import OURS
from tests.time_limits import HANG_S

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.integration


def cell(row: str, *command: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scorecard.cell", row, "--", *command],
        cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def clients_with(often: str) -> list[Any]:
    """Return Odradek's clients as parameters; all except `often` are marked `long`."""
    return [c if c == often else pytest.param(c, marks=pytest.mark.long) for c in OURS]


@pytest.mark.parametrize("client", clients_with("odradek"))
def test_a_replaced_broker_is_found_through_the_bootstrap_address(client: str) -> None:
    found = cell("A", *CLIENTS[client].command())
    assert found["error"] is None
    assert found["library"] == "odradek"
    assert found["notes"]["metadata_version"] == 13
    assert "strange" not in found["notes"]
    assert 0.0 < found["figures"]["contact"] <= found["figures"]["record"] < 20.0


@pytest.mark.parametrize("client", clients_with("odradek-asyncio"))
def test_all_of_a_thousand_callers_get_a_response(client: str) -> None:
    found = cell("I", *CLIENTS[client].command())
    assert found["error"] is None
    assert found["notes"]["answered"] == 1000
    assert found["figures"]["requests"] >= 1


def test_a_driver_that_fails_yields_an_error_and_no_figures() -> None:
    found = cell("A", sys.executable, "-c", "raise SystemExit('no such library')")
    assert found["figures"] == {}
    assert "no such library" in found["error"]


VERBS = """
import asyncio, json, socket
from benchmarks.scorecard import namespace
from benchmarks.scorecard.brokers import Network

def connect(address):
    try:
        with socket.create_connection((address.host, address.port), 0.3) as sock:
            sock.settimeout(1.0)
            return "closed" if sock.recv(1) == b"" else "data"
    except TimeoutError:
        return "swallowed"
    except OSError as error:
        return type(error).__name__

async def main():
    counts = namespace.enter()
    network = Network().__enter__()
    address = network.place("x")
    results = {"counts": counts}
    for verb in (address.refuse, address.reset, address.black_hole, address.refuse):
        verb()
        before = namespace.connection_attempts() if counts else 0
        results.setdefault(verb.__name__, []).append(await asyncio.to_thread(connect, address))
        begun = namespace.connection_attempts() - before if counts else 1
        results.setdefault("attempts", []).append(begun)
    results["seen"] = network.count("dial", 0.0)
    network.close()
    print(json.dumps(results))

asyncio.run(main())
"""


def test_address_faults_and_connection_attempts_are_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", VERBS],
        cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["refuse"] == ["ConnectionRefusedError"] * 2
    assert found["reset"] == ["ConnectionResetError"]
    assert found["black_hole"] == ["swallowed"]
    assert found["attempts"] == [1, 1, 1, 1]
    assert found["seen"] == 1  # only accepted connections are counted at the address
