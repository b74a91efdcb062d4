"""Test a failing registry: no record counts as invalid, and all are read after it recovers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tests.registry_server import RegistryServer, registry_server
from tests.unit.serialization.test_clients_with_serializers import servers

from odradek import AsyncConsumer, ConfigurationError, Consumer, Producer, TopicPartition, Workers
from odradek.clients.consumer.records import ConsumerRecord
from odradek.errors import (
    DeserializationError,
    InvalidSchemaError,
    RecordDeserializationError,
    RegistryAuthenticationError,
    RegistryUnreachableError,
    SchemaNotFoundError,
    SchemaRegistryError,
    WorkFailedError,
)
from odradek.runtime import rest_client
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    avro_to_arrow,
    json_to_arrow,
    protobuf_to_arrow,
)
from odradek.serialization.record_reading import RecordReading
from odradek.serialization.registry import client as registry_client
from odradek.testing import FakeCluster

AVRO, JSON = '"string"', '{"type": "string"}'
VALUE = SerializationContext("t", MessageField.VALUE)
QUICK = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 2}
HASTE, PATIENCE = rest_client.RestLimits(0.06, 0.04), rest_client.RestLimits(30.0, 30.0)
PAGE = b"<html><head><style>p {}</style><title>404</title></head><p>no <b>route</b></html>"
MISSING = (404, {"error_code": 40403, "message": "Schema not found"})
FAULTS: dict[str, Any] = {
    "an ingress' 404": (404, b"default backend - 404"),
    "a framework's 404": (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "a page": (200, PAGE),
    "an empty body": (200, b""),
    "other JSON": (200, {"status": "starting"}),
    **{str(status): (status, PAGE) for status in (301, 302, 400, 403, 404, 405, 407, 410, 418)},
    **{str(status): (status, b"") for status in (401, 408, 409, 422, 425, 429, 500, 502, 503, 504)},
    "another code": (404, {"error_code": 40499, "message": "?"}),
    "a mode": (422, {"error_code": 42205, "message": "not permitted"}),
    "late": None,
}
EACH = pytest.mark.parametrize("fault", FAULTS)


def client(url: str, **more: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, **QUICK, **more})


def fails(server: RegistryServer, fault: str, *clients: SchemaRegistryClient) -> None:
    """Make a registry fail, and clients wait only briefly for its recovery."""
    answer = FAULTS[fault]
    server.stalls = answer is None
    server.rule = (lambda _: None) if answer is None else (lambda _: answer)
    for one in clients:
        one._servers._limits = HASTE


def recovers(server: RegistryServer, *clients: SchemaRegistryClient) -> None:
    server.stalls, server.rule = False, lambda _: None
    for one in clients:
        one._servers._limits = PATIENCE


def record(value: bytes) -> Any:
    made: Any = ConsumerRecord
    return made("t", 0, 0, -1, 0, None, value, (), -1)


def sends(cluster: FakeCluster, value: bytes, count: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for _ in range(count):
            producer.send("t", value).result(10)


def timestamp() -> Schema:
    return Schema(base64.b64encode(Timestamp.DESCRIPTOR.file.serialized_pb).decode(), "PROTOBUF")


def rows(server: RegistryServer) -> dict[str, bytes]:
    """Return a value in each format, with its schema id in front."""
    registry = client(server.url)
    found = {}
    for kind, schema, payload in (
        ("avro", Schema(AVRO), b"\2a"),
        ("json", Schema(JSON, "JSON"), b'"a"'),
        ("protobuf", timestamp(), b"\0\x08\1"),
    ):
        number = registry.register_schema(kind, schema)
        found[kind] = b"\0" + number.to_bytes(4, "big") + payload
    return found


@EACH
def test_deserializers_do_not_report_a_registry_fault_as_an_error_of_the_record(
    server: RegistryServer, fault: str
) -> None:
    values = rows(server)
    registry = client(server.url)
    readers = {
        "avro": AvroDeserializer(registry),
        "json": JSONDeserializer(None, None, registry),
        "protobuf": ProtobufDeserializer(Timestamp, registry),
    }
    for kind, reader in readers.items():
        reading: Any = RecordReading(None, reader)
        fails(server, fault, registry)
        for _ in range(2):
            with pytest.raises(SchemaRegistryError) as caught:
                reading([record(values[kind])])
            assert caught.value.blames_record is False
        recovers(server, registry)
        assert reading([record(values[kind])])[0].value in ("a", Timestamp(seconds=1))


@EACH
def test_serializers_raise_registry_errors_and_work_after_it_recovers(
    server: RegistryServer, fault: str
) -> None:
    rows(server)
    registry = client(server.url)
    for name in ("avro", "json", "protobuf"):
        of = SerializationContext(name, MessageField.VALUE)
        conf = {"subject.name.strategy": lambda context, _: context.topic}
        write: Any = AvroSerializer(registry, AVRO, conf=conf)
        if name == "json":
            write = JSONSerializer(JSON, registry, conf=conf)
        if name == "protobuf":
            write = ProtobufSerializer(Timestamp, registry, conf)
        value = Timestamp(seconds=1) if name == "protobuf" else "a"
        fails(server, fault, registry)
        with pytest.raises(SchemaRegistryError):
            write(value, of)
        recovers(server, registry)
        assert write(value, of)[:1] == b"\0"


@EACH
def test_column_decoders_raise_registry_errors_and_work_after_it_recovers(
    server: RegistryServer, fault: str
) -> None:
    values = rows(server)
    registry = client(server.url)
    read: dict[str, Callable[[pa.Array], Any]] = {
        "avro": lambda column: avro_to_arrow(column, registry),
        "json": lambda column: json_to_arrow(column, registry),
        "protobuf": lambda column: protobuf_to_arrow(column, registry, Timestamp),
    }
    for kind, convert in read.items():
        column = pa.array([values[kind]] * 2, pa.binary())
        fails(server, fault, registry)
        with pytest.raises(SchemaRegistryError):
            convert(column)
        recovers(server, registry)
        found = convert(column)
        assert (found.errors, found.values.null_count) == ({}, 0)


def test_an_application_that_skips_bad_records_skips_none_during_a_registry_fault(
    server: RegistryServer,
) -> None:
    """Run the loop of docs/serialization.md while a proxy of the registry responds with 404."""
    value = rows(server)["avro"]
    with FakeCluster(brokers=1, topics=["t"]) as cluster:
        sends(cluster, value, 3)
        reader = AvroDeserializer(client(server.url))
        fails(server, "an ingress' 404")
        skipped, refused = 0, 0
        read: list[Any] = []
        with Consumer(servers(cluster), value_deserializer=reader) as consumer:
            consumer.assign({TopicPartition("t", 0): 0})
            while len(read) + skipped < 3:
                try:
                    read += [one.value for one in consumer.poll(5.0)]
                except RecordDeserializationError as error:
                    skipped += 1
                    consumer.seek(error.partition, error.next_offset)
                except SchemaRegistryError:
                    refused += 1
                    if refused == 3:
                        recovers(server)
    assert (read, skipped, refused) == (["a"] * 3, 0, 3)


def test_an_asyncio_consumer_skips_no_record_during_a_registry_fault(
    server: RegistryServer,
) -> None:
    value = rows(server)["avro"]

    async def run(cluster: FakeCluster) -> list[Any]:
        reader = AvroDeserializer(client(server.url))
        async with AsyncConsumer(servers(cluster), value_deserializer=reader) as consumer:
            consumer.assign({TopicPartition("t", 0): 0})
            with pytest.raises(SchemaRegistryError):
                while not await consumer.poll(5.0):
                    pass
            recovers(server)
            found: list[Any] = []
            while not found:
                found += await consumer.poll(5.0)
            return [one.value for one in found]

    with FakeCluster(brokers=1, topics=["t"]) as cluster:
        sends(cluster, value, 1)
        fails(server, "410")
        assert asyncio.run(run(cluster)) == ["a"]


@pytest.mark.parametrize("fault", ["an ingress' 404", "a page", "405", "302", "late"])
def test_workers_write_no_dead_letters_during_a_registry_fault(
    server: RegistryServer, fault: str
) -> None:
    value = rows(server)["avro"]
    registry = client(server.url)
    reader = AvroDeserializer(registry)
    done: list[Any] = []
    with FakeCluster(brokers=1, topics=["t", "dead"]) as cluster:
        sends(cluster, value, 4)
        config = {**servers(cluster), "group.id": "g", "enable.auto.commit": False}

        def run() -> None:
            def work(one: Any) -> None:
                done.append(one.value)
                if len(done) == 4:
                    workers.stop()

            with (
                Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer,
                Consumer(config, value_deserializer=reader) as consumer,
            ):
                workers = Workers(
                    consumer, work, producer=producer, dead_letter_topic="dead", max_attempts=2
                )
                workers.run("t")

        fails(server, fault, registry)
        with pytest.raises((WorkFailedError, SchemaRegistryError)):
            run()
        recovers(server, registry)
        run()
        assert done == ["a"] * 4
        with Consumer(servers(cluster)) as consumer:
            assert consumer.end_offsets([TopicPartition("dead", 0)]) == {
                TopicPartition("dead", 0): 0
            }


def test_a_schema_that_is_missing_right_after_a_start_is_requested_again(
    server: RegistryServer,
) -> None:
    """Karapace 6.2 responds with 40403 for existing schemas until it has read its topic."""
    value = rows(server)["avro"]
    reading: Any = RecordReading(None, AvroDeserializer(client(server.url)))
    server.wrong = [MISSING]
    assert reading([record(value)])[0].value == "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_client, "CONFIRM_S", 60.0)
        server.wrong = [MISSING]
        one = client(server.url, **{"default.api.timeout.ms": 400})
        assert (
            one.get_latest_version("avro").version == 1
        )  # after a pause, there is time for the request
        server.wrong = [MISSING]
        assert one.lookup_schema("json", Schema(JSON, "JSON")).version == 1


def test_a_missing_schema_that_a_second_request_confirms_is_an_error_of_the_record(
    server: RegistryServer,
) -> None:
    value = b"\0\0\0\0\x63\2a"
    registry = client(server.url)
    reading: Any = RecordReading(None, AvroDeserializer(registry))
    for _ in range(20):
        with pytest.raises(RecordDeserializationError, match="HTTP 404"):
            reading([record(value)])
    assert (
        server.asked == ["GET /schemas/ids/99"] * 2
    )  # two requests, whatever the number of records
    found = avro_to_arrow(pa.array([value] * 3, pa.binary()), registry)
    assert list(found.errors) == [0, 1, 2]


def test_missing_schema_ids_cause_a_pause_only_until_the_registry_is_stable(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "CONFIRM_S", 2.0)
    registry = client(server.url)
    clock: Any = registry._servers._clock
    at, pauses = [1000.0], list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        at[0] += seconds

    clock.now, clock.pause = lambda: at[0], pause

    def pauses_for(first: int) -> list[float]:
        pauses.clear()
        for number in range(first, first + 5):
            with pytest.raises(SchemaNotFoundError) as caught:
                registry.get_schema(number)
            assert caught.value.blames_record
        return list(pauses)

    assert pauses_for(100) == [0.5] * 4
    assert pauses_for(200) == []
    at[0] += 0.9
    assert pauses_for(300) == []
    at[0] += 1.1  # the registry may have been restarted meanwhile
    assert pauses_for(400) == [0.5] * 4
    server.wrong = [(503, {})]
    assert pauses_for(500)[1:] == [0.5] * 4  # the first pause is before the retry after 503
    registry.clear_caches()
    assert pauses_for(600) == [0.5] * 4
    with registry_server() as other:
        monkeypatch.setattr(registry_client, "CONFIRM_S", 2.0)
        registry = client(f"{server.url},{other.url}")
        clock = registry._servers._clock
        clock.now, clock.pause = lambda: at[0], pause
        assert pauses_for(700) == [0.5] * 5  # the second server confirms missing ids, too


@pytest.mark.parametrize("late", [False, True])
def test_after_an_unnoticed_registry_restart_missing_schemas_are_confirmed_again(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """No request showed the restart, or it happened during the confirmation of a 404."""
    value = rows(server)["avro"]
    monkeypatch.setattr(registry_client, "CONFIRM_S", 2.0)
    registry = client(server.url)
    clock: Any = registry._servers._clock
    at = [1000.0]

    def pause(seconds: float) -> None:
        at[0] += seconds
        if late and at[0] == 1004.0:
            server.wrong = [(503, {})]

    clock.now, clock.pause = lambda: at[0], pause
    for number in range(100, 105):  # the registry confirms missing ids for two seconds
        with pytest.raises(SchemaNotFoundError):
            registry.get_schema(number)
    at[0] += 1.5
    started = at[0] + late
    server.rule = lambda _: MISSING if at[0] < started + 0.7 else None
    reading: Any = RecordReading(None, AvroDeserializer(registry))
    assert reading([record(value)])[0].value == "a"


def test_a_missing_schema_is_not_confirmed_within_a_short_timeout(server: RegistryServer) -> None:
    """Later calls continue the confirmation, until the missing schema is an error of the record."""
    value = rows(server)["avro"]
    registry = client(server.url, **{"default.api.timeout.ms": 500})
    reading: Any = RecordReading(None, AvroDeserializer(registry))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_client, "CONFIRM_S", 0.6)
        server.rule = lambda _: MISSING
        with pytest.raises(SchemaRegistryError) as caught:
            reading([record(value)])
        assert not caught.value.blames_record
        with pytest.raises(RecordDeserializationError):
            while True:
                with suppress(SchemaRegistryError):
                    reading([record(value)])


def test_a_missing_reference_is_an_error_of_the_record(server: RegistryServer) -> None:
    refers = (SchemaReference("R", "none", 1),)
    text = '{"type": "record", "name": "F", "fields": [{"name": "r", "type": "R"}]}'
    number = client(server.url).register_schema("f", Schema(text, "AVRO", refers))
    reading: Any = RecordReading(None, AvroDeserializer(client(server.url)))
    with pytest.raises(RecordDeserializationError, match="/subjects/none/versions/1 with HTTP 404"):
        reading([record(b"\0" + number.to_bytes(4, "big") + b"\2")])


def test_a_missing_subject_of_use_latest_version_is_not_an_error_of_the_record(
    server: RegistryServer,
) -> None:
    value = rows(server)["avro"]
    reader = AvroDeserializer(client(server.url), conf={"use.latest.version": True})
    with pytest.raises(SchemaNotFoundError, match="t-value"):
        RecordReading(None, reader)([record(value)])


RECORD = '{"type": "record", "name": "F", "fields": [{"name": "r", "type": "R"}]}'
OBJECT = '{"type": "object", "properties": {"r": {"$ref": "R"}}}'
NONE = (SchemaReference("R", "none", 1),)


def unusable(kind: str) -> list[Schema]:
    """Return a schema with an invalid text, and one with a reference that the registry lacks."""
    text = RECORD if kind == "AVRO" else OBJECT
    return [Schema(text, kind), Schema(text, kind, NONE)]


@pytest.mark.parametrize("at", [0, 1], ids=["a bad text", "a missing reference"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_an_unusable_schema_is_an_error_of_the_record_only_if_the_record_names_it(
    server: RegistryServer, kind: str, at: int
) -> None:
    bad, good = unusable(kind)[at], Schema(AVRO if kind == "AVRO" else JSON, kind)
    registry = client(server.url)
    payload = b"\2a" if kind == "AVRO" else b'"a"'
    ids = [registry.register_schema("t-value", one) for one in (good, bad)]
    latest: dict[str, Any] = {"use.latest.version": True}
    readers: list[Any] = [
        lambda: AvroDeserializer(registry, conf=latest),
        lambda: AvroDeserializer(registry, bad),
        lambda: avro_to_arrow(pa.array([], pa.binary()), registry, bad),
        lambda: AvroSerializer(registry, bad),
    ]
    own: Any = AvroDeserializer(registry)
    if kind == "JSON":
        readers = [
            lambda: JSONDeserializer(None, None, registry, latest),
            lambda: JSONDeserializer(bad, None, registry),
            lambda: json_to_arrow(pa.array([], pa.binary()), registry, bad),
            lambda: JSONSerializer(bad, registry),
        ]
        own = JSONDeserializer(None, None, registry)
    data = b"\0" + ids[0].to_bytes(4, "big") + payload
    for made in readers:
        for _ in range(2):
            with pytest.raises(SchemaRegistryError) as caught:
                made()("a" if made is readers[-1] else data, VALUE)
            assert not caught.value.blames_record
        with pytest.raises(SchemaRegistryError) as caught:
            own(b"\0" + ids[1].to_bytes(4, "big") + payload, VALUE)
        assert caught.value.blames_record


def test_an_application_with_an_unusable_reader_schema_skips_no_record(
    server: RegistryServer,
) -> None:
    value = rows(server)["avro"]
    for schema in unusable("AVRO")[1:]:
        reading: Any = RecordReading(None, AvroDeserializer(client(server.url), schema))
        for _ in range(2):
            with pytest.raises(SchemaRegistryError):
                reading([record(value)])
    with pytest.raises(InvalidSchemaError):
        JSONDeserializer('{"type": "objcet"}')
    assert (
        JSONDeserializer('{"type": "objcet"}', conf={"validate": False})(b'\0\0\0\0\1"a"', VALUE)
        == "a"
    )


def test_each_registry_server_must_confirm_that_a_schema_is_missing(server: RegistryServer) -> None:
    value = b"\0\0\0\0\x63\2a"
    with registry_server() as other:
        reading: Any = RecordReading(None, AvroDeserializer(client(f"{server.url},{other.url}")))
        with pytest.raises(RecordDeserializationError):
            reading([record(value)])
        assert len(server.asked) == len(other.asked) + 1 == 3
        both = client(f"{server.url},{other.url}")
        reading = RecordReading(None, AvroDeserializer(both))
        fails(other, "503", both)
        with pytest.raises(RegistryUnreachableError):
            reading([record(value)])
        recovers(other, both)
        other.schemas = [{"schema": AVRO}] * 99  # this server has more schemas
        assert reading([record(value)])[0].value == "a"


def test_a_registered_schema_is_no_longer_missing(server: RegistryServer) -> None:
    registry = client(server.url)
    read = AvroDeserializer(registry)
    for _ in range(2):
        with pytest.raises(SchemaNotFoundError):
            read(b"\0\0\0\0\1\2a")
    registry.register_schema("t-value", Schema(AVRO))
    assert read(b"\0\0\0\0\1\2a") == "a"


@pytest.mark.parametrize("answer", [(404, b"no such path"), (404, {"error_code": 404}), (405, b"")])
def test_the_next_registry_url_is_tried_after_an_unexpected_response(
    server: RegistryServer, answer: Any
) -> None:
    server.rule = lambda _: answer
    with registry_server() as other:
        other.subjects["s"] = [1]
        assert client(f"{server.url},{other.url}").get_subjects() == ["s"]


class OddError(Exception):
    """An error that an application's token function raises."""


def test_a_failing_token_function_is_not_an_error_of_the_record(server: RegistryServer) -> None:
    value = rows(server)["avro"]
    given: list[Any] = []

    def token() -> Any:
        answer = given.pop(0) if given else "abc"
        if isinstance(answer, Exception):
            raise answer
        return answer

    registry = client(server.url, **{"bearer.auth.token": token})
    registry._servers._limits = HASTE
    reading: Any = RecordReading(None, AvroDeserializer(registry))
    for answer, words in (
        (OddError("no"), "raised OddError"),
        (None, "returned no string"),
        ("a\nb", "an HTTP header can't contain"),
    ):
        given[:] = [answer] * 1000
        with pytest.raises(RegistryAuthenticationError, match=words) as caught:
            reading([record(value)])
        assert type(caught.value.__cause__) in (OddError, type(None))
    registry._servers._limits = PATIENCE
    given[:] = [OddError("once")]
    assert reading([record(value)])[0].value == "a"  # the token function is called again


def test_a_missing_certificate_file_is_not_an_error_of_the_record() -> None:
    registry = client("https://localhost:1", **{"ssl.ca.location": "/nowhere.pem"})
    with pytest.raises(ConfigurationError, match=r"ssl\.ca\.location"):
        RecordReading(None, AvroDeserializer(registry))([record(b"\0\0\0\0\1\2a")])


def stopped(registry: SchemaRegistryClient, pauses: list[float]) -> None:
    """Replace the client's clock with one that only advances in pauses."""
    clock: Any = registry._servers._clock
    clock.now, clock.pause = lambda: 1000.0 + sum(pauses), pauses.append


@pytest.mark.parametrize(
    ("given", "seconds"), [("7", 7.0), ("soon", 0.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)]
)
def test_the_retry_after_header_determines_the_pause(
    server: RegistryServer, given: str, seconds: float
) -> None:
    pauses: list[float] = []
    registry = client(server.url, **{"default.api.timeout.ms": 60000, "retry.backoff.ms": 0})
    stopped(registry, pauses)
    server.wrong, server.more = [(429, {}), (503, {})], {"Retry-After": given}
    assert registry.get_subjects() == []
    assert pauses == [seconds, seconds]


def test_retry_after_is_respected_if_the_other_server_is_unreachable(
    server: RegistryServer,
) -> None:
    server.more, server.rule = {"Retry-After": "5"}, lambda _: (429, {})
    with registry_server() as other:
        dead = other.url
    limits = {"default.api.timeout.ms": 8000, "retry.backoff.ms": 1000}
    registry = client(f"{server.url},{dead}", **limits)
    pauses: list[float] = []
    stopped(registry, pauses)
    with pytest.raises(RegistryUnreachableError, match="limits the rate"):
        registry.get_subjects()
    assert len(server.asked) == 2
    assert 5 <= sum(pauses) <= 8


def test_a_retry_after_beyond_the_timeout_ends_the_call(server: RegistryServer) -> None:
    server.more, server.rule = {"Retry-After": "3600"}, lambda _: (503, {"message": "later"})
    with pytest.raises(RegistryUnreachableError, match="later"):
        client(server.url, **{"default.api.timeout.ms": 60000}).get_subjects()
    assert len(server.asked) == 1


def test_unexpected_responses_are_retried_until_the_timeout(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_client, "UNEXPECTED_RESPONSE_S", 30.0)
    server.wrong = [(404, b"starting"), (502, PAGE), (200, PAGE), (302, b"")]
    one = client(server.url, **{"default.api.timeout.ms": 60000})
    assert one.get_subjects() == []
    assert len(server.asked) == 5


def test_the_error_contains_the_text_of_the_registrys_response(server: RegistryServer) -> None:
    for answer, words in (
        ((404, PAGE), "HTTP 404: 404 no route"),
        ((200, PAGE), "HTTP 200: 404 no route"),
        ((400, b"no such \x1b[31mhost"), "no such .*host"),
        ((418, {"title": "Teapot", "detail": "I am one"}), "I am one"),
    ):
        server.rule = lambda _, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(SchemaRegistryError, match=words) as caught:
            client(server.url).get_subjects()
        assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (422, 42201, "InvalidSchemaError", "schema's text"),
        (422, 42202, "SchemaRegistryError", "Versions are numbers"),
        (422, 42205, "SchemaRegistryError", "READWRITE"),
        (422, 42206, "SchemaRegistryError", "reference it first"),
        (404, 40401, "SchemaNotFoundError", "subject.name.strategy"),
        (404, 40404, "SchemaNotFoundError", "was deleted"),
        (404, 40405, "SchemaRegistryError", "without permanent"),
        (409, 40405, "SchemaRegistryError", "without permanent"),
        (409, 409, "IncompatibleSchemaError", "compatibility level"),
        (404, 40408, "SchemaRegistryError", "default applies"),
    ],
)
def test_each_registry_error_code_has_its_error_class_and_remedy(
    server: RegistryServer, status: int, code: int, kind: str, words: str
) -> None:
    server.rule = lambda _: (status, {"error_code": code, "message": "said"})
    with pytest.raises(SchemaRegistryError, match=f"said.*{words}") as caught:
        client(server.url).get_subjects()
    assert (type(caught.value).__name__, caught.value.error_code) == (kind, code)


def test_the_error_of_a_registry_without_guids_says_so(server: RegistryServer) -> None:
    server.rule = lambda _: (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
    with pytest.raises(SchemaRegistryError, match="no GUIDs"):
        client(server.url).get_schema_by_guid("89791762-2336-186f-9674-299b90a8e2e2")
    recovers(server)
    with pytest.raises(SchemaNotFoundError) as caught:
        client(server.url).get_schema_by_guid("89791762-2336-186f-9674-299b90a8e2e2")
    assert caught.value.blames_record


def test_a_format_parameter_that_the_registry_rejects_is_left_out(server: RegistryServer) -> None:
    rows(server)
    server.wrong = [(400, {"error_code": 400, "message": "format"})]
    assert client(server.url).get_schema(1, "resolved").schema_str == AVRO


@pytest.mark.parametrize("status", [401, 403, 409])
def test_other_errors_are_not_treated_as_a_rejected_format_parameter(
    server: RegistryServer, status: int
) -> None:
    """If they were, the schema's text would be cached as its descriptor."""
    registry = client(server.url)
    number = registry.register_schema("p", Schema("message M {}", "PROTOBUF"))
    server.serialized = "the descriptor"
    server.wrong = [(status, PAGE)]
    with pytest.raises(SchemaRegistryError):
        registry.get_schema(number, "serialized")
    assert registry.get_schema(number, "serialized").schema_str == "the descriptor"


def clears_during(
    ask: Callable[[], object], registry: SchemaRegistryClient, server: RegistryServer
) -> Any:
    """Run `ask`; before it gets its response, clear the caches and recreate the registry."""
    real, left = registry._servers.call, [1]

    def call(*given: Any, **more: Any) -> Any:
        found = real(*given, **more)
        if left:
            left.clear()
            registry.clear_caches()
            server.schemas.reverse()
            ask()  # a call of another thread
        return found

    registry._servers.call = call  # type: ignore[method-assign]
    try:
        return ask()
    finally:
        registry._servers.call = real  # type: ignore[method-assign]


def test_a_response_from_before_clear_caches_is_not_cached(server: RegistryServer) -> None:
    of = SerializationContext("s", MessageField.VALUE)
    registry = client(server.url)
    server.schemas = [{"schema": '"string"'}, {"schema": '"bytes"'}]
    read = AvroDeserializer(registry)
    data = b"\0\0\0\0\1\2a"
    assert clears_during(lambda: read(data, of), registry, server) == "a"
    assert read(data, of) == b"\2a"
    server.subjects["s-value"] = [1, 2]
    write = AvroSerializer(registry, '"string"')
    clears_during(lambda: write("a", of), registry, server)
    assert write("a", of) == b"\0\0\0\0\1\2a"
    server.schemas[1] = {"schema": timestamp().schema_str, "schemaType": "PROTOBUF"}
    wrong = Schema(base64.b64encode(Duration.DESCRIPTOR.file.serialized_pb).decode(), "PROTOBUF")
    server.schemas[0] = {"schema": wrong.schema_str, "schemaType": "PROTOBUF"}
    parse = ProtobufDeserializer(Timestamp, registry)
    value = b"\0\0\0\0\2\0\x08\1"
    assert clears_during(lambda: fails_or(parse, value), registry, server) == Timestamp(seconds=1)
    with pytest.raises(DeserializationError, match="Duration"):
        parse(value)


def fails_or(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except DeserializationError as error:
        return error


def test_clear_caches_also_drops_parsed_references(server: RegistryServer) -> None:
    def inner(name: str) -> str:
        field = {"name": name, "type": "string"}
        return json.dumps({"type": "record", "name": "R", "fields": [field]})

    of = SerializationContext("t", MessageField.VALUE)
    registry = client(server.url)
    for subject, schema in (
        ("none", Schema(inner("apple"))),
        ("t-value", Schema(RECORD, "AVRO", NONE)),
        ("j", Schema('{"type": "number"}', "JSON")),
        ("o", Schema(OBJECT, "JSON", (SchemaReference("R", "j", 1),))),
    ):
        registry.register_schema(subject, schema)
    read, write = AvroDeserializer(registry), AvroSerializer(registry, Schema(RECORD, "AVRO", NONE))
    check = JSONDeserializer(None, None, registry)
    data = b"\0\0\0\0\2\2a"
    assert read(data, of) == {"r": {"apple": "a"}}
    assert write({"r": {"apple": "a"}}, of) == data
    assert check(b'\0\0\0\0\4{"r": 1}') == {"r": 1}
    server.schemas[0] = {"schema": inner("cherry")}
    server.schemas[2] = {"schema": JSON, "schemaType": "JSON"}
    registry.clear_caches()
    assert read(data, of) == {"r": {"cherry": "a"}}
    assert write({"r": {"cherry": "a"}}, of) == data
    assert check(b'\0\0\0\0\4{"r": "a"}') == {"r": "a"}


def test_a_long_wait_for_the_registry_is_logged(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest_client, "LOGGED_S", 0.01)
    server.rule = lambda _: None if caplog.messages else (500, {"message": "starting"})
    one = SchemaRegistryClient({"url": server.url, **QUICK})
    one.get_subjects()
    began, ended = caplog.messages
    assert began.startswith("schema registry: no usable response for ")
    assert began.endswith("; the call is retried until default.api.timeout.ms")
    assert ended.startswith("schema registry: answers again after ")
    caplog.clear()
    monkeypatch.setattr(rest_client, "LOGGED_S", 600.0)
    server.rule = lambda _: None
    one.get_subjects()
    assert not caplog.messages
