"""Run other libraries' own tests against our modules: `tools/peer_suites.py CHECKOUT …`.

In: checkouts of their repositories, as their distributions have no tests; `tools/peers/*.json` list
which of their modules run and why the others don't. Out: for each library the passed and failed
tests, and each skipped test with the reason; `--json` prints the same for programs. Their tests are
copied into a temporary folder; none of their code is kept. Must not: change a checkout.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
LIBRARIES = ("aiokafka", "confluent_kafka", "kafka_python")
ALL = 3000
"""Timeout in seconds for one pytest run of one library's tests."""

FEW = 3
"""Maximum number of a module's tests with the same reason that are listed one by one."""

Row = tuple[str, str, str]
"""Name of a test, its outcome (passed, failed or skipped) and the reason."""


@dataclass(frozen=True)
class Suite:
    """One library's tests, as described in its file in tools/peers."""

    library: str
    version: str
    """Git tag of the tested version in the library's repository."""
    repository: str
    folder: str
    """Folder of the library's tests in its repository."""
    known_by: str
    """File that only checkouts of this library contain."""
    runs: list[dict[str, Any]]
    """Runs of pytest: `modules`, optionally a `label`, an `environment`, `added` files."""
    left_out: dict[str, str]
    """Reasons why tests, modules and folders (which end in a slash) don't run."""
    here: dict[str, str] = field(default_factory=dict)
    """Odradek's tests of the same behaviour, below tests/, by the names of the library's tests."""
    patience: int = 60
    """Timeout of one test of the library in seconds."""


def suites() -> list[Suite]:
    """Return the suites of all libraries."""
    return [Suite(**json.loads((PEERS / f"{name}.json").read_text())) for name in LIBRARIES]


def suite_of(checkout: Path, all_suites: list[Suite]) -> Suite:
    """Return the suite of the library whose checkout this is."""
    for suite in all_suites:
        if (checkout / suite.known_by).is_file():
            return suite
    sys.exit(f"{checkout} is no checkout of these:\n" + "\n".join(where(all_suites)))


def where(all_suites: list[Suite]) -> Iterator[str]:
    """Yield the commands that clone the libraries' repositories."""
    for suite in all_suites:
        yield f"  git clone --depth 1 --branch {suite.version} {suite.repository}"


def tests_in(path: Path) -> Iterator[str]:
    """Yield the names of a module's tests, also of those in classes."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{one.name}" for one in node.body if is_test(one))
        elif is_test(node):
            yield node.name


def is_test(node: ast.AST) -> bool:
    """Return whether pytest would collect this function as a test."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:4] == "test"


def found(table: dict[str, str], module: str, test: str) -> str:
    """Return a table's value for a test; its keys are names of tests, modules or folders (`a/`)."""
    folders = [f"{one}/" for one in Path(module).parents]
    names = [f"{module}::{test}", f"{module}::{test.partition('[')[0]}", module, *folders]
    return next((table[name] for name in names if name in table), "")


def reason(suite: Suite, module: str, test: str) -> str:
    """Return why a test doesn't run, with Odradek's equivalent test; empty if unknown."""
    why, ours = found(suite.left_out, module, test), found(suite.here, module, test)
    return f"{why}; here: {ours}" if why and ours else why


def apart(name: str) -> tuple[str, str]:
    """Split `module::test`; the test is empty if only a module is named."""
    module, _, test = name.partition("::")
    return module, test


def not_run(suite: Suite, checkout: Path) -> list[Row]:
    """Return the tests of the modules that no pytest run includes, each with the reason."""
    root = checkout / suite.folder
    running = {module for run in suite.runs for module in run["modules"]}
    rows: list[Row] = []
    for path in sorted(root.rglob("test_*.py")):
        module = path.relative_to(root).as_posix()
        if module in running:
            continue
        for test in tests_in(path):
            why = reason(suite, module, test)
            row = ("skipped", why) if why else ("failed", "unknown reason")
            rows.append((f"{module}::{test}", *row))
    return rows


def outcomes(suite: Suite, checkout: Path, servers: str, expression: str) -> list[Row]:
    """Return the outcomes of all tests of a library, also of those that don't run."""
    rows: list[Row] = []
    for run in suite.runs:
        rows += one_run(suite, run, checkout, servers, expression)
    return [*{row[0]: row for row in rows}.values(), *not_run(suite, checkout)]


def one_run(
    suite: Suite, run: dict[str, Any], checkout: Path, servers: str, expression: str
) -> list[Row]:
    """Run pytest once for some of a library's modules, and return the tests' outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        tests, report = Path(folder, suite.folder), Path(folder, "report")
        shutil.copytree(checkout / suite.folder, tests)
        if run.get("conftest") == "ours":
            for theirs in tests.rglob("conftest.py"):
                theirs.unlink()
        for ours, theirs in run.get("added", {}).items():
            shutil.copy(PEERS / ours, tests / theirs)
        report.touch()
        excused = Path(folder, "excused.json")
        excused.write_text(json.dumps({n: reason(suite, *apart(n)) for n in suite.left_out}))
        modules = [f"{suite.folder}/{module}" for module in run["modules"]]
        chosen = ["-k", expression] if expression else []
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
             "-p", "peer_report", "-p", f"peer_{suite.library}", "-W", "ignore",
             "--rootdir", folder, f"--timeout={suite.patience}", *chosen, *modules],
            cwd=folder, check=False, timeout=ALL,
            stdout=sys.stderr,
            env={**os.environ, "PYTHONPATH": f"{PEERS}{os.pathsep}{folder}",
                 "PEER_SERVERS": servers, "PEER_REPORT": str(report),
                 "PEER_LABEL": run.get("label", ""), "PEER_EXCUSED": str(excused),
                 **run.get("environment", {})},
        )  # fmt: skip
        rows = [tuple(json.loads(line)) for line in report.read_text().splitlines()]
    if ended.returncode not in (0, 1, 5):  # 0: all passed, 1: some failed, 5: none selected
        rows.append(
            (f"{run.get('label', '')}pytest", "failed", f"it ended with {ended.returncode}")
        )
    return rows


def summary(suite: Suite, rows: list[Row]) -> Iterator[str]:
    """Yield the lines of one library's summary."""
    counts = Counter(outcome for _, outcome, _ in rows)
    yield f"{suite.library} {suite.version}"
    yield "left out:"
    yield from together([row for row in rows if row[1] == "skipped"])
    yield "failed:"
    yield from (f"  {name}: {why}" for name, outcome, why in rows if outcome == "failed")
    ran = counts["passed"] + counts["failed"]
    share = 100 * counts["passed"] / ran if ran else 0.0
    yield (
        f"{counts['passed']} passed, {counts['failed']} failed ({share:.0f} % of {ran}), "
        f"{counts['skipped']} left out"
    )


def together(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each test; many tests of a module with the same reason share a line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, _, why in rows:
        groups.setdefault((name.partition("::")[0], why), []).append(name)
    for (module, why), names in groups.items():
        if len(names) > FEW:
            yield f"  {module} ({len(names)} tests): {why}"
        else:
            yield from (f"  {name}: {why}" for name in names)


def as_json(suite: Suite, rows: list[Row]) -> dict[str, Any]:
    """Return the summary of one library's tests as a dictionary for JSON."""
    named = {"passed": "passed", "failed": "failed", "left_out": "skipped"}
    return {
        "library": suite.library,
        "version": suite.version,
        **{
            title: {name: why for name, outcome, why in rows if outcome == wanted}
            for title, wanted in named.items()
        },
    }


def main() -> None:
    """Parse the arguments, run the tests, print the results."""
    all_suites = suites()
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="The sources: " + "; ".join(line.strip() for line in where(all_suites)),
    )
    parser.add_argument("checkout", type=Path, nargs="*", help="a library's sources with its tests")
    parser.add_argument("--servers", default="", help="a broker's host:port; else one is started")
    parser.add_argument("--json", action="store_true", help="print one object for each library")
    parser.add_argument(
        "--themselves",
        action="store_true",
        help="run the libraries themselves: their own failures aren't ours",
    )
    parser.add_argument(
        "--all", action="store_true", help="run what is left out, too, if it can be"
    )
    parser.add_argument("-k", dest="expression", default="", help="which tests, as for pytest")
    given = parser.parse_args()
    if not given.checkout:
        sys.exit(
            "\n".join(["Pass checkouts of these (make: CHECKOUT=folder):", *where(all_suites)])
        )
    os.environ["PEER_THEMSELVES"] = "yes" if given.themselves else ""
    os.environ["PEER_ALL"] = "yes" if given.all else ""
    chosen = [(suite_of(checkout, all_suites), checkout) for checkout in given.checkout]
    found = [
        (suite, outcomes(suite, checkout, given.servers, given.expression))
        for suite, checkout in chosen
    ]
    if given.json:
        print(json.dumps([as_json(suite, rows) for suite, rows in found], indent=1))
    else:
        for suite, rows in found:
            print(*summary(suite, rows), sep="\n")
    sys.exit(any(outcome == "failed" for _, rows in found for _, outcome, _ in rows))


if __name__ == "__main__":
    main()
