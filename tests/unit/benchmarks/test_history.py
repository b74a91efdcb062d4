"""The history of performance ratios, compared with earlier results of the same machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import history
from benchmarks.history import RATIOS, Ratio

SPEED = Ratio("consume", "odradek-records", "confluent")
TIME = Ratio("round-trip", "odradek", "confluent", "p50_ms")


def past(median: float, ratio: Ratio = SPEED, *, cpu: str = "a CPU", spread: float = 0.0) -> Any:
    return {
        "at": "2026-11-28 12:00:00",
        "commit": "abc",
        "machine": {"cpu": cpu, "cores": 2, "python": "3.11.7"},
        "records": 1000,
        "worse": [],
        "ratios": {ratio.key: [median, median - spread, median + spread]},
    }


def test_performance_ratios_refer_to_existing_benchmarks() -> None:
    lanes = {(row.key, lane.key): lane for row in history.rows() for lane in row.lanes}
    for ratio in RATIOS:
        assert lanes[ratio.row, ratio.lane].client.startswith("odradek")
        assert (ratio.row, ratio.against) in lanes
    assert len({ratio.key for ratio in RATIOS}) == len(RATIOS)


def test_a_performance_ratio_is_computed_for_each_run() -> None:
    runs = {
        "all cores/consume/odradek-records": [{"speed": 4.0}, {"error": "x"}, {"speed": 9.0}],
        "all cores/consume/confluent": [{"speed": 2.0}, {"speed": 1.0}, {"speed": 3.0}],
    }
    store = {"results": {key: {"runs": found} for key, found in runs.items()}}
    assert history.paired(SPEED, store) == [2.0, 3.0]
    sitting = {"id": "now", "commit": "abc", "machine": {}, "kafka": "4", "records": 1, "runs": 3}
    assert history.line(store, sitting)["ratios"] == {SPEED.key: [2.5, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("ratio", "before", "now", "spread", "told"),
    [
        (SPEED, 4.0, 3.5, 0.05, "worse"),
        (SPEED, 4.0, 3.5, 0.2, ""),  # the best run is within 10 % of the usual ratio
        (SPEED, 4.0, 4.5, 0.05, "better"),
        (TIME, 1.0, 1.2, 0.05, "worse"),
        (TIME, 1.0, 0.8, 0.05, "better"),
        (TIME, 1.0, 1.2, 0.15, ""),
    ],
)
def test_a_ratio_counts_as_worse_only_if_its_best_run_is_worse(
    ratio: Ratio, before: float, now: float, spread: float, told: str
) -> None:
    newest = past(now, ratio, spread=spread)
    assert history.verdict(ratio, newest, [past(before, ratio)]) == told


def test_only_results_of_the_same_machine_are_compared() -> None:
    other = [past(40.0, cpu="another CPU")]
    assert history.usual(SPEED, past(4.0), other) is None
    assert history.verdict(SPEED, past(4.0), other) == ""
    lately = [past(100.0), *(past(float(n)) for n in range(1, 6))]
    assert history.usual(SPEED, past(4.0), lately) == 3.0
    assert history.verdict(TIME, past(4.0), []) == "no figure"


def test_a_regression_is_reported_again_until_it_is_fixed() -> None:
    back = [past(2.0) | {"worse": [SPEED.key]} for _ in range(9)]
    assert history.verdict(SPEED, past(2.0), [past(4.0), *back]) == "worse"


def test_the_table_and_the_exit_status_report_a_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.jsonl"
    monkeypatch.setattr(history, "RATIOS", (SPEED,))
    monkeypatch.setattr(sys, "argv", ["bench-history", "--table", "--file", str(file)])
    with pytest.raises(SystemExit, match="has no line yet"):
        history.main()
    file.write_text("".join(json.dumps(past(x)) + "\n" for x in (4.0, 4.1)))
    history.main()
    assert "| 4.00× | 4.10× | 4.10 to 4.10 |  |" in capsys.readouterr().out
    with file.open("a") as more:
        more.write(json.dumps(past(2.0)) + "\n")
    with pytest.raises(SystemExit, match="worse than usual"):
        history.main()
    assert "| 2.00 to 2.00 | worse |" in capsys.readouterr().out
