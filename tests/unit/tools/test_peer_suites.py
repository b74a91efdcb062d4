"""What is said of another library's tests, and what isn't begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.tools.loading import load_tool

tool = load_tool("peer_suites")
ROWS = [
    ("test_producer.py::sends", "passed", ""),
    ("test_producer.py::flushes", "passed", ""),
    ("test_producer.py::waits", "failed", "TimeoutError"),
    ("test_producer.py::peeks", "skipped", "reaches inside (producer._sender)"),
]


def test_each_failure_and_what_is_left_out_has_its_reason() -> None:
    assert list(tool.summary(ROWS)) == [
        "left out:",
        "  test_producer.py::peeks: reaches inside (producer._sender)",
        "failed:",
        "  test_producer.py::waits: TimeoutError",
        "2 passed, 1 failed (67 % of 3), 1 left out",
    ]


def test_a_folder_without_tests_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["peer_suites.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="has no folder tests"):
        tool.main()
