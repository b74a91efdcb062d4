"""The CPU time of a Spark job is that of all its processes, even of workers that ended."""

from __future__ import annotations

import pytest
from benchmarks.spark_jvm.timing import Cpu, Process

JVM, DAEMON, WORKER, OTHER = (1, 10), (2, 20), (3, 30), (4, 40)


def python(own: float, ended: float = 0.0) -> Process:
    return Process(False, own, ended)


def used(before: dict[tuple[int, int], Process], after: dict[tuple[int, int], Process]) -> object:
    found = Cpu(after).since(Cpu(before))
    return pytest.approx((found["cpu_s"] - found["python_s"], found["python_s"]))


def java(own: float, ended: float = 0.0) -> Process:
    return Process(True, own, ended)


def test_cpu_time_includes_running_processes_and_new_ones() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0), WORKER: python(5.0)}
    after = {JVM: java(12.0), DAEMON: python(1.1), WORKER: python(5.4), OTHER: python(0.5)}
    assert used(before, after) == (2.0, 1.0)


def test_cpu_time_includes_a_worker_that_ended_between_the_samples() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0, 2.0), WORKER: python(5.0)}
    # The worker used 0.3 s more and ended; a second worker started, used 0.2 s and ended.
    after = {JVM: java(11.0), DAEMON: python(1.0, 7.5)}
    assert used(before, after) == (1.0, 0.5)


def test_a_worker_whose_end_was_not_recorded_does_not_reduce_the_cpu_time() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0, 2.0), WORKER: python(6.5)}
    assert used(before, {JVM: java(11.0)}) == (1.0, 0.0)
    assert used(before, {JVM: java(11.0, 3.0), OTHER: python(0.25)}) == (1.0, 0.25)


def test_a_reused_process_id_counts_as_another_process() -> None:
    before = {JVM: java(10.0), (3, 30): python(5.0)}
    assert used(before, {JVM: java(10.0), (3, 31): python(0.5)}) == (0.0, 0.5)


def test_a_sample_of_processes_includes_this_process() -> None:
    begun = Cpu.now()
    for _ in range(10):
        sum(range(1_000_000))
    found = Cpu.now().since(begun)
    assert found["python_s"] > 0.0
