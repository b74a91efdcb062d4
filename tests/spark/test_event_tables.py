"""Test tables of events: simulated, hand-written and real ones, from a folder and a topic."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Topics
from typer.testing import CliRunner

from odradek import Consumer, KafkaTimeoutError, Producer
from odradek.cli.events import tables as events
from odradek.cli.simulate import app
from odradek.clients.calls import client_calls
from odradek.spark.analytics.event_tables import course_table, from_folder, from_topic, tables
from odradek.testing import LocalCluster

BROKER = {"address": "b:1"}


def test_event_tables_have_the_expected_rows_for_simulated_and_written_events(
    spark: SparkSession, options: dict[str, str], topics: Topics, tmp_path: Path
) -> None:
    words = ["fleet", "--clients", "12", "--outage", "5", "--events", str(tmp_path), "--json"]
    assert CliRunner().invoke(app, words).exit_code == 0
    lines = [line.encode() for line in _one_client()]
    dateless = [
        b'{"time": %s, "client": "c", "kind": "dial", "address": "b:1"}' % time
        for time in (b"NaN", b"Infinity", b"-Infinity", b"1e300", b"1764244000123")
    ]
    (tmp_path / "events-h-7.jsonl").write_bytes(b"\n".join([*lines, *dateless, b"{torn"]))
    read = from_folder(spark, str(tmp_path)).cache()
    found = {name: rows(table) for name, table in tables(read).items()}

    name = topics.create(2)
    files = sorted(tmp_path.glob("*.jsonl"))
    published = [line for file in files for line in file.read_bytes().splitlines()]
    topics.fill(name, [(b"c", line) for line in published])
    assert rows(from_topic(spark, name, options)) == rows(read)  # so the tables are equal too

    fleet = [one for one in found["recoveries"] if one["host"] == "simulated"]
    assert len(fleet) == 12
    assert all(4.9 < one["seconds"] < 7 and one["dials"] > 8 for one in fleet)
    assert sum(one["dials"] for one in found["load"]) > 12 * 8
    storm = max(found["storms"], key=lambda one: one["dials"])
    course = course_table(read.where("host = 'simulated'")).collect()
    assert max(one.held_up for one in course) == 12
    assert len(course) == course[-1].second - course[0].second + 1
    assert max(one.busiest for one in course) == storm["most_dials_per_s"]
    mine = read.where("client = 'c'")
    columns = ("second", "dials", "failed", "metadata_requests", "busiest", "held_up", "cut_off")
    assert [tuple(one[c] for c in columns) for one in course_table(mine).collect()] == [
        (9, 0, 0, 0, 0, 0, 0),
        (10, 1, 0, 0, 1, 0, 0),
        (11, 1, 1, 0, 1, 1, 1),
        (12, 1, 1, 1, 1, 1, 1),
        (13, 0, 0, 0, 0, 1, 1),
        *((second, 0, 0, 0, 0, 0, 0) for second in range(14, 20)),
        (20, 0, 0, 0, 0, 1, 1),
    ]
    assert [tuple(one[c] for c in columns) for one in course_table(mine, 3).collect()] == [
        (9, 1, 1, 1, 1, 1, 1),
        (13, 0, 0, 0, 0, 1, 1),
        (17, 0, 0, 0, 0, 1, 1),
    ]
    assert storm["most_clients"] == 12
    assert storm["most_dials_per_s"] >= 10
    alone = {"host": "h", "pid": 7, "client": "c"}
    assert [one for one in found["outages"] if one["client"] == "c"] == [
        {
            **alone, **BROKER, "began": 11.0, "ended": 13.0, "seconds": 2.0, "dials": 2,
            "failures": 2, "metadata_requests": 1, "rebootstraps": 0, "last_failure": 12.0,
            "first_error": "refused",
        },
        {
            **alone, **BROKER, "began": 20.0, "ended": None, "seconds": None, "dials": 0,
            "failures": 1, "metadata_requests": 0, "rebootstraps": 0, "last_failure": 20.0,
            "first_error": "reset",
        },
    ]  # fmt: skip
    held_up = [(one["began"], one["ended"]) for one in found["recoveries"] if one["client"] == "c"]
    assert held_up == [(11.0, 13.5), (20.0, None)]


# integration/test_event_topic.py tests real clients, and the test above the tables.
@pytest.mark.long
def test_event_tables_count_the_events_that_real_clients_publish(
    spark: SparkSession,
    cluster: LocalCluster,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publish events of a client that finds its cluster, and of one that doesn't."""
    monkeypatch.setattr(events, "spark_session", lambda *_: nullcontext(spark))
    monkeypatch.setattr(client_calls, "EVENTS_TIMEOUT", 30.0)  # a busy machine may take over 1 s
    told, name = topics.create(2), topics.create(1)
    config = cluster.client_config()
    heard: Counter[tuple[str, str]] = Counter()
    with Producer({**config, "client.id": "found", "events.topic": told}) as producer:
        producer.listen(lambda e: heard.update([(e.kind, str(e.fields.get("address")))]))
        producer.send(name, b"x").result(30)
    lost = {
        "bootstrap.servers": "127.0.0.1:1",
        "events.bootstrap.servers": cluster.bootstrap_servers,
    }
    with Consumer({**lost, "client.id": "lost", "events.topic": told}) as consumer:
        consumer.listen(lambda e: heard.update([(e.kind, str(e.fields.get("address")))]))
        with pytest.raises(KafkaTimeoutError):
            consumer.cluster_id(timeout=0.5)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    words = ["tables", "--topic", told, "--command-config", str(file), "--out", str(tmp_path)]
    drawn = tmp_path / "fleet.svg"
    words += ["--picture", str(drawn), "--json"]
    done = CliRunner().invoke(events.app, words, catch_exceptions=False)
    written = ElementTree.parse(drawn)  # noqa: S314 - our own
    labels = {text.text for text in written.iter() if text.text}
    assert {
        "busiest one",
        "held up",
        "client-broker pairs without a connection",
        "metadata",
    } <= labels
    counts = json.loads(done.stdout)
    assert counts["events"] == heard.total()
    found = {
        table: rows(spark.read.parquet(str(tmp_path / table))) for table in ("load", "outages")
    }
    loaded: Counter[tuple[str, str]] = Counter()
    for row in found["load"]:
        loaded[("dial", row["address"])] += row["dials"]
        loaded[("dial_failed", row["address"])] += row["failed"]
    assert +loaded == Counter({who: n for who, n in heard.items() if who[0].startswith("dial")})
    [outage] = found["outages"]
    assert (outage["client"], outage["address"], outage["ended"]) == ("lost", "127.0.0.1:1", None)
    assert outage["failures"] == heard["dial_failed", "127.0.0.1:1"] > 0


def _one_client() -> list[str]:
    """Return events of an orderly close, which isn't an outage, and of two outages that follow."""
    events: list[tuple[float, str, dict[str, Any]]] = [
        (9.0, "first_ack", {"topic": "t"}),
        (10.0, "disconnected", {**BROKER, "error": "idle", "failure": False}),
        (10.5, "dial", BROKER),
        (11.0, "dial_failed", {**BROKER, "error": "refused", "failure": True}),
        (11.5, "dial", BROKER),
        (12.0, "dial_failed", {**BROKER, "error": "timed out", "failure": True}),
        (12.5, "dial", BROKER),
        (12.9, "metadata_request", BROKER),
        (13.0, "proved", BROKER),
        (13.5, "first_record", {"topic": "t"}),
        (20.0, "disconnected", {**BROKER, "error": "reset", "failure": True}),
    ]
    who = {"host": "h", "pid": 7, "client": "c"}
    return [json.dumps({**more, **who, "time": at, "kind": kind}) for at, kind, more in events]


def rows(table: DataFrame) -> list[dict[str, Any]]:
    """Return a table's rows in a fixed order."""
    return sorted((row.asDict() for row in table.collect()), key=str)
