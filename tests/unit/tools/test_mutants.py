"""The list of equivalent mutants is up to date, and diffs of mutmut are parsed correctly."""

import json
from pathlib import Path

from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).resolve().parents[3]
TOOL = load_tool("mutants")


def test_modules_to_mutate_and_their_tests_exist() -> None:
    for module, tests in TOOL.MODULES.items():
        assert (ROOT / "src/odradek" / module).is_file()
        assert [test for test in tests if not (ROOT / "tests" / test).is_file()] == []


def test_each_listed_mutant_has_an_existing_line_and_a_reason() -> None:
    listed = json.loads(TOOL.EQUIVALENT.read_text())
    assert set(listed) <= set(TOOL.MODULES)
    for module, mutants in listed.items():
        lines = {li.strip() for li in (ROOT / "src/odradek" / module).read_text().splitlines()}
        assert [one["old"] for one in mutants if one["old"] not in lines] == []
        assert all(one["new"] != one["old"] and one["why"] for one in mutants)


def test_a_mutant_is_identified_by_its_changed_lines() -> None:
    diff = "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n if x:\n-    y -= 1\n-    z\n+    y += 1\n"
    assert TOOL.changed(diff, "-") == "y -= 1 z"
    assert TOOL.changed(diff, "+") == "y += 1"
