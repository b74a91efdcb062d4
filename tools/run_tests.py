"""`make test`: runs the suites one after another and adds up what they say.

The last line is `N passed, N failed` in total; the exit status is not 0 when a test failed, when a
suite broke, or when nothing ran.  Suites can be named on the command line; `--` passes the rest on
to pytest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from odradek.testing import jars

ROOT = Path(__file__).resolve().parent.parent
# The quick ones first: what they find would break the slow ones, too.
SUITES = {
    "unit": ("unit", "spec", "property"),
    "simulation": ("simulation",),
    "fuzz": ("fuzz",),
    "integration": ("integration",),
    "interop": ("interop",),
    "spark": ("spark",),
    "docs": ("docs",),
}

# These go through several processes at a time: suites that only compute, and those that mostly wait
# for brokers and Spark (each process has clusters and a session of its own). The others measure
# time.
SIDE_BY_SIDE = {
    "unit": (2, "worksteal"),
    "simulation": (2, "worksteal"),
    "integration": (3, "loadgroup"),  # as its conftest forms groups
    "interop": (2, "loadfile"),
    "spark": (2, "loadfile"),  # modules have clusters of their own
}

# These start brokers; fetching Kafka's jars is set-up and no part of their time.
WITH_BROKERS = {"integration", "interop", "spark", "docs"}


def fetch_jars() -> None:
    """Fetch the jars of every listed Kafka version that this machine doesn't have yet."""
    start = time.monotonic()
    for version in jars.versions():
        jars.fetch(version, lambda line: print(f"set-up: {line}", flush=True))
    print(f"set-up: Kafka's jars are there ({time.monotonic() - start:.0f} s)", flush=True)


def make_older_spark() -> None:
    """Make the environment with the oldest Spark and its JVM connector, or say why not."""
    start = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.spark_jvm.environment"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        words = "is there"
    else:
        words = f"can't be had, so its tests are skipped: {done.stderr.strip()[-500:]}"
    seconds = time.monotonic() - start
    print(f"set-up: Spark 4.2.0 with its JVM connector {words} ({seconds:.0f} s)", flush=True)


def archive_spark_classes() -> None:
    """Make the archives from which the Spark suite's JVMs start, or say why not."""
    start = time.monotonic()
    command = [sys.executable, "-m", "tests.spark.class_archives"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in (done.stdout if done.returncode == 0 else done.stderr[-500:]).splitlines():
        print(f"set-up: classes for {line}", flush=True)
    print(f"set-up: {time.monotonic() - start:.0f} s for them", flush=True)


def compile_modules(names: list[str]) -> None:
    """Have pytest compile the suites' modules, and ours as far as they are imported."""
    start = time.monotonic()
    folders = [f"tests/{folder}" for name in names for folder in SUITES[name]]
    folders = [folder for folder in folders if (ROOT / folder).is_dir()]
    if not folders:
        return
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *folders]
    subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, check=False)
    print(f"set-up: modules are compiled ({time.monotonic() - start:.0f} s)", flush=True)


def environment() -> dict[str, str]:
    """Ours, but compiled modules are kept, whatever is set.

    Else each process of a suite would compile all of ours anew, Spark's workers and the programs
    that tests start, too: for a process of pytest alone that is eight seconds of a processor.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run_suite(name: str, arguments: list[str]) -> tuple[int, int, int, float] | None:
    """Run one suite; return passed, failed, skipped and seconds, None when it has no tests."""
    folders = [ROOT / "tests" / folder for folder in SUITES[name]]
    folders = [folder for folder in folders if any(folder.rglob("test_*.py"))]
    if not folders:
        return None
    print(f"\n== {name}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors"]
        if name in SIDE_BY_SIDE:
            processes, how = SIDE_BY_SIDE[name]
            command += ["-n", str(processes), "--dist", how]
        if name in WITH_BROKERS:
            command += ["--durations=12", "--durations-min=10"]  # who keeps everybody waiting
        command += [f"--junitxml={report}", *arguments]
        command += [str(folder.relative_to(ROOT)) for folder in folders]
        status = subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode
        passed, failed, skipped = count(report)
    # A crash of pytest or an empty suite leaves no failed test behind; it is one all the same.
    if status != 0 and failed == 0:
        print(f"{name}: pytest ended with exit status {status}", flush=True)
        failed = 1
    return passed, failed, skipped, time.monotonic() - start


def count(report: Path) -> tuple[int, int, int]:
    """Return passed, failed and skipped from pytest's XML report."""
    if not report.is_file():
        return 0, 0, 0
    passed = failed = skipped = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left = int(suite.get("skipped", 0))
        failed += bad
        skipped += left
        passed += int(suite.get("tests", 0)) - bad - left
    return passed, failed, skipped


def main() -> None:
    """Run the suites, print what each took and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)} (default: all)")
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    names = parser.parse_args(own).suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(SUITES)}")
    if WITH_BROKERS.intersection(names):
        fetch_jars()
    if "spark" in names:
        make_older_spark()
        archive_spark_classes()
    compile_modules(names)
    results = {}
    for name in names:
        result = run_suite(name, rest)
        if result is not None:
            results[name] = result
    print("\n== what the suites took")
    for name, (passed, failed, skipped, seconds) in results.items():
        extra = f", {skipped} skipped" if skipped else ""
        print(f"{name:12s} {seconds:6.1f} s  ({passed} good, {failed} bad{extra})")
    passed, failed, skipped = (sum(result[i] for result in results.values()) for i in range(3))
    if passed + failed == 0:
        print("no test ran")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or passed == 0 else 0)


if __name__ == "__main__":
    main()
