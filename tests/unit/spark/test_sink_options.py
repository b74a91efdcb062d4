"""The sink's options: names, defaults, and the texts of errors."""

from __future__ import annotations

import logging

import pytest

from odradek.common.config import PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.spark.options.option_table import BATCH, STREAM
from odradek.spark.sink.sink_options import OPTIONS, SinkOptions, parse_sink_options
from odradek.spark.sink.sink_sending import window_of


def parse(query: str = STREAM, **given: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": "h:1", **given}, query)


def refused(query: str = STREAM, **given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(query, **given)
    return str(caught.value)


def test_option_names_are_case_insensitive_and_defaults_equal_the_documented_ones() -> None:
    found = parse(TOPIC="t", CheckpointLocation="/c", OutageTolerance="90s")
    assert (found.topic, found.delivery, found.outage_tolerance) == ("t", "at_least_once", 90.0)
    assert parse().outage_tolerance == 600.0
    assert (parse().sink_name, parse(sinkName="a_b.2").sink_name) == ("sink", "a_b.2")
    assert {o.default for o in OPTIONS.values()} >= {"10m", "at_least_once", "odradek", "sink"}


def test_producer_timeouts_equal_outage_tolerance_unless_configured() -> None:
    config = parse(outageTolerance="2m").producer_config()
    assert (config["delivery.timeout.ms"], config["max.block.ms"]) == ("120000", "120000")
    assert "transactional.id" not in config
    config = parse(**{"kafka.message.timeout.ms": "5000"}).producer_config("id-0")
    assert (config["delivery.timeout.ms"], config["transactional.id"]) == ("5000", "id-0")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "t"}, "did you mean topic?"),
        ({"bootstrap.servers": "h:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"topic": " "}, "option topic is empty"),
        ({"delivery": "twice"}, "option delivery must be at_least_once or exactly_once"),
        ({"delivery": "exactly_once_atomic"}, "one transaction for a whole micro-batch"),
        ({"outageTolerance": "soon"}, "option outageTolerance must be a time"),
        ({"transactionalIdPrefix": "a b"}, "option transactionalIdPrefix must be"),
        ({"sinkName": "a-b"}, "option sinkName must not contain dashes: 'a-b'"),
        ({"sinkName": "a b"}, "option sinkName must be"),
        ({"jobId": "j"}, "option jobId isn't supported in a stream write"),
        ({"includeHeaders": "yes"}, "option includeHeaders must be true or false"),
        ({"kafka.key.serializer": "x"}, "option kafka.key.serializer is not supported"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer is not supported"),
        ({"kafka.transactional.id": "x"}, "delivery=exactly_once creates one"),
        ({"kafka.buffer_memory": "1", "kafka.buffer.memory": "1"}, "is set twice"),
        ({"kafka.linger.ms": "x"}, "in the options kafka.*: linger.ms"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_errors_for_invalid_options_name_the_option(given: dict[str, str], words: str) -> None:
    assert words in refused(STREAM, **given)


def test_an_exactly_once_batch_write_needs_a_job_id() -> None:
    assert "needs option jobId" in refused(BATCH, delivery="exactly_once", topic="t")
    found = parse(BATCH, delivery="exactly_once", topic="t", jobId="nightly", batchId="7")
    assert (found.job_id, found.batch_id) == ("nightly", 7)
    assert "must be a whole number" in refused(BATCH, jobId="j", batchId="-1")


def test_weaker_acks_and_idempotence_settings_are_replaced_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        found = parse(**{"kafka.acks": "1", "kafka.enable.idempotence": "false"})
    assert "acks" not in found.kafka
    assert [r.args[0] for r in caplog.records if r.args] == ["acks", "enable.idempotence"]  # type: ignore[index]
    assert set(parse(**{"kafka.send.buffer.bytes": "1"}).kafka) == {"bootstrap.servers"}
    assert "send.buffer.bytes" in caplog.text  # this setting only affects Java's client
    assert "request.required.acks" not in parse(**{"kafka.request.required.acks": "1"}).kafka


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("retries", "3", None),
        ("message.send.max.retries", "0", None),
        ("max.in.flight.requests.per.connection", "10", None),
        ("max.in.flight", "10", None),
        ("delivery.timeout.ms", "30000", "30000"),
        ("message.timeout.ms", "30000", "30000"),
        ("max.block.ms", "30000", "30000"),
    ],
)
def test_settings_that_conflict_with_outage_tolerance_log_a_warning(
    caplog: pytest.LogCaptureFixture, name: str, value: str, kept: str | None
) -> None:
    """The JVM connector accepts these settings, so the sink must not reject them."""
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        found = parse(**{f"kafka.{name}": value, "kafka.enable.idempotence": "false"})
    assert set(found.kafka.values()) - {"h:1"} == ({kept} if kept else set())
    words = [r.getMessage() for r in caplog.records if "idempotence" not in r.getMessage()]
    assert [value in words[0], len(words)] == [True, 1]
    assert ("outageTolerance (600 s)" in words[0]) == (kept is not None)


def test_timeouts_as_long_as_outage_tolerance_log_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    longer = {"kafka.delivery.timeout.ms": "60000", "kafka.max.in.flight": "5"}
    assert len(parse(outageTolerance="1m", **longer).kafka) == 3
    assert not caplog.records
    assert "retries" in refused(**{"kafka.retries": "many"})


def test_secrets_are_not_in_the_repr_of_options_or_in_errors() -> None:
    secret = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "u"}
    secret |= {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    assert "hunter2" not in repr(parse(**secret))
    assert "hunter2" not in repr(parse(**secret).producer_config())
    assert "hunter2" not in refused(**secret, topik="t")


def test_a_small_buffer_memory_lowers_the_default_max_request_size() -> None:
    """Java's client accepts kafka.buffer.memory=16384, so queries may have it."""
    config = parse(**{"kafka.buffer.memory": "16384"}).producer_config()
    assert (config["buffer.memory"], window_of(config)) == ("16384", 8192)
    assert Config(PRODUCER, config)["max.request.size"] == 16384


def test_a_large_max_request_size_raises_the_default_buffer_memory() -> None:
    config = parse(**{"kafka.message.max.bytes": "104857600"}).producer_config()
    assert config["buffer.memory"] == "104857600"
    assert parse(**{"kafka.max.request.size": "1000"}).producer_config()["buffer.memory"] == str(
        64 << 20
    )
    both = {"kafka.max.request.size": "1048576", "kafka.buffer.memory": "16384"}
    assert "max.request.size (1048576) can't exceed buffer.memory (16384)" in refused(**both)
