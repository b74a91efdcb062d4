"""Records that can't be decoded: which rows remain, and what the dead letter topic contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from odradek import Consumer, Producer, TopicPartition
from odradek.runtime.system_clock import SystemClock
from odradek.simulation.brokers.broker_faults import max_message_bytes
from odradek.spark.checkpoint_errors import MissingTopicError, OptionError, UndecodableValueError
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.source_options import BATCH, SourceOptions, parse_options
from odradek.spark.sink import dead_letters, sink_sending
from odradek.spark.sink.sink_clients import process_producers
from odradek.spark.sink.sink_errors import SinkWriteError
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.tasks.task import dead_letters_of, decoders_of
from odradek.spark.values.schema import arrow_schema, full_schema
from odradek.testing import FakeCluster

P0 = TopicPartition("t", 0)
GOOD, BAD = b'{"a": 1}', b'{"a": "x"}'
JSON = {"valueFormat": "json", "valueSchema": "a int, _corrupt_record string"}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as found:
        found.create_topic("t", 1)
        found.create_topic("bad", 1)
        config = {"bootstrap.servers": found.bootstrap_servers}
        with Producer(config) as producer:
            for at, value in enumerate((GOOD, BAD, None, b"no", GOOD)):
                headers = [("h", b"1"), ("h", None)] if at == 1 else ()
                producer.send("t", value, b"k%d" % at, headers, timestamp_ms=1000 + at)
        yield found


def given(cluster: FakeCluster, **more: Any) -> SourceOptions:
    said = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", **JSON, **more}
    return parse_options(said, BATCH)


def rows(cluster: FakeCluster, **more: Any) -> list[Any]:
    """Return the offsets and values that a task reads from the topic."""
    options, columns = given(cluster, **more), ("offset", "value")
    full = arrow_schema(full_schema(False, options.decoded_types()))
    target = pa.schema([full.field(name) for name in columns])
    clock = SystemClock()
    config = options.consumer_config(None)
    with Consumer(config) as consumer:
        reader = RangeReader(consumer, KafkaOffsetRange(P0, 0, 5), None, options, clock)
        letters = dead_letters_of(options, clock)
        made = reader.batches(columns, target, decoders_of(options, columns, target), letters)
        return [tuple(row.values()) for batch in made for row in batch.to_pylist()]


def letters(cluster: FakeCluster) -> list[Any]:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign({TopicPartition("bad", 0): 0})
        end = consumer.end_offsets([TopicPartition("bad", 0)])[TopicPartition("bad", 0)]
        found: list[Any] = []
        while len(found) < end:
            found += consumer.poll(5.0)
        return found


ROWS = [
    (0, {"a": 1, "_corrupt_record": None}),
    (1, {"a": None, "_corrupt_record": '{"a": "x"}'}),
    (2, None),
    (3, {"a": None, "_corrupt_record": "no"}),
    (4, {"a": 1, "_corrupt_record": None}),
]


def test_the_value_mode_option_keeps_drops_or_rejects_malformed_values(
    cluster: FakeCluster,
) -> None:
    assert rows(cluster) == rows(cluster, valueMode="permissive") == ROWS
    left = [ROWS[at] for at in (0, 2, 4)]
    assert rows(cluster, valueMode="DROPMALFORMED") == left
    with pytest.raises(UndecodableValueError, match="t-0: the value at offset 1 .*field a"):
        rows(cluster, valueMode="FAILFAST")
    assert letters(cluster) == []


@pytest.mark.parametrize("mode", ["", "PERMISSIVE", "DROPMALFORMED"])
def test_malformed_records_are_sent_to_the_dead_letter_topic(
    cluster: FakeCluster, mode: str
) -> None:
    more = {"valueMode": mode} if mode else {}
    found = rows(cluster, deadLetterTopic="bad", **more)
    assert found == (ROWS if mode == "PERMISSIVE" else [ROWS[at] for at in (0, 2, 4)])
    first, second = letters(cluster)
    assert (first.key, first.value, first.timestamp_ms) == (b"k1", BAD, 1001)
    assert list(first.headers)[:2] == [("h", b"1"), ("h", None)]
    assert {name: text.decode() for name, text in list(first.headers)[2:]} == {
        "__connect.errors.topic": "t",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "1",
        "__connect.errors.connector.name": "odradek-spark",
        "__connect.errors.task.id": "0",
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": "odradek.spark",
        "__connect.errors.exception.class.name": "odradek.ValueDecodeError",
        "__connect.errors.exception.message": "field a isn't int32",
    }
    assert (second.key, second.value) == (b"k3", b"no")
    told = dict(second.headers)
    assert told["__connect.errors.offset"] == b"3"
    assert told["__connect.errors.exception.message"].startswith(b"not JSON")


def test_a_dead_letter_that_cannot_be_written_fails_the_task(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters.DeadLetters, "_sent", lambda *_: lambda _: OSError("no room"))
    with pytest.raises(SinkWriteError, match=r"t-0 at offset 1 .* topic 'bad' .*no room"):
        rows(cluster, deadLetterTopic="bad")
    monkeypatch.undo()
    monkeypatch.setattr(sink_sending, "TOPIC_PATIENCE", 0.1)
    with pytest.raises(MissingTopicError, match="'none' .*deadLetterTopic.* create it"):
        rows(cluster, deadLetterTopic="none")


@pytest.mark.parametrize("by_brokers", [False, True])
def test_a_dead_letter_that_is_too_large_is_sent_without_its_large_parts(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, by_brokers: bool
) -> None:
    """Otherwise the query would fail at the same record after each restart."""
    large = b" " * 5000
    cluster.create_topic("big", 1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send("big", b"{" + large, b"key", [("h", b"1")])
        producer.send("big", b"{" + large + large, large, [("h", large + b"1")])
        producer.send("big", b"{", b"key")
    if by_brokers:
        cluster._call(lambda: max_message_bytes(cluster._cluster, "bad", 2000))
    else:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "small"}
        small = {**config, "max.request.size": 2000}
        monkeypatch.setattr(SourceOptions, "producer_config", lambda _: small)
    options = given(cluster, subscribe="big", deadLetterTopic="bad")
    target = pa.schema([arrow_schema(full_schema(False, options.decoded_types())).field("value")])
    clock = SystemClock()
    with Consumer(options.consumer_config(None)) as consumer:
        wanted = KafkaOffsetRange(TopicPartition("big", 0), 0, 3)
        reader = RangeReader(consumer, wanted, None, options, clock)
        made = decoders_of(options, ("value",), target)
        found = list(reader.batches(("value",), target, made, dead_letters_of(options, clock)))
    assert sum(map(len, found)) == 0
    told = {dict(one.headers)["__connect.errors.offset"]: one for one in letters(cluster)}
    first, second, third = (told[at] for at in (b"0", b"1", b"2"))
    assert (first.key, first.value) == (b"key", None)
    assert dict(first.headers)["odradek.errors.left.out"] == b"value"
    assert dict(first.headers)["h"] == b"1"
    assert (second.key, second.value) == (None, None)
    assert dict(second.headers)["odradek.errors.left.out"] == b"value,headers,key"
    assert (third.key, third.value) == (b"key", b"{")


def test_a_missing_permission_for_the_dead_letter_topic_fails_the_task(
    cluster: FakeCluster,
) -> None:
    cluster.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(SinkWriteError, match=r"t-0 at offset 1 .* topic 'bad' .*deadLetterTopic"):
        rows(cluster, deadLetterTopic="bad")
    assert letters(cluster) == []


def test_the_dead_letter_producer_gets_only_producer_settings_of_the_reader() -> None:
    said = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.client.id": "etl",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.bytes": "1000000",
        "kafka.security.protocol": "SSL",
        "kafka.group.id": "g",
        "subscribe": "t",
        "outageTolerance": "90s",
        "deadLetterTopic": "bad",
        **JSON,
    }
    assert parse_options(said, BATCH).producer_config() == {
        "bootstrap.servers": "a:1",
        "client.id": "etl",
        "security.protocol": "SSL",
        "delivery.timeout.ms": "90000",
        "max.block.ms": "90000",
    }


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"deadLetterTopic": "t", **JSON}, "which the query itself reads"),
        (
            {"deadLetterTopic": "bad", "valueMode": "FAILFAST", **JSON},
            "fails at the first bad record",
        ),
        ({"deadLetterTopic": "a b", **JSON}, "deadLetterTopic"),
        ({"deadLetterTopic": "bad"}, "needs option valueFormat"),
        ({"valueMode": "SOME", **JSON}, "PERMISSIVE or DROPMALFORMED or FAILFAST"),
    ],
)
def test_invalid_dead_letter_options_are_rejected(more: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **more}, BATCH)
    pattern = {"subscribePattern": "b.*", "deadLetterTopic": "bad", **JSON}
    with pytest.raises(OptionError, match="which the query itself reads"):
        parse_options({"kafka.bootstrap.servers": "a:1", **pattern}, BATCH)


@pytest.fixture(autouse=True)
def no_producers_left() -> Iterator[None]:
    yield
    kept = process_producers()
    for producer in list(kept._kept.values()):
        kept.drop(producer)
