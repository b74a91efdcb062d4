"""Test how results are printed on a terminal, in a pipe, and as a JSON document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from odradek.cli.frame import results
from odradek.cli.frame.results import Result, ResultTable, cell, counted, plain, show
from odradek.common.errors.kafka import TopicAlreadyExistsError
from odradek.common.types import TopicPartition

LONG = "a" * 200
TABLE = ResultTable(("topic", "n"), [("flights", 1), (LONG, None), ("böse \x1b[31m", 1000)])


@dataclass(frozen=True)
class Thing:
    id: UUID
    parts: tuple[int, ...]
    allowed: frozenset[str]


def test_a_pipe_gets_complete_lines_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    show(Result({}, ["before", TABLE, ResultTable(("x",), [], "There is none.")]), "t", json=False)
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["before", ""]
    assert out[2] == "topic".ljust(200) + "     n"
    assert out[3] == "flights".ljust(200) + "     1"
    assert out[4] == LONG + "     -"
    assert out[5] == r"böse \x1b[31m".ljust(200) + "  1000"
    assert out[6:] == ["", "There is none."]
    assert not any(line.endswith(" ") for line in out)


def on_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: ResultTable,
    **how: Any,
) -> str:
    def terminal(**given: Any) -> Console:
        return Console(force_terminal=True, width=40, _environ=how, **given)

    monkeypatch.setattr(results, "Console", terminal)
    show(Result({}, [table]), "t", json=False)
    return capsys.readouterr().out


def test_a_table_fits_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = on_terminal(monkeypatch, capsys, TABLE, NO_COLOR="1", TERM="xterm")
    assert "\x1b[3" not in out  # the broker's escape sequence has no effect
    lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in out.splitlines()]
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("a") == 200  # the long value is wrapped, not truncated
    small = ResultTable(("topic",), [("flights",)])
    assert "\x1b[1m" in on_terminal(monkeypatch, capsys, small, TERM="xterm")


def test_json_output_is_one_document_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    thing = Thing(UUID(int=5), (1, 2), frozenset({"WRITE", "READ"}))
    failed = {TopicPartition("t", 0): TopicAlreadyExistsError("it\x1b is\x7f there")}
    show(Result({"thing": thing, "at": TopicPartition("\x1bt", 1)}, ["no"], failed), "t", json=True)
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    assert not {"\x1b", "\x7f"} & set(said.out + said.err)
    assert json.loads(said.out) == {
        "thing": {"id": str(UUID(int=5)), "parts": [1, 2], "allowed": ["READ", "WRITE"]},
        "at": {"topic": "\x1bt", "partition": 1},
        "failed": {
            "t-0": {
                "error": "TopicAlreadyExistsError",
                "code": 36,
                "message": r"it\x1b is\x7f there",
            }
        },
    }
    assert said.err == "t: TopicAlreadyExistsError: it\\x1b is\\x7f there\n"


def test_items_with_the_same_error_are_reported_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = {name: TopicAlreadyExistsError("away\n  since noon") for name in ("a", "b")}
    show(Result({}, [], failed | {"c": TopicAlreadyExistsError("there")}), "t", json=False)
    assert capsys.readouterr().err.splitlines() == [
        r"t: a, b: TopicAlreadyExistsError: away\n  since noon",
        "t: TopicAlreadyExistsError: there",
    ]


def test_if_all_items_failed_no_empty_table_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = {"a": TopicAlreadyExistsError("topic a")}
    show(Result({}, [ResultTable(("x",), [], "There is none.")], failed), "t", json=False)
    assert capsys.readouterr().out == ""


def test_values_in_tables_are_formatted_for_people() -> None:
    assert [cell(v) for v in (None, "", (), True, False, 0, (2, 1), {"b", "a"})] == [
        *("-", "-", "-", "yes", "no", "0", "2,1", "a,b")
    ]
    assert [counted(n, "topic") for n in (0, 1, 2000)] == ["0 topics", "1 topic", "2,000 topics"]
    assert plain(TopicAlreadyExistsError("x"))["code"] == 36


def test_a_line_break_in_a_name_is_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "x\nDeleted topic prod."
    failed = {evil: TopicAlreadyExistsError("why"), "y\r": TopicAlreadyExistsError("why")}
    empty = ResultTable(("a",), [], f"Nothing of {evil}")
    show(Result({}, [f"Would delete group {evil}", empty]), "t", json=False)
    assert capsys.readouterr().out.splitlines() == [
        r"Would delete group x\nDeleted topic prod.",
        "",
        r"Nothing of x\nDeleted topic prod.",
    ]
    show(Result({}, (), failed), "t", json=False)
    assert capsys.readouterr().err.splitlines() == [
        r"t: x\nDeleted topic prod., y\r: TopicAlreadyExistsError: why"
    ]


def test_a_table_wider_than_the_terminal_keeps_whole_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = tuple(f"column-{n}" for n in range(9))
    table = ResultTable(heads, [heads])
    out = on_terminal(monkeypatch, capsys, table, NO_COLOR="1", TERM="xterm")
    assert out.splitlines()[1].split() == list(heads)
