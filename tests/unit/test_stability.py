"""Released names remain, unless docs/stability.md lists their deprecation and removal."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from tests.source_trees import PACKAGE
from tests.unit.tools.loading import load_tool

from odradek.common.public_names import MOVED, REMOVED_IN
from odradek.spark.versions import LEAST

ROOT = Path(__file__).resolve().parents[2]
JARS = PACKAGE / "testing/jars"
PAGE = ROOT / "docs/stability.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEPS = 2
"""The number of minor releases for which a deprecated name remains."""
MOVED_ROW = "odradek.common.public_names.MOVED"
"""A row of the page that covers all names in the table `MOVED`."""
Version = tuple[int, ...]


def numbers(version: str) -> Version:
    return tuple(map(int, version.split(".")[:2]))


def lost(before: Any, now: Any, place: str = "") -> list[str]:
    """Return public names that are missing or can no longer be called as before."""
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [
            f"{place}/{name}" for name in before if name not in now
        ]  # the entry of a field is None
        there = [(one, now[name], f"{place}/{name}") for name, one in before.items() if name in now]
        return gone + [line for each in there for line in lost(*each)]
    if isinstance(before, list) and isinstance(now, list):
        return [f"{place}: {one}" for one in before if one not in now]
    if isinstance(before, str) and isinstance(now, str):
        return [f"{place}({now}), not ({before})"] if refuses(before, now) else []
    return [] if before is None or now == before else [place]


def refuses(before: str, now: str) -> bool:
    """Return whether a call with the old signature may fail or differ with the new signature."""
    old, new = (text.split(", ") if text else [] for text in (before, now))
    by_place = list(takewhile(lambda one: not one.startswith("*"), old))
    kept = [one.rstrip("=") for one in new[: len(by_place)]] == [
        one.rstrip("=") for one in by_place
    ]
    there = all(one in new or f"{one}=" in new for one in old if one != "*")
    asked = [one for one in new if not one.startswith("*") and not one.endswith("=")]
    return not (kept and there and set(asked) <= set(old))


def removed_sooner(text: str) -> list[str]:
    """Return the names that the page lists as removed without a deprecation."""
    part = text.split("### Removed sooner")[1].split("\n### ")[0]
    return re.findall(r"^\| `([^`]+)` \| [\d.]+ \| .+ \|$", part, re.MULTILINE)


def table(text: str) -> dict[str, tuple[Version, Version]]:
    """Return the versions of deprecation and removal by name, as listed on the page."""
    part = text.split("### Deprecated now")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| ([\d.]+) \| .+ \|$", part, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| `", part, re.MULTILINE)), "a row can't be read"
    found = {name: (numbers(since), numbers(goes)) for name, since, goes in rows}
    if MOVED_ROW in found:
        found |= dict.fromkeys((f"names/{name}" for name in MOVED), found.pop(MOVED_ROW))
    return found


def names(row: str, place: str) -> bool:
    """Return whether a deprecated name is, or contains, the name at `place`.

    `seek` doesn't match `seek_to_end`. An argument is in parentheses: it matches if the call at
    `place` has lost it.
    """
    name, _, argument = row.partition("(")
    found = re.search(rf"(^|/|: ){re.escape(name)}($|[/(:])", place)
    return found is not None and argument.rstrip(")") in place.partition("not (")[2]


def too_early(rows: dict[str, tuple[Version, Version]], version: Version) -> list[str]:
    """Return names whose deprecation is too short, and names that are removed too early."""
    short = [name for name, (since, goes) in rows.items() if goes[1] - since[1] < STEPS]
    return short + [name for name, (_, goes) in rows.items() if goes > version]


@pytest.fixture(scope="module")
def before() -> Any:
    return json.loads((ROOT / "tests/unit/released.json").read_text())


@pytest.fixture(scope="module")
def now() -> Any:
    return load_tool("public_record").record(ROOT)


def test_released_names_remain_or_were_deprecated(before: Any, now: Any) -> None:
    rows, sooner = table(PAGE.read_text()), removed_sooner(PAGE.read_text())
    gone = lost(before, {**now, "version": before["version"]})
    assert [row for row in sooner if not any(names(row, one) for one in gone)] == []
    gone = [one for one in gone if not any(names(row, one) for row in sooner)]
    assert [one for one in gone if not any(names(row, one) for row in rows)] == [], (
        "deprecate it first: docs/stability.md"
    )
    early = too_early(rows, numbers(PROJECT["version"]))
    assert [one for one in gone if any(names(row, one) for row in early)] == []


def test_a_removed_name_is_reported(now: Any) -> None:
    names = dict(now["names"])
    producer = {**names.pop("Producer"), "send": "value, topic", "flush": "timeout"}
    found = lost(now, {**now, "names": {**names, "Producer": producer}, "extras": []})
    assert "/extras: arrow" in found
    assert [line.split("(")[0] for line in found if "/P" in line] == [
        "/names/Producer/flush", "/names/Producer/send"
    ]  # fmt: skip
    assert lost({"a": {"b": ["c"]}, "d": None}, {"d": "x"}) == ["/a"]
    assert lost({"a": {"field": None}}, {"a": {}}) == ["/a/field"]


@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [
        ("x, y=", "x, y=", False),
        ("x, y=", "x=, y=, z=, *, w=", False),
        ("x, *, y", "x, *, z=, y=", False),
        ("", "*, z=", False),
        ("x, **more", "x, *, z=, **more", False),
        ("x, y=", "y=, x", True),
        ("x, y=", "x, *, y=", True),
        ("x, y=", "x, y", True),
        ("x", "x, z", True),
        ("x, *, y=", "x", True),
        ("x, y=", "x, y/=", True),
        ("", "**z", False),
    ],
)
def test_an_incompatible_signature_is_reported(before: str, now: str, refused: bool) -> None:
    assert refuses(before, now) is refused


@pytest.mark.parametrize(
    ("row", "place", "found"),
    [
        ("Consumer/seek", "/names/Consumer/seek", True),
        ("Consumer/seek", "/names/Consumer/seek(x), not (y)", True),
        ("Consumer", "/names/Consumer/seek", True),
        ("seek", "/names/Consumer/seek_to_end", False),
        ("Consumer/seek", "/names/AsyncConsumer/seek", False),
        ("Consumer/poll(ms=)", "/names/Consumer/poll(x=), not (x=, *, ms=)", True),
        ("Consumer/poll(ms=)", "/names/Consumer/poll(x=, *, ms=), not (y=, *, x=)", False),
        ("Consumer/poll(ms=)", "/names/Consumer/poll", False),
        ("consume: --from", "/commands/consume: --from", True),
        ("--from", "/commands/consume: --from-profile", False),
        ("acks", "/options/acks: producer", True),
    ],
)
def test_a_row_about_a_deprecated_name_covers_only_that_name(
    row: str, place: str, found: bool
) -> None:
    assert names(row, place) is found


def test_a_deprecation_lasts_the_required_releases() -> None:
    row = "\n### Deprecated now\n\n| `Consumer/seek` | 0.3 | 0.5 | `move` |\n"
    assert table(row) == {"Consumer/seek": ((0, 3), (0, 5))}
    assert too_early(table(row), (0, 4)) == ["Consumer/seek"]
    assert too_early(table(row), (0, 5)) == []
    assert too_early(table(row.replace("0.5", "0.4")), (0, 5)) == ["Consumer/seek"]
    with pytest.raises(AssertionError, match="can't be read"):
        table(row.replace("0.5", "soon"))


def test_one_row_on_the_page_covers_all_moved_names() -> None:
    rows = table(PAGE.read_text())
    assert {name: rows[f"names/{name}"][1] for name in MOVED} == dict.fromkeys(
        MOVED, numbers(REMOVED_IN)
    )


def test_the_stability_page_names_the_supported_versions() -> None:
    page = PAGE.read_text()
    cells = {
        row[0]: row[1] for row in re.findall(r"^\| ([\w' ]+) \| ([^|]+) \|", page, re.MULTILINE)
    }
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert cells["Python"].split(", ") == pythons
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    jars = {numbers(path.stem.split("-")[1]) for path in JARS.glob("kafka-*.txt")}
    tried = re.findall(r"\d\.\d+", cells["Kafka's brokers"].split(";")[0])
    assert sorted(map(numbers, tried)) == sorted(jars)
    assert numbers(cells["PySpark"].split(",")[0]) == LEAST
    assert f"{pythons[0]} to {pythons[-1]}" in (ROOT / "SECURITY.md").read_text()
