"""Run the Spark snippets of README and guide as printed, except for the address, in one program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_readme import README, snippets
from tests.integration.test_readme_console import console_lines
from tests.time_limits import HANG_S

import odradek
import odradek.spark

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

    from odradek.testing import LocalCluster


def test_the_spark_snippets_work_in_a_venv_that_is_not_activated(
    cluster: LocalCluster, topics: Topics
) -> None:
    """Run `.venv/bin/python script.py`: only the snippet selects the Python of the workers."""
    topics.create(partitions=2, name="flights")
    topics.fill("flights", [(b"N%d" % n, b"JFK") for n in range(30)])
    text = snippets()["spark"] + snippets()["stream"]
    text = text.replace("localhost:9092", cluster.bootstrap_servers)
    ours = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    here = str(Path(sys.executable).parent)
    path = [p for p in environment["PATH"].split(os.pathsep) if p != here]
    environment["PATH"] = os.pathsep.join(path)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    table = re.findall(r"\|\s+(\d)\|\s+(\d+)\|", done.stdout)
    assert sorted(table) == [("0", "15"), ("0", "15"), ("1", "15"), ("1", "15")]


def test_the_class_in_the_snippet_exists() -> None:
    assert "spark.dataSource.register(odradek.spark.KafkaDataSource)" in snippets()["stream"]
    assert "KafkaDataSource" in dir(odradek.spark)
    assert odradek.spark.KafkaDataSource.name() == "odradek"


# test_pipelines and integration/test_exit_statuses test stopping pipelines.
@pytest.mark.long
def test_the_pipeline_lines_print_and_write_what_the_page_shows(
    cluster: LocalCluster, topics: Topics, tmp_path: Path
) -> None:
    """Run the lines from `export` to Ctrl-C as printed, except for addresses and paths."""
    for name in ("orders", "large-orders"):
        topics.create(partitions=1, name=name)
    topics.fill("orders", [(b"1", b'{"cents": 2000}'), (b"2", b'{"cents": 20}')], 1)
    bin_folder = Path(sys.executable).parent
    export, plan, run = (
        next(line for line in console_lines() if words in line).replace(
            "localhost:9092", cluster.bootstrap_servers
        )
        for words in ("export KAFKA=", "pipeline plan", "pipeline run")
    )
    lines = "\n".join([export, "set -e", plan, f"exec {run}"]).replace(".venv/bin", str(bin_folder))
    with subprocess.Popen(
        ["bash", "-c", lines],
        cwd=README.parent,
        env={**os.environ, "STORAGE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        with odradek.Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
            partitions = consumer.partitions_for("large-orders", timeout=30)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            read = [record.value for record in consumer.poll(timeout=150.0, max_records=1)]
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=HANG_S)
    assert read == [b'{"cents": 2000}'], said
    assert "pipeline large-orders is valid and can start" in said, said
    assert "stopped" in said, said
    assert process.returncode == 130
