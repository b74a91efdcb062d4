"""Batches that a killed driver's next run plans with other tasks and other rows, exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.interop.other_client import read_all

import odradek
from odradek.errors import TransactionalIdNotFoundError
from odradek.testing import LocalCluster

pytestmark = pytest.mark.timeout(900)  # two drivers; half a minute on a quiet machine

DRIVER = Path(__file__).parent / "sink_driver.py"
ROWS = 400


def start(master: str, topic: str, folder: Path, kind: str, config: dict[str, Any]) -> Any:
    command = [sys.executable, str(DRIVER), master, topic, str(folder), kind]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert driver.stdin is not None
    with driver.stdin as given:
        given.write(json.dumps(config).encode())
    return driver


def wait_for(driver: Any, found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not found():
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def first_task_is_done(cluster: LocalCluster, folder: Path) -> bool:
    """Its rows and its marker are written, whether they are committed or prepared."""
    if not (folder / "tasks" / "0").exists():
        return False
    lines = (folder / "checkpoint" / "metadata").read_text().splitlines()
    name = f"odradek-{json.loads(lines[-1])['id']}-sink-0"
    with odradek.Admin(cluster.client_config()) as admin:
        try:
            found = admin.describe_transactions(name)[name]
        except TransactionalIdNotFoundError:
            return False
    places = {partition.topic for partition in found.partitions}
    return found.state == "CompleteCommit" or "__consumer_offsets" in places


def names(folder: Path, prefix: str) -> None:
    lines = [f"{k},{prefix}{k}\n" for k in range(10)]
    (folder / "names.csv").write_text("".join(lines))


def committed(cluster: LocalCluster, topic: str) -> Counter[bytes | None]:
    found = read_all(cluster.librdkafka_config(), topic, 2)
    return Counter(row.value for rows in found.values() for row in rows)


# A batch of `write_batch` is replayed within a driver by test_differences and test_sink.
@pytest.mark.parametrize("kind", ["stream", pytest.param("batch", marks=pytest.mark.long)])
def test_a_killed_driver_s_batch_is_planned_again_and_written_once(
    kind: str, cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    """On other cores, by adaptive execution, with a joined file that has changed meanwhile."""
    topic, config = topics.create(partitions=2), cluster.client_config()
    for folder in "in", "tasks":
        (tmp_path / folder).mkdir()
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "in" / "a.parquet")
    names(tmp_path, "old")
    (tmp_path / "hang").touch()
    driver = start("local[2]", topic, tmp_path, kind, config)
    try:
        wait_for(driver, (tmp_path / "hangs").exists)
        wait_for(driver, lambda: first_task_is_done(cluster, tmp_path))
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # its own session: JVM and workers go with it
        driver.wait()
    assert "1" not in {p.name for p in (tmp_path / "tasks").iterdir()}
    (tmp_path / "hang").unlink()
    names(tmp_path, "new")
    driver = start("local[5]", topic, tmp_path, kind, config)
    assert driver.wait(300) == 0
    assert len(list((tmp_path / "tasks").iterdir())) > 3  # else it was planned as before
    assert committed(cluster, topic) == Counter(f"{n} new{n % 10}".encode() for n in range(ROWS))
