"""Options of the source: case-insensitive names, the JVM connector's rules, error messages."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import odradek.spark
from odradek.common.config import CONSUMER, Config
from odradek.common.errors import ConfigurationError
from odradek.common.types import TopicPartition
from odradek.spark.driver.offsets import EARLIEST, LATEST
from odradek.spark.options.option_table import OPTIONS
from odradek.spark.options.source_options import BATCH, STREAM, parse_options
from odradek.spark.tasks.task import task_config

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def refused(query: str, **given: str | None) -> str:
    merged = {**BASE, **given}
    options = {name: value for name, value in merged.items() if value is not None}
    with pytest.raises(ConfigurationError) as caught:
        parse_options(options, query)
    return str(caught.value)


def check(text: str, words: list[str]) -> None:
    assert [word for word in words if word not in text] == []


def test_defaults_are_those_of_the_jvm_connector() -> None:
    stream, batch = parse_options(BASE, STREAM), parse_options(BASE, BATCH)
    assert (stream.starting.bound, batch.starting.bound) == (LATEST, EARLIEST)
    assert batch.ending.bound == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.max_offsets_per_trigger is None
    assert (stream.poll_timeout, stream.outage_tolerance) == (120.0, 600.0)


def test_option_names_are_case_insensitive() -> None:
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


def test_options_that_spark_adds_are_accepted() -> None:
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
        ({"maxOffsetsPerTrigger": "ten"}, ["maxOffsetsPerTrigger", "ten"]),
        ({"minPartitions": "0"}, ["minPartitions", "'0'"]),
        ({"minPartitions": "many"}, ["minPartitions", "many"]),
        ({"minPartitions": "2147483648"}, ["minPartitions", "of 2147483647 at most"]),
        ({"maxRecordsPerPartition": "0"}, ["maxRecordsPerPartition"]),
        ({"maxRecordsPerPartition": "9223372036854775808"}, ["maxRecordsPerPartition"]),
        ({"fetchOffset.numRetries": "0"}, ["fetchOffset.numRetries"]),
        ({"fetchOffset.retryIntervalMs": "-1"}, ["fetchOffset.retryIntervalMs"]),
        ({"startingTimestamp": "now"}, ["startingTimestamp", "now"]),
        ({"startingTimestamp": "-1"}, ["startingTimestamp", "-1"]),
        ({"startingOffsetsByTimestamp": "{}"}, ["startingOffsetsByTimestamp"]),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'},
            ["startingOffsetsByTimestamp", "-1", "time", "t-0"],
        ),
        (
            {"startingOffsetsByTimestampStrategy": "last"},
            ["startingOffsetsByTimestampStrategy", "error or latest", "last"],
        ),
        ({"subscribePattern": "t.*"}, ["subscribePattern", "not 2"]),
        ({"subscribe": None, "subscribePattern": " "}, ["subscribePattern is empty"]),
        ({"subscribe": None, "subscribePattern": "t("}, ["subscribePattern", "t("]),
        ({"startingOffsets": 'v1\n{"batchWatermarkMs":0}'}, ["startingOffsets", "0 sources"]),
        ({"failOnDataLoss": "yes"}, ["failOnDataLoss", "yes"]),
        ({"outageTolerance": "0s"}, ["outageTolerance"]),
        ({"outageTolerance": "long"}, ["outageTolerance", "long"]),
        ({"kafka.recieve.buffer.bytes": "1"}, ["recieve.buffer.bytes"]),
        *(
            ({f"kafka.{name}": "x"}, [f"kafka.{name} is not supported"])
            for name in (
                "auto.offset.reset",
                "key.deserializer",
                "value.deserializer",
                "enable.auto.commit",
                "interceptor.classes",
            )
        ),
    ],
)
@pytest.mark.parametrize("query", [BATCH, STREAM])
def test_errors_for_invalid_options_name_the_option(
    query: str, given: dict[str, str], words: list[str]
) -> None:
    check(refused(query, **given), words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "'0'"]),
        ({"minOffsetsPerTrigger": "many"}, ["minOffsetsPerTrigger", "many"]),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            ["minOffsetsPerTrigger (9)", "maxOffsetsPerTrigger (8)"],
        ),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "soon"]),
        ({"maxBytesPerTrigger": "0m"}, ["maxBytesPerTrigger", "0m"]),
        ({"commitOffsets": "group"}, ["commitOffsets", "kafka.group.id"]),
        ({"commitOffsets": "always"}, ["commitOffsets", "none or group"]),
        ({"pauseFile": "state/pause"}, ["pauseFile", "absolute path", "'state/pause'"]),
        ({"endingOffsets": "latest"}, ["endingOffsets isn't supported in a stream"]),
        ({"endingTimestamp": "1"}, ["endingTimestamp isn't supported in a stream"]),
        (
            {"endingOffsetsByTimestamp": "{}"},
            ["endingOffsetsByTimestamp isn't supported in a stream"],
        ),
    ],
)
def test_options_that_are_invalid_for_a_stream_are_rejected(
    given: dict[str, str], words: list[str]
) -> None:
    check(refused(STREAM, **given), words)


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
        ({"startingOffsets": '{"t":{"0":6}}', "endingOffsets": '{"t":{"0":5}}'}, ["t-0", "6", "5"]),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":6}}',
                "endingOffsetsByTimestamp": '{"t":{"0":5}}',
            },
            ["t-0: startingOffsetsByTimestamp 6 is after endingOffsetsByTimestamp 5"],
        ),
        ({"commitOffsets": "group"}, ["commitOffsets isn't supported in a batch"]),
        ({"pauseFile": "/state/pause"}, ["pauseFile isn't supported in a batch"]),
    ],
)
def test_options_that_are_invalid_for_a_batch_query_are_rejected(
    given: dict[str, str], words: list[str]
) -> None:
    check(refused(BATCH, **given), words)


def test_a_batch_query_warns_that_trigger_limits_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"]
    options = parse_options({**BASE, **dict.fromkeys(limits, "5"), "maxTriggerDelay": "1m"}, BATCH)
    assert options == parse_options(BASE, BATCH)
    for name in [*limits, "maxTriggerDelay"]:
        assert f"option {name} has no effect in a batch query" in caplog.text


def test_settings_that_only_affect_javas_client_are_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    javas = {"kafka.receive.buffer.bytes": "1048576", "kafka.check.crcs": "false"}
    options = parse_options({**BASE, **javas, "kafka.max.poll.records": "20000"}, BATCH)
    assert "check.crcs, receive.buffer.bytes" in caplog.text
    assert "1048576" not in caplog.text
    assert set(options.kafka) == {"bootstrap.servers", "max.poll.records"}


def test_options_that_limit_batches_and_tasks_are_parsed() -> None:
    options = parse_options(
        {
            **BASE,
            "maxOffsetsPerTrigger": "9",
            "minOffsetsPerTrigger": "9",
            "maxBytesPerTrigger": "64m",
            "maxTriggerDelay": "2h",
            "minPartitions": "3",
            "maxRecordsPerPartition": "4",
            "fetchOffset.numRetries": "7",
            "fetchOffset.retryIntervalMs": "20",
            "kafka.metadata.max.age.ms": "1500",
        },
        STREAM,
    )
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (9, 9)
    assert (options.max_bytes_per_trigger, options.max_trigger_delay) == (64 << 20, 7200.0)
    assert (options.min_partitions, options.max_records_per_partition) == (3, 4)
    assert (options.fetch_attempts, options.retry_interval) == (7, 0.02)
    assert options.discovery_interval == 1.5
    assert parse_options({**BASE, "maxTriggerDelay": "900"}, STREAM).max_trigger_delay == 0.9


def test_timestamps_override_offsets_and_a_single_timestamp_overrides_all_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {
        "startingOffsets": "latest",  # has no effect, so an invalid value is accepted
        "startingOffsetsByTimestamp": '{"t":{"0":7}}',
        "startingOffsetsByTimestampStrategy": "LATEST",
        "endingTimestamp": " 9 ",
    }
    options = parse_options({**BASE, **given}, BATCH)
    assert options.starting.times == {TopicPartition("t", 0): 7}
    assert options.starting.else_latest
    assert (options.ending.time, options.ending.else_latest) == (9, True)
    assert "startingOffsets has no effect: option startingOffsetsByTimestamp" in caplog.text
    first = parse_options({**BASE, **given, "startingTimestamp": "5"}, BATCH)
    assert (first.starting.time, first.starting.times) == (5, {})
    assert not parse_options({**BASE, "startingTimestamp": "5"}, BATCH).starting.else_latest


def test_the_source_joins_no_group_but_commits_use_the_group_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**BASE, "kafka.group.id": "g", "kafka.session.timeout.ms": "7000"}
    options = parse_options({**given, "groupIdPrefix": "etl"}, STREAM)
    assert options.commit_group is None
    assert options.consumer_config(None)["client.id"] == "etl"
    assert not options.consumer_config(None).keys() & {"group.id", "session.timeout.ms"}
    assert (
        "the readers don't join one (options kafka.*): group.id, session.timeout.ms" in caplog.text
    )
    caplog.clear()
    told = parse_options({**given, "commitOffsets": "Group"}, STREAM)
    config = told.group_config("c")
    assert (config["group.id"], config["enable.auto.commit"]) == ("g", False)
    assert not caplog.text


def test_setting_names_of_other_clients_are_accepted() -> None:
    assert "kafka.auto.offset.reset is not supported" in refused(
        STREAM, **{"kafka.auto_offset_reset": "latest"}
    )
    given = {**BASE, "kafka.group_id": "g", "kafka.fetch.message.max.bytes": "5"}
    options = parse_options({**given, "commitOffsets": "group"}, STREAM)
    assert options.commit_group == "g"
    assert options.consumer_config(None)["max.partition.fetch.bytes"] == "5"
    assert options.sample_config("c")["max.partition.fetch.bytes"] == 65536
    twice = {"kafka.client.id": "a", "kafka.client_id": "b"}
    assert "kafka.client.id is set twice" in refused(STREAM, **twice)


def test_descriptions_of_options_are_complete_sentences() -> None:
    for option in OPTIONS.values():
        assert option.doc.endswith((".", ")"))
        assert "ignored" not in option.doc


def test_starting_offsets_accept_plain_json_and_checkpoint_offsets() -> None:
    plain = parse_options({**BASE, "startingOffsets": '{"t":{"1":-2,"0":23}}'}, STREAM)
    assert plain.starting.bound is None
    assert plain.starting.offsets == {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2}
    own = '{"v":1,"cluster":"c","o":{"t":{"0":5}},"id":{"t":"u"}}'
    copied = parse_options({**BASE, "startingOffsets": own}, STREAM)
    assert copied.starting.offsets == {TopicPartition("t", 0): 5}
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    for file in (f'v1\n{metadata}\n{{"t":{{"0":5}}}}', f"\0v1\n{own}\n"):
        copied = parse_options({**BASE, "startingOffsets": file}, STREAM)
        assert copied.starting.offsets == {TopicPartition("t", 0): 5}


def test_the_consumer_expects_its_cluster_id_and_never_resets_offsets() -> None:
    options = parse_options({**BASE, "kafka.fetch.max.wait.ms": "7"}, STREAM)
    config = options.consumer_config("abc")
    assert config["cluster.id.expected"] == "abc"
    assert config["auto.offset.reset"] == "none"
    assert config["fetch.max.wait.ms"] == "7"
    assert "cluster.id.expected" not in options.consumer_config(None)
    chosen = parse_options({**BASE, "kafka.cluster.id.expected": "mine"}, STREAM)
    assert chosen.consumer_config("abc")["cluster.id.expected"] == "mine"


def test_options_can_be_pickled_and_their_repr_omits_settings() -> None:
    options = parse_options({**BASE, "kafka.client.id": "hidden-from-repr"}, STREAM)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (our own bytes)
    assert "hidden-from-repr" not in repr(options)


@pytest.mark.parametrize("name", ["sasl.oauthbearer.token.provider", "oauth_cb"])
@pytest.mark.parametrize("query", [BATCH, STREAM])
def test_options_that_name_a_class_or_command_to_run_are_rejected(query: str, name: str) -> None:
    """R-IN-2, see CVE-2023-25194: else users who set options could run commands on the driver."""
    said = refused(query, subscribe="t", **{f"kafka.{name}": "os:system"})
    assert "configuration never names code to run" in said
    assert "sasl.oauthbearer.token.endpoint.url" in said


def test_out_of_range_timestamps_may_be_set_to_error_or_null() -> None:
    assert not parse_options(BASE, BATCH).null_timestamps
    assert parse_options({**BASE, "outOfRangeTimestamps": "NULL"}, STREAM).null_timestamps
    told = refused(BATCH, outOfRangeTimestamps="drop")
    assert told == "option outOfRangeTimestamps must be error or null, not 'drop'"


def test_the_source_creates_no_topics_and_has_its_own_client_id() -> None:
    """Java's default allow.auto.create.topics=true would create a topic for a misspelled name."""
    config = parse_options(BASE, STREAM).consumer_config(None)
    assert Config(CONSUMER, config)["allow.auto.create.topics"] is False
    assert config["client.id"] == "odradek-spark"
    named = parse_options({**BASE, "groupIdPrefix": "etl"}, STREAM).consumer_config(None)
    assert named["client.id"] == "etl"
    both = {**BASE, "groupIdPrefix": "etl", "kafka.client.id": "mine"}
    assert parse_options(both, STREAM).consumer_config(None)["client.id"] == "mine"


def test_an_internal_topic_is_read_if_it_is_subscribed_by_name() -> None:
    found = parse_options({**BASE, "subscribe": "__consumer_offsets"}, BATCH)
    assert found.topics == ("__consumer_offsets",)


def test_spark_settings_for_the_jvm_connector_are_never_read() -> None:
    """As documented, spark.kafka.consumer.cache.*, spark.kafka.clusters.* etc. are ignored."""
    sources = Path(odradek.spark.__file__).parent.rglob("*.py")
    assert not [
        p.name for p in sources if re.search(r"spark\.(sql\.streaming\.)?kafka\.", p.read_text())
    ]


def test_tasks_fetch_up_to_8_mib_per_partition_unless_configured() -> None:
    config = task_config(parse_options(dict(BASE), STREAM), "c")
    assert config["max.partition.fetch.bytes"] == 8 << 20
    assert config["fetch.max.bytes"] == 24 << 20
    given = {**BASE, "kafka.max.partition.fetch.bytes": "5", "kafka.fetch.max.bytes": "6"}
    config = task_config(parse_options(given, STREAM), "c")
    assert (config["max.partition.fetch.bytes"], config["fetch.max.bytes"]) == ("5", "6")
