"""Test the reset of a group's offsets: each mode, limits of the log, offset files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.cli.console.properties import UsageError
from odradek.cli.groups.plans import Mode, Plan, parse_mode, plan, read, written
from odradek.common.types import TopicPartition as At

A, B = At("flights", 0), At("flights", 1)
FOUND: dict[str | int, dict[At, int | None]] = {
    "EARLIEST": {A: 10, B: 0},
    "LATEST": {A: 50, B: 7},
    1000: {A: 33, B: None},
}
COMMITTED = {A: 20}
FLAGS: dict[str, Any] = {
    "to-earliest": False,
    "to-latest": False,
    "to-current": False,
    "to-offset": None,
    "shift-by": None,
    "to-datetime": None,
    "by-duration": None,
    "from-file": None,
}
NOW = 1_700_000_000.0


def planned(mode: Mode, *partitions: At, wanted: dict[At, int] | None = None) -> Plan:
    return plan(mode, partitions, COMMITTED, FOUND, wanted)


@pytest.mark.parametrize(
    ("mode", "offsets", "warned"),
    [
        (Mode("to-earliest"), {A: 10, B: 0}, ()),
        (Mode("to-latest"), {A: 50, B: 7}, ()),
        (Mode("to-current"), {A: 20, B: 7}, ()),
        (Mode("to-offset", 7), {A: 10, B: 7}, ("flights-0: 7 is below the earliest",)),
        (Mode("to-offset", 20), {A: 20, B: 7}, ("flights-1: 20 is above the latest",)),
        (
            Mode("to-datetime", 1000),
            {A: 33, B: 7},
            ("flights-1 has no record at or after that time",),
        ),
        (
            Mode("by-duration", 1000),
            {A: 33, B: 7},
            ("flights-1 has no record at or after that time",),
        ),
    ],
)
def test_each_reset_mode_returns_offsets_and_warnings(
    mode: Mode, offsets: dict[At, int], warned: tuple[str, ...]
) -> None:
    made = planned(mode, A, B)
    assert (made.offsets, made.errors) == (offsets, {})
    assert len(made.warnings) == len(warned)
    for text, begin in zip(made.warnings, warned, strict=True):
        assert text.startswith(begin)
    assert {spec for spec in mode.questions if spec in FOUND} == set(mode.questions)


@pytest.mark.parametrize(
    ("by", "to", "word"),
    [(5, 25, ""), (-5, 15, ""), (31, 50, "above"), (30, 50, ""), (-11, 10, "below")],
)
def test_a_shifted_offset_is_limited_to_the_log(by: int, to: int, word: str) -> None:
    made = planned(Mode("shift-by", by), A)
    assert made.offsets == {A: to}
    assert bool(made.warnings) == bool(word)
    assert all(word in text for text in made.warnings)


def test_a_partition_without_a_committed_offset_cannot_be_shifted() -> None:
    made = planned(Mode("shift-by", 1), A, B)
    assert made.offsets == {A: 21}
    assert "flights-1 has no committed offset" in str(made.errors[B])


def test_offsets_from_a_file_are_limited_to_the_log() -> None:
    made = planned(Mode("from-file"), A, B, wanted={A: 11, B: 8})
    assert made.offsets == {A: 11, B: 7}
    assert len(made.warnings) == 1


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"to-earliest": True}, Mode("to-earliest")),
        ({"to-offset": 0}, Mode("to-offset", 0)),
        ({"shift-by": -3}, Mode("shift-by", -3)),
        ({"to-datetime": "2023-11-14T22:13:20.500"}, Mode("to-datetime", 1_700_000_000_500)),
        ({"to-datetime": "2023-11-15T00:13:20+02:00"}, Mode("to-datetime", 1_700_000_000_000)),
        ({"by-duration": "PT1M"}, Mode("by-duration", 1_699_999_940_000)),
        ({"from-file": Path("x.csv")}, Mode("from-file")),
    ],
)
def test_each_flag_selects_a_reset_mode(given: dict[str, object], mode: Mode) -> None:
    assert parse_mode({**FLAGS, **given}, NOW) == mode


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "choose the new offset by one of --to-earliest, "),
        ({"to-earliest": True, "to-offset": 3}, "only one of --to-earliest, "),
        ({"to-datetime": "yesterday"}, "--to-datetime: 'yesterday' is not a time"),
        ({"by-duration": "1h"}, "--by-duration: '1h' isn't a duration"),
    ],
)
def test_invalid_flags_are_rejected(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_mode({**FLAGS, **given}, NOW)


def test_an_offset_file_can_be_read_as_it_was_written() -> None:
    one = {"g": {A: 1, B: 2}}
    assert written(one) == "flights,0,1\nflights,1,2\n"
    assert read(written(one), ["g"], "f") == one
    two = {"g": {A: 1}, 'h "x", y': {B: 2}}
    assert written(two) == 'g,flights,0,1\n"h ""x"", y",flights,1,2\n'
    assert read(written(two), list(two), "f") == two
    assert read(written(two), ["g"], "f") == {"g": {A: 1}}  # other groups in the file are ignored


@pytest.mark.parametrize(
    ("text", "groups", "said"),
    [
        ("", ["g"], "f is empty"),
        ("flights,0\n", ["g"], "f: line 1 must be TOPIC,PARTITION,OFFSET or GROUP,"),
        ("flights,0,1\nflights,x,1\n", ["g"], "f: line 2 must be"),
        ("flights,0,-1\n", ["g"], "f: line 1 must be"),
        ("flights,0,1\n", ["g", "h"], "f: line 1 must be GROUP,TOPIC,PARTITION,OFFSET"),
        ("g,flights,0,1\n", ["g", "h"], "f has no line for group 'h'"),
    ],
)
def test_an_invalid_offset_file_is_rejected(text: str, groups: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(text, groups, "f")
