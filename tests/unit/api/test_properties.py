"""Test `read_properties`, which reads the settings files of other Kafka clients unchanged."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.common.config import Config
from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret

CLIENTS = pytest.mark.parametrize("make", [odradek.Producer, odradek.Consumer, odradek.Admin])
JAVA = r"""
# as a Java application has it
bootstrap.servers=b1:9093,b2:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="planted-Pa55";
ssl.truststore.location=/etc/trust.jks
ssl.truststore.password=planted-Pa55
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.serializer=org.apache.kafka.common.serialization.StringSerializer
metric.reporters=com.example.Reporter
schema.registry.url=https://registry
session.timeout.ms=45000
acks=all
"""
LIBRDKAFKA = """
metadata.broker.list=b1:9093
security.protocol=sasl_ssl
sasl.mechanisms=PLAIN
sasl.username=alice
sasl.password=planted-Pa55
ssl.ca.location=/etc/ca.pem
socket.keepalive.enable=true
log_level=7
debug=broker,security
statistics.interval.ms=1000
queue.buffering.max.ms=5
"""


def assert_secret_not_shown(error: BaseException) -> None:
    """Check that neither the error nor local variables of odradek's frames contain the password."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame.locals for frame in shown.stack if "/src/odradek/" in frame.filename]
    assert ours
    assert "planted" not in f"{error} {ours}"


def properties_file(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text)
    return path


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
@pytest.mark.parametrize(("text", "mechanism"), [(JAVA, "SCRAM-SHA-512"), (LIBRDKAFKA, "PLAIN")])
def test_java_and_librdkafka_files_are_read_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, client: str, text: str, mechanism: str
) -> None:
    caplog.set_level(logging.WARNING)
    found = odradek.read_properties(properties_file(tmp_path, text), client)
    assert "planted" not in repr(found)
    settled = Config(client, found)
    assert settled["sasl.mechanism"] == mechanism
    assert settled["sasl.username"] == "alice"
    assert settled["sasl.password"] == Secret("planted-Pa55")
    (record,) = caplog.records
    message = record.getMessage()
    assert "these settings have no effect in this client:" in message
    assert ("metric.reporters" if text == JAVA else "log_level") in message
    assert ("acks" in message) == (client != "producer" and text == JAVA)
    assert "planted" not in message


def test_unknown_options_in_a_file_are_rejected(tmp_path: Path) -> None:
    path = properties_file(tmp_path, "bootstrap.servers=b:1\nsecurity.protokol=SSL\n")
    found = odradek.read_properties(path)
    with pytest.raises(ConfigurationError, match="did you mean security.protocol"):
        odradek.Admin(found)
    with pytest.raises(
        odradek.errors.UnsupportedFeatureError, match=r"such as \$\{file:…\} aren't resolved"
    ):
        odradek.Admin(odradek.read_properties(properties_file(tmp_path, "config.providers=file\n")))


def test_options_of_other_clients_in_a_dict_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'key.deserializer'"):
        odradek.Consumer({"bootstrap.servers": "b:1", "key.deserializer": "x"})


def test_a_topic_as_first_argument_is_read_as_a_file_path() -> None:
    """In aiokafka and kafka-python the first argument is a topic."""
    with pytest.raises(
        ConfigurationError, match=r"flights can't be read: .*path of a properties file"
    ):
        odradek.AsyncConsumer("flights", bootstrap_servers="b:1")


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read: No such file"):
        odradek.read_properties(tmp_path / "none")
    path = tmp_path / "binary"
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigurationError, match="isn't UTF-8"):
        odradek.read_properties(path)
    with pytest.raises(ConfigurationError, match="producer, consumer or admin, not 'broker'"):
        odradek.read_properties(path, "broker")


@CLIENTS
def test_a_configuration_error_shows_no_secret(make: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(
            {"bootstrap.servers": "b:1", "sasl.password": "planted-Pa55"},
            sasl_jaas_config="planted-Pa55",
            security_protocol="NONE",
        )
    assert_secret_not_shown(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\n{"sasl.password": "planted-Pa55"}', "line 2: the file is JSON"),
        ('[{"sasl.password": "planted-Pa55"}]', r"line 1: the file is JSON.*json\.load"),
        ("acks=all\nsasl.password=planted-Pa55\n\n[planted-Pa55]\n", "line 4: expected name=value"),
        ("a=b\\\n c\n=planted-Pa55", "line 3: expected name=value"),
    ],
)
def test_a_malformed_file_is_reported_with_its_line_number_but_not_its_text(
    tmp_path: Path, text: str, says: str
) -> None:
    path = properties_file(tmp_path, text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        odradek.read_properties(path)
    assert str(path) in str(caught.value)
    assert_secret_not_shown(caught.value)


@pytest.mark.parametrize("path", [None, 5, b"x", "a\0b", "\ud800", ["x"], object()])
def test_a_path_of_a_wrong_type_is_rejected(path: Any) -> None:
    with pytest.raises(ConfigurationError, match="path must be the path of a file"):
        odradek.read_properties(path)


@CLIENTS
@pytest.mark.parametrize("config", [5, ["a"]])
def test_the_error_for_a_wrong_config_argument_says_what_to_pass(make: Any, config: Any) -> None:
    with pytest.raises(odradek.ArgumentError, match=r"config must be a dict.*read_properties\("):
        make(config)


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.pasword", "password", "passwd", "SASL.PASSWORD", "sasl.plain.passwd", "pwd"),
        *("client.secret", "api.key", "sasl.jaas", "token", "sasl__password"),
    ],
)
@CLIENTS
def test_a_secret_under_an_unknown_option_is_not_shown(make: Any, name: str) -> None:
    for given in ({name: "planted-Pa55"}, {"bootstrap.servers": "b:1", name: b"planted-Pa55"}):
        with pytest.raises(ConfigurationError, match="unknown option") as caught:
            make(given)
        assert_secret_not_shown(caught.value)
    with pytest.raises(ConfigurationError, match="client.properties can't be read") as caught:
        make("client.properties", **{name: "planted-Pa55"})
    assert_secret_not_shown(caught.value)


@CLIENTS
def test_a_secret_in_a_config_that_is_no_dict_is_not_shown(make: Any) -> None:
    for given in ("sasl.password=planted-Pa55", [("sasl.password", "planted-Pa55")]):
        with pytest.raises(ConfigurationError) as caught:
            make(given)
        assert_secret_not_shown(caught.value)


@pytest.mark.parametrize("content", ["sasl.password=planted-Pa55", "acks=all\nx: planted-Pa55\n"])
def test_file_content_passed_as_a_path_is_not_shown(content: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        odradek.read_properties(content)
    assert "planted" not in str(caught.value)


def test_addresses_as_bytes_are_rejected() -> None:
    for given in (b"127.0.0.1:9", [b"127.0.0.1:9"], bytearray(b"h:1")):
        with pytest.raises(ConfigurationError, match=r"bootstrap.servers must be a str.*decode"):
            odradek.Admin({"bootstrap.servers": given})


@pytest.mark.parametrize("client", [odradek.Producer, odradek.Consumer, odradek.Admin])
@pytest.mark.parametrize("form", [str, Path])
def test_a_client_reads_its_settings_from_the_file_at_a_path(
    client: Any, form: Any, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=kafka://h:1,h:2\nclient.id=me\nlinger.ms=5\ngroup.id=g\n")
    made = client(form(file), retry_backoff_ms=50)
    assert repr(made) == f"<{client.__name__} me of h:1,h:2>"
    made.close()
    with pytest.raises(ConfigurationError, match="can't be read"):
        client(form(tmp_path / "nowhere"))


def test_a_huge_or_endless_file_is_not_read_completely(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    for path in (large, Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match="it has more than 1048576 bytes"):
            odradek.Producer(path)
    assert odradek.read_properties("/dev/null") == {}


@pytest.mark.parametrize("text", ["localhost:9092", "h1:9092,h2:9092", "SSL://h:1"])
def test_the_error_for_an_address_as_first_argument_says_what_to_pass(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r'to set brokers, pass \{"bootstrap.servers": "'
    ) as e:
        odradek.Producer(text)
    assert text in str(e.value)
