"""Test that aiokafka's keyword arguments are translated or rejected."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context as their_context

from odradek.common.config import CONSUMER, PRODUCER, Config
from odradek.compat.aiokafka import settings
from odradek.compat.aiokafka.abc import AbstractTokenProvider
from odradek.compat.aiokafka.coordinator.assignors.range import RangePartitionAssignor
from odradek.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from odradek.compat.aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor,
)
from odradek.compat.aiokafka.helpers import create_ssl_context
from odradek.compat.aiokafka.settings import MISSING, RefusedSettingError, servers
from odradek.network.sasl.oauthbearer import read_token
from odradek.runtime.credentials.token_functions import token_function


def usual(kind: Any, **changed: Any) -> dict[str, Any]:
    """Return all keyword arguments of an aiokafka client with their defaults, except `changed`."""
    found = dict(kind.__init__.__kwdefaults__)
    if "acks" in found:
        found["acks"] = MISSING
    else:
        found["partition_assignment_strategy"] = (RoundRobinPartitionAssignor,)
    return found | changed


def of_producer(**changed: Any) -> Config:
    return Config(PRODUCER, settings.producer_settings(usual(AIOKafkaProducer, **changed)))


def of_consumer(**changed: Any) -> Config:
    return Config(CONSUMER, settings.consumer_settings(usual(AIOKafkaConsumer, **changed)))


def test_a_producer_has_aiokafkas_defaults() -> None:
    config = of_producer()
    assert str(config["bootstrap.servers"][0]) == "localhost:9092"
    assert (config["acks"], config["enable.idempotence"]) == (1, False)
    assert config["max.in.flight.requests.per.connection"] == 1
    assert (config["batch.size"], config["linger.ms"]) == (16384, 0)
    assert (config["request.timeout.ms"], config["delivery.timeout.ms"]) == (40, 40)
    assert (config["max.block.ms"], config["default.api.timeout.ms"]) == (40, 40)
    assert config["max.request.size"] == 1 << 20
    assert config["compression.type"] == "none"
    assert config["transactional.id"] is None


def test_a_consumer_has_aiokafkas_defaults() -> None:
    config = of_consumer(group_id="board")
    assert config["auto.offset.reset"] == "latest"
    assert config["client.id"] == "aiokafka-0.14.0"
    assert (config["session.timeout.ms"], config["heartbeat.interval.ms"]) == (10, 3)
    assert config["max.poll.interval.ms"] == 300
    assert config["enable.auto.commit"] is True
    assert config["isolation.level"] == "read_uncommitted"
    assert config["allow.auto.create.topics"] is True
    assert list(config["partition.assignment.strategy"]) == ["roundrobin"]


@pytest.mark.parametrize("name", ["a", ".", "..", "é", "a/b", "x" * 300, "", " "])
def test_instance_ids_that_java_rejects_are_accepted(name: str) -> None:
    config = of_consumer(group_id="board", group_instance_id=name)
    assert config["group.instance.id"] == (name.strip() or None)


def test_an_idempotent_producer_uses_acks_all_and_has_no_timeout() -> None:
    config = of_producer(enable_idempotence=True, request_timeout_ms=1000)
    assert (config["acks"], config["enable.idempotence"]) == (-1, True)
    assert config["delivery.timeout.ms"] > 1e6
    assert config["max.in.flight.requests.per.connection"] == 5


def test_a_transactional_id_enables_idempotence() -> None:
    config = of_producer(transactional_id="t", transaction_timeout_ms=7000)
    assert config["enable.idempotence"] is True
    assert (config["transactional.id"], config["transaction.timeout.ms"]) == ("t", 7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": 2},
        {"acks": 1, "enable_idempotence": True},
        {"acks": 0, "transactional_id": "t"},
        {"compression_type": "brotli"},
        {"security_protocol": "TLS"},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_PLAINTEXT"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAINER"},
    ],
)
def test_producer_arguments_that_aiokafka_rejects_are_rejected(wrong: dict[str, Any]) -> None:
    async def theirs() -> None:
        AIOKafkaProducer(**wrong)

    with pytest.raises(ValueError):
        asyncio.run(theirs())
    with pytest.raises(ValueError):
        of_producer(**wrong)


@pytest.mark.parametrize("wrong", [{"max_poll_records": 0}, {"max_poll_records": "many"}])
def test_consumer_arguments_that_aiokafka_rejects_are_rejected(wrong: dict[str, Any]) -> None:
    async def theirs() -> None:
        AIOKafkaConsumer(**wrong)

    with pytest.raises(ValueError):
        asyncio.run(theirs())
    with pytest.raises(ValueError):
        of_consumer(**wrong)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password_are_translated(mechanism: str) -> None:
    config = of_producer(
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(),
        sasl_mechanism=mechanism,
        sasl_plain_username="ada",
        sasl_plain_password="pencil",  # noqa: S106
    )
    assert (config["sasl.mechanism"], config["sasl.username"]) == (mechanism, "ada")
    assert config["sasl.password"].reveal() == "pencil"
    assert "pencil" not in repr(config)


def test_the_kerberos_service_name_is_translated() -> None:
    config = of_producer(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="broker",
    )
    assert config["sasl.kerberos.service.name"] == "broker"


class Tokens(AbstractTokenProvider):
    async def token(self) -> str:
        await asyncio.sleep(0)
        return f"token-in-{id(asyncio.get_running_loop())}"

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


def test_a_token_provider_is_translated() -> None:
    """`unit/runtime/test_token_functions.py` tests that its coroutines run in the client's loop."""
    provider = Tokens()
    found = of_producer(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    token = read_token(token_function(found)())
    assert token.value.reveal().startswith("token-in-")
    assert token.extensions == {"traceId": "7"}


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (of_producer, {"sasl_kerberos_domain_name": "example.org"}),
        (of_consumer, {"group_id": "g", "partition_assignment_strategy": (dict,)}),
    ],
)
def test_unsupported_arguments_are_rejected_by_name(make: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(RefusedSettingError, match=list(wrong)[-1]):
        make(**wrong)


def test_assignors_are_translated_to_names() -> None:
    classes = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
    config = of_consumer(group_id="g", partition_assignment_strategy=classes)
    names = list(config["partition.assignment.strategy"])
    assert names == ["range", "roundrobin", "sticky"]


def test_each_argument_without_effect_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "_told", set())
    with caplog.at_level(logging.INFO, "odradek.compat"):
        for _ in range(2):
            of_consumer(check_crcs=False, consumer_timeout_ms=100, metadata_max_age_ms=1)
    said = [r.getMessage() for r in caplog.records if r.name == "odradek.compat"]
    assert [text.split()[0] for text in said] == ["check_crcs", "consumer_timeout_ms"]


def test_a_short_timeout_keeps_the_fetch_wait_below_the_request_timeout() -> None:
    config = of_consumer(request_timeout_ms=300)
    assert config["request.timeout.ms"] > config["fetch.max.wait.ms"]
    assert config["default.api.timeout.ms"] == 0.3


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("localhost", ["localhost:9092"]),
        ("a:1, b", ["a:1", "b:9092"]),
        (["a", "b:2"], ["a:9092", "b:2"]),
        ("[::1]:5", ["[::1]:5"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_addresses_without_a_port_get_the_default_port(given: Any, found: list[str]) -> None:
    assert servers(given) == found


@pytest.mark.parametrize("name", ["loop", "api_version"])
def test_deprecated_arguments_are_accepted_with_a_deprecation_warning(name: str) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        value: Any = loop if name == "loop" else "2.0"
        with pytest.warns(DeprecationWarning, match=name):
            found = settings.running_loop({"loop": None, "api_version": None, name: value})
        assert found is loop

    asyncio.run(program())


def test_a_tls_context_verifies_host_names_as_in_aiokafka() -> None:
    ours, theirs = create_ssl_context(), their_context()
    assert (ours.verify_mode, ours.check_hostname) == (theirs.verify_mode, theirs.check_hostname)
    with pytest.raises(FileNotFoundError):
        create_ssl_context(certfile="there-is-no-such-file.pem")


def test_idle_connections_are_never_closed_if_their_maximum_idle_time_is_none() -> None:
    for of in (of_producer, of_consumer):
        assert of(connections_max_idle_ms=None)["connections.max.idle.ms"] == math.inf


def test_fractional_times_and_integers_as_booleans_are_accepted() -> None:
    config = of_producer(linger_ms=0.5, request_timeout_ms=2000.5, enable_idempotence=1)
    assert (config["linger.ms"], config["request.timeout.ms"]) == (0.001, 2.001)
    assert config["enable.idempotence"] is True
    config = of_consumer(group_id="g", session_timeout_ms=9999.5, enable_auto_commit=0)
    assert (config["session.timeout.ms"], config["enable.auto.commit"]) == (10, False)
    assert of_consumer(exclude_internal_topics=0)["exclude.internal.topics"] is False
    assert of_consumer(client_id=None)["client.id"]


@pytest.mark.parametrize("wrong", [("localhost", 9092), b"localhost:9092", [None]])
def test_addresses_of_another_type_are_rejected(wrong: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers must be host:port"):
        servers(wrong)
