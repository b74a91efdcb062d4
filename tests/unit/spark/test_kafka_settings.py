"""Settings of Java's client that tune its inside are let pass with a warning, slips are not."""

from __future__ import annotations

import logging

import pytest

from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.problems import OptionError
from odradek.spark.sink.sink_options import parse_sink_options

READS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
WRITES = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
JAVAS = {"kafka.receive.buffer.bytes": "1048576", "kafka.check.crcs": "false"}


def test_a_sources(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        options = parse_options({**READS, **JAVAS, "kafka.max.poll.records": "20000"}, BATCH)
    assert "check.crcs, receive.buffer.bytes" in caplog.text
    assert "1048576" not in caplog.text
    assert set(options.kafka) == {"bootstrap.servers", "max.poll.records"}


def test_a_sinks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        options = parse_sink_options({**WRITES, "kafka.send.buffer.bytes": "1"}, BATCH)
    assert "send.buffer.bytes" in caplog.text
    assert "send.buffer.bytes" not in options.kafka


def test_a_slip_is_no_other_clients_setting() -> None:
    with pytest.raises(OptionError, match=r"recieve\.buffer\.bytes"):
        parse_options({**READS, "kafka.recieve.buffer.bytes": "1"}, BATCH)
