"""Test simulated clients with pytest-asyncio, anyio and FastAPI.

These packages are in a separate environment, on the path of pytest in a separate process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import building
from tests.time_limits import HANG_S
from tests.unit.testing.test_docs_testing import blocks

LOCK = Path(__file__).with_name("async_packages.lock")
OTHERS = {"anyio": ["-p", "no:asyncio"], "fastapi": ["-p", "no:asyncio", "-p", "no:anyio"]}
"""Arguments that disable other plugins in the run of a plugin's example."""
FIXTURES_LOOP = ["-o", "asyncio_default_fixture_loop_scope=function"]


@pytest.fixture(scope="module")
def packages() -> Path:
    """Return the folder of the environment's packages."""
    built = building.python_with("async-packages", LOCK)
    assert built.command is not None, built.reason
    (folder,) = Path(built.command[0]).parent.parent.glob("lib/python*/site-packages")
    return folder


def run(folder: Path, packages: Path, *arguments: str) -> str:
    """Run pytest in a folder and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:randomly",
         "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


THREADS = """
import time

import anyio
import pytest
from anyio import from_thread, to_thread


@pytest.fixture
def anyio_backend(kafka_simulation):
    return "asyncio", {"loop_factory": kafka_simulation.new_loop}


@pytest.mark.anyio
async def test_threads(kafka_simulation):
    async def asleep():
        await anyio.sleep(30)
        return kafka_simulation.now

    def job():
        return from_thread.run(asleep), from_thread.run_sync(lambda: 7)

    def slow_job():
        time.sleep(0.05)
        return kafka_simulation.now

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0.001)
        assert await to_thread.run_sync(slow_job) == 0.0
    assert await to_thread.run_sync(job) == (30.001, 7)
    with anyio.move_on_after(5):
        await anyio.sleep_forever()
    assert kafka_simulation.now == pytest.approx(35.001)


@pytest.mark.anyio
async def test_sync_clients(kafka_simulation):
    kafka_simulation.create_topic("t")
    producer = kafka_simulation.producer()
    kafka_simulation.move(after=5)

    def write():
        return producer.send("t", b"x").result().offset

    assert await to_thread.run_sync(write) == 0
    assert kafka_simulation.now > 5
"""
"""Test that threads of anyio stop virtual time."""


@pytest.mark.parametrize("name", blocks("plugin"))
def test_example_of_the_page_passes(name: str, packages: Path, tmp_path: Path) -> None:
    for file, (text, _) in blocks("file").items():
        (tmp_path / file).write_text(text)
    if name in blocks("conftest"):
        (tmp_path / "conftest.py").write_text(blocks("conftest")[name][0])
    text, passed = blocks("plugin")[name]
    (tmp_path / "test_example_of_the_page_passes.py").write_text(text)
    if name == "anyio":  # saves a second run of pytest
        (tmp_path / "test_threads.py").write_text(THREADS)
        passed = int(passed) + 2
    said = run(tmp_path, packages, *OTHERS.get(name, FIXTURES_LOOP))
    assert f"{passed} passed" in said, said
    assert "failed" not in said


EARLY = """
from odradek.testing import loop_factories


def pytest_asyncio_loop_factories(config, item):
    return loop_factories(item)
"""


@pytest.mark.long  # shorter tests: unit/testing/test_simulated_async.py
def test_a_fixture_that_runs_too_early_raises(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(EARLY)
    (tmp_path / "test_early.py").write_text(
        "import pytest, pytest_asyncio\n\n\n"
        "@pytest_asyncio.fixture\n"
        "async def early():\n    ...\n\n\n"
        "@pytest.mark.asyncio\n"
        "async def test_it(early, kafka_simulation):\n    ...\n"
    )
    said = run(tmp_path, packages, *FIXTURES_LOOP)
    assert "Add kafka_simulation to the fixture's arguments" in said
