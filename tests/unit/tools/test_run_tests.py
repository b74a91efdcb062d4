"""`make test` runs suites in parallel, adds up their results, and fails if one of them fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import HANG_S
from tools import run_tests, suite_progress
from tools.run_tests import Result, Run, Suite, read_report, tell

REPORT = """<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10">
<testcase classname="tests.a" name="slow" time="12.5"/><testcase classname="tests.a" name="quick"/>
</testsuite></testsuites>"""
GOOD = """
import pytest

def test_it():
    pass

@pytest.mark.slow
def test_slowly():
    raise AssertionError
"""


def test_counts_and_durations_are_read_from_pytests_report(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    assert read_report(path, 1.0) == Result(0, 0, 0, 1.0, [])
    path.write_text(REPORT)
    tests = [(12.5, "tests.a::slow"), (0.0, "tests.a::quick")]
    assert read_report(path, 1.0) == Result(4, 3, 3, 1.0, tests)


def test_the_summary_lists_slow_tests_and_totals(capsys: pytest.CaptureFixture[str]) -> None:
    many = [(float(n), f"m::t{n}") for n in range(9)]
    results = {
        "one": Result(9, 0, 1, 2.0, many),
        "other": Result(2, 0, 0, 3.0, [(5.5, "o::a"), (0.1, "o::b")]),
    }
    assert tell(results, 4.0)
    said = capsys.readouterr().out
    slowest = re.findall(r" s  (\w::\w+)", said)
    assert slowest[:4] == ["m::t8", "m::t7", "m::t6", "o::a"]
    assert len(slowest) == run_tests.SLOWEST
    assert said.splitlines()[-1] == "11 passed, 0 failed, 1 skipped"
    flaky = {"one": Result(9, 0, 0, 2.0, [], flaky=("FLAKY one: a", "FLAKY one: b"))}
    assert tell(flaky, 4.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == ["FLAKY one: a", "FLAKY one: b", "9 passed, 0 failed"]
    assert not tell({"one": Result(9, 1, 0, 2.0, [])}, 4.0)
    assert not tell({}, 0.0)
    assert capsys.readouterr().out.splitlines()[-2:] == ["no test ran", "0 passed, 0 failed"]


@pytest.mark.slow
def test_every_suite_runs_and_a_crashed_suite_counts_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("good", GOOD), ("broken", "1 / 0\n")):
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(text)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "REPORT_EVERY_S", 0.0)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    names = ("good", "broken", "absent")
    suites = {name: Suite((name,), chosen="not slow") for name in names}
    run = Run(["-p", "no:cacheprovider"], suites)
    run.all([["good", "absent"], ["broken"]])
    found = {name: (result.passed, result.failed) for name, result in run.results.items()}
    assert found == {"good": (1, 0), "broken": (0, 1)}
    assert run.results["good"].busy > 0
    said = capfd.readouterr().out
    assert "== good" in said
    assert "ZeroDivisionError" in said
    assert re.search(
        r"^good: (collecting|[01] of 1 tests, 0 failed), \d+ s, \d+ s in all$", said, re.MULTILINE
    )


def test_every_suite_is_planned_in_one_of_the_parallel_groups() -> None:
    planned = run_tests.plan([*run_tests.SUITES])
    every = [name for lane in planned for name in lane]
    assert sorted(every) == sorted(run_tests.SUITES)
    few = run_tests.plan(["spark", "fuzz", "unit"])
    assert few == [["spark"], ["unit", "fuzz"]]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="not on Linux")
def test_tests_run_at_low_priority_even_in_a_new_session() -> None:
    command = [sys.executable, "-c", "import os; input(); print(os.sched_getscheduler(0))"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, start_new_session=True, stdin=pipe, stdout=pipe) as process:
        run_tests.give_way(process.pid)
        group = Path(f"/proc/{process.pid}/autogroup")
        niceness = group.read_text().split()[-1] if group.exists() else "19"
        said, _ = process.communicate(b"\n", timeout=HANG_S)
    assert int(said) == os.SCHED_IDLE
    assert niceness == "19"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n", "1"]])
def test_progress_counts_finished_and_failed_tests(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_it.py").write_text(GOOD)
    (tmp_path / "folder").mkdir()  # this folder's hooks don't apply to test_it.py
    (tmp_path / "folder" / "conftest.py").write_text("def pytest_runtest_setup(item): pass\n")
    (tmp_path / "folder" / "test_more.py").write_text("def test_more(): pass\n")
    file = tmp_path / "progress"
    assert str(suite_progress.read(file)) == "collecting"
    command = [sys.executable, str(run_tests.PROGRESS), str(file), *processes]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=HANG_S, check=False)
    assert done.returncode == run_tests.TESTS_FAILED
    assert suite_progress.read(file) == suite_progress.Progress(done=3, total=3, failed=1)
    assert str(suite_progress.read(file)) == "3 of 3 tests, 1 failed"
