"""Each row of docs/complaints.md names a test that runs and asserts something."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.test_features_page import TESTS, module, problems

PAGE = Path(__file__).parents[2] / "docs/complaints.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| S?\d", line)
]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[-1])})


def test_every_complaint_has_an_issue_an_answer_and_a_test() -> None:
    assert [row[0] for row in ROWS] == [*map(str, range(1, 38)), "S1", "S2", "S3", "S4"]
    for row in ROWS:
        assert len(row) == 5, row
        assert re.search(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", row[2]), row
        assert re.findall(r"`([^`]+)`", row[4]), row


@pytest.mark.parametrize("name", NAMES)
def test_named_tests_of_complaints_run_and_assert_something(name: str) -> None:
    path, _, test = name.partition("::")
    if path.endswith(".json"):  # a specification case has no test function
        assert json.loads((TESTS / path).read_text())
        assert list((TESTS / path).parents[1].glob("test_*.py"))
        return
    assert problems(module(TESTS / path), test) == []
