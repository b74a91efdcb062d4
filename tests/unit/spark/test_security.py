"""Security options of Spark's source: they are passed to the clients, and always redacted."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest
from pyspark import cloudpickle

from odradek.common.config import CONSUMER, Config
from odradek.common.secret import Secret
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.options.source_options import BATCH, STREAM, SourceOptions, parse_options
from odradek.spark.tasks.worker_clients import fingerprint

PLANTED = "planted-Pa55"
GIVEN = {
    "kafka.bootstrap.servers": "b:9093",
    "Kafka.Security.Protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.scram."
    f"ScramLoginModule required username='alice' password='{PLANTED}';",
    "kafka.ssl.truststore.location": "/etc/trust.jks",
    "kafka.ssl.truststore.password": PLANTED,
    "subscribe": "t",
}


def client_of(options: SourceOptions) -> Config:
    return Config(CONSUMER, options.consumer_config("cluster"))


def ship(one: Any) -> Any:
    """Return an object after a round trip through pickle, as in a Spark worker process."""
    return pickle.loads(cloudpickle.dumps(one))  # type: ignore[no-untyped-call]  # noqa: S301


@pytest.mark.parametrize("query", [BATCH, STREAM])
def test_security_settings_of_the_jvm_connector_reach_the_client(query: str) -> None:
    options = parse_options(GIVEN, query)
    shipped = ship(options)
    for one in (options, shipped):
        found = client_of(one)
        assert found["security.protocol"] == "SASL_SSL"
        assert found["sasl.username"] == "alice"
        assert found["sasl.password"] == Secret(PLANTED)
        assert found["ssl.truststore.password"] == Secret(PLANTED)
        for shown in (repr(one), repr(one.kafka), repr(one.consumer_config(None)), repr(found)):
            assert PLANTED not in shown


def test_attributes_of_the_source_do_not_show_secrets() -> None:
    source = KafkaDataSource(dict(GIVEN))
    assert PLANTED not in repr(vars(source))
    shipped = ship(source)
    assert PLANTED not in repr(vars(shipped))
    options = parse_options(dict(shipped.options), BATCH)
    assert client_of(options)["sasl.password"] == Secret(PLANTED)


def test_pickled_partitions_do_not_contain_secrets(
    monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    """Tasks get the options with the pickled reader; its repr and its partitions lack them."""
    monkeypatch.setattr("odradek.spark.driver.batch_source.process_clients", lambda: cluster)
    source = KafkaDataSource(dict(GIVEN))
    reader = source.reader(source.schema())
    shown = [f"{reader!r} {vars(reader)!r}", *(str(pickle.dumps(p)) for p in reader.partitions())]
    assert len(shown) == 3
    assert PLANTED not in "".join(shown)
    assert PLANTED.encode() in pickle.dumps(reader)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kafka.sasl.mechanism": "PLAIN"}, "mechanism=PLAIN needs PlainLoginModule"),
        ({"kafka.sasl.jaas.config": PLANTED}, "login module"),
        ({"kafka.security.protocol": "TLS", "Kafka.Security.Protocol": "TLS"}, "must be one of"),
        ({"startingOffsets": "never"}, "startingOffsets"),
    ],
)
def test_errors_and_local_variables_do_not_show_secrets(
    change: dict[str, Any], problem: str
) -> None:
    source = KafkaDataSource({**GIVEN, **change})
    with pytest.raises(OptionError, match=problem) as caught:
        source.schema()
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert PLANTED not in str(caught.value)
    for frame in shown.stack:
        if "/src/odradek/" in frame.filename:
            assert PLANTED not in str(frame.locals), frame


def test_tasks_with_different_passwords_use_different_clients() -> None:
    first = parse_options(GIVEN, BATCH).consumer_config(None)
    second = {**first, "sasl.jaas.config": Secret("other")}
    names = {fingerprint(first), fingerprint(second), fingerprint(dict(first))}
    assert len(names) == 2
    assert all(PLANTED not in name for name in names)
