"""A test that timed out is run once more, alone; tests with other failures aren't."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tools import flaky_tests, run_tests
from tools.flaky_tests import MOST, Failure, failures, is_timeout, repeat, worth_repeating
from tools.run_tests import Run, Suite, tell

DEADLINE = """def test_it():
    while True:
>       assert time.monotonic() < deadline, "no coordinator"
E       AssertionError: no coordinator
E       assert 537.7 < 537.6

test_x.py:6: AssertionError"""
SUBPROCESS = "subprocess.TimeoutExpired: Command 'x' timed out after 20 seconds"
LATE = "odradek.common.errors.KafkaTimeoutError: no records in 5 s"
PEERS = 'cimpl.KafkaException: KafkaError{code=%s,val=-185,str="Local: Timed out"}'


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Failed: Timeout (>400.0s) from pytest-timeout.", ""),
        (LATE, ""),
        ("odradek.common.errors.NoBrokerAvailableError: strategy none", ""),
        ("TimeoutError", ""),
        ("TimeoutError: late", ""),
        ("_queue.Empty", ""),
        (SUBPROCESS, ""),
        (PEERS % "_TIMED_OUT", ""),
        (f'failed on setup with "{LATE}"', ""),
        ('failed on teardown with "TimeoutError"', ""),
        ("AssertionError: no coordinator\nassert 537.7 < 537.6", DEADLINE),
    ],
)
def test_failures_because_of_a_timeout_are_recognised(message: str, text: str) -> None:
    assert is_timeout(message, text)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("assert 3 == 4", ">   assert len(read) == 4"),
        ("AssertionError: TimeoutError: the answer says", ">   assert answer == wanted"),
        ("AssertionError: wanted: Timeout (>1s) from pytest-timeout", ""),
        ("Failed: DID NOT RAISE <class 'TimeoutError'>", ">   with raises(TimeoutError):"),
        ("odradek.common.errors.kafka.InvalidSessionTimeoutError: 26", ""),
        ("odradek.common.errors.CommitFailedError: timed out", ""),
        (PEERS % "UNKNOWN_MEMBER_ID", ""),
        ("KeyError: 'TimeoutError'", ""),
        ("collection failure", "E   TimeoutError"),
        ("worker 'gw0' crashed while running 'a'", ""),
        # The traceback contains a deadline, but the failed assertion compares values.
        ("assert 1 == 2", DEADLINE + "\n>       assert read == 2\n"),
        ("", ""),
    ],
)
def test_other_failures_do_not_count_as_timeouts(message: str, text: str) -> None:
    assert not is_timeout(message, text)


def case(root: ElementTree.Element, module: str, name: str, *bad: tuple[str, str]) -> None:
    one = ElementTree.SubElement(root, "testcase", classname=module, name=name)
    for tag, message in bad:
        ElementTree.SubElement(one, tag, message=message).text = f"traceback of {message}"
    if bad:
        ElementTree.SubElement(one, "system-out").text = f"what {name} wrote"


def report(path: Path, *cases: tuple[str, str, tuple[tuple[str, str], ...]]) -> list[Failure]:
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite")
    for module, name, bad in cases:
        case(suite, module, name, *bad)
    ElementTree.ElementTree(root).write(path / "report.xml")
    return failures(path / "report.xml", path)


def test_failed_tests_are_named_as_on_pytests_command_line(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    late, wrong = ("failure", LATE), ("failure", "assert 1 == 2")
    found = report(
        tmp_path,
        ("tests.test_a", "test_good", ()),
        ("tests.test_a.TestClass", "test_one[a/b-\\n]", (late,)),
        ("tests.test_a", "test_both", (late,)),
        ("tests.test_a", "test_both", (("error", 'failed on teardown with "assert x"'),)),
        ("tests.test_a", "test_wrong", (wrong,)),
        ("", "tests.test_b", (("error", "TimeoutError: while it was imported"),)),
    )
    assert {failure.test: failure.timed_out for failure in found} == {
        "tests/test_a.py::TestClass::test_one[a/b-\\n]": True,
        "tests/test_a.py::test_both": False,
        "tests/test_a.py::test_wrong": False,
        "tests.test_b": True,
    }
    assert [failure.test for failure in worth_repeating(found[:MOST])] == [found[0].test]
    assert worth_repeating(found) == []  # more than three tests failed
    assert worth_repeating(found[-1:]) == []  # this module failed at its import
    assert LATE in found[0].log
    assert "what test_one" in found[0].log


def test_the_log_of_a_repeated_tests_first_failure_is_kept(tmp_path: Path) -> None:
    failed = [
        Failure(f"tests/test_a.py::test_{name}[x/y]", ((message, ""),), f"log of {name}")
        for name, message in (("passes", LATE), ("fails", LATE), ("wrong", "assert 1 == 2"))
    ]
    ran: list[str] = []

    def alone(test: str) -> bool:
        ran.append(test)
        return "passes" in test

    found = repeat(failed, alone, "spark", tmp_path / "artifacts" / "flaky")
    assert ran == [failure.test for failure in failed[:2]]
    ((passed, log),) = found
    assert passed is failed[0]
    assert log.read_text() == "log of passes"
    assert log.parent == tmp_path / "artifacts" / "flaky"
    assert len(list(log.parent.iterdir())) == 2  # one log for each failed test


SOMETIMES = """
from pathlib import Path

MARK = Path(__file__).with_suffix(".mark")

def test_late():
    print("the words of test_late")
    if not MARK.exists():
        MARK.touch()
        raise TimeoutError("late")

def test_good():
    pass
"""
ALWAYS = """
def test_late():
    raise TimeoutError("late")
"""
WRONG = SOMETIMES.replace('TimeoutError("late")', 'AssertionError("1 == 2")')


@pytest.mark.slow
def test_a_run_passes_only_if_the_tests_that_timed_out_pass_when_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = {"sometimes": SOMETIMES, "always": ALWAYS, "wrong": WRONG, "once": SOMETIMES}
    for name, text in texts.items():
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(text)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    suites = {name: Suite((name,), repeats=name != "once") for name in texts}
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    run = Run(["-p", "no:cacheprovider"], suites)
    run.all([[*texts]])
    found = {name: (result.passed, result.failed) for name, result in run.results.items()}
    assert found == {"sometimes": (2, 0), "always": (0, 1), "wrong": (1, 1), "once": (1, 1)}
    assert [name for name, result in run.results.items() if result.flaky] == ["sometimes"]
    capfd.readouterr()
    assert tell({"sometimes": run.results["sometimes"]}, 1.0)
    *_, named, last = capfd.readouterr().out.splitlines()
    assert named.startswith("FLAKY sometimes: tests/sometimes/test_sometimes.py::test_late ")
    assert last == "2 passed, 0 failed"
    log = Path(named.split()[-1])
    assert log.is_relative_to(tmp_path / "artifacts")
    assert "TimeoutError: late" in log.read_text()
    assert "the words of test_late" in log.read_text()


def test_only_suites_with_real_brokers_repeat_tests_that_timed_out() -> None:
    every = {**run_tests.SUITES, "quick": run_tests.QUICK}
    assert {name for name, suite in every.items() if suite.repeats} == {"integration", "spark"}
    assert flaky_tests.MOST == 3
