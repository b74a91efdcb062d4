"""docs/features.md claims nothing without a test: each yes names one, and it is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in (ROOT / "docs/features.md").read_text().splitlines()
    if re.match(r"\| [^|-]", line) and not line.startswith("| | ")
]


def test_each_yes_of_ours_names_tests_that_are_there() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        assert len(row) == 9, row
        names = re.findall(r"`([^`]+)`", row[8])
        assert names, row[0]
        for name in names:
            path, _, test = name.partition("::")
            found = ROOT / "tests" / path
            assert found.exists(), name
            if test:
                assert f"def {test}(" in found.read_text(), name


def test_where_a_peer_has_a_yes_we_have_one() -> None:
    for row in ROWS:
        if any(cell.startswith("Y") for cell in row[2:8]):
            assert row[1].startswith("Y"), row[0]
