"""Test that confluent-kafka's settings are translated or rejected."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.common.options import ignored_settings
from odradek.common.options.ignored_settings import COSTLY
from odradek.compat.confluent_kafka import KafkaError, KafkaException
from odradek.compat.confluent_kafka.settings import FOREVER, Given, checked_seconds, given

SERVER = {"bootstrap.servers": "localhost:9092"}


def of(kind: str, **settings: Any) -> tuple[Given, Config]:
    names = {name.replace("__", "."): value for name, value in settings.items()}
    group = {"group.id": "g"} if kind == CONSUMER else {}
    found = given(kind, {**SERVER, **group, **names})
    return found, Config(kind, found.ours)


def test_a_producer_has_librdkafkas_defaults() -> None:
    found, config = of(PRODUCER)
    assert (found.most_messages, found.most_bytes) == (100_000, 1 << 30)
    assert config["delivery.timeout.ms"] == config["max.block.ms"] == 300
    assert config["max.request.size"] == 1_000_000
    assert config["partitioner"] == "consistent_random"
    assert config["buffer.memory"] > found.most_bytes
    assert not found.only_errors
    assert not found.transactional


def test_a_consumer_has_librdkafkas_defaults() -> None:
    found, config = of(CONSUMER)
    assert config["isolation.level"] == "read_committed"
    assert config["auto.offset.reset"] == "latest"
    assert list(config["partition.assignment.strategy"]) == ["range", "roundrobin"]
    assert config["allow.auto.create.topics"] is False
    assert config["enable.auto.commit"] is True
    assert (found.store_offsets, found.commit_every, found.partition_eof) == (True, None, False)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *((name, name) for name in ("a", ".", "..", "é", "a/b", "x" * 300)),
        *((7, "7"), ("", None), (" ", None)),
    ],
)
def test_instance_ids_that_java_rejects_are_accepted(theirs: Any, ours: str | None) -> None:
    assert of(CONSUMER, group__instance__id=theirs)[1]["group.instance.id"] == ours


@pytest.mark.parametrize(("session", "heartbeat"), [("1000", 0.333), (3001, 3), (2, 0.001)])
def test_a_short_session_timeout_shortens_the_heartbeat_interval(
    session: Any, heartbeat: float
) -> None:
    assert of(CONSUMER, session__timeout__ms=session)[1]["heartbeat.interval.ms"] == heartbeat


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(("smallest", "earliest"), ("beginning", "earliest"), ("EARLIEST", "earliest")),
        *(("end", "latest"), ("error", "none")),
    ],
)
def test_librdkafkas_values_of_auto_offset_reset_are_accepted(theirs: str, ours: str) -> None:
    assert of(CONSUMER, auto__offset__reset=theirs)[1]["auto.offset.reset"] == ours


@pytest.mark.parametrize(
    "changed", [{"enable__auto__offset__store": "false"}, {"on_commit": print}]
)
def test_the_compat_module_commits_if_the_application_stores_offsets_or_sets_on_commit(
    changed: dict[str, Any],
) -> None:
    found, config = of(CONSUMER, **changed, auto__commit__interval__ms="250")
    assert (found.commit_every, config["enable.auto.commit"]) == (0.25, False)


def test_without_auto_commit_the_compat_module_commits_nothing() -> None:
    found, config = of(CONSUMER, enable__auto__commit=False, enable__auto__offset__store=False)
    assert (found.commit_every, config["enable.auto.commit"]) == (None, False)


def test_librdkafkas_alternative_names_of_settings_are_accepted() -> None:
    _, config = of(
        PRODUCER,
        **{
            "metadata.broker.list": "other:1",
            "queue.buffering.max.ms": 7,
            "request.required.acks": "1",
            "message.send.max.retries": 3,
            "compression.codec": "zstd",
            "compression.level": 9,
            "security.protocol": "plaintext",
            "delivery.timeout.ms": 5000,
            "bootstrap.servers": None,
        },
    )
    assert config["linger.ms"] == 0.007
    assert (config["acks"], config["retries"], config["enable.idempotence"]) == (1, 3, False)
    assert (config["compression.type"], config["compression.zstd.level"]) == ("zstd", 9)
    assert config["delivery.timeout.ms"] == config["max.block.ms"] == 5


def test_default_topic_config_is_merged_into_the_settings() -> None:
    _, config = of(PRODUCER, **{"default.topic.config": {"message.timeout.ms": 1000, "acks": 1}})
    assert (config["delivery.timeout.ms"], config["acks"]) == (1, 1)
    both = {"message.timeout.ms": 9000, "default.topic.config": {"message.timeout.ms": 1000}}
    assert of(PRODUCER, **both)[1]["delivery.timeout.ms"] == 1
    with pytest.raises(TypeError):
        of(PRODUCER, **{"default.topic.config": 3})


def test_a_message_timeout_of_0_means_no_timeout() -> None:
    assert of(PRODUCER, message__timeout__ms=0)[1]["delivery.timeout.ms"] > 1e6


@pytest.mark.parametrize(("in_flight", "ordered"), [(5, True), ("6", False), (1000000, False)])
def test_many_requests_in_flight_disable_idempotence(in_flight: Any, ordered: bool) -> None:
    assert of(PRODUCER, max__in__flight=in_flight)[1]["enable.idempotence"] is ordered


def test_a_producer_with_a_transactional_id_is_recognized_as_transactional() -> None:
    assert of(PRODUCER, transactional__id="clerk")[0].transactional


@pytest.mark.parametrize(
    ("kind", "settings", "word"),
    [
        (PRODUCER, {"no.such.setting": 1}, "no.such.setting"),
        (PRODUCER, {"linger_ms": 1}, "linger_ms"),
        (PRODUCER, {"dr_cb": print}, "on_delivery"),
        (PRODUCER, {"throttle_cb": print}, "throttle_cb"),
        (PRODUCER, {"stats_cb": print, "statistics.interval.ms": -1}, "statistics.interval.ms"),
        (PRODUCER, {"stats_cb": print, "statistics.interval.ms": "often"}, "statistics.interval"),
        (PRODUCER, {"plugin.library.paths": "x"}, "plugin.library.paths"),
        (PRODUCER, {"ssl.engine.location": "x"}, "ssl.engine.location"),
        (PRODUCER, {"queue.buffering.max.messages": "many"}, "queue.buffering.max.messages"),
        (PRODUCER, {"queue.buffering.max.kbytes": 0}, "queue.buffering.max.kbytes"),
        (PRODUCER, {"on_commit": print}, "on_commit"),
        (CONSUMER, {"on_delivery": print}, "on_delivery"),
        (CONSUMER, {"group.id": "g", "auto.offset.reset": "nowhere"}, "nowhere"),
        (CONSUMER, {"group.id": "g", "enable.partition.eof": "perhaps"}, "enable.partition.eof"),
        (ADMIN, {"no.such.setting": 1}, "no.such.setting"),
    ],
)
def test_unsupported_settings_are_rejected_by_name(
    kind: str, settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(KafkaException, match=word) as raised:
        given(kind, {**SERVER, **settings})
    assert raised.value.args[0] == KafkaError._INVALID_ARG


@pytest.mark.parametrize("wrong", [None, "localhost", 3])
def test_a_configuration_that_is_no_dict_is_rejected(wrong: Any) -> None:
    with pytest.raises(TypeError, match="dict"):
        given(PRODUCER, wrong)


def test_a_consumer_without_a_group_id_is_rejected() -> None:
    with pytest.raises(ValueError, match="group.id"):
        given(CONSUMER, SERVER)


def test_callbacks_that_are_not_callable_are_rejected() -> None:
    for name, kind in (("error_cb", TypeError), ("oauth_cb", TypeError), ("stats_cb", TypeError)):
        with pytest.raises(kind, match=name):
            given(PRODUCER, {**SERVER, name: 3})
    with pytest.raises(ValueError, match="throttle_cb"):
        given(PRODUCER, {**SERVER, "throttle_cb": 3})


def test_log_level_is_accepted_although_its_name_contains_an_underscore() -> None:
    found, _ = of(PRODUCER, log_level=3)
    assert not [name for name in found.ours if name.startswith("log")]
    with pytest.raises(KafkaException, match='No such configuration property: "linger_ms"'):
        given(PRODUCER, {**SERVER, "linger_ms": 3})


@pytest.fixture
def no_setting_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored_settings, "_told", set())


@pytest.mark.usefixtures("no_setting_was_reported")
def test_settings_of_other_kinds_of_clients_cause_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """librdkafka also logs a warning."""
    _, config = of(PRODUCER, **{"group.id": "g", "enable.partition.eof": True, "acks": 1})
    found, _ = of(
        CONSUMER,
        **{"linger.ms": 3, "queue.buffering.max.messages": 5, "compression.level": 3},
        **{"delivery.report.only.error": True, "partitioner.rack.aware": "true"},
    )
    of(ADMIN, **{"socket.timeout.ms": 1000, "auto.offset.reset": "end"})
    of_producers = "linger.ms, queue.buffering.max.messages, compression.level"
    assert {r.levelname for r in caplog.records} == {"WARNING"}
    assert [r.getMessage() for r in caplog.records] == [
        "group.id, enable.partition.eof have no effect on a producer, only on consumers",
        f"partitioner.rack.aware has no effect on a consumer: {COSTLY['partitioner.rack.aware']}",
        f"{of_producers} have no effect on a consumer, only on producers",
        "auto.offset.reset has no effect on an admin, only on consumers",
    ]
    assert "linger.ms" not in found.ours
    assert config["acks"] == 1


def test_topic_metadata_refresh_interval_sets_the_maximum_age_of_metadata() -> None:
    name = "topic.metadata.refresh.interval.ms"
    for kind in (PRODUCER, CONSUMER, ADMIN):
        assert of(kind, **{name: 7000, "metadata.max.age.ms": 9000})[1]["metadata.max.age.ms"] == 7
        assert of(kind, **{name: -1})[1]["metadata.max.age.ms"] > 1e9


@pytest.mark.usefixtures("no_setting_was_reported")
def test_a_setting_of_the_schema_registry_causes_a_warning_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of(PRODUCER, **{"schema.registry.url": "http://a", "basic.auth.user.info": None})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "it belongs to the registry client" in record.getMessage()


def test_the_oauth_callback_gets_the_value_of_sasl_oauthbearer_config() -> None:
    asked: list[str] = []

    def token(settings: str) -> tuple[str, float]:
        asked.append(settings)
        return "token", 1e12

    found, _ = of(
        PRODUCER,
        **{
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.config": "scope=x",
            "oauth_cb": token,
        },
    )
    assert found.ours["sasl.oauthbearer.token.provider"]() == ("token", 1e12)
    assert asked == ["scope=x"]


def test_the_producers_admin_client_has_the_connection_settings() -> None:
    found, _ = of(PRODUCER, **{"linger.ms": 3, "sasl.username": "ada", "client.id": "mine"})
    first = {"bootstrap.timeout.ms": 2**31 - 1}
    assert found.admin == {**SERVER, **first, "sasl.username": "ada", "client.id": "mine"}
    Config(ADMIN, found.admin)


def test_a_timeout_is_a_number_of_seconds_and_a_negative_one_means_no_limit() -> None:
    assert checked_seconds(2) == 2
    assert checked_seconds(-1) == checked_seconds(-0.5) == FOREVER
    for wrong in ("soon", None, True):
        with pytest.raises(TypeError):
            checked_seconds(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("servers", "taken"),
    [
        ("kafka", "kafka:9092"),
        ("a, b:1,c", "a:9092, b:1,c:9092"),
        ("[::1],[::2]:1", "[::1]:9092,[::2]:1"),
        ("SSL://a,SSL://b:1", "SSL://a:9092,SSL://b:1"),
        ("a:1", "a:1"),
    ],
)
def test_an_address_without_a_port_gets_the_default_port(servers: str, taken: str) -> None:
    assert given(ADMIN, {"bootstrap.servers": servers}).ours["bootstrap.servers"] == taken


def test_new_credentials_have_an_effect_only_with_a_sasl_password_login() -> None:
    plain = of(ADMIN)[0]
    assert not plain.checked_login("name", "password")
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}
    asked = of(ADMIN, **login, **{"sasl.username": "a", "sasl.password": "b"})[0]
    assert asked.checked_login("name", "password")
    for wrong in ((None, "password"), ("name", None)):
        with pytest.raises(TypeError, match="must be a str"):
            plain.checked_login(*wrong)


@pytest.mark.parametrize(
    ("given_value", "read"),
    [(1, True), ("1", True), ("t", True), (0, False), ("F", False), ("TRUE", True)],
)
def test_librdkafkas_values_for_true_and_false_are_accepted(given_value: Any, read: bool) -> None:
    found, config = of(
        CONSUMER, enable__auto__commit=given_value, enable__auto__offset__store=given_value
    )
    assert (found.auto_commit, found.store_offsets) == (read, read)
    assert config["enable.auto.commit"] is read
    assert of(PRODUCER, enable__idempotence=given_value)[1]["enable.idempotence"] is read


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(0.5, 0.001), ("0.5", 0.001), (5.0, 0.005), (0, 0), ("7", 0.007)]
)
def test_a_linger_time_below_a_millisecond_is_rounded_up(milliseconds: Any, seconds: float) -> None:
    assert of(PRODUCER, linger__ms=milliseconds)[1]["linger.ms"] == seconds
    assert of(PRODUCER, **{"queue.buffering.max.ms": milliseconds})[1]["linger.ms"] == seconds


@pytest.mark.parametrize("wrong", [-0.5, float("nan"), "abc", "inf", True, [5]])
def test_an_invalid_value_of_linger_ms_is_rejected(wrong: Any) -> None:
    with pytest.raises((KafkaException, ConfigurationError)):
        of(PRODUCER, linger__ms=wrong)


def test_group_ids_and_client_ids_may_be_numbers_or_uuids() -> None:
    _, config = of(CONSUMER, group__id=7, client__id=8)
    assert (config["group.id"], config["client.id"]) == ("7", "8")
    found, _ = of(CONSUMER, **{"group.id": UUID(int=1)})
    assert found.ours["group.id"] == str(UUID(int=1))
