"""Whose CPU time counts for a job, when Spark ends Python workers as it pleases."""

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


def test_processes_that_go_on_and_new_ones_count_with_what_they_used() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0), WORKER: python(5.0)}
    after = {JVM: java(12.0), DAEMON: python(1.1), WORKER: python(5.4), OTHER: python(0.5)}
    assert used(before, after) == (2.0, 1.0)


def test_a_worker_that_ended_between_counts_with_what_it_used_since() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0, 2.0), WORKER: python(5.0)}
    # It used 0.3 s more; another one came and went in 0.2 s.
    after = {JVM: java(11.0), DAEMON: python(1.0, 7.5)}
    assert used(before, after) == (1.0, 0.5)


def test_workers_whose_end_nobody_was_told_of_take_nothing_away() -> None:
    before = {JVM: java(10.0), DAEMON: python(1.0, 2.0), WORKER: python(6.5)}
    assert used(before, {JVM: java(11.0)}) == (1.0, 0.0)
    assert used(before, {JVM: java(11.0, 3.0), OTHER: python(0.25)}) == (1.0, 0.25)


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    before = {JVM: java(10.0), (3, 30): python(5.0)}
    assert used(before, {JVM: java(10.0), (3, 31): python(0.5)}) == (0.0, 0.5)


def test_this_process_is_seen() -> None:
    begun = Cpu.now()
    for _ in range(10):
        sum(range(1_000_000))
    found = Cpu.now().since(begun)
    assert found["python_s"] > 0.0
