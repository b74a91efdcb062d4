"""Test KIP-714 with a real broker that has a receiver: our pushes are the same as Java's.

The receiver is a small Java class, compiled here; without `javac` (a JRE has none) the tests can't
run.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from tests.interop.group_members import end_program, java_program
from tests.time_limits import HANG_S

from odradek import Admin, Consumer, NewTopic, Producer
from odradek.admin import AlterConfigOp, ConfigResource
from odradek.record.compression import decompress
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.testing import FakeCluster, LocalCluster, jars
from odradek.testing.java import java_home

RECORDS = 20
PATIENCE = 60.0
SENT = "org.apache.kafka.producer.record.send.total"
CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
WORK = (SENT, CONSUMED, "org.apache.kafka.consumer.coordinator.commit.total",
        "org.apache.kafka.producer.topic.byte.total")  # fmt: skip


class Push(NamedTuple):
    """One push as the broker's receiver got it."""

    last: bool
    instance: str
    client_id: str
    resource: dict[str, str]
    metrics: list[Metric]


def compiled(folder: Path) -> Path:
    """Return a jar with the receiver, which is added to the class path as an agent."""
    javac = java_home() / "bin" / "javac"
    if not javac.exists():
        javac = Path(shutil.which("javac") or "javac")
    clients = jars.fetch(jars.DEFAULT_VERSION) / "*"
    source = Path(__file__).with_name("PushReceiver.java")
    command = [str(javac), "--release", "17", "-cp", str(clients), "-d", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=HANG_S)
    made = folder / "receiver.jar"
    with zipfile.ZipFile(made, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nPremain-Class: PushReceiver\n")
        for file in folder.glob("PushReceiver*.class"):
            jar.write(file, file.name)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pushes")


@pytest.fixture(scope="module")
def brokers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    jar = compiled(tmp_path_factory.mktemp("classes"))
    options = [f"-javaagent:{jar}", f"-Dpush.folder={folder}"]
    config = {"metric.reporters": "PushReceiver"}
    with LocalCluster(brokers=1, config=config, java_options=options) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in ("java", "odradek")])
            wanted = [AlterConfigOp("metrics", "*"), AlterConfigOp("interval.ms", "1000")]
            admin.incremental_alter_configs({ConfigResource("CLIENT_METRICS", "all"): wanted})
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not pushed(
            folder, "early"
        ):  # the broker may not have the configuration yet
            with Producer(bootstrap_servers=running.bootstrap_servers, client_id="early") as early:
                early.warm("odradek")
                time.sleep(0.2)
        yield running


def parsed(last: bool, instance: str, client_id: str, data: bytes) -> Push:
    metrics, attributes = list[Metric](), dict[str, str]()
    for resource in MetricsData.FromString(data).resource_metrics:
        attributes |= {a.key: a.value.string_value for a in resource.resource.attributes}
        metrics += [metric for scope in resource.scope_metrics for metric in scope.metrics]
    return Push(last, instance, client_id, attributes, metrics)


def pushed(folder: Path, client_id: str) -> list[Push]:
    """Return the pushes that the real broker's receiver has written to files."""
    found = []
    for file in sorted(folder.iterdir()):
        if file.suffix != ".part":
            _, last, instance, client = file.name.split(",", 3)
            if client == client_id:
                found.append(parsed(last == "true", instance, client, file.read_bytes()))
    return found


def received(brokers: FakeCluster, action: Callable[[], None]) -> list[Push]:
    """Return the pushes that simulated brokers received during an action."""
    receiver = TelemetryReceiver(interval=1.0, compression_types=(4, 3, 1, 2))
    cluster = brokers._cluster
    brokers._call(lambda: cluster.receive_telemetry(receiver))
    action()
    return [
        parsed(
            one.terminating,
            one.client_instance_id.hex(),
            "",
            bytes(decompress(one.compression_type, memoryview(one.metrics)))
            if one.compression_type
            else one.metrics,
        )
        for one in receiver.pushed
    ]


def tags_of(point: object) -> frozenset[tuple[str, str]]:
    return frozenset((a.key, a.value.string_value) for a in point.attributes)  # type: ignore[attr-defined]


def totals(pushes: list[Push]) -> dict[tuple[str, frozenset[str]], float]:
    """Return the sums of all deltas, by metric name and the names of attributes."""
    found: dict[tuple[str, frozenset[str]], float] = defaultdict(float)
    for push in pushes:
        for metric in push.metrics:
            for point in metric.sum.data_points:
                names = frozenset(tag for tag, _ in tags_of(point))
                found[metric.name, names] += point.as_int or point.as_double
    return found


def pushes_of(name: str, **sides: list[Push]) -> str:
    """Return a line for each push and point of a metric: side, client, time, tags and delta.

    Java has two points with the same name in each push, one for each topic and one for all.
    """
    return "\n".join(
        f"{side} {push.instance} {push.last} {point.time_unix_nano / 1e9:.3f} "
        f"{sorted(tags_of(point))} {point.as_int or point.as_double:g}"
        for side, pushes in sides.items()
        for push in pushes
        for metric in push.metrics
        if metric.name == name
        for point in metric.sum.data_points
    )


def run_clients(servers: str) -> None:
    """Run the same work as MetricNames.java."""
    config = {"bootstrap.servers": servers, "client.id": "ours"}
    with Producer(config) as producer:
        for n in range(RECORDS):
            producer.send("odradek", bytes(100), partition=0).result(30.0)
            if n == RECORDS // 2:
                time.sleep(2.5)  # so that there is a push before the last one
    reading = {"group.id": "ours", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({**config, **reading}) as consumer:
        consumer.subscribe(["odradek"])
        read = 0
        while read < RECORDS:
            read += len(consumer.poll(1.0))
        consumer.commit()
        consumer.poll(0.6)


def run_java_clients(servers: str) -> float:
    """Run MetricNames.java and return how many records Java's consumer counted."""
    words = servers, "java", str(RECORDS), "java-group", "2500"
    process = java_program(Path(__file__).with_name("MetricNames.java"), *words)
    try:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    finally:
        end_program(process)
    lines = [line.split("\t") for line in said.splitlines()]
    (read,) = (
        float(value)
        for _, name, tags, value in lines
        if name == "records-consumed-total" and tags == "client-id=me"
    )
    if read != RECORDS:  # happened once, on a busy machine; the push must agree
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # a warning would be an error here
            warnings.warn(f"Java's consumer read {read:g} records of {RECORDS}", stacklevel=1)
    return read


def compare(ours: list[Push], javas: list[Push], read: float) -> None:
    """Compare the pushes; `read`: how many records Java's consumer counted."""
    assert javas, "nothing came of Java's clients either"
    producers = {p.instance for p in ours if any(m.name == SENT for m in p.metrics)}
    consumers = {p.instance for p in ours if any(m.name == CONSUMED for m in p.metrics)}
    assert (len(producers), len(consumers)) == (1, 1), "each has an id, and keeps it"
    of_producer = [p for p in ours if p.instance in producers]
    assert [p.last for p in of_producer][-1:] == [True]
    assert len(of_producer) > 1
    assert not any(p.last for p in of_producer[:-1])
    of_consumer = [p for p in ours if p.instance in consumers]
    assert {p.resource["group_id"] for p in of_consumer} == {"ours"}
    attributes = {key for p in of_consumer for key in p.resource}
    assert attributes == {key for p in javas for key in p.resource}
    mine, theirs = totals(ours), totals(javas)
    for name in WORK:
        same = {key: value for key, value in mine.items() if key[0] == name}
        assert same, name
        pushed_by_both = pushes_of(name, ours=ours, java=javas)
        for key, value in same.items():
            if key == (CONSUMED, frozenset()):
                assert (value, theirs[key]) == (RECORDS, read), pushed_by_both
            elif name != CONSUMED or read == RECORDS:
                assert value == theirs[key], pushed_by_both
    kinds = {m.name: m.WhichOneof("data") for p in javas for m in p.metrics}
    shared = {m.name: m.WhichOneof("data") for p in ours for m in p.metrics if m.name in kinds}
    assert len(shared) > 20
    assert {name: kinds[name] for name in shared} == shared


def test_pushes_to_simulated_brokers_are_the_same_as_javas() -> None:
    with FakeCluster(1, topics=["java", "odradek"]) as brokers:
        servers = brokers.bootstrap_servers
        ours = received(brokers, lambda: run_clients(servers))
        read: list[float] = []
        javas = received(brokers, lambda: read.append(run_java_clients(servers)))
        compare(ours, javas, *read)


@pytest.mark.long  # shorter tests: the test above
def test_pushes_to_a_real_broker_are_the_same_as_javas(brokers: LocalCluster, folder: Path) -> None:
    run_clients(brokers.bootstrap_servers)
    read = run_java_clients(brokers.bootstrap_servers)
    compare(pushed(folder, "ours"), pushed(folder, "me"), read)
