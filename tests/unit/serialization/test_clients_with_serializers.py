"""Test producers and consumers with serializers: conversions, and errors."""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import ref

import pytest
from confluent_kafka import serialization as theirs
from tests.registry_server import RegistryServer

from odradek import (
    ArgumentError,
    AsyncConsumer,
    AsyncProducer,
    ClientClosedError,
    ConfigurationError,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from odradek.common.errors.records import SchemaNotAtHandError
from odradek.errors import RecordDeserializationError, RegistryUnreachableError, SerializationError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    IntegerSerializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    StringDeserializer,
)
from odradek.serialization.record_reading import RecordReading
from odradek.serialization.record_writing import RecordWriting, serialized_put
from odradek.testing import FakeCluster

SCHEMA = '{"type": "record", "name": "F", "fields": [{"name": "id", "type": "int"}]}'
REGISTER = {"auto.register.schemas": True}
PARTITION = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(
        brokers=1, topics=["t", "u", "v", "w", "x", "y", "z", "arrow", "missing", "two:2"]
    ) as found:
        yield found


def registry(server: RegistryServer, timeout_ms: int = 5000) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": server.url, "default.api.timeout.ms": timeout_ms})


def servers(cluster: FakeCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}


def producer(cluster: FakeCluster, **more: Any) -> Producer[Any, Any]:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers}, **more)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def some(consumer: Consumer[object, object], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(5.0)
    return found


def test_functions_with_one_argument_can_be_serializers(cluster: FakeCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer[str, Any](settings, key_serializer=str.encode, value_serializer=dumped) as sender:
        for key, value in (("a", {"x": 1}), (None, [2]), ("b", None)):
            sender.send("t", value, key).result(10)
    with Consumer[str | None, Any](
        servers(cluster), key_deserializer=bytes.decode, value_deserializer=json.loads
    ) as consumer:
        consumer.assign({PARTITION: 0})
        found = some(consumer, 3)
    assert [(one.key, one.value) for one in found] == [("a", {"x": 1}), (None, [2]), ("b", None)]


def test_serializers_get_topic_field_and_headers_of_the_record(cluster: FakeCluster) -> None:
    """Test serializers written for confluent-kafka, and functions with two arguments."""

    def noted(value: Any, context: SerializationContext) -> bytes:
        context.headers.append(("noted", str(context.field).encode()))
        return f"{context.topic}:{value}".encode()

    with producer(
        cluster, key_serializer=theirs.IntegerSerializer(), value_serializer=noted
    ) as sender:
        sender.send("u", "x", 5, headers=[("mine", b"1")]).result(10)
    seen = []

    def read(value: bytes, ctx: SerializationContext | None = None) -> str:
        seen.append(ctx)
        return value.decode()

    with Consumer(
        servers(cluster),
        key_deserializer=theirs.IntegerDeserializer(),
        value_deserializer=read,
    ) as consumer:
        consumer.assign({TopicPartition("u", 0): 0})
        [record] = some(consumer, 1)
    assert (record.key, record.value) == (5, "u:x")
    assert record.headers == (("mine", b"1"), ("noted", b"value"))
    assert seen == [SerializationContext("u", MessageField.VALUE, list(record.headers))]


@pytest.mark.parametrize("way", [list, tuple, dict, iter, lambda given: (one for one in given)])
def test_headers_in_any_iterable_are_sent(cluster: FakeCluster, way: Any) -> None:
    """A serializer reads the headers before the producer does; an iterator can be read once."""
    given = [("mine", b"1"), ("yours", b"2")]
    topic = f"headers-{uuid4()}"
    cluster.create_topic(topic)
    with producer(cluster, value_serializer=lambda value, ctx: str(value).encode()) as sender:
        sender.send(topic, 5, headers=way(given)).result(10)
        with pytest.raises(ArgumentError, match="headers must be pairs"):
            sender.send(topic, 5, headers=5)  # type: ignore[arg-type]

    async def in_a_loop() -> None:
        tries = [SchemaNotAtHandError(lambda: None)]

        def later(value: int, ctx: Any) -> bytes:
            for error in tries:
                tries.clear()
                raise error
            return b"%d" % value

        config = {"bootstrap.servers": cluster.bootstrap_servers}
        async with AsyncProducer(config, value_serializer=later) as sender:
            await sender.send_and_wait(topic, 5, headers=way(given))
        assert tries == []

    asyncio.run(in_a_loop())
    with Consumer(servers(cluster)) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        assert [list(one.headers) for one in some(consumer, 2)] == [given, given]


async def given_later(value: Any) -> Any:
    return value


class Awaited:
    async def __call__(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    ("side", "given", "why"),
    [
        (
            "serializer",
            AvroDeserializer(SchemaRegistryClient({"url": "http://a"})),
            "pass a serializer",
        ),
        (
            "deserializer",
            IntegerSerializer(),
            "value_deserializer is an instance of IntegerSerializer",
        ),
        ("serializer", theirs.StringDeserializer(), "pass a serializer"),
        ("deserializer", theirs.StringSerializer(), "pass a deserializer"),
        ("deserializer", StringDeserializer, "the class StringDeserializer: pass an instance"),
        ("deserializer", partial(given_later), "value_deserializer is a coroutine function"),
        ("deserializer", Awaited(), "value_deserializer is a coroutine function"),
    ],
)
def test_a_serializer_of_the_wrong_kind_is_rejected_when_a_client_is_created(
    side: str, given: Any, why: str
) -> None:
    """Producers and consumers, blocking and asyncio, reject it before they connect."""
    settings = {"bootstrap.servers": "localhost:1"}
    makes: Any = (Producer, AsyncProducer) if side == "serializer" else (Consumer, AsyncConsumer)
    for make in makes:
        with pytest.raises(ConfigurationError, match=why):
            make(settings, **{f"value_{side}": given})


def test_classes_can_be_serializers_if_they_are_used_like_functions() -> None:
    for given in (str, bytes, lambda one: one, json.loads):
        Consumer({"bootstrap.servers": "localhost:1"}, value_deserializer=given).close()


def test_a_serializer_that_returns_a_coroutine_is_an_error() -> None:
    """That a function returns a coroutine is only known after the function was called."""
    record = ConsumerRecord("t", 0, 7, -1, 0, None, b"x", (), -1)
    with pytest.raises(RecordDeserializationError, match="isn't awaited here"):
        RecordReading(None, lambda one: given_later(one))([record])
    with pytest.raises(SerializationError, match="isn't awaited here"):
        RecordWriting(None, lambda one: given_later(one))("t", None, "x", None)


def test_a_record_that_cannot_be_serialized_is_not_sent(cluster: FakeCluster) -> None:
    with producer(cluster, key_serializer=IntegerSerializer(), value_serializer=dumped) as sender:
        with pytest.raises(SerializationError, match=r"value of a record for topic v .*TypeError"):
            sender.send("v", object(), 1)
        with pytest.raises(
            SerializationError, match=r"key of a record for topic v .*int of 4 bytes"
        ):
            sender.send("v", 1, "text")
        assert sender.send("v", 1, 1).result(10).offset == 0


def as_text(value: object) -> str:
    return str(value)


@pytest.mark.parametrize("field", ["key", "value"])
def test_the_error_names_a_serializer_that_does_not_return_bytes(field: str) -> None:
    given = {"key": None, "value": None, field: as_text}
    with pytest.raises(SerializationError) as caught:
        RecordWriting(**given)("t", 1, 2, None)
    assert str(caught.value) == (
        f"the {field} of a record for topic t can't be serialized: the result of "
        f"{field}_serializer (as_text) must be bytes (or a bytearray, memoryview or None), not "
        "str: use .encode()"
    )


def numbers(cluster: FakeCluster, topic: str, *values: bytes) -> None:
    with producer(cluster) as sender:
        for value in values:
            sender.send(topic, value, partition=0)


def as_int(value: bytes) -> int:
    found: int = struct.unpack(">i", value)[0]
    return found


def number(value: int) -> bytes:
    return struct.pack(">i", value)


@pytest.mark.parametrize("way", ["poll", "records"])
def test_a_record_that_cannot_be_deserialized_raises_until_the_application_seeks(
    cluster: FakeCluster, way: str
) -> None:
    topic = {"poll": "w", "records": "x"}[way]
    values = [number(0), number(1), b"bad", number(3), b"worse", number(5)]
    numbers(cluster, topic, *values)
    partition = TopicPartition(topic, 0)
    read: list[Any] = []
    errors: list[int] = []
    met: list[tuple[RecordDeserializationError, int]] = []
    with Consumer(servers(cluster), value_deserializer=as_int) as consumer:
        consumer.assign({partition: 0})
        while len(read) < 4:
            try:
                if way == "poll":
                    read += [one.value for one in consumer.poll(5.0)]
                else:
                    for record in consumer.records(5.0):
                        read.append(record.value)
                        if len(read) == 4:
                            break
            except RecordDeserializationError as error:
                met.append((error, consumer.position(partition)))
                if not errors or errors[-1] != error.offset:
                    errors.append(error.offset)  # each call reads the same record again
                    continue
                consumer.seek(error.partition, error.next_offset)
    assert (read, errors) == ([0, 1, 3, 5], [2, 4])
    for found, position in met:
        assert position == found.offset
        assert str(found).startswith(f"{topic}-0: the value of the record at offset")
        assert found.partition == partition
        assert isinstance(found.__cause__, struct.error)


def test_an_undeserializable_record_loses_no_records_of_other_partitions(
    cluster: FakeCluster,
) -> None:
    with producer(cluster) as sender:
        for at in range(100):
            sender.send("two", b"bad" if at == 50 else number(at), partition=0)
            sender.send("two", number(at), partition=1)
    read: list[Any] = []
    errors = 0
    with Consumer(servers(cluster), value_deserializer=as_int) as consumer:
        consumer.assign({TopicPartition("two", 0): 0, TopicPartition("two", 1): 0})
        while len(read) < 199:
            try:
                read += [(one.partition, one.value) for one in consumer.poll(5.0, 7)]
            except RecordDeserializationError as error:
                errors += 1
                consumer.seek(error.partition, error.next_offset)
    assert errors == 1
    assert sorted(read) == [(0, at) for at in range(100) if at != 50] + [
        (1, at) for at in range(100)
    ]


@pytest.mark.slow
def test_an_unavailable_registry_loses_no_records(
    cluster: FakeCluster, server: RegistryServer
) -> None:
    write = AvroSerializer(registry(server), SCHEMA, conf=REGISTER)
    with producer(cluster, value_serializer=write) as sender:
        for at in range(3):
            sender.send("y", {"id": at}).result(10)
    server.rule = lambda _: (503, {})
    read = AvroDeserializer(registry(server, 1500))
    with Consumer(servers(cluster), value_deserializer=read) as reader:
        reader.assign({TopicPartition("y", 0): 0})
        with pytest.raises(RegistryUnreachableError):
            some(reader, 1)
        server.rule = lambda _: None
        assert [one.value["id"] for one in some(reader, 3)] == [0, 1, 2]


def test_the_event_loop_runs_during_registry_requests(
    cluster: FakeCluster, server: RegistryServer
) -> None:
    """Registry requests are sent in another thread, so a slow registry doesn't block the loop."""
    ticks = 0
    turns: list[int] = []

    def slow(_: Any) -> None:
        before = ticks
        while ticks < before + 3:
            time.sleep(0.001)
        turns.append(ticks - before)

    server.rule = slow

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def run() -> list[Any]:
        ticking = asyncio.create_task(tick())
        write = AvroSerializer(registry(server), SCHEMA, conf=REGISTER)
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        async with AsyncProducer(config, value_serializer=write) as sender:
            for at in range(3):
                await sender.send_and_wait("z", {"id": at})
            delivery = await sender.send("z", {"id": 3})
            await delivery
        numbers(cluster, "z", b"bad")
        read = AvroDeserializer(registry(server), SCHEMA)
        found: list[Any] = []
        async with AsyncConsumer(servers(cluster), value_deserializer=read) as consumer:
            consumer.assign({TopicPartition("z", 0): 0})
            found += [one.value for one in await consumer.poll(5.0)]
            with pytest.raises(RecordDeserializationError, match="offset 4"):
                while True:
                    found += [one.value for one in await consumer.poll(5.0)]
            consumer.seek(TopicPartition("z", 0), 0)
            with pytest.raises(RecordDeserializationError):
                async for record in consumer.records(5.0):
                    found.append(record.value)
        ticking.cancel()
        return found

    assert asyncio.run(run()) == [{"id": at} for at in (0, 1, 2, 3)] * 2
    assert turns


def test_a_schema_that_the_registry_lacks_is_reported_as_an_error_of_the_record(
    cluster: FakeCluster, server: RegistryServer
) -> None:
    """Test both consumers; the call must also end if the latest version's TTL is zero."""
    numbers(cluster, "missing", b"\0\0\0\0\x63\2", b"\0\0\0\0\1\2")
    registry(server).register_schema("missing-value", Schema(SCHEMA))
    partition = TopicPartition("missing", 0)
    settings = {"url": server.url, "cache.latest.ttl.sec": 0}
    read = AvroDeserializer(SchemaRegistryClient(settings), conf={"use.latest.version": True})
    with Consumer(servers(cluster), value_deserializer=read) as consumer:
        consumer.assign({partition: 0})
        with pytest.raises(RecordDeserializationError, match="offset 0 .*HTTP 404"):
            some(consumer, 1)

    async def run() -> Any:
        async with AsyncConsumer(servers(cluster), value_deserializer=read) as reader:
            reader.assign({partition: 0})
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="offset 0 .*HTTP 404"):
                    while not await reader.poll(5.0):
                        pass
            reader.seek(partition, 1)
            while not (found := await reader.poll(5.0)):
                pass
            return found[0].value

    assert asyncio.run(run()) == {"id": 1}


def test_arrow_batches_are_not_deserialized(cluster: FakeCluster) -> None:
    numbers(cluster, "arrow", b"text")
    with Consumer(servers(cluster), value_deserializer=StringDeserializer()) as consumer:
        consumer.assign({TopicPartition("arrow", 0): 0})
        batch = consumer.poll_arrow(5.0, columns=["value"])
    assert batch is not None
    assert batch.column(0)[0].as_py() == b"text"


async def awaited(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize("given", [5, "json", awaited])
@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_a_serializer_that_is_not_callable_is_rejected(kind: Any, given: Any) -> None:
    option = "value_serializer" if kind is Producer else "value_deserializer"
    with pytest.raises(ConfigurationError, match=f"{option} "):
        kind({"bootstrap.servers": "localhost:1"}, **{option: given})


def test_an_unreferenced_producer_is_freed_without_the_garbage_collector(
    cluster: FakeCluster,
) -> None:
    one = producer(cluster, value_serializer=dumped)
    one.close()
    kept = ref(one)
    gc.disable()
    try:
        del one
        assert kept() is None
    finally:
        gc.enable()


def test_the_error_for_an_unreferenced_producer_says_to_keep_it(cluster: FakeCluster) -> None:
    with pytest.raises(ClientClosedError, match="keep it in a variable"):
        producer(cluster, value_serializer=str.encode).send("t", "x")


def test_the_error_for_an_unreferenced_asyncio_producer_says_to_keep_it() -> None:
    kept: Any = Kept()
    send = serialized_put(kept, None, str.encode)
    del kept
    gc.collect()
    with pytest.raises(ClientClosedError, match="keep it in a variable"):
        asyncio.run(send("t", "x"))


class Kept:
    """A fake producer that the test can keep alive."""
