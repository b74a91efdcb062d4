"""docs/explain.md: the snippet runs, the log lines are real, all kinds of events are listed."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path

import pytest

import odradek
from odradek.common.events import KINDS
from odradek.testing import KafkaSimulation

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def shape(line: str) -> str:
    """Return a line without its numbers, which differ between runs."""
    words = re.sub(r"\d+(\.\d+)*(:\d+)?", "N", line)
    words = re.sub(
        r"N (connection attempt|failure|failed metadata refresh|rebootstrap|known broker)s?\b",
        r"N \1s",
        words,
    )
    return re.sub(r"(?<=: )N(, N)*( and N more)?|kafka.simulated:N", "ADDRESSES", words)


def test_a_two_minute_outage_logs_the_lines_of_the_page(
    kafka_simulation: KafkaSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    kafka_simulation.create_topic("t", partitions=3)
    kafka_simulation.produce("t", [b"first"])
    kafka_simulation.every(0.5, lambda: kafka_simulation.send("t", b"more"))
    for i in kafka_simulation.brokers:
        kafka_simulation.crash(i)
        kafka_simulation.after(115.0, partial(kafka_simulation.restart, i))
    kafka_simulation.advance(180.0)
    written = {shape(r.getMessage().removeprefix("[odradek] ")) for r in caplog.records}
    promised = {shape(line) for line in block("log").splitlines()}
    assert promised - written == set(), "\n".join(sorted(written))


def test_the_explain_snippet_runs(
    kafka_simulation: KafkaSimulation, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in kafka_simulation.brokers:
        kafka_simulation.crash(i)
    exec(block("snippet"), {"odradek": odradek, "servers": kafka_simulation.bootstrap_servers})  # noqa: S102
    printed = capsys.readouterr().out
    assert "The cluster can't be reached: bootstrap address kafka.simulated:9092" in printed
    assert "nothing listens there" in printed
    assert "metadata: none yet" in printed


def test_the_probe_snippet_runs(
    kafka_simulation: KafkaSimulation, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(block("probe"), {"odradek": odradek, "servers": kafka_simulation.bootstrap_servers})  # noqa: S102
    first, second = capsys.readouterr().out.splitlines()
    assert first == "True None None None"
    assert "'brokers': ()" in second


def test_every_kind_of_event_is_listed() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert list(listed) == list(KINDS)
    for kind, text in KINDS.items():
        for field in text.rpartition(":")[2].split(","):
            assert field.strip() in listed[kind], kind
