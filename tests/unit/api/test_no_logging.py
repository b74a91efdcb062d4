"""R-IN-6: test that warnings are printed if the program hasn't configured logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
PROGRAM = """
import odradek
from odradek.api.base import on_host
from odradek.simulation import SimulatedCluster, World

world = World(seed=1)
cluster = SimulatedCluster(world, brokers=1)
cluster.create_topic("flights")
{setup}
servers = cluster.bootstrap_servers
producer = on_host(world.host("p"), odradek.Producer, bootstrap_servers=servers, max_block_ms=8000)
try:
    producer.send("flihgts", b"x")
except odradek.KafkaTimeoutError:
    pass
producer.close()
"""


def stderr_of(setup: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_warnings_are_printed_on_stderr_if_logging_is_not_configured() -> None:
    line, lost = stderr_of().splitlines()
    assert "topic flihgts still doesn't exist" in line
    assert "did you mean flights?" in line
    assert "1 record was not delivered" in lost


def test_warnings_are_only_logged_if_logging_is_configured() -> None:
    setup = "import logging; logging.basicConfig(format='mine: %(message)s')"
    lines = stderr_of(setup).splitlines()
    assert [line[:6] for line in lines] == ["mine: ", "mine: "]


def test_a_higher_log_level_silences_the_warnings() -> None:
    assert stderr_of("import logging; logging.getLogger('odradek').setLevel('ERROR')") == ""
