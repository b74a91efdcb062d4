"""Test Spark in other processes: executors on `spark://`, a session with Spark Connect.

The wheel is built and shipped, and the server of Spark Connect is started, by the commands in
docs/spark.md; the program is one from a guide for the JVM connector, on a cluster with TLS and
SCRAM; all output of Spark is searched for the passwords. Both tests are part of `make test-long`:
in `make test`, `test_pipelines` uses Spark Connect, and `test_outages` TLS and SCRAM.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.other_client import read_all
from tests.planted_secrets import plant
from tests.spark.class_archives import java_options
from tests.spark.conftest import USERS, Topics, numbered, spark_options
from tests.spark.standalone import ConnectServer, StandaloneSpark

from odradek.testing import LocalCluster
from odradek.testing.brokers.authority import Kind

ROOT = Path(__file__).resolve().parent.parent.parent
JOB = Path(__file__).parent / "guide_job.py"
STORE_PASSWORD = re.compile(r"store\.password$")
pytestmark = pytest.mark.timeout(600)  # including the wheel, on a busy machine
ENVIRONMENT = "odradek-env"


@pytest.fixture(scope="module")
def cluster(guarded: LocalCluster) -> LocalCluster:
    return guarded


def documented_text() -> str:
    return (ROOT / "docs" / "spark.md").read_text()


def documented(marker: str) -> str:
    """Return the commands in the first shell block of docs/spark.md after a text."""
    text = documented_text().partition(marker)[2]
    found = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def run_in(folder: Path, commands: str, **more: str) -> str:
    """Run commands of the documentation in a folder, unchanged."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env={**os.environ, "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr


def everything_else(folder: Path) -> Path:
    """Return a folder with links to all installed packages except Odradek and PySpark."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.lower()
        if not name.startswith(("odradek", "pyspark", "__editable__")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the environment and its archive, built as documented from a copy.

    Other packages aren't downloaded again: the environment uses the installed ones.
    """
    folder = tmp_path_factory.mktemp("shipping")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    links = everything_else(folder / "installed")
    make, *rest = documented("### Ship the package").splitlines()
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "1"}
    run_in(checkout, make, CFLAGS="-O0", **offline)
    run_in(checkout, rest[0])
    site = next((checkout / ENVIRONMENT).glob("lib/python3.*/site-packages"))
    (site / "others.pth").write_text(f"{links}\n")
    run_in(checkout, "\n".join(rest[1:]), **offline)
    return checkout


def as_in_a_guide(cluster: LocalCluster, stores: Kind) -> dict[str, str]:
    """Return the options of a guide for the JVM connector: a login module's text, a trust store."""
    options = spark_options(cluster.java_config(stores=stores))
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.jaas.config"].startswith("org.apache.kafka.common.security.scram.")
    assert options["kafka.ssl.truststore.type"] == stores
    return options


def planted(options: dict[str, str]) -> list[str]:
    """Return the secrets among the options, which must not be shown."""
    stores = [value for name, value in options.items() if STORE_PASSWORD.search(name)]
    assert stores
    return [plant(text) for text in (*USERS.values(), *stores)]


def settings(folder: Path) -> dict[str, str]:
    (folder / "events").mkdir()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": java_options(),
        "spark.executor.cores": "1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def find_in(folder: Path, secrets: list[str]) -> int:
    """Search every file that Spark wrote for secrets; return the number of files."""
    written = (p for p in folder.rglob("*") if ENVIRONMENT not in p.parts)  # except for the wheel
    files = [p for p in written if p.is_file() and not p.is_symlink()]
    for path in files:
        content = path.read_bytes()
        for secret in secrets:
            assert secret.encode() not in content, f"{path} shows {secret}"
    return len(files)


Work = Callable[..., dict[str, Any]]


@pytest.fixture
def work(
    cluster: LocalCluster, topics: Topics, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Work:
    """Run the guide's program with the given Spark, and check its output."""

    def run(
        command: str, cwd: Path, environment: dict[str, str], stores: Kind, **spark: Any
    ) -> Any:
        source, target = topics.create(), topics.create()
        topics.fill(source, numbered(0, 200))
        options = as_in_a_guide(cluster, stores)
        secrets = planted(options)
        wrong = options["kafka.sasl.jaas.config"].replace(USERS["spark"], plant("xyzzy-plover-29"))
        plan = {
            "folder": str(tmp_path),
            "source": source,
            "target": target,
            "options": options,
            "faulty": {
                "offsets": {"startingOffsets": '{"nonsense": 1}'},
                "password": {"kafka.sasl.jaas.config": wrong},
            },
            "settings": {},
            "pages": [],
            **spark,
        }
        given = tmp_path_factory.mktemp("plan") / "plan.json"
        given.write_text(json.dumps(plan))
        done = subprocess.run(
            ["bash", "-euc", command.replace("program.py", f"{JOB} {given}")],
            cwd=cwd,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            capture_output=True,
            timeout=400,
            check=False,
        )
        told = (done.stdout + done.stderr).decode()
        (tmp_path / "told.txt").write_text(told)
        assert done.returncode == 0, told[-8000:]
        result = json.loads((tmp_path / "result.json").read_text())
        values = sorted(str(n) for n in range(200))
        assert sorted(result["values"]) == values
        written = read_all(cluster.librdkafka_config(), target, 2)
        found = sorted((r.value or b"").decode() for rows in written.values() for r in rows)
        assert found == sorted(values * 2)  # once by the batch query, once by the stream
        assert "startingOffsets" in result["errors"]["offsets"]
        assert "sasl.password" in result["errors"]["password"]
        assert result["kept"] == [205] * 2  # a kept frame, and a view of it
        assert result["pages"] > 10
        assert "spark" in (tmp_path / "shown" / "commands.txt").read_text()
        assert {worker["kernel"] for worker in result["workers"]} == {"native"}
        assert find_in(tmp_path, [*secrets, "xyzzy-plover-29"]) > 10
        return result

    return run


@pytest.mark.long
def test_the_guides_program_runs_on_executors_with_an_archived_environment(
    work: Work, shipped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "standalone"
    folder.mkdir()
    with StandaloneSpark(folder) as spark:
        submit = documented("### Run it").replace("spark://master:7077", spark.url)
        submit = submit.replace("spark-submit", str(spark.home / "bin" / "spark-submit"))
        environment = {"SPARK_HOME": str(spark.home), "PYTHONPATH": ""}
        result = work(
            submit, shipped, environment, "PKCS12", master=spark.url, settings=settings(tmp_path)
        )
        logs = [p for p in spark.work.rglob("stderr") if p.is_file()]
        assert len(logs) == 2  # two executors, whose logs were searched too
    commands = (tmp_path / "shown" / "commands.txt").read_text()
    assert commands.count("CoarseGrainedExecutorBackend") >= 2
    assert len({worker["parent"] for worker in result["workers"]}) == 2  # one daemon per executor
    for worker in result["workers"]:
        assert str(spark.work) in worker["package"], "not from the archive"
        assert ENVIRONMENT in worker["python"]


@pytest.mark.long
def test_the_guides_program_runs_through_spark_connect(work: Work, tmp_path: Path) -> None:
    """Check that Connect's output is redacted as documented."""
    folder = tmp_path / "connect"
    folder.mkdir()
    command = documented("With Spark Connect, source and sink")
    assert command.count("redaction.string.regex") == 2
    wanted = {**settings(tmp_path), "spark.master": "local[2]"}
    with ConnectServer(folder, command, wanted, sys.executable) as server:
        work(
            f"{sys.executable} program.py",
            tmp_path,
            {},
            "JKS",
            remote=server.url,
            interface=server.interface,
            pages=["connect"],
        )
        page = (tmp_path / "shown" / "page-connect.txt").read_text()
    log = "".join(p.read_text() for p in (tmp_path / "events").rglob("events*") if p.is_file())
    for text in (page, log):
        assert "kafka.bootstrap.servers" in text, "it doesn't show options at all"
        assert "redacted" in text
