"""Anomalies planted in histories, and the table that compares our checker with Jepsen's."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History
from odradek.simulation.checkers.history_check import check

spoilt: Any = load_tool("spoilt_histories")
tool: Any = load_tool("jepsen_check")
IN, OUT, OTHER = (TopicPartition(name, 0) for name in ("in", "out", "other"))


def history() -> History:
    """Return a history without anomalies that has a place for each kind of damage."""
    ticks = iter(range(1_000_000))
    made = History(lambda: next(ticks))
    for n in range(4):
        for name in ("source", "second"):
            made.sent(name, IN, f"{name} {n}", 2 * n + (name == "second"))
    first = made.sent("pipe", OTHER, "x0")
    second = made.sent("pipe", OTHER, "x1")
    first.acknowledged(0)
    second.acknowledged(1)
    made.note(CallKind.ASSIGNED, "chain", 1, [IN])
    offset = 0
    for n in range(4):
        txn = made.begin("p", 1 + n // 2, group="g")
        poll = made.invoke(CallKind.POLL, "chain", 1)
        poll.transaction = txn.number
        for at in (2 * n, 2 * n + 1):
            poll.saw(IN, at, f"{('source', 'second')[at % 2]} {at // 2}")
            txn.consumed(IN, at)
        poll.ended()
        for k in range(2):
            txn.wrote(OUT, f"o{n}{k}").offset = offset + k
        offset += 3
        txn.commits()
        txn.ended()
    aborted = made.begin("p", 2, group="g")
    aborted.wrote(OUT, "never")
    aborted.commits()
    aborted.ended(CallResult.FAIL)
    reader = [(at, f"{('source', 'second')[at % 2]} {at // 2}") for at in range(8)]
    made.read("some", IN, reader[:4])
    made.read("some", IN, reader[4:])
    made.read("all", IN, reader, complete=True)
    made.read("all", OTHER, [(0, "x0"), (1, "x1")], complete=True)
    outputs = [(3 * n + k, f"o{n}{k}") for n in range(4) for k in range(2)]
    made.read("all", OUT, outputs, complete=True)
    made.group_ends("g", [(IN, 8)])
    return made


def test_the_history_has_no_anomaly() -> None:
    assert check(history()) == []


@pytest.mark.parametrize("damage", spoilt.DAMAGES)
@pytest.mark.parametrize("seed", range(5))
def test_each_planted_anomaly_is_found_by_its_kind(damage: str, seed: int) -> None:
    spoiler = spoilt.Spoiler(history(), random.Random(seed))
    expected = spoilt.DAMAGES[damage](spoiler)
    assert expected, "the history has no place for it"
    assert expected & {anomaly.kind for anomaly in check(spoiler.history)}


def test_histories_are_written_with_and_without_damage(tmp_path: Path) -> None:
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


def test_seeds_are_a_range() -> None:
    assert list(tool.seeds_of("3..5")) == [3, 4, 5]
    assert list(tool.seeds_of("7")) == [7]
