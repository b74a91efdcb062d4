"""Options of the source: names in any case, the JVM connector's rules, and clear refusals."""

from __future__ import annotations

import pickle

import pytest

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.types import TopicPartition
from odradek.spark.offsets import EARLIEST, LATEST
from odradek.spark.options import BATCH, LATER, STREAM, parse_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def refused(query: str, **given: str | None) -> str:
    merged = {**BASE, **given}
    options = {name: value for name, value in merged.items() if value is not None}
    with pytest.raises((ConfigurationError, UnsupportedFeatureError)) as caught:
        parse_options(options, query)
    return str(caught.value)


def test_defaults_are_the_jvm_connectors() -> None:
    stream, batch = parse_options(BASE, STREAM), parse_options(BASE, BATCH)
    assert (stream.starting.bound, batch.starting.bound) == (LATEST, EARLIEST)
    assert batch.ending.bound == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.max_offsets_per_trigger is None
    assert (stream.poll_timeout, stream.outage_tolerance) == (120.0, 300.0)


def test_names_are_read_in_any_case() -> None:
    options = parse_options(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": " b , a,, a ",
            "StartingOffsets": "Earliest",
            "MAXOFFSETSPERTRIGGER": "7",
            "failondataloss": "FALSE",
            "includeHeaders": "true",
            "outageTolerance": "90s",
            "kafkaConsumer.pollTimeoutMs": "500",
            "eventsDir": "/somewhere",
        },
        STREAM,
    )
    assert options.topics == ("a", "b")
    assert options.starting.bound == EARLIEST
    assert options.max_offsets_per_trigger == 7
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.outage_tolerance, options.poll_timeout) == (90.0, 0.5)
    assert options.kafka == {"bootstrap.servers": "h:1", "events.dir": "/somewhere"}


def test_what_spark_adds_by_itself_is_let_through() -> None:
    parse_options({**BASE, "path": "/x", "paths": "[]", "option.subscribe": "t"}, BATCH)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxOfsetsPerTrigger": "1"}, ["'maxofsetspertrigger'", "maxOffsetsPerTrigger"]),
        ({"bootstrap.servers": "x:1"}, ["'bootstrap.servers'", "kafka.bootstrap.servers"]),
        ({"zzz": "1"}, ["'zzz'"]),
        ({"kafka.bootstrap.servers": None}, ["kafka.bootstrap.servers is missing"]),
        ({"kafka.bootstrap.servers": " "}, ["kafka.bootstrap.servers is missing"]),
        ({"kafka.bootstrap.servers": "nowhere"}, ["kafka", "nowhere", "host:port"]),
        ({"kafka.fetch.max.byte": "1"}, ["fetch.max.bytes"]),
        ({"kafka.group.id": "g"}, ["kafka.*: group.id", "aren't in this release"]),
        ({"subscribe": None}, ["subscribe", "assign", "not 0"]),
        ({"assign": '{"t":[0]}'}, ["subscribe", "assign", "not 2"]),
        ({"subscribe": " ,"}, ["subscribe names no topic"]),
        ({"subscribe": None, "assign": "t"}, ["assign isn't JSON"]),
        ({"subscribe": None, "assign": "[1]"}, ["assign must be a JSON object"]),
        ({"subscribe": None, "assign": '{"t":[-1]}'}, ["assign", "'t'"]),
        ({"subscribe": None, "assign": '{"t":[true]}'}, ["assign", "'t'"]),
        ({"subscribe": None, "assign": "{}"}, ["assign names no partition"]),
        ({"startingOffsets": "soon"}, ["startingOffsets", "soon"]),
        ({"startingOffsets": "{"}, ["startingOffsets isn't JSON"]),
        ({"startingOffsets": '{"t":{"0":-3}}'}, ["startingOffsets", "-3", "t-0"]),
        ({"startingOffsets": '{"t":{"x":3}}'}, ["startingOffsets", "'x'"]),
        ({"startingOffsets": '{"t":3}'}, ["startingOffsets", "'t'"]),
        ({"startingOffsets": '{"t":{"0":true}}'}, ["startingOffsets", "True"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "'0'"]),
        ({"maxOffsetsPerTrigger": "many"}, ["maxOffsetsPerTrigger", "many"]),
        ({"maxOffsetsPerTrigger": "9223372036854775808"}, ["maxOffsetsPerTrigger"]),
        ({"failOnDataLoss": "yes"}, ["failOnDataLoss", "yes"]),
        ({"outageTolerance": "0s"}, ["outageTolerance"]),
        ({"outageTolerance": "long"}, ["outageTolerance", "long"]),
    ],
)
@pytest.mark.parametrize("query", [BATCH, STREAM])
def test_a_refusal_names_the_option(query: str, given: dict[str, str], words: list[str]) -> None:
    text = refused(query, **given)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_settings_that_the_jvm_connector_refuses_are_refused(name: str) -> None:
    assert f"kafka.{name} can't be set" in refused(STREAM, **{f"kafka.{name}": "x"})


@pytest.mark.parametrize("name", sorted(LATER.values()))
def test_what_comes_later_is_named(name: str) -> None:
    assert refused(STREAM, **{name: "1"}) == f"option {name} isn't in this release yet"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, ["startingOffsets", "latest"]),
        ({"startingOffsets": '{"t":{"0":-1}}'}, ["startingOffsets", "-1"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets", "earliest"]),
        ({"endingOffsets": '{"t":{"0":-2}}'}, ["endingOffsets", "-2", "t-0"]),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":5,"1":5}}'},
            ["same partitions", "t-1"],
        ),
        (
            {"startingOffsets": '{"t":{"0":6}}', "endingOffsets": '{"t":{"0":5}}'},
            ["t-0", "6", "5"],
        ),
    ],
)
def test_bounds_of_a_batch_query(given: dict[str, str], words: list[str]) -> None:
    text = refused(BATCH, **given)
    for word in words:
        assert word in text


def test_ending_offsets_are_not_for_a_stream() -> None:
    assert "endingOffsets isn't for a stream" in refused(STREAM, endingOffsets="latest")


def test_a_batch_ignores_the_limit_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_options({**BASE, "maxOffsetsPerTrigger": "5"}, BATCH)
    assert options.max_offsets_per_trigger is None
    assert "maxOffsetsPerTrigger" in caplog.text


def test_offsets_are_read_from_plain_json_and_from_our_own() -> None:
    plain = parse_options({**BASE, "startingOffsets": '{"t":{"1":-2,"0":23}}'}, STREAM)
    assert plain.starting.bound is None
    assert plain.starting.offsets == {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2}
    own = '{"v":1,"cluster":"c","o":{"t":{"0":5}},"id":{"t":"u"}}'
    copied = parse_options({**BASE, "startingOffsets": own}, STREAM)
    assert copied.starting.offsets == {TopicPartition("t", 0): 5}


def test_the_client_refuses_other_clusters_and_never_resets() -> None:
    options = parse_options({**BASE, "kafka.fetch.max.wait.ms": "7"}, STREAM)
    config = options.consumer_config("abc")
    assert config["cluster.id.expected"] == "abc"
    assert config["auto.offset.reset"] == "none"
    assert config["fetch.max.wait.ms"] == "7"
    assert "cluster.id.expected" not in options.consumer_config(None)
    chosen = parse_options({**BASE, "kafka.cluster.id.expected": "mine"}, STREAM)
    assert chosen.consumer_config("abc")["cluster.id.expected"] == "mine"


def test_options_travel_and_do_not_show_settings() -> None:
    options = parse_options({**BASE, "kafka.client.id": "hidden-from-repr"}, STREAM)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (our own bytes)
    assert "hidden-from-repr" not in repr(options)
