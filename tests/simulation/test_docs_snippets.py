"""Run the Python blocks of pages that no other test runs, as printed, in a simulated cluster."""

from __future__ import annotations

import ast
import logging
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import prometheus_client
import pyarrow
import pytest
from tests.registry_server import RegistryServer, registry_server

import odradek
from odradek.common.secret import Secret
from odradek.testing import Authority, KafkaSimulation

DOCS = Path(__file__).parents[2] / "docs"
HERE = {
    "configuration": 1,
    "kubernetes": 1,
    "monitoring": 5,
    "security": 4,
    "serialization": 5,
    "switching": 2,
}
"""Pages that are run here, and their numbers of blocks."""
ELSEWHERE = {
    "explain": "simulation/test_docs_explain.py",
    "guide": "integration/test_readme.py",
    "spark": "unit/spark/test_docs.py",
    "start": "integration/test_start_page.py",
    "testing": "unit/testing/test_docs_testing.py",
    "workers": "integration/test_readme.py",
}


def blocks(page: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(text: str, **names: Any) -> dict[str, Any]:
    exec(text, names)  # noqa: S102 - it is the page's
    return names


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as one:
        yield one


def test_every_page_with_python_is_run_by_a_test() -> None:
    pages = {page.stem for page in DOCS.glob("*.md") if blocks(page.stem)}
    assert pages == HERE.keys() | ELSEWHERE.keys()
    assert {page: len(blocks(page)) for page in HERE} == HERE
    for page, test in ELSEWHERE.items():
        assert f"{page}.md" in (DOCS.parent / "tests" / test).read_text(), test


def test_the_snippets_about_configuration_run(
    kafka_simulation: KafkaSimulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_simulation.answer_for("broker:9092")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").write_text("bootstrap.servers=broker:9092\nlinger.ms=20\n")
    made: list[odradek.Producer] = []

    class Kept(odradek.Producer):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)

    monkeypatch.setattr(odradek, "Producer", Kept)
    run(blocks("configuration")[0], odradek=odradek)
    assert len(made) == 3
    for one in made:
        one.close()


def test_the_kubernetes_snippet_exits_at_sigterm() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        run(blocks("kubernetes")[0])
        handler = signal.getsignal(signal.SIGTERM)
        assert callable(handler)
        frame: FrameType | None = None
        with pytest.raises(SystemExit):
            handler(signal.SIGTERM, frame)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_snippets_about_monitoring_run(
    kafka_simulation: KafkaSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, prometheus, telemetry = blocks("monitoring")[:3]
    kafka_simulation.create_topic("flights")
    kafka_simulation.produce("flights", [b"JFK"])
    producer = kafka_simulation.producer()
    consumer = kafka_simulation.consumer(auto_offset_reset="earliest")
    consumer.assign([odradek.TopicPartition("flights", 0)])
    assert len(consumer.poll(5.0)) == 1
    found = run(asking, consumer=consumer, logging=logging)["found"]
    assert found.value("records-lag", topic="flights", partition=0) == 0
    ports: list[int] = []
    own = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "REGISTRY", own)
    monkeypatch.setattr(prometheus_client, "start_http_server", ports.append)
    run(prometheus, odradek=odradek, producer=producer, consumer=consumer)
    assert ports == [9464]
    assert b"records_consumed_total" in prometheus_client.generate_latest(own)
    run(telemetry, odradek=odradek, producer=producer, consumer=consumer)


def test_the_security_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    login, *pages = blocks("security")
    authority = Authority(tmp_path)
    text = login.replace("/etc/kafka/authority.pem", str(authority.certificate))
    assert text != login
    run(text, odradek=odradek, password=Secret("word"))["producer"].close()
    names = {"token": "t", "ends_at": 9e9, "secret": Secret("s"), "key_id": "AKIA"}
    for node in (node for page in pages for node in ast.parse(page).body):
        if not isinstance(node, ast.Expr):
            exec(ast.unparse(node), names)  # noqa: S102 - it is the page's
            continue
        given = eval(ast.unparse(node.value), names)  # noqa: S307 - it is the page's
        more = {"bootstrap.servers": "broker:9092"}
        if "proxy.url" not in given:
            more |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        odradek.Producer({**more, **given}).close()


def test_the_snippets_about_serialization_run(
    kafka_simulation: KafkaSimulation, registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # the last block is run by tests/interop
    first, loop, columns, asking, _ = blocks("serialization")
    kafka_simulation.create_topic("flights")
    kafka_simulation.answer_for("localhost:9092")
    names = run(first.replace("https://registry:8081", registry.url))
    assert capsys.readouterr().out == "JFK\n"
    kafka_simulation.send("flights", b"no Avro").result()
    servers = {"bootstrap.servers": "localhost:9092"}
    config = {**servers, "auto.offset.reset": "earliest"}
    worked: list[Any] = []

    def work(record: Any) -> None:
        worked.append(record.value)
        if len(worked) == 2:
            raise KeyboardInterrupt

    read = odradek.serialization.AvroDeserializer(names["registry"])
    with odradek.Consumer(config, value_deserializer=read) as consumer:
        consumer.assign([odradek.TopicPartition("flights", 0)])
        kafka_simulation.send("flights", kafka_simulation.values("flights")[0]).result()
        given = {"RecordDeserializationError": odradek.errors.RecordDeserializationError}
        with pytest.raises(KeyboardInterrupt):
            run(loop, consumer=consumer, work=work, **given)
    assert worked == [{"to": "JFK"}, {"to": "JFK"}]
    assert "flights-0" in capsys.readouterr().out
    with odradek.Consumer(config) as consumer, odradek.Producer(servers) as producer:
        consumer.assign([odradek.TopicPartition("flights", 0)])
        given = {"registry": names["registry"], "write": names["write"], "pyarrow": pyarrow}
        given |= {n: getattr(odradek.serialization, n) for n in ("avro_to_arrow", "arrow_to_avro")}
        run(columns, consumer=consumer, producer=producer, **given)
        producer.flush(5.0)
    assert capsys.readouterr().out.startswith("1 ")  # the value that isn't Avro
    assert kafka_simulation.values("flights")[3:] == [
        kafka_simulation.values("flights")[0],
        None,
        kafka_simulation.values("flights")[0],
    ]
    here = {
        "registry": names["registry"],
        "Schema": odradek.serialization.Schema,
        "schema": names["schema"],
    }
    *kept, compatible, level = asking.splitlines()
    run("\n".join(kept), **here)
    registry.wrong = [(200, {"is_compatible": True}), (200, {"compatibility": "FULL"})]
    run(f"{compatible}\n{level}", **here, wider=names["schema"])
    assert registry.wrong == []


@pytest.mark.parametrize("block", [0, 1])
def test_the_snippets_with_options_of_other_clients_run(block: int) -> None:
    names = run(blocks("switching")[block])
    assert len(names) > 3
