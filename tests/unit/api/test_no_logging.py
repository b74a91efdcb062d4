"""R-IN-6: what a person must know reaches stderr where a program has set up no logging."""

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


def said(setup: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_a_program_without_logging_sees_the_warning() -> None:
    line, lost = said().splitlines()
    assert "topic flihgts still doesn't exist" in line
    assert "did you mean flights?" in line
    assert "1 record was not delivered" in lost


def test_one_with_logging_has_it_there_and_nowhere_else() -> None:
    setup = "import logging; logging.basicConfig(format='mine: %(message)s')"
    lines = said(setup).splitlines()
    assert [line[:6] for line in lines] == ["mine: ", "mine: "]


def test_who_wants_none_says_so() -> None:
    assert said("import logging; logging.getLogger('odradek').setLevel('ERROR')") == ""
