"""House rules for the tests: format of their JSON files, list of flaky tests, timeouts."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tests.source_trees import parsed
from tests.time_limits import HANG_S
from tools import compact_json, flaky_tests

ROOT = Path(__file__).resolve().parents[2]


def test_json_cases_and_schedules_have_the_compact_form() -> None:
    assert len(compact_json.files()) > 250
    others = [path.name for path, _ in compact_json.in_another_form()]
    assert others == [], "python tools/compact_json.py rewrites them"


def test_compact_json_keeps_short_members_on_one_line() -> None:
    case = {
        "rules": ["one", "two"],
        "modes": {f"broker-{i}:9092": "up" for i in range(6)},
        "steps": [
            {"at": 0, "do": "topic", "name": "t\ud800"},
            {"at": 1.5, "do": "mode", "addresses": [f"broker-{i}:9092" for i in range(6)]},
            {},
        ],
    }
    text = compact_json.compact(case)
    assert text.splitlines() == [
        "{",
        ' "rules": ["one", "two"],',
        ' "modes": {',
        (
            '  "broker-0:9092": "up", "broker-1:9092": "up", "broker-2:9092": "up", '
            '"broker-3:9092": "up",'
        ),
        '  "broker-4:9092": "up", "broker-5:9092": "up"',
        " },",
        ' "steps": [',
        '  {"at": 0, "do": "topic", "name": "t\\ud800"},',
        "  {",
        '   "at": 1.5, "do": "mode",',
        '   "addresses": [',
        '    "broker-0:9092", "broker-1:9092", "broker-2:9092", "broker-3:9092", "broker-4:9092",',
        '    "broker-5:9092"',
        "   ]",
        "  },",
        "  {}",
        " ]",
        "}",
    ]
    assert json.loads(text) == case


def test_a_json_file_in_another_form_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests" / "spec" / "kip_0"
    folder.mkdir(parents=True)
    (folder / "good.json").write_text(compact_json.compact({"steps": []}))
    (folder / "tall.json").write_text(json.dumps({"steps": []}, indent=1))
    monkeypatch.setattr(compact_json, "ROOT", tmp_path)
    assert [path.name for path, _ in compact_json.in_another_form()] == ["tall.json"]


def test_no_test_is_listed_as_flaky_twice() -> None:
    assert flaky_tests.listed_wrong(ROOT) == []


def test_wrong_entries_in_the_list_of_flaky_tests_are_reported(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    good = {"date": "2026-11-30", "owner": "o", "log": "seed 5", "cause": ""}
    twice = {**good, "test": "tests/test_a.py::test_twice"}
    gone = {**good, "test": "tests/test_b.py::test_gone"}
    nameless = {**good, "test": "tests/test_a.py::test_nameless", "owner": ""}
    (tmp_path / flaky_tests.LISTED).write_text(json.dumps([twice, gone, nameless, twice]))
    wrong = flaky_tests.listed_wrong(tmp_path)
    assert [line.partition(": ")[0] for line in wrong] == [
        "tests/test_b.py::test_gone",
        "tests/test_a.py::test_nameless",
        "tests/test_a.py::test_twice",
    ]
    (tmp_path / flaky_tests.LISTED).write_text(json.dumps([twice]))
    assert flaky_tests.listed_wrong(tmp_path) == []


def limits_of_processes(tree: ast.Module) -> list[int]:
    """Return the lines that wait for a child process with a literal timeout."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            runs = isinstance(owner, ast.Name) and owner.id == "subprocess"
            if runs or node.func.attr == "communicate":
                found += [
                    keyword.value.lineno
                    for keyword in node.keywords
                    if keyword.arg == "timeout"
                    and isinstance(keyword.value, ast.Constant)
                    and isinstance(keyword.value.value, int | float)
                    and 10 <= keyword.value.value < HANG_S
                ]
    return found


def test_waits_for_processes_use_the_common_timeout() -> None:
    """On a busy machine, shorter timeouts expire at random: a Spark job once took over 110 s."""
    assert limits_of_processes(ast.parse("subprocess.run([], timeout=60)")) == [1]
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (lines := limits_of_processes(parsed(path)))
    }
    assert found == {}, "use tests.time_limits.HANG_S"
