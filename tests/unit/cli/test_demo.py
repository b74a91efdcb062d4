"""The demo's parts that need no broker: data, reference, comparison, timeline, picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cli.demo import report
from odradek.cli.demo.data import Flights
from odradek.cli.demo.timeline import EventReader, Noticed, Recovery, recovery, tell

PRODUCER, TASK = 1, 2


@pytest.fixture(scope="module")
def flights() -> Flights:
    return Flights()


def test_the_data_set_is_whole_and_keyed_by_tail_number(flights: Flights) -> None:
    assert flights.rows == 336_776
    records = list(flights.records(0, 1000))
    assert len(records) == 1000
    rows = [json.loads(value) for _, value in records]
    assert [row["row"] for row in rows] == list(range(1000))
    assert rows[0]["tailnum"] == "N14228"
    for (key, _), row in zip(records, rows, strict=True):
        assert key == (row["tailnum"].encode() if row["tailnum"] else None)
    assert [json.loads(v)["row"] for _, v in flights.records(336_500, 337_000)][-1] == 336_775


def test_the_reference_counts_every_flight(flights: Flights) -> None:
    reference = flights.reference()
    assert sum(a.flights for a in reference) == 336_776
    assert len({(a.carrier, a.month) for a in reference}) == len(reference) == 185
    first = reference[0]
    assert (first.carrier, first.month, first.flights, first.late) == ("9E", 1, 1573, 345)
    few = Flights(3).reference()
    assert [(a.carrier, a.flights, a.mean_delay) for a in few] == [("AA", 1, 2.0), ("UA", 2, 3.0)]


def build(flights: Flights, **changes: object) -> report.Result:
    reference = flights.reference()
    given: dict[str, object] = {
        "sent": 336_776, "table": reference, "reference": reference, "written": 336_776,
        "distinct": 336_776, "recovery": Recovery(5.0, 0.1, 0.2), "events": [],
    }  # fmt: skip
    return report.build(**{**given, **changes})  # type: ignore[arg-type]


def test_only_every_row_once_in_both_outputs_is_well(flights: Flights) -> None:
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


def noticed(time: float, pid: int, kind: str, **fields: object) -> Noticed:
    return Noticed(time, pid, "client", kind, dict(fields))


def test_recovery_counts_from_the_first_answer_with_all_leaders() -> None:
    events = [
        noticed(9.0, PRODUCER, "first_ack"),
        noticed(10.1, TASK, "metadata", leaders=6, leaderless=0),  # it was under way
        noticed(10.2, PRODUCER, "disconnected"),
        noticed(15.0, PRODUCER, "metadata", leaders=5, leaderless=1),
        noticed(16.0, PRODUCER, "metadata", leaders=6, leaderless=0),
        noticed(16.5, TASK, "first_record"),
        noticed(17.0, PRODUCER, "first_ack"),
    ]
    assert recovery(events, 10.0, 6, PRODUCER) == Recovery(6.0, 1.0, 0.5)
    assert recovery(events[:4], 10.0, 6, PRODUCER) == Recovery(None, None, None)
    assert recovery(events, None, 6, PRODUCER) == Recovery(None, None, None)


def test_events_are_read_once_and_half_lines_later(tmp_path: Path) -> None:
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
    assert "starts again from bootstrap.servers: all gone" in (tell(found) or "")
    assert tell(noticed(1.0, 1, "disconnected", failure=False)) is None
    assert tell(noticed(1.0, 1, "proved")) is None


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    samples = [report.Sample(n / 2, n * 100, n * 90, n * 80) for n in range(40)]
    path = tmp_path / "demo.png"
    report.picture(path, samples, (5.0, 9.0), [(5.5, "rebootstrap"), (9.0, "rebootstrapped")])
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
