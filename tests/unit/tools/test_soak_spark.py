"""The soak of Spark jobs: choice of faults, processes to kill, failures that faults explain."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.soak import spark_soak
from tests.soak.spark_driver import Part, Process, part_of
from tests.soak.spark_job import committed
from tests.soak.spark_soak import FAULTS, SparkPlan, SparkSoak, drawn

KEYS = [str(n) for n in range(4)]


class Cluster:
    """A fake cluster with only the methods that a soak calls before its run."""

    def librdkafka_config(self) -> dict[str, str]:
        return {}

    def client_config(self) -> dict[str, str]:
        return {}


class Driver:
    """A fake Spark driver that is alive or has ended; the test lists its processes."""

    lives: ClassVar[list[bool]]
    found: ClassVar[dict[Part, list[int]]]

    def __init__(self, plan: dict[str, Any]) -> None:
        self.alive = self.lives.pop(0)
        self.batches: Counter[str] = Counter()
        self.begun: dict[str, float] = {}
        self.failures: list[tuple[str, str]] = []
        self.told: list[str] = []

    def parts(self, kind: Part) -> list[int]:
        return self.found.get(kind, [])

    def tell(self, line: str) -> None:
        self.told.append(line)


class Bench:
    """A soak whose drivers are fake; it records signals instead of sending them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.killed: list[tuple[int, int]] = []
        monkeypatch.setattr(spark_soak, "Driver", Driver)
        monkeypatch.setattr(os, "kill", lambda *both: self.killed.append(both))
        self.lines: list[str] = []
        plan = SparkPlan(faults=0, folder=folder, kinds=("worker", "restart"), patience=0.0)
        self.soak = SparkSoak(Cluster(), plan, self.lines.append)  # type: ignore[arg-type]

    def start(self, *lives: bool, patience: float = 0.0, **found: list[int]) -> None:
        Driver.lives, Driver.found = list(lives), found  # type: ignore[assignment]
        self.soak.plan = SparkPlan(
            faults=0, folder=Path(), kinds=("worker", "restart"), patience=patience
        )
        self.soak._start_driver()

    def do(self, kind: str) -> str:
        return self.soak._do(kind, random.Random(1))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path)


def test_every_kind_of_fault_occurs_once_before_any_is_repeated() -> None:
    plan = SparkPlan(faults=50, folder=Path(), seed=3)
    kinds = list(drawn(plan))
    round_ = len(FAULTS)
    assert len(kinds) == 50
    for start in range(0, 50 - round_, round_):
        assert sorted(kinds[start : start + round_]) == sorted(FAULTS)
    assert kinds[:round_] != kinds[round_ : 2 * round_]
    assert kinds == list(drawn(plan))
    assert kinds != list(drawn(SparkPlan(faults=50, folder=Path(), seed=4)))


def test_progress_without_rows_does_not_count_as_a_committed_batch() -> None:
    idle = {"batchId": 5, "numInputRows": 0, "timestamp": "12:00"}
    batch = {"batchId": 5, "numInputRows": 7, "timestamp": "12:01"}
    assert not committed(idle, None)
    assert committed(batch, "12:00")
    assert not committed(batch, "12:01")


def test_the_fault_kills_a_running_process_of_its_kind(bench: Bench) -> None:
    bench.start(True, patience=60.0, worker=[17])
    assert bench.do("worker") == "worker"
    assert bench.killed == [(17, signal.SIGKILL)]
    assert bench.lines == []


def test_a_driver_that_ended_is_replaced_before_the_next_fault(bench: Bench) -> None:
    bench.start(False, True, patience=60.0, worker=[17])
    bench.soak._recent.add("executor")  # this recent fault explains the end of the driver
    assert bench.do("worker") == "worker"
    assert bench.killed == [(17, signal.SIGKILL)]
    assert "the driver ended by itself" in bench.lines[0]
    assert bench.soak.report.failures == []


def test_a_driver_that_ends_without_a_fault_that_explains_it_is_a_failure(bench: Bench) -> None:
    bench.start(False, True, patience=60.0, worker=[17])
    bench.soak._recent.add("move")
    bench.do("worker")
    assert bench.soak.report.failures == ["the driver ended by itself after what came before"]


def test_a_driver_that_ends_repeatedly_ends_the_run(bench: Bench) -> None:
    bench.start(*[False] * 9, patience=60.0)
    with pytest.raises(AssertionError, match="again and again"):
        bench.do("worker")


def test_without_a_process_to_kill_another_fault_is_chosen(bench: Bench) -> None:
    bench.start(True)
    assert bench.do("worker") == "restart"
    assert bench.killed == []
    assert "there was no worker; a restart instead" in bench.lines[0]
    assert bench.soak._driver.told in (["restart copy"], ["restart land"])  # type: ignore[attr-defined]


def test_a_batch_begun_before_the_fault_does_not_count_as_recovery(bench: Bench) -> None:
    bench.start(True)
    driver, soak = bench.soak._driver, bench.soak
    soak._recent.add("planner")
    driver.begun = {"copy": time.time() + 60, "land": time.time() - 1}
    with pytest.raises(AssertionError, match="no progress"):
        soak._progress("planner", time.monotonic())
    assert soak._recent == {"planner"}
    driver.begun["land"] = time.time() + 60
    soak._progress("planner", time.monotonic())
    assert soak._recent == set()
    assert set(soak.report.longest_recovery) == {"planner"}


def test_a_failed_query_is_a_failure_unless_a_fault_explains_it(bench: Bench) -> None:
    bench.start(True)
    bench.soak._recent.add("planner")
    bench.soak._driver.failures.append(("copy", "Traceback\nx.FooError: bad"))
    bench.soak._note_failures("planner")
    assert bench.soak.report.failures == []
    bench.soak._recent.clear()
    bench.soak._driver.failures.append(("land", "Traceback\nx.FooError: bad"))
    bench.soak._note_failures("move")
    assert bench.soak.report.failures == ["land failed after move: x.FooError: bad"]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (KEYS, []),
        (KEYS[1:], ["1 records are lost: ['0']"]),
        ([*KEYS, "2"], ["1 records are more than once: ['2']"]),
        ([*KEYS, "x"], ["1 records are never sent: ['x']"]),
        ([], ["4 records are lost: ['0', '1', '2', '3']", "it shows nothing"]),
    ],
)
def test_lost_duplicated_and_unknown_records_are_reported_as_failures(
    bench: Bench, found: list[str], told: list[str]
) -> None:
    bench.soak._compare("Parquet", Counter(found), KEYS, Counter(KEYS))
    failures = bench.soak.report.failures
    assert len(failures) == len(told)
    assert all(failure.endswith(text) for failure, text in zip(failures, told, strict=True)), (
        failures
    )
    assert bench.soak.report.records == {"Parquet": len(found)}


def test_processes_of_spark_are_classified_by_their_command_lines() -> None:
    commands = [
        (1, 0, "python spark_job.py"),
        (2, 1, "java org.apache.spark.deploy.SparkSubmit pyspark-shell"),
        (3, 2, "java org.apache.spark.executor.CoarseGrainedExecutorBackend"),
        (4, 3, "python -m pyspark.daemon pyspark.worker"),
        (5, 4, "python -m pyspark.daemon pyspark.worker"),
        (6, 2, "python -m pyspark.sql.streaming.python_streaming_source_runner"),
        (7, 2, "python -m pyspark.daemon pyspark.worker"),
        (8, 7, "python -m pyspark.daemon pyspark.worker"),
    ]
    every = {pid: Process(pid, parent, 1, command) for pid, parent, command in commands}
    parts = [part_of(every[pid], every) for pid, _, _ in commands]
    assert parts == [None, "jvm", "executor", None, "worker", "planner", None, "planner"]
