"""Break the rules of the specification one by one; the tests must fail: `make broken-rules`.

`tests/spec/mutations.json` lists mutations by rule: replacements in a copy of the sources that is
imported instead of the package, and the tests that must then fail, each of them. A test is a case
of `tests/spec` (folder/name), or a test or file as pytest names it; of a file one test is enough. A
mutation without changes is the one with the same name at another rule. First, the same tests must
pass with the unchanged sources. If a test doesn't fail, the exit status is 1.

    python tools/break_rules.py                all of them
    python tools/break_rules.py R-CS-3 jitter  those whose rule or name contains one of the words
    python tools/break_rules.py --list         list the mutations
    python tools/break_rules.py R-TI --search shortages   random schedules instead of the tests

With --search, those of `tests/spec/searched_mutations.json` are tried as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "odradek"
TABLE = ROOT / "tests" / "spec" / "mutations.json"
SEARCHED = TABLE.with_name("searched_mutations.json")
"""Mutations for random schedules only."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)
TIMEOUT = 300
"""Timeout for the tests of one mutation in seconds."""
SEARCH = """
import sys
from odradek.simulation.runs.explore import explore
for n, outcome in enumerate(explore(range(int(sys.argv[2])), family=sys.argv[1]), 1):
    if outcome.violation is not None:
        print(f"found by schedule {n}: {outcome.violation}")
        break
else:
    sys.exit(f"SURVIVED {n} schedules")
"""


@dataclass(frozen=True)
class Mutation:
    """Replacements by old text and file, and the tests that must all fail."""

    rule: str
    name: str
    changes: Mapping[str, Mapping[str, str]]
    fails: tuple[str, ...]

    def tests(self) -> list[str]:
        """Return the tests as pytest names them."""
        return [test_of(one) for one in self.fails]

    def mutants(self, sources: Path) -> Iterator[tuple[Path, str]]:
        """Yield each file with its mutated text; raise LookupError if an old text is gone."""
        for file, texts in self.changes.items():
            path = sources / file
            mutant = path.read_text() if path.is_file() else ""
            for old, new in texts.items():
                if old not in mutant:
                    raise LookupError(f"{self.rule} {self.name}: {file} doesn't contain {old!r}")
                mutant = mutant.replace(old, new)
            yield path, mutant


def test_of(name: str) -> str:
    """Return the pytest name of a case of `tests/spec` (folder/name), or another name unchanged."""
    folder, _, case = name.partition("/")
    return name if ".py" in name else f"tests/spec/test_{folder}.py::test_case[{case}]"


def mutations(table: Path = TABLE) -> list[Mutation]:
    """Return all mutations of `tests/spec/mutations.json`, or of another file."""
    rules: dict[str, list[dict[str, Any]]] = json.loads(table.read_text())
    changes = {
        one["name"]: one["changes"] for some in rules.values() for one in some if "changes" in one
    }
    return [
        Mutation(rule, one["name"], changes[one["name"]], tuple(one.get("fails", ())))
        for rule, some in rules.items()
        for one in some
    ]


def environment(sources: Path) -> dict[str, str]:
    """Return environment variables with which Python imports this copy of the sources."""
    more = {"PYTHONPATH": str(sources.parent), "ODRADEK_WHOLE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **more}


def imported(sources: Path) -> str:
    """Return the path of the package that Python imports with these variables."""
    command = [sys.executable, "-c", "import odradek; print(odradek.__file__)"]
    where = environment(sources)
    return subprocess.run(command, env=where, capture_output=True, text=True, check=True).stdout


def run_tests(
    sources: Path, tests: Iterable[str], folder: Path, timeout: float | None = None
) -> tuple[int, str]:
    """Run tests against a copy of the sources; return pytest's exit status and output."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--show-capture=no", "--tb=line"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={folder / 'pytest'}"]
    done = subprocess.run(
        [*command, *dict.fromkeys(tests)],
        cwd=ROOT,
        env=environment(sources),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def mutated(mutation: Mutation, sources: Path) -> Iterator[None]:
    """Mutate the copy of the sources in the `with` block, and restore it afterwards."""
    kept = {}
    try:
        for path, mutant in list(mutation.mutants(sources)):
            kept[path] = path.read_text()
            path.write_text(mutant)
        yield
    finally:
        for path, text in kept.items():
            path.write_text(text)


def search(mutation: Mutation, sources: Path, family: str, count: int) -> bool:
    """Return whether one of the first random schedules of a family finds the mutation."""
    command = [sys.executable, "-c", SEARCH, family, str(count)]
    with mutated(mutation, sources):
        done = subprocess.run(
            command, env=environment(sources), capture_output=True, text=True, check=False
        )
    verdict = (done.stdout or done.stderr).strip().splitlines()[-1]
    print(f"{mutation.rule:7s} {mutation.name}: {verdict}", flush=True)
    return done.returncode == 0


def try_one(mutation: Mutation, sources: Path, folder: Path) -> bool:
    """Mutate the copy, run the mutation's tests, and return whether each of them failed."""
    try:
        with mutated(mutation, sources):
            status, said = run_tests(sources, mutation.tests(), folder, TIMEOUT)
    except subprocess.TimeoutExpired:
        status, said = -1, ""
    # A run that hung or crashed counts as a failure.
    failed = FAILED.findall(said) if status >= 0 else mutation.tests()
    blind = [
        test
        for test in mutation.tests()
        if not any(f"{f}[".startswith((f"{test}[", f"{test}::")) for f in failed)
    ]
    if blind and not failed:
        print(said)
    verdict = f"SURVIVED in {' '.join(blind)}" if blind else f"{failed[0]} failed"
    print(f"{mutation.rule:7s} {mutation.name}: {verdict}", flush=True)
    return not blind


def main() -> int:
    """Break all rules, or those given as arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only if rule or name contains one of these")
    parser.add_argument("--list", action="store_true", help="print rules and names, run nothing")
    parser.add_argument("--search", metavar="FAMILY", help="random schedules instead of tests")
    parser.add_argument("--schedules", type=int, default=1000, help="for --search (default: 1000)")
    options = parser.parse_args()
    words = options.words or [""]
    known = [*mutations(), *(mutations(SEARCHED) if options.search else ())]
    chosen = [m for m in known if any(word in f"{m.rule} {m.name}" for word in words)]
    if not chosen:
        parser.error(f"no mutation's rule or name contains {' or '.join(words)}")
    if options.list:
        print("\n".join(f"{one.rule:7s} {one.name}" for one in chosen))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = folder / "src" / "odradek"
        shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
        if not (found := imported(sources)).startswith(str(sources)):
            raise RuntimeError(f"{found.strip()} is imported instead of the copy")
        if options.search:
            family, count = options.search, options.schedules
            caught = sum(search(mutation, sources, family, count) for mutation in chosen)
        else:
            tests = (t for m in chosen for t in m.tests())
            status, said = run_tests(sources, tests, folder)
            if status != 0:
                print(said)
                print("These tests must pass before anything is broken.")
                return 1
            caught = sum(try_one(mutation, sources, folder) for mutation in chosen)
    print(f"{caught} of {len(chosen)} mutations were noticed")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
