"""Run pytest and write the progress to a file, which `tools/run_tests.py` reads.

`suite_progress.py FILE ARGUMENTS…` is `python -m pytest ARGUMENTS…`. FILE has one line, rewritten
after each test: the finished tests, the total number of tests, the failed tests.

In: pytest's reports. Out: that file. Must not: change what pytest runs or prints.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Progress:
    """Progress of a run of pytest."""

    done: int = 0
    total: int = 0
    """0 until the tests are collected."""
    failed: int = 0

    def __str__(self) -> str:
        if self.total == 0:
            return "collecting"
        return f"{self.done} of {self.total} tests, {self.failed} failed"


def read(path: Path) -> Progress:
    """Return the progress in the file; before the file exists, no test is finished."""
    try:
        return Progress(*(int(word) for word in path.read_text().split()))
    except FileNotFoundError:
        return Progress()


@dataclass(eq=False)  # hashable: pytest keeps plug-ins in sets
class Counter:
    """Counts the reports of finished and failed tests."""

    path: Path
    total: int = 0
    done: int = 0
    failed: set[str] = field(default_factory=set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            self.done += 1
        if report.failed or report.when == "teardown":
            self._write()

    def _write(self) -> None:
        """Replace the file atomically: a reader must not see half a line."""
        new = self.path.with_suffix(".new")
        new.write_text(f"{self.done} {self.total} {len(self.failed)}\n")
        new.replace(self.path)


def main() -> int:
    """Run pytest as `python -m pytest` does."""
    file, *arguments = sys.argv[1:]
    sys.path[0] = str(Path.cwd())
    return int(pytest.main(arguments, plugins=[Counter(Path(file))]))


if __name__ == "__main__":
    sys.exit(main())
