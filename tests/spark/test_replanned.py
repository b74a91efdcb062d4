"""Check that a batch is written once if the next run after a kill plans other tasks and rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.interop.other_client import read_all
from tests.spark.conftest import Topics
from typer.testing import CliRunner

from odradek.cli.pipeline import app as pipeline
from odradek.testing import LocalCluster

pytestmark = pytest.mark.timeout(900)  # starts two drivers: half a minute on an idle machine

DRIVER = Path(__file__).parent / "sink_driver.py"
ROWS = 400


@dataclass(frozen=True)
class Plan:
    """How a run plans the batch: cores, adaptive execution, ranges of a topic that it reads."""

    cores: int
    adaptive: bool = True
    ranges: int = 0
    """Ranges of a topic; 0 to read files and shuffle them."""

    @property
    def tasks(self) -> int:
        """Number of tasks of the batch; without adaptive execution the shuffle has 12."""
        return self.ranges or (self.cores + 1 if self.adaptive else 12)

    def __str__(self) -> str:
        adaptive = "" if self.adaptive else " not adaptive"
        return f"{self.cores} cores{adaptive}" + f" {self.ranges} ranges" * (self.ranges > 0)


class Run:
    """A driver and its workers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        (folder / "ends").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(settings))
        (folder / "halt").write_text(settings["halt"])
        command = [sys.executable, str(DRIVER), str(folder)]
        self.driver = subprocess.Popen(command, start_new_session=True)

    def wait_for(self, found: Callable[[], object]) -> None:
        deadline = time.monotonic() + 300
        while not found():
            assert self.driver.poll() is None, "the driver ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def halted(self) -> int:
        """Return the halted process's id, once another task has ended."""
        self.wait_for((self._folder / "halted").exists)
        self.wait_for(lambda: "0" in self.ends())
        return int((self._folder / "halted").read_text())

    def ends(self) -> dict[str, str]:
        """Return how each task ended."""
        ends = (self._folder / "ends").iterdir()
        return {path.name: path.read_text() for path in ends if not path.suffix}

    def signal(self, number: int, *, spared: int = 0) -> None:
        """Signal all processes: Spark's daemons aren't in the driver's process group."""
        command = ["ps", "-o", "pid=", "-s", str(self.driver.pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        for pid in map(int, found.stdout.split()):
            if pid != spared:
                with suppress(ProcessLookupError):  # the process has already ended
                    os.kill(pid, number)

    def wake(self, task: str = "") -> None:
        """Let all processes continue; wait for the end of a task that has outlived its driver."""
        (self._folder / "halt").unlink()
        self.signal(signal.SIGCONT)
        deadline = time.monotonic() + 60
        while task and task not in self.ends():
            assert time.monotonic() < deadline
            time.sleep(0.05)


class Program:
    """A query or a job, whose runs share a folder."""

    def __init__(self, folder: Path, cluster: LocalCluster, topic: str, kind: str) -> None:
        self.folder, self._cluster, self._runs = folder, cluster, list[Run]()
        self.source = f"{topic}-in"
        client = cluster.client_config()
        self._settings = {"topic": topic, "kind": kind, "client": client, "source": self.source}
        (folder / "in").mkdir()
        pq.write_table(pa.table({"id": range(ROWS)}), folder / "in" / "a.parquet")

    def names(self, prefix: str) -> None:
        lines = [f"{k},{prefix}{k}\n" for k in range(10)]
        (self.folder / "names.csv").write_text("".join(lines))

    def start(self, plan: Plan, halt: str = "") -> Run:
        place = self.folder / f"run{len(self._runs)}"
        self._runs.append(Run(place, halt=halt, **self._settings, **vars(plan)))
        return self._runs[-1]

    def finish(self, plan: Plan) -> Run:
        run = self.start(plan)
        assert run.driver.wait(300) == 0
        return run

    def resolve(self, *options: str) -> str:
        at = ["--bootstrap-server", self._cluster.bootstrap_servers, *options]
        done = CliRunner().invoke(pipeline, ["resolve", str(self.folder / "checkpoint"), *at])
        assert done.exit_code == 0, done.output
        return done.output

    def judge(self, prefix: str) -> None:
        """Compare the topic with the rows of one version of the table."""
        config, topic = self._cluster.librdkafka_config(), self._settings["topic"]
        found = read_all(config, str(topic), 2)
        values = Counter(row.value for rows in found.values() for row in rows)
        assert values == Counter(f"{n} {prefix}{n % 10}".encode() for n in range(ROWS))

    def close(self) -> None:
        for run in self._runs:
            run.signal(signal.SIGKILL)
            run.driver.wait()


@contextmanager
def program(
    folder: Path, cluster: LocalCluster, topics: Topics, kind: str = "stream"
) -> Iterator[Program]:
    topic = topics.create(partitions=2)
    made = Program(folder, cluster, topic, kind)
    made.names("old")
    try:
        yield made
    finally:
        made.close()


WITHIN_ROWS = "task 1"


def phase(kind: str, halt: str, before: Plan, then: Plan, *, long: bool = True) -> Any:
    name = f"{kind}-{halt}-{before}-{then}"
    return pytest.param(kind, halt, before, then, id=name, marks=[pytest.mark.long] * long)


PHASES = [
    phase("stream", WITHIN_ROWS, Plan(2), Plan(5), long=False),
    phase("stream", WITHIN_ROWS, Plan(2, adaptive=False), Plan(5)),
    phase(
        "stream", WITHIN_ROWS, Plan(5, adaptive=False, ranges=8), Plan(2, adaptive=False, ranges=4)
    ),
    phase("stream", "written", Plan(6), Plan(2, adaptive=False)),
    phase("batch", WITHIN_ROWS, Plan(2), Plan(5)),
    phase("batch", "committed", Plan(5), Plan(2)),
    phase("named batch", WITHIN_ROWS, Plan(6, adaptive=False), Plan(2)),
    phase("named batch", "decided", Plan(2), Plan(6)),
    phase("job", WITHIN_ROWS, Plan(5), Plan(2)),
    phase("job", "decided", Plan(2), Plan(5, adaptive=False)),
]


# test_differences and test_sink replay a batch of `write_batch` within a driver.
@pytest.mark.parametrize(("kind", "halt", "before", "then"), PHASES)
def test_a_killed_drivers_batch_is_replanned_and_written_once(
    kind: str,
    halt: str,
    before: Plan,
    then: Plan,
    cluster: LocalCluster,
    topics: Any,
    tmp_path: Path,
) -> None:
    """Replan on other cores, with adaptive execution, and with a changed joined file."""
    with program(tmp_path, cluster, topics, kind) as made:
        source = topics.create(partitions=2, name=made.source)
        topics.fill(source, [(None, f"{n}".encode()) for n in range(ROWS)])
        killed = made.start(before, halt)
        killed.halted()
        killed.signal(signal.SIGKILL)
        if halt == WITHIN_ROWS:
            assert "1" not in killed.ends()
            made.names("new")
        assert len(made.finish(then).ends()) == then.tasks != before.tasks
        made.judge("new" if halt == WITHIN_ROWS else "old")


@pytest.mark.long
def test_a_task_that_outlives_its_driver_commits_nothing(
    cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    """Wake the task when fewer tasks than in its plan have written the batch."""
    with program(tmp_path, cluster, topics) as made:
        killed = made.start(Plan(5), "task 3")
        zombie = killed.halted()
        os.kill(zombie, signal.SIGSTOP)
        killed.signal(signal.SIGKILL, spared=zombie)
        made.names("new")
        assert len(made.finish(Plan(2)).ends()) == 3
        made.judge("new")
        killed.wake("3")
        assert "taken over" in killed.ends()["3"].lower()
        made.judge("new")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stream", "batch", "job"])
def test_a_task_that_read_the_ledger_before_the_decision_aborts_nothing(
    kind: str, cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    """Wake a task that outlives its driver after the next driver has decided and died."""
    with program(tmp_path, cluster, topics, kind) as made:
        first = made.start(Plan(2), "ledger 1")
        zombie = first.halted()
        os.kill(zombie, signal.SIGSTOP)
        first.signal(signal.SIGKILL, spared=zombie)
        second = made.start(Plan(2), "decided")
        second.halted()
        second.signal(signal.SIGKILL)
        first.wake("1")
        made.finish(Plan(5))
        made.judge("old")


@pytest.mark.long
@pytest.mark.parametrize("halt", ["ledger 1", "decided"])
def test_a_killed_drivers_batch_is_written_once_if_the_plan_is_unchanged(
    halt: str, cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    with program(tmp_path, cluster, topics) as made:
        killed = made.start(Plan(2), halt)
        killed.halted()
        killed.signal(signal.SIGKILL)
        made.finish(Plan(2))
        made.judge("old")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stream", "batch"])
@pytest.mark.parametrize("halt", [WITHIN_ROWS, "decided"])
def test_a_driver_that_wakes_after_its_successor_commits_nothing(
    kind: str, halt: str, cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    """Let the driver and its tasks continue where they were frozen."""
    with program(tmp_path, cluster, topics, kind) as made:
        frozen = made.start(Plan(5), halt)
        frozen.halted()
        frozen.signal(signal.SIGSTOP)
        rows = "old"
        if halt == WITHIN_ROWS:
            made.names(rows := "new")
        made.finish(Plan(2))
        made.judge(rows)
        frozen.wake()
        frozen.driver.wait(300)
        made.judge(rows)


@pytest.mark.long
def test_a_failed_job_is_rerun_and_written_once(
    cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    with program(tmp_path, cluster, topics, "job") as made:
        failed = made.start(Plan(5), f"fail {WITHIN_ROWS}")
        assert failed.driver.wait(300) != 0
        made.names("new")
        made.finish(Plan(2))
        made.judge("new")


@pytest.mark.long
def test_a_decided_batch_with_other_rows_is_rejected_until_it_is_resolved(
    cluster: LocalCluster, topics: Any, tmp_path: Path
) -> None:
    with program(tmp_path, cluster, topics) as made:
        killed = made.start(Plan(2), "decided")
        killed.halted()
        killed.signal(signal.SIGKILL)
        made.names("new")
        assert made.start(Plan(5)).driver.wait(300) != 0
        made.judge("old")
        assert "is completely committed" in made.resolve()
        assert "counts as complete" in made.resolve("--accept-loss")
        made.finish(Plan(6, adaptive=False))
        made.judge("old")


@pytest.mark.long
@pytest.mark.parametrize("halt", [WITHIN_ROWS, "decided"])
def test_a_batch_is_replanned_while_one_of_three_brokers_is_down(halt: str, tmp_path: Path) -> None:
    config = {"min.insync.replicas": "2", "offsets.topic.num.partitions": "5"}
    with LocalCluster(brokers=3, config=config) as three:
        topic = "planned"
        three.create_topic(topic, 2, 3)
        made = Program(tmp_path, three, topic, "stream")
        made.names("old")
        try:
            killed = made.start(Plan(5), halt)
            killed.halted()
            killed.signal(signal.SIGKILL)
            three.kill(1)
            made.finish(Plan(2))
            made.judge("old")
        finally:
            made.close()
