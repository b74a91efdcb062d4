"""Other libraries' test suites: which of their tests fail or don't run, and the reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

tool: Any = load_tool("peer_suites")
TESTS = Path(__file__).parents[2]
SUITES = {suite.library: suite for suite in tool.suites()}
ROWS = [
    ("test_producer.py::sends", "passed", ""),
    ("test_producer.py::flushes", "passed", ""),
    ("test_producer.py::waits", "failed", "TimeoutError"),
    ("test_producer.py::peeks", "skipped", "reaches inside (producer._sender)"),
    *((f"test_conn.py::one_{n}", "skipped", "drives a connection") for n in range(4)),
]


def test_each_failure_and_each_skipped_test_has_a_reason() -> None:
    assert list(tool.summary(SUITES["aiokafka"], ROWS)) == [
        "aiokafka v0.14.0",
        "left out:",
        "  test_producer.py::peeks: reaches inside (producer._sender)",
        "  test_conn.py (4 tests): drives a connection",
        "failed:",
        "  test_producer.py::waits: TimeoutError",
        "2 passed, 1 failed (67 % of 3), 5 left out",
    ]
    found = tool.as_json(SUITES["aiokafka"], ROWS)
    assert json.loads(json.dumps(found)) == found
    assert found["failed"] == {"test_producer.py::waits": "TimeoutError"}
    assert [len(found[name]) for name in ("passed", "left_out")] == [2, 5]


@pytest.mark.parametrize("library", SUITES)
def test_the_tests_of_odradek_that_a_reason_names_exist(library: str) -> None:
    for theirs, named in SUITES[library].here.items():
        for ours in named.split(", "):
            path, _, test = ours.partition("::")
            text = (TESTS / path).read_text()
            assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), theirs


def made(folder: Path, library: str) -> Path:
    """Create a library's checkout: a test that runs, a known one that doesn't, and a new one."""
    suite = SUITES[library]
    (folder / suite.known_by).parent.mkdir(parents=True, exist_ok=True)
    (folder / suite.known_by).write_text("def test_runs(): pass\n")
    text = "class TestIt:\n    async def test_inside(self): pass\ndef helper(): pass\n"
    (folder / suite.folder / "test_sender.py").write_text(text)
    (folder / suite.folder / "test_novelty.py").write_text("def test_new(): pass\n")
    return folder


def test_every_test_of_another_library_that_does_not_run_needs_a_reason(tmp_path: Path) -> None:
    checkout = made(tmp_path, "aiokafka")
    suite = tool.suite_of(checkout, list(SUITES.values()))
    assert suite.library == "aiokafka"
    assert tool.not_run(suite, checkout) == [
        ("test_novelty.py::test_new", "failed", "unknown reason"),
        ("test_sender.py::TestIt::test_inside", "skipped", "drives Sender by hand"),
    ]


def test_the_reason_for_a_test_is_found_by_its_name_module_or_folder() -> None:
    table = {"a/": "folder", "a/test_b.py": "module", "a/test_b.py::test_c": "test"}
    for module, test, expected in (
        ("a/x/test_d.py", "test_e", "folder"),
        ("a/test_b.py", "test_e", "module"),
        ("a/test_b.py", "test_c[1]", "test"),
        ("b/test_b.py", "test_c", ""),
    ):
        assert tool.found(table, module, test) == expected


@pytest.mark.parametrize("given", [[], ["a folder"]])
def test_the_error_for_a_missing_checkout_says_how_to_clone_it(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["peer_suites.py", *(str(tmp_path / one) for one in given)])
    with pytest.raises(SystemExit, match="git clone") as said:
        tool.main()
    for suite in SUITES.values():
        assert suite.repository in str(said.value)
