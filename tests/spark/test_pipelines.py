"""Run the examples of `odradek pipeline` and of declarative pipelines on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.interop.other_client import read_all
from tests.spark.conftest import Row, Topics
from tests.time_limits import HANG_S

from odradek.cli.pipeline import planning
from odradek.cli.pipeline.display import JsonLines
from odradek.cli.pipeline.document import SpecError, read
from odradek.cli.pipeline.progress import Batch
from odradek.cli.pipeline.running import Running, Stop
from odradek.cli.pipeline.spec import Pipeline, parse
from odradek.testing import LocalCluster, ensure_java_environment

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
NAMES = {"c0": "Amira", "c1": "Bo", "c2": "Chandra", "c3": "Dolores"}


def orders(start: int, stop: int) -> list[Row]:
    return [
        (
            f"c{n % 5}".encode(),
            json.dumps({"id": n, "customer": f"c{n % 5}", "cents": 950 + n}).encode(),
        )
        for n in range(start, stop)
    ]


@pytest.fixture(scope="module")
def filled(topics: Topics) -> Iterator[Topics]:
    names = ("orders", "large-orders", "named-orders", "sdp-orders")
    for topic in names:
        topics.create(2, name=topic)
    topics.fill("orders", orders(0, 100))
    yield topics
    for topic in names:  # other tests create these topics in the same cluster
        topics.delete(topic)


def committed(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    """Return the committed records of a topic as librdkafka reads them."""
    found = read_all(cluster.librdkafka_config(), topic, 2)
    return [json.loads(row.value or b"") for rows in found.values() for row in rows]


@pytest.mark.timeout(600)
def test_the_examples_run_plan_and_resume(
    spark: SparkSession, filled: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def example(name: str, text: str | None = None) -> Pipeline:
        path = EXAMPLES / f"{name}.yml"
        if text is not None:
            path = tmp_path / path.name
            path.write_text(text)
        variables = {
            "KAFKA": filled.cluster.bootstrap_servers,
            "STORAGE": str(tmp_path),
            "TRIGGER": "availableNow",
        }
        return parse(read(path, variables))

    def run(name: str) -> list[dict[str, Any]]:
        with Stop() as stop:
            running = Running(
                example(name), JsonLines(), stop, log=None, stop_timeout=30, spark=spark
            )
            assert running.run() == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert planning.describe(example("copy"), log=None, spark=spark).writings[0].after_batch is None
    for name in ("by_day", "copy", "lookup"):
        run(name)
    filled.fill("orders", orders(100, 150))
    plan = planning.describe(example("copy"), log=None, spark=spark)
    assert (plan.readings[0].topics, plan.readings[0].records) == ({"orders": 2}, 150)
    assert (plan.writings[0].after_batch, plan.writings[0].repeats) == (0, None)
    assert sum(plan.writings[0].positions.values()) == 100
    assert "continues after batch 0" in plan.lines()[-1]
    for name in ("by_day", "copy", "lookup"):
        told = run(name)
        assert (told[0]["event"], told[-1]["event"]) == ("started", "ended")
        [batch] = [line for line in told if line["event"] == "batch" and line["rows"]]
        assert (batch["rows"], batch["lag_total"]) == (50, 0)

    files = spark.read.parquet(str(tmp_path / "orders.parquet"))
    assert sorted(row.id for row in files.select("id").collect()) == list(range(150))
    assert len(list((tmp_path / "orders.parquet").glob("day=20*"))) in (1, 2)
    large = committed(filled.cluster, "large-orders")
    assert sorted(order["id"] for order in large) == list(range(50, 150))
    named = Counter(order.get("name") for order in committed(filled.cluster, "named-orders"))
    assert named == dict.fromkeys([*NAMES.values(), None], 30)

    text = (EXAMPLES / "by_day.yml").read_text()
    for wrong, line, words in (
        (text.replace("subscribe: orders", "subscribe: odrers"), 16, "has no topic odrers"),
        (text.replace("SELECT o.id,", "SELECT o.id, o.nosuch,"), 25, "nosuch"),
        (text.replace("partitionBy: [day]", "partitionBy: [dya]"), 31, "has no column dya"),
    ):
        with pytest.raises(SpecError, match=rf"by_day.yml:{line}: .*{words}"):
            planning.describe(example("by_day", wrong), log=None, spark=spark)


def test_an_unreachable_cluster_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "PATIENCE", 0.5)
    pipeline = parse(read(EXAMPLES / "copy.yml", {"KAFKA": "127.0.0.1:1"}))
    with pytest.raises(SpecError, match=r"(?s)copy.yml:12: cluster main: .*127.0.0.1:1"):
        planning.describe(pipeline, log=None)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_copy_recovers_after_a_move_and_stops_after_its_batch() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "moving.py", "600"],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert (result["status"], result["copied"], result["repeated"]) == (0, 600, 0)
    assert len(result["outages"]) >= 1


class StopAfterBatches(JsonLines):
    """Display that requests a stop after some batches."""

    def __init__(self, stop: Stop, batches: int) -> None:
        super().__init__()
        self._stop, self._left = stop, batches
        self.stopping_at = 0.0

    def batch(self, batch: Batch, total: int) -> None:
        super().batch(batch, total)
        self._left -= 1
        if not self._left:
            self._stop.signals.append(signal.SIGTERM)

    def say(self, event: str, text: str, **more: Any) -> None:
        super().say(event, text, **more)
        if event == "stopping":
            self.stopping_at = time.time()


def test_a_query_that_catches_up_stops_after_its_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stop a query whose batches follow each other at once, without interrupting a batch."""
    topic = topics.create(2)
    topics.fill(topic, orders(0, 3000))
    place = tmp_path / "catching-up.yml"
    place.write_text(f"""
name: catching-up
storage: {tmp_path}
trigger: 0 seconds
clusters:
  main: {{bootstrap.servers: "{topics.cluster.bootstrap_servers}"}}
sources:
  rows:
    options: {{subscribe: {topic}, startingOffsets: earliest, maxOffsetsPerTrigger: 30}}
sinks:
  files: {{from: rows, format: parquet, options: {{path: {tmp_path}/rows}}}}
""")

    done = 0
    for batches in (1, 3):  # stop at another point within a batch each time
        with Stop() as stop:
            display = StopAfterBatches(stop, batches)
            running = Running(
                parse(read(place, {})), display, stop, log=None, stop_timeout=30, spark=spark
            )
            assert running.run() == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (told[-1]["event"], told[-1]["repeats"]) == ("stopped", None)
        begun = [path.stat().st_mtime for path in tmp_path.glob("checkpoints/files/offsets/[0-9]*")]
        # Without a stop, at least 96 more batches would follow, in five seconds.
        assert sum(at > display.stopping_at for at in begun) < 40
        found = sum(told[-1]["positions"].values())
        assert done < found < 3000
        done = found
        assert spark.read.parquet(f"{tmp_path}/rows").count() == done
    assert not list(tmp_path.glob("pause-*"))


@pytest.mark.long  # what it adds to test_source_options and test_sink is Spark's own command
@pytest.mark.timeout(600)
def test_declarative_pipelines_read_and_write_topics(filled: Topics, tmp_path: Path) -> None:
    for path in (EXAMPLES / "declarative").rglob("*.*"):
        copy = tmp_path / path.relative_to(EXAMPLES / "declarative")
        copy.parent.mkdir(exist_ok=True)
        text = path.read_text() if path.suffix in (".py", ".yml") else ""
        copy.write_text(text.replace("/tmp/odradek-declarative-orders", f"{tmp_path}/storage"))  # noqa: S108
    ensure_java_environment()
    environment = {
        **os.environ, "KAFKA": filled.cluster.bootstrap_servers, "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    del environment["SPARK_HOME"]  # as when a user starts the pipeline

    program = str(Path(sys.executable).with_name("spark-pipelines"))
    command = [program, "run", "--remote", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.memory=1g"]
    done = subprocess.run(
        [*command, "--conf", f"spark.sql.warehouse.dir={tmp_path / 'tables'}"],
        cwd=tmp_path, env=environment, text=True, check=False, timeout=HANG_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert "Run is COMPLETED" in done.stdout
    assert list((tmp_path / "tables" / "per_customer").glob("*.parquet"))
    large = [order["id"] for order in committed(filled.cluster, "sdp-orders")]
    assert sorted(large)[:50] == list(range(50, 100))
    assert len(large) == len(set(large))
