"""Test that each batch in Spark's progress is reported once, with each partition's lag."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from odradek.cli.pipeline.progress import QueryProgress


def progress(number: int, rows: int, end: Any, latest: Any, at: str = "") -> dict[str, Any]:
    return {
        "batchId": number,
        "timestamp": at or f"t{number}",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 500, "addBatch": 300},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def own(**offsets: int) -> str:
    return json.dumps({"v": 1, "cluster": "c", "o": {"t": {k[1:]: n for k, n in offsets.items()}}})


def test_lag_is_the_number_of_unread_records_by_partition() -> None:
    first = progress(0, 10, own(p0=5, p1=7), own(p0=9, p1=7, p2=4))
    [batch] = QueryProgress("copy").fresh(first, lambda: [first])
    assert dict(batch.lag) == {"t-0": 4, "t-1": 0}
    assert (batch.rate, batch.stages) == (20.0, {"addBatch": 0.3})
    assert batch.to_dict()["lag_total"] == 4


def unasked() -> list[Any]:
    raise AssertionError("nothing was missed")


def test_a_batch_is_not_missed_if_an_earlier_idle_report_had_the_same_batch_number() -> None:
    seen = QueryProgress("copy")
    idle = progress(5, 0, own(p0=4), own(p0=4), at="t5a")
    assert [b.rows for b in seen.fresh(idle, lambda: [idle])] == [0]
    five = progress(5, 3, own(p0=7), own(p0=9), at="t5b")
    six = progress(6, 2, own(p0=9), own(p0=9), at="t6")
    assert [b.rows for b in seen.fresh(six, lambda: [idle, five, six])] == [3, 2]
    assert seen.rows == 5


def test_each_batch_is_returned_once_and_none_is_missed() -> None:
    seen = QueryProgress("copy")
    all_of_them = [progress(n, n, own(p0=n), own(p0=n)) for n in range(5)]
    assert [b.number for b in seen.fresh(all_of_them[1], lambda: all_of_them)] == [0, 1]
    assert seen.fresh(all_of_them[1], unasked) == []
    assert [b.number for b in seen.fresh(all_of_them[4], lambda: all_of_them)] == [2, 3, 4]
    idle = progress(5, 0, own(p0=4), own(p0=6), at="t5a")
    assert [b.lag for b in seen.fresh(idle, lambda: [idle])] == [{"t-0": 2}]
    again = progress(5, 2, own(p0=6), own(p0=6), at="t5b")
    assert [b.rows for b in seen.fresh(again, unasked)] == [2]
    assert (seen.rows, seen.batches, seen.positions) == (12, 5, {"t-0": 6})


def test_the_total_number_of_rows_counts_written_rows_if_the_sink_reports_them() -> None:
    """A filter writes fewer rows than it reads; a file sink reports -1 written rows."""
    filtered, files = QueryProgress("copy"), QueryProgress("files")
    for number, written in ((0, 3), (1, 0)):
        one = progress(number, 10, own(p0=number), own(p0=number))
        one["sink"] = {"description": "odradek", "numOutputRows": written}
        [batch] = filtered.fresh(one, partial(list, [one]))
        assert (batch.rows, batch.to_dict()["written"]) == (10, written)
    assert (filtered.rows, filtered.written) == (3, True)
    one = progress(0, 10, own(p0=1), own(p0=1))
    one["sink"] = {"description": "FileSink", "numOutputRows": -1}
    [batch] = files.fresh(one, lambda: [one])
    assert (files.rows, files.written, batch.to_dict()["written"]) == (10, False, None)
