"""Files for Jepsen's analysis, its errors, and its comparison with odradek's history checker.

The artificial anomalies are tested in `tests/property/test_histories.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import History

tool: Any = load_tool("jepsen_check")
PLACE = TopicPartition("in", 0)


def history() -> History:
    """Return a correct history of two records, one of which can be removed."""
    ticks = iter(range(1000))
    made = History(lambda: next(ticks))
    for offset in range(2):
        made.sent("producer", PLACE, f"v{offset}", offset)
    made.read("all", PLACE, [(0, "v0"), (1, "v1")], complete=True)
    return made


def test_each_history_is_written_unchanged_and_with_an_artificial_anomaly(tmp_path: Path) -> None:
    wanted = Counter({"lost write": 1})
    clean, lost = tool.cases(tmp_path, "run-1", history(), wanted)
    assert (clean.damage, clean.found, lost.damage, lost.found) == (
        "none",
        False,
        "lost write",
        True,
    )
    assert wanted["lost write"] == 0
    assert Path(lost.file).read_text() != Path(clean.file).read_text()
    assert len(list(tool.cases(tmp_path, "run-2", history(), wanted))) == 1


def test_the_table_counts_the_histories_that_each_checker_rejects() -> None:
    found = [
        tool.DamagedHistory("a", "run-1", "none", False, ()),
        tool.DamagedHistory("b", "run-1", "swap", True, ("order",)),
        tool.DamagedHistory("c", "run-1", "swap", False, ()),
    ]
    lines = [
        json.dumps({"file": "a", "errors": {}, "allowed": {"G0": 1}}),
        "a warning",
        json.dumps({"file": "b", "errors": {}, "allowed": {"G0": 1, "G0-realtime": 2}}),
        json.dumps({"file": "c", "errors": {"lost-write": 3}, "allowed": {}}),
    ]
    theirs = tool.read_verdicts(lines)
    assert list(tool.table(found, theirs))[2:] == [
        "| none | 1 | 0 | 0 |  |",
        "| swap | 2 | 1 | 1 | (G0-realtime) 1, lost-write 1 |",
    ]
    assert list(tool.wrong(found, theirs)) == ["c: ours found nothing"]


def test_seeds_are_given_as_a_number_or_a_range() -> None:
    assert list(tool.seeds_of("3..5")) == [3, 4, 5]
    assert list(tool.seeds_of("7")) == [7]


@pytest.mark.parametrize("java", ["false", "no-such-java"])
def test_an_error_is_raised_if_java_fails_or_is_missing(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "runs", lambda *_: iter([("run-1", history())]))
    command = ["jepsen_check.py", str(tmp_path), "--class-path", "none", "--java", java]
    monkeypatch.setattr("sys.argv", command)
    assert tool.main() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"{java}: ")
