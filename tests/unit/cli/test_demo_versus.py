"""What `odradek demo --versus` says of its readers."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from odradek.cli.demo import svg
from odradek.cli.demo.versus.child import ReaderProcess
from odradek.cli.demo.versus.outcome import Course, ReaderReport, VersusOutcome, judge, picture
from odradek.cli.demo.versus.peers import OTHERS, OURS, PeerLibrary, how_to_install

PUBLISHED = [100.0 + n * 0.5 for n in range(60)]
COURSE = Course(
    begin=100.0, gone=110.0, back=115.0, end=130.0, published=PUBLISHED, first_new_row=21
)


def reader(name: str, *, until: int, resumes: float | None) -> ReaderReport:
    """Reads each row as it is published; after row `until` not before `resumes`."""
    heard = ReaderReport(name, "blue")
    for row, at in enumerate(PUBLISHED):
        if row <= until:
            heard.rows.append((at + 0.01, row))
        elif resumes is not None:
            heard.rows.append((max(at, resumes) + 0.01, row))
    return heard


def test_who_comes_back_and_who_does_not() -> None:
    back = judge(reader("a", until=20, resumes=116.0), COURSE)
    assert back.back_after_s == pytest.approx(1.01)
    assert back.silent_s == pytest.approx(6.01)
    assert (back.rows_read, back.missing, back.twice) == (60, 0, 0)
    assert str(back) == "back 1.0 s after the cluster"
    away = reader("b", until=20, resumes=None)
    away.errors += [(111.0, "refused"), (112.0, "still refused")]
    gone = judge(away, COURSE)
    assert (gone.back_after_s, gone.missing) == (None, 39)
    assert (gone.silent_s, gone.waited_s) == (20.0, 15.0)
    assert gone.last_error == "still refused"
    assert str(gone) == "not back after 15 s"


def test_an_old_row_that_comes_late_is_no_return() -> None:
    late = reader("a", until=19, resumes=None)
    late.rows.append((117.0, 20))  # published before the last old broker had ended
    assert judge(late, COURSE).back_after_s is None


def outcome(*everybody: ReaderReport) -> VersusOutcome:
    return VersusOutcome(
        readers=[judge(heard, COURSE) for heard in everybody],
        rows_sent=60,
        outage_s=5.0,
        observed_s=15.0,
        not_installed=["aiokafka"],
        timeline=[(1.0, "something")],
        picture=picture(everybody, COURSE),
    )


def test_only_our_reader_decides() -> None:
    good, bad = reader("ours", until=20, resumes=116.0), reader("other", until=20, resumes=None)
    assert outcome(good, bad).ok
    assert not outcome(bad, good).ok
    twice = reader("ours", until=20, resumes=116.0)
    twice.rows.append((117.0, 5))
    assert not outcome(twice).ok
    assert outcome(twice).to_dict()["duplicated"] == 1
    lines = outcome(good, bad).closing()
    assert lines == ["ours   back 1.0 s after the cluster", "other  not back after 15 s"]
    told = outcome(good, bad).to_dict()
    assert [one["came_back"] for one in told["readers"]] == [True, False]
    assert (told["lost"], told["not_installed"]) == (0, ["aiokafka"])


def test_the_picture_shows_when_each_came_back() -> None:
    shown = outcome(
        reader("ours", until=20, resumes=116.0), reader("other", until=20, resumes=None)
    ).picture
    ours, other = shown.panels[0].lanes
    assert [(round(a), round(b)) for a, b, _ in ours.spans] == [(0, 10), (16, 30), (15, 16)]
    assert [(round(a), round(b)) for a, b, _ in other.spans] == [(0, 10), (15, 30)]
    mine, theirs = shown.panels[1].lines
    assert dict(mine.points)[12.0] == 4.0  # published while nobody can read
    assert (mine.points[-1][1], theirs.points[-1][1]) == (0.0, 39.0)
    words = [e.text for e in ET.fromstring(svg.render(shown)).iter()]  # noqa: S314  # ours
    for expected in ("other", "not back after 15 s", "no broker", "published rows not yet read"):
        assert expected in words, expected


def test_who_is_missing_is_told_with_the_command() -> None:
    text = how_to_install([peer for peer in OTHERS if peer.name != "confluent-kafka"])
    assert text.endswith("pip install aiokafka kafka-python")
    assert PeerLibrary("nobody", "no_such_package", "", "").installed is False
    assert OURS.installed
    assert OURS.title.startswith("odradek 0.")


def test_readers_are_plain() -> None:
    """None is configured to do better or worse than it does by itself."""
    folder = Path(sys.modules[ReaderProcess.__module__].__file__ or "").parent
    tuned = ("backoff", "timeout", "max.age", "max_age", "interval", "recovery", "retries")
    for peer in (OURS, *OTHERS):
        text = (folder / f"{peer.reader.rpartition('.')[2]}.py").read_text()
        assert [word for word in tuned if word in text] == [], peer.name
