"""Test the demo without brokers: its data, comparison of results, timeline and pictures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.demo import report, svg
from odradek.cli.demo.data import Aggregate, Flights
from odradek.cli.demo.picture import Line, Panel, PanelPicture, labels
from odradek.cli.demo.sample import FlightSample, NoSuchRowsError, Table
from odradek.cli.demo.timeline import (
    EventReader,
    Noticed,
    Recovery,
    Teller,
    outage_of,
    recovery,
)
from odradek.testing.brokers.broker_set import TimelineEvent

PRODUCER, TASK = "demo-producer", "task"
EVERY = 50
"""The sample contains every 50th row of the data set."""


@pytest.fixture(scope="module")
def flights() -> Flights:
    return Flights()


@pytest.mark.slow
def test_the_data_set_is_complete_and_keyed_by_tail_number(flights: Flights) -> None:
    assert flights.rows == 336_776
    records = list(flights.records(0, 1000))
    assert len(records) == 1000
    rows = [json.loads(value) for _, value in records]
    assert [row["row"] for row in rows] == list(range(1000))
    assert rows[0]["tailnum"] == "N14228"
    for (key, _), row in zip(records, rows, strict=True):
        assert key == (row["tailnum"].encode() if row["tailnum"] else None)
    assert [json.loads(v)["row"] for _, v in flights.records(336_500, 337_000)][-1] == 336_775


@pytest.mark.slow
def test_the_reference_result_counts_every_flight(flights: Flights) -> None:
    reference = flights.reference()
    assert sum(a.flights for a in reference) == 336_776
    assert len({(a.carrier, a.month) for a in reference}) == len(reference) == 185
    first = reference[0]
    assert (first.carrier, first.month, first.flights, first.late) == ("9E", 1, 1573, 345)
    few = Flights(3).reference()
    assert [(a.carrier, a.flights, a.mean_delay) for a in few] == [("AA", 1, 2.0), ("UA", 2, 3.0)]


def test_first_record_events_of_a_client_are_printed_at_most_once_per_interval() -> None:
    teller = Teller()
    told = [
        teller.tell(noticed(at, client, kind, partition=3))
        for at, client, kind in [
            (1.0, TASK, "first_record"), (1.2, TASK, "first_record"), (1.3, PRODUCER, "first_ack"),
            (9.0, TASK, "first_record"),
        ]
    ]  # fmt: skip
    assert [line is not None for line in told] == [True, False, True, True]
    assert "reads records, partition 3" in (told[0] or "")


def build(flights: Flights, **changes: object) -> report.DemoResult:
    reference = flights.reference()
    given: dict[str, object] = {
        "sent": 336_776, "table": reference, "reference": reference, "written": 336_776,
        "distinct": 336_776, "recovery": Recovery(5.0, 0.1, 0.2), "events": [],
    }  # fmt: skip
    return report.build(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_result_is_ok_only_if_both_outputs_have_every_row_once(flights: Flights) -> None:
    assert build(flights).ok
    reference = flights.reference()
    one_less = [replace(reference[0], flights=reference[0].flights - 1), *reference[1:]]
    one_more = [replace(reference[0], flights=reference[0].flights + 1), *reference[1:]]
    other = [replace(reference[0], mean_delay=0.5), *reference[1:]]
    lost = build(flights, table=one_less)
    assert (lost.lost, lost.duplicated, lost.ok) == (1, 0, False)
    doubled = build(flights, table=one_more)
    assert (doubled.lost, doubled.duplicated, doubled.ok) == (0, 1, False)
    assert not build(flights, table=other).ok
    assert not build(flights, table=reference[1:]).ok
    twice = build(flights, written=336_777)
    assert (twice.duplicated, twice.ok) == (1, False)
    missing = build(flights, written=336_775, distinct=336_775)
    assert (missing.lost, missing.rows_landed, missing.ok) == (1, 336_775, False)


def test_the_output_of_an_additional_reader_is_checked_too() -> None:
    table = [Aggregate("AA", 1, 9, 0, None)]
    rest: dict[str, Any] = {
        "sent": 9, "table": table, "reference": table, "written": 9, "distinct": 9,
        "recovery": Recovery(None, None, None), "events": [],
    }  # fmt: skip
    assert report.build(**rest, more=[(9, 9)]).ok
    missing = report.build(**rest, more=[(8, 8)])
    assert (missing.lost, missing.duplicated, missing.rows_landed, missing.ok) == (1, 0, 8, False)
    twice = report.build(**rest, more=[(11, 9)])
    assert (twice.lost, twice.duplicated, twice.rows_landed, twice.ok) == (0, 2, 9, False)


def noticed(time: float, client: str, kind: str, **fields: object) -> Noticed:
    return Noticed(time, 1, client, kind, dict(fields))


def test_recovery_is_measured_from_the_first_broker_that_accepts_connections() -> None:
    events = [
        noticed(9.0, PRODUCER, "first_ack"),
        noticed(10.2, PRODUCER, "disconnected"),
        noticed(16.0, PRODUCER, "metadata", leaders=6, leaderless=0),
        noticed(16.5, TASK, "first_record"),
        noticed(17.0, PRODUCER, "first_ack"),
    ]
    assert recovery(events, 10.0, 15.0, PRODUCER) == Recovery(5.0, 2.0, 1.5)
    assert recovery(events[:3], 10.0, 15.0, PRODUCER) == Recovery(5.0, None, None)
    assert recovery(events, 10.0, None, PRODUCER) == Recovery(None, None, None)
    assert recovery(events, None, None, PRODUCER) == Recovery(None, None, None)


def test_start_and_end_of_the_outage_come_from_the_clusters_timeline() -> None:
    names = {
        1.0: "broker_listening", 10.0: "broker_exited", 10.1: "broker_exited",
        15.0: "broker_listening", 15.4: "broker_up", 16.0: "broker_listening", 17.0: "broker_up",
    }  # fmt: skip
    timeline = [TimelineEvent(name, 0, at, at) for at, name in names.items()]
    assert outage_of(timeline) == (10.1, 15.0)
    assert outage_of(timeline[:3]) == (10.1, None)
    assert outage_of(timeline[:1]) == (None, None)


def test_client_events_are_read_once_and_incomplete_lines_are_read_later(tmp_path: Path) -> None:
    reader = EventReader(tmp_path)
    file = tmp_path / "events-host-1.jsonl"
    whole = b'{"time": 2.0, "pid": 1, "client": "c", "kind": "rebootstrap", "why": "all gone"}\n'
    file.write_bytes(whole + whole[:30])
    (found,) = reader.poll()
    assert (found.kind, found.fields) == ("rebootstrap", {"why": "all gone"})
    assert reader.poll() == []
    file.write_bytes(whole + whole)
    assert len(reader.poll()) == 1
    assert len(reader.events) == 2
    assert "reconnects through bootstrap.servers: all gone" in (Teller().tell(found) or "")
    assert Teller().tell(noticed(1.0, TASK, "disconnected", failure=False)) is None
    assert Teller().tell(noticed(1.0, TASK, "proved")) is None


def test_event_files_of_ended_processes_are_read_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    line = b'{"time": 2.0, "pid": 1, "client": "c", "kind": "closed"}\n'
    gone, here = (tmp_path / f"events-a-b-{pid}.jsonl" for pid in (ended.pid, os.getpid()))
    for file in (gone, here):
        file.write_bytes(line)
    assert len(EventReader(tmp_path).poll()) == 2
    assert gone.exists()
    reader = EventReader(tmp_path, clearing=True)
    assert len(reader.poll()) == 2
    assert [file.exists() for file in (gone, here)] == [False, True]
    gone.write_bytes(line)  # from a new process with the same id that has ended
    assert len(reader.poll()) == 1
    monkeypatch.delattr(Path, "open")
    assert reader.poll() == []  # a file without new lines isn't opened
    reader.forget()
    assert not here.exists()
    assert EventReader(tmp_path / "none").poll() == []


@pytest.mark.slow
def test_the_sample_of_flights_contains_every_fiftieth_row(flights: Flights) -> None:
    sample = FlightSample()
    assert sample.rows == -(-flights.rows // EVERY)
    for row in range(0, sample.rows, 97):
        ((key, value),) = flights.records(row * EVERY, row * EVERY + 1)
        whole, (sample_key, sample_value) = json.loads(value), sample.record(row)
        mine = json.loads(sample_value)
        assert (mine.pop("row"), sample_key) == (row, key)
        assert mine == {name: whole[name] for name in mine}
    assert json.loads(sample.record(sample.rows + 3)[1])["row"] == sample.rows + 3


@pytest.mark.slow
def test_the_table_computed_without_pandas_equals_the_reference_of_pandas(flights: Flights) -> None:
    table = Table()
    for _, value in flights.records(0, 10_000):
        table.add(json.loads(value))
    assert report.same(table.rows(), Flights(10_000).reference())


@pytest.mark.slow
def test_more_rows_than_the_sample_contains_are_read_from_the_data_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = FlightSample(7_000)
    assert more.rows == 7_000
    assert report.same(more.reference(), Flights(7_000).reference())
    monkeypatch.setattr("odradek.cli.demo.sample.find_spec", lambda _: None)
    assert FlightSample(6_736).rows == 6_736
    with pytest.raises(NoSuchRowsError, match="pip install"):
        FlightSample(6_737)


def test_without_the_data_file_flights_are_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FlightSample()
    monkeypatch.setattr("odradek.cli.demo.sample.FILE", tmp_path / "flights.csv")
    made_up = FlightSample()
    assert (real.kind, made_up.kind, made_up.rows) == ("flights", "made-up flights", real.rows)
    assert json.loads(made_up.record(9)[1]).keys() == json.loads(real.record(9)[1]).keys()
    assert sum(one.flights for one in made_up.reference()) == made_up.rows
    assert {one.month for one in made_up.reference()} == set(range(1, 13))
    values = [json.loads(made_up.record(row)[1]) for row in range(made_up.rows)]
    assert {None, True} == {one["dep_delay"] and True for one in values if one["dep_delay"] != 0}
    assert [made_up.record(row) for row in (0, 77)] == [
        FlightSample(100).record(row) for row in (0, 77)
    ]


RESULT = report.DemoResult(3_900, 3_899, 1, 2, 4.0, 0.25, None, 2, 9, 3, matches_reference=False)


def drawing() -> PanelPicture:
    samples = [report.Moment(n / 2, {"sent": n * 100, "read": n * 90}) for n in range(40)]
    marks = [(5.5, "rebootstrap"), (6.0, "rebootstrap"), (9.0, "rebootstrapped")]
    labels = {"sent": "sent & done", "read": "read"}
    return report.picture(samples, labels, (5.0, 9.0), marks, RESULT)


def texts(rendered: str) -> list[str]:
    root = ET.fromstring(rendered)  # noqa: S314  # we wrote it
    return [e.text or "" for e in root.iter() if e.tag.endswith("text")]


def test_the_svg_has_labels_and_one_legend_entry_per_kind_of_mark() -> None:
    words = texts(svg.render(drawing()))
    for expected in ("seconds", "rows so far", "sent & done", "read", "no broker", "4,000"):
        assert words.count(expected) == 1, expected
    assert sum("reconnects through" in one for one in words) == 1  # two marks share a legend entry
    told = "3,900 rows · 4.0 s without a broker · 1 lost · 2 duplicated · recovered: the producer"
    assert words[0] == told + " after 0.2 s"


def test_a_long_title_gets_a_smaller_font() -> None:
    sizes = []
    for rows in (1, 336_776_000_000_000):
        result = replace(RESULT, rows_sent=rows, source_recovery_s=100.0)
        rendered = svg.render(report.picture([], {}, (5.0, 9.0), [], result))
        size = re.search(r'class="title" style="font-size:([\d.]+)px"', rendered)
        assert size is not None
        sizes.append(float(size[1]))
        assert len(result.headline()) * float(size[1]) * svg.BOLD <= svg.WIDTH
    assert sizes[0] == 16.0 > sizes[1]


@pytest.mark.parametrize("values", [(9.0, 9.0, 9.0), (0.0, 0.0), (9.0, 8.9, 0.0), (3.0,)])
def test_labels_of_lines_do_not_overlap(values: tuple[float, ...]) -> None:
    lines = [Line(str(n), "black", [(0.0, 0.0), (1.0, v)]) for n, v in enumerate(values)]
    placed = [share for share, _ in labels(Panel("rows", [*lines, Line("none", "red", [])]), 0.1)]
    assert len(placed) == len(values)
    assert all(above - below >= 0.1 - 1e-9 for above, below in pairwise(placed))
    assert all(0.05 - 1e-9 <= share <= 0.95 + 1e-9 for share in placed)


@pytest.mark.parametrize(
    ("high", "most", "expected"),
    [(60, 12, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]), (0.9, 3, [0, 0.5]),
     (1050, 6, [0, 200, 400, 600, 800, 1000]), (0, 6, [0]), (6.3, 6, [0, 2, 4, 6])],
)  # fmt: skip
def test_axis_ticks_are_round_numbers(high: float, most: int, expected: list[float]) -> None:
    assert svg.ticks(high, most) == pytest.approx(expected)


def test_a_sparkline_shows_small_values() -> None:
    assert report.sparkline([0, 1, 50, 100, -3], 100.0) == " ▁▆█ "
