"""Run the test suites, print each one's output when it ends, and add up the results: `make test`.

The suites of a lane run one after the other, the lanes in parallel. One lane has the suites with
brokers, which often wait, one those that only compute. Properties and simulations depend on no
clock: they run at the lowest priority, in the processor time that the other two leave.

A test of the suites `integration` and `spark` that failed because of a timeout or a deadline runs
once more, alone (`tools/flaky_tests.py`). If it passes then, it counts as passed, the lines before
the last one list it as FLAKY, and `artifacts/flaky` keeps the log of its failure. Add it to
`tests/flaky.json` then; a test that is listed twice there fails `make check`.

The last line is `N passed, N failed` in total; the exit status is not 0 if a test failed, a suite
broke, or nothing ran. Suites can be named on the command line; arguments after `--` are passed to
pytest. `quick` is for the edit loop (`make quick`): the tests of the suite `unit` that aren't
marked `slow`. `--long` is for `make test-long`: every test, including those marked `long`, and all
cases of searches and tables (`tests/volume.py`), of which other runs try a part.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from odradek.testing import LocalCluster, jars
from odradek.testing.registry import LISTED as REGISTRY

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `tests` has helpers that this file imports

from benchmarks import building  # noqa: E402
from tools import flaky_tests, suite_progress  # noqa: E402

ASYNC_PACKAGES = ROOT / "tests" / "interop" / "async_packages.lock"
SCHEMA_PACKAGES = ROOT / "tests" / "interop" / "schema_packages.lock"


@dataclass(frozen=True)
class Suite:
    """Folders of tests that run together, and the number of processes."""

    folders: tuple[str, ...]
    processes: int = 1
    spread: str = ""
    """Value of pytest-xdist's option `--dist`."""
    brokers: bool = False
    """Whether the suite starts brokers; the time for downloading Kafka's jars doesn't count."""
    gives_way: bool = False
    """Whether the suite only runs in processor time that no other process needs."""
    chosen: str = "not long"
    """Selection of tests as in pytest's option `-m`."""
    left_out: tuple[str, ...] = ()
    """Files in the suite's folders that another make target runs."""
    repeats: bool = False
    """Whether a test that timed out runs once more, because real brokers sometimes answer late."""


ALIVE: set[int] = set()
"""Process ids of the running suites."""
STARVED_S = 1800
"""Timeout of a test in seconds in a suite of the lowest priority."""

HOUSE_RULES = ("tests/unit/test_house*.py", "tests/unit/test_pages.py")
"""Files that `make check` runs."""
SUITES = {
    # These suites run in one process each, in parallel: with pytest-xdist each process collects all
    # tests, which takes a tenth of the suite's time, and reports each test to another process.
    "unit": Suite(("unit",), left_out=HOUSE_RULES),
    "simulation": Suite(("simulation",), gives_way=True),
    "property": Suite(("spec", "property"), gives_way=True),
    # The fuzz suite runs its targets in parallel.
    "fuzz": Suite(("fuzz",)),
    # Each process has its own clusters, by the groups in integration's conftest. Half of these
    # tests wait for something; with more processes a test missed a time limit on a busy machine.
    "integration": Suite(("integration", "interop"), 4, "loadgroup", brokers=True, repeats=True),
    "spark": Suite(("spark",), 2, "loadfile", brokers=True, repeats=True),
}
LONG = {name: replace(suite, chosen="") for name, suite in SUITES.items()}
"""The suites with all tests, and all cases of their searches and tables."""
Lanes = Sequence[Sequence[str]]
"""Lanes run in parallel; the suites of one lane run one after the other."""
LANES: Lanes = (("integration", "spark"), ("unit", "fuzz"), ("simulation",), ("property",))
# The edit loop omits tests that start processes, compile, or take over half a second.
QUICK = Suite(
    ("unit", "spec"), 2, "worksteal", chosen="not slow and not long", left_out=HOUSE_RULES
)
SLOWEST = 10
TESTS_FAILED = 1
"""pytest's exit status if tests failed and nothing else is wrong."""
REPORT_EVERY_S = 10.0
PROGRESS = Path(suite_progress.__file__)


@dataclass(frozen=True)
class Result:
    """Numbers of a suite's tests by outcome, and the time that they took."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    tests: list[tuple[float, str]]
    """Seconds and name of each test; the seconds include the set-up of its fixtures."""
    busy: float = 0.0
    """Processor seconds of the suite and of all processes that it started, also of brokers."""
    flaky: tuple[str, ...] = ()
    """A line for each test that timed out and passed when it was run again."""


def fetch_jars() -> None:
    """Download the jars of every listed Kafka version that this machine doesn't have yet."""
    start = time.monotonic()
    for version in jars.versions():
        jars.fetch(version, lambda line: print(f"set-up: {line}", flush=True))
    print(f"set-up: Kafka's jars are complete ({time.monotonic() - start:.0f} s)", flush=True)


def archive_broker_classes() -> None:
    """Start a broker of each version once, which creates the class archive for faster starts."""
    start = time.monotonic()
    for version in sorted(set(jars.versions()) - set(jars.TOOLS_OF.values())):
        with LocalCluster(brokers=1, version=version):
            pass
    print(f"set-up: brokers' classes are archived ({time.monotonic() - start:.0f} s)", flush=True)


def make_async_packages() -> None:
    """Create the environment with pytest plug-ins for asyncio, which some tests run in."""
    start = time.monotonic()
    building.python_with("async-packages", ASYNC_PACKAGES)
    print(f"set-up: asyncio's plug-ins ({time.monotonic() - start:.0f} s)", flush=True)


def make_schema_packages() -> None:
    """Create the environment with confluent-kafka's serializers, and download the registry."""
    start = time.monotonic()
    building.python_with("schema-packages", SCHEMA_PACKAGES)
    jars.fetch_listed(REGISTRY, lambda line: print(f"set-up: {line}", flush=True))
    print(f"set-up: serializers, a registry ({time.monotonic() - start:.0f} s)", flush=True)


def run_module(name: str) -> tuple[str, bool, float]:
    """Run a Python module; return its output, whether it succeeded, and the seconds it took."""
    start = time.monotonic()
    command = [sys.executable, "-m", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    well = done.returncode == 0
    return done.stdout if well else done.stderr.strip()[-500:], well, time.monotonic() - start


def make_older_spark() -> None:
    """Create the environment with the oldest Spark and its JVM connector, or print why not."""
    said, well, seconds = run_module("benchmarks.spark_jvm.environment")
    words = "is there" if well else f"isn't available, so its tests are skipped: {said}"
    print(f"set-up: Spark 4.2.0 with its JVM connector {words} ({seconds:.0f} s)", flush=True)


def archive_spark_classes() -> None:
    """Create the class archives for the Spark suite's JVMs, or print why not."""
    said, _, seconds = run_module("tests.spark.class_archives")
    for line in said.splitlines():
        print(f"set-up: classes for {line}", flush=True)
    print(f"set-up: {seconds:.0f} s for them", flush=True)


def build_sanitized_kernels() -> None:
    """Build the kernels with sanitizers for the fuzzer, or print why that isn't possible."""
    said, _, seconds = run_module("tests.fuzz.sanitized")
    print(f"set-up: kernels with sanitizers: {said.strip()} ({seconds:.0f} s)", flush=True)


def compile_modules(names: list[str]) -> None:
    """Let pytest compile the suites' modules, and the package's modules that they import.

    The suite `unit` has half of the modules; the others are compiled in parallel.
    """
    start = time.monotonic()
    halves = [[name for name in names if name == "unit"], [n for n in names if n != "unit"]]
    running = []
    for half in halves:
        folders = [f"tests/{folder}" for name in half for folder in SUITES[name].folders]
        folders = [folder for folder in folders if (ROOT / folder).is_dir()]
        if folders:
            command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *folders]
            quiet = subprocess.DEVNULL
            running.append(
                subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=quiet, stderr=quiet)
            )
    if not running:
        return
    for process in running:
        process.wait()
    print(f"set-up: modules are compiled ({time.monotonic() - start:.0f} s)", flush=True)


def environment() -> dict[str, str]:
    """Return environment variables with which compiled modules are kept.

    Otherwise each process of a suite, Spark's workers and the programs that tests start would
    compile all modules again: for a process of pytest alone that takes eight processor seconds.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run_suite(
    name: str, suite: Suite, arguments: list[str], said: TextIO, progress: Path
) -> Result | None:
    """Run one suite, with its output and progress in files; return None if it has no tests."""
    folders = [ROOT / "tests" / folder for folder in suite.folders]
    folders = [folder for folder in folders if any(folder.rglob("test_*.py"))]
    if not folders:
        return None
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = ["--continue-on-collection-errors"]
        if suite.processes > 1:
            command += ["-n", str(suite.processes), "--dist", suite.spread]
        command += ["-o", f"timeout={STARVED_S}"] if suite.gives_way else []
        command += [f"--ignore-glob={ROOT / files}" for files in suite.left_out]
        command += [str(folder.relative_to(ROOT)) for folder in folders]
        runner = [str(PROGRESS), str(progress)]
        ended, busy = run_pytest(runner, suite, [*arguments, *command], report, said)
        result = read_report(report, 0.0)
        if suite.repeats and ended == TESTS_FAILED:

            def alone(test: str) -> bool:
                nonlocal busy
                repeated = Path(directory) / "repeated.xml"
                runner, whole = ["-m", "pytest"], [*arguments, test]
                status, used = run_pytest(runner, suite, whole, repeated, said)
                busy += used
                return status == 0 and read_report(repeated, 0.0).passed == 1

            failed = flaky_tests.failures(report, ROOT)
            for failure, log in flaky_tests.repeat(failed, alone, name, ROOT / "artifacts/flaky"):
                line = (
                    f"FLAKY {name}: {failure.test} timed out, and passed alone: "
                    f"add it to {flaky_tests.LISTED}, see {log}"
                )
                result = replace(
                    result,
                    passed=result.passed + 1,
                    failed=result.failed - len(failure.reasons),
                    flaky=(*result.flaky, line),
                )
    # If pytest crashes or a suite is empty, no test has failed, but the suite counts as failed.
    if ended != 0 and result.failed == 0 and not result.flaky:
        print(f"{name}: pytest ended with exit status {ended}", flush=True)
        result = replace(result, failed=1)
    return replace(result, seconds=time.monotonic() - start, busy=busy)


def run_pytest(
    runner: list[str], suite: Suite, arguments: list[str], report: Path, said: TextIO
) -> tuple[int, float]:
    """Run pytest, and return its exit status and the processor seconds that it took."""
    whole = [sys.executable, *runner, "-q", f"--junitxml={report}", "-m", suite.chosen]
    whole += ["-o", "junit_logging=all", "-o", "junit_log_passing_tests=false"]
    process = subprocess.Popen(
        [*whole, *arguments], cwd=ROOT, env=environment(), stdout=said, stderr=said,
        start_new_session=suite.gives_way,
    )  # fmt: skip
    if suite.gives_way:
        give_way(process.pid)
    ALIVE.add(process.pid)
    _, status, used = os.wait4(process.pid, 0)
    ALIVE.discard(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def give_way(pid: int) -> None:
    """Let a session use only the processor time that no other process needs.

    Linux first distributes processor time among sessions (if it has autogroups), and the brokers of
    a test have their own session: a process that is only idle or nice within its session gets as
    much as the brokers.
    """
    if not hasattr(os, "SCHED_IDLE"):
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        return
    with suppress(OSError):  # forbidden in some containers
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # the kernel has no autogroups
        Path(f"/proc/{pid}/autogroup").write_text("19")


def read_report(report: Path, seconds: float) -> Result:
    """Return the counts of pytest's XML report, and how long each test took."""
    if not report.is_file():
        return Result(0, 0, 0, seconds, [])
    passed = failed = skipped = 0
    tests = []
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left = int(suite.get("skipped", 0))
        failed += bad
        skipped += left
        passed += int(suite.get("tests", 0)) - bad - left
        tests += [
            (float(test.get("time", 0)), f"{test.get('classname')}::{test.get('name')}")
            for test in suite.iter("testcase")
        ]
    return Result(passed, failed, skipped, seconds, tests)


class Run:
    """The suites of this run, in lanes with a thread each."""

    def __init__(self, arguments: list[str], suites: Mapping[str, Suite]) -> None:
        self.results: dict[str, Result] = {}
        self._arguments = arguments
        self._suites = suites
        self._printing = threading.Lock()
        self._running: dict[str, tuple[float, Path]] = {}
        self._failures: list[BaseException] = []

    def all(self, lanes: Lanes) -> None:
        """Run the suites of every lane, and print now and then which suites are running."""
        threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in lanes]
        start = said = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                if time.monotonic() - said > REPORT_EVERY_S:
                    said = time.monotonic()
                    self._report(said, start)
        except KeyboardInterrupt:  # Ctrl-C doesn't reach other sessions' processes
            for pid in ALIVE:
                os.kill(pid, signal.SIGINT)
            raise
        if self._failures:
            raise self._failures[0]

    def _report(self, now: float, start: float) -> None:
        """Print how many tests of each running suite have finished."""
        with self._printing:
            for name, (since, progress) in sorted(self._running.copy().items()):
                done = suite_progress.read(progress)
                took = f"{now - since:.0f} s, {now - start:.0f} s in all"
                print(f"{name}: {done}, {took}", flush=True)

    def _lane(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                with tempfile.TemporaryDirectory() as folder:
                    progress = Path(folder, "progress")
                    self._running[name] = time.monotonic(), progress
                    self._suite(name, progress)
                    del self._running[name]
        except BaseException as error:
            self._failures.append(error)

    def _suite(self, name: str, progress: Path) -> None:
        """Run one suite; print its output at once when the suite has ended."""
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            result = run_suite(name, self._suites[name], self._arguments, said, progress)
            if result is None:
                return
            self.results[name] = result
            said.seek(0)
            with self._printing:
                print(f"\n== {name}", flush=True)
                shutil.copyfileobj(said, sys.stdout)
                sys.stdout.flush()


def plan(names: list[str]) -> list[list[str]]:
    """Return the lanes for these suites."""
    lanes = [[name for name in lane if name in names] for lane in LANES]
    return [lane for lane in lanes if lane]


def set_up(names: list[str]) -> None:
    """Prepare what these suites need, which doesn't count as the suites' time."""
    if any(SUITES[name].brokers for name in names):
        fetch_jars()
        archive_broker_classes()
    if "integration" in names:
        make_async_packages()
        make_schema_packages()
    if "spark" in names:
        make_older_spark()
        archive_spark_classes()
    if "fuzz" in names:
        build_sanitized_kernels()
    compile_modules(names)


def tell(results: dict[str, Result], seconds: float) -> bool:
    """Print each suite's time, the slowest tests and the totals; return whether all passed."""
    print(f"\n== the {SLOWEST} slowest tests")
    for took, test in sorted((t for r in results.values() for t in r.tests), reverse=True)[
        :SLOWEST
    ]:
        print(f"{took:6.1f} s  {test}")
    print(f"\n== what the suites took, {seconds:.0f} s in all")
    for name, result in results.items():
        extra = f", {result.skipped} skipped" if result.skipped else ""
        counts = f"{result.passed} good, {result.failed} bad{extra}"
        shares = f"{result.seconds:6.1f} s, of processors {result.busy:6.1f} s"
        print(f"{name:12s} {shares}  ({counts})")
    passed = sum(result.passed for result in results.values())
    failed = sum(result.failed for result in results.values())
    skipped = sum(result.skipped for result in results.values())
    for line in (line for result in results.values() for line in result.flaky):
        print(line)
    if passed + failed == 0:
        print("no test ran")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed == 0 and passed > 0


def main() -> None:
    """Run the suites and print their times and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "suites", nargs="*", help=f"of {', '.join(SUITES)} (default: all), or quick"
    )
    parser.add_argument(
        "--long", action="store_true", help="what is marked `long`, and whole searches"
    )
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    wanted = parser.parse_args(own)
    suites = LONG if wanted.long else SUITES
    names = wanted.suites or list(suites)
    start = time.monotonic()
    if names == ["quick"]:
        quick = Run(rest, {"quick": QUICK})
        quick.all([["quick"]])
        sys.exit(0 if tell(quick.results, time.monotonic() - start) else 1)
    if unknown := [name for name in names if name not in suites]:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(suites)}")
    set_up(names)
    run = Run(rest, suites)
    start = time.monotonic()
    run.all(plan(names))
    results = {name: run.results[name] for name in SUITES if name in run.results}
    sys.exit(0 if tell(results, time.monotonic() - start) else 1)


if __name__ == "__main__":
    main()
