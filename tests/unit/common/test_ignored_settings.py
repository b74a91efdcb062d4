"""Test that each setting without effect is logged once per process and kind of client."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import odradek
from odradek.common.config import ADMIN, CONSUMER, OPTIONS, PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.common.options import ignored_settings
from odradek.common.options.ignored_settings import COSTLY, HARMLESS, IN_FILES, has_effect
from odradek.common.options.migration_hints import CURES, CURES_OF_KIND
from odradek.common.options.option_aliases import ALIASES, REFUSED
from odradek.common.options.values import LONG_MAX

BROKER = {"bootstrap.servers": "h:9092"}
KINDS = (PRODUCER, CONSUMER, ADMIN)
REFRESH, AGE = "topic.metadata.refresh.interval.ms", "metadata.max.age.ms"


@pytest.fixture(autouse=True)
def _no_setting_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored_settings, "_told", set())


def log_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return found


def test_one_dict_of_settings_is_accepted_by_all_kinds_of_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = {
        **BROKER,
        "client.id": "service",
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "linger.ms": 5,
        "acks": "all",
        "queue_buffering_max_ms": 5,
        "allow.auto.create.topics": False,
    }
    for _ in range(2):
        for client in KINDS:
            Config(client, shared)
    text = (
        "group.id, auto.offset.reset have no effect on a producer, only on consumers; "
        "linger.ms, acks, queue.buffering.max.ms have an effect only on producers; "
        "allow.auto.create.topics has an effect only on consumers and producers"
    )
    assert log_lines(caplog) == [("WARNING", text)]


def test_keyword_arguments_without_effect_are_logged_like_dict_entries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    more: dict[str, Any] = {"linger_ms": 5}
    odradek.Consumer(BROKER, **more).close()
    assert log_lines(caplog) == [
        ("WARNING", "linger.ms has no effect on a consumer, only on producers"),
    ]


def test_the_value_of_an_option_without_effect_is_neither_parsed_nor_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Config(CONSUMER, {**BROKER, "linger.ms": object(), "transactional.id": "hunter2"})
    assert "transactional.id" not in found.stated
    assert "transactional.id" not in found.given
    assert len(log_lines(caplog)) == 1
    assert "hunter2" not in f"{found!r} {caplog.text}"
    with pytest.raises(ConfigurationError) as caught:
        Config(PRODUCER, {**BROKER, "transactional.id": "hunter2", "lingre.ms": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, row in CURES_OF_KIND.items() for name in row]
)
def test_a_setting_rejected_by_one_kind_of_client_is_only_logged_by_the_others(
    kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, a producer rejects a delivery callback, which a consumer would never call."""
    with pytest.raises(ConfigurationError, match=re.escape(f"{kind}: {CURES[name]}")):
        Config(kind, {**BROKER, name: print})
    assert log_lines(caplog) == []
    for client in set(KINDS) - {kind}:
        ignored_settings._told.clear()
        Config(client, {**BROKER, name: print})
        ((level, text),) = log_lines(caplog)
        assert level == "WARNING"
        assert re.match(rf"{name} has no effect on an? {client}, only on {kind}s$", text)


ALWAYS = sorted(CURES.keys() - {name for row in CURES_OF_KIND.values() for name in row})


@pytest.mark.parametrize("name", ALWAYS)
def test_each_kind_of_client_rejects_unsupported_settings_that_concern_all_kinds(name: str) -> None:
    """For example, if a deserializer setting were ignored, the application would get bytes."""
    for client in KINDS:
        with pytest.raises(ConfigurationError, match=re.escape(CURES[name])):
            Config(client, {**BROKER, name: print})


@pytest.mark.parametrize(
    ("client", "name", "hint"),
    [
        (CONSUMER, "lingre.ms", "did you mean linger.ms? That is an option of producers."),
        (PRODUCER, "group_ids", "did you mean group.id? That is an option of consumers."),
        (PRODUCER, "lingre.ms", "for a producer; did you mean linger.ms?"),
        (ADMIN, "enable.auto.comit", "did you mean enable.auto.commit? That is an option of con"),
    ],
)
def test_a_misspelt_option_is_rejected_with_a_suggestion(client: str, name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(hint)) as caught:
        Config(client, {**BROKER, name: 1})
    assert ("That is" in hint) == ("That is" in str(caught.value))


@pytest.mark.parametrize("name", sorted({**COSTLY, **HARMLESS}))
def test_a_setting_of_other_clients_is_logged_at_its_level_with_the_reason(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for _ in range(2):
        Config(PRODUCER, {**BROKER, name: 1})
    level, why = ("WARNING", COSTLY[name]) if name in COSTLY else ("DEBUG", HARMLESS[name])
    assert log_lines(caplog) == [(level, f"{name} has no effect on a producer: {why}")]


@pytest.mark.parametrize(
    "name",
    [
        *("partitioner.rack.aware", "share.acknowledgement.mode", "share.acquire.mode"),
        *("receive.message.max.bytes", "queued.max.messages.kbytes", "offset.store.method"),
        *("broker.address.family", "bootstrap.controllers", "msg.order.cmp"),
        *("confluent.monitoring", "schema.registry.url", "auto.register.schemas"),
    ],
)
@pytest.mark.parametrize("client", KINDS)
def test_ignored_settings_that_affect_safety_or_cost_are_logged_as_warnings(
    client: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    Config(client, {**BROKER, name: "s3cr3t"})
    ((level, text),) = log_lines(caplog)
    assert (level, "s3cr3t" in text) == ("WARNING", False)
    assert text.startswith(f"{name} has no effect on ")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("schema.registry.url", "SchemaRegistryClient({'schema.registry.url': ...})"),
        ("schema_registry_url", "SchemaRegistryClient({'schema.registry.url': ...})"),
        ("basic.auth.user.info", "SchemaRegistryClient({'basic.auth.user.info': ...})"),
        ("value.subject.name.strategy", "conf={'subject.name.strategy': ...}"),
        ("auto.register.schemas", "conf={'auto.register.schemas': ...}"),
    ],
)
@pytest.mark.parametrize("client", [PRODUCER, CONSUMER])
def test_the_warning_for_a_serializer_setting_says_where_to_set_it(
    client: str, name: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    Config(client, {**BROKER, name: "s3cr3t"})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert place in record.getMessage()
    assert "s3cr3t" not in record.getMessage()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({REFRESH: 60_000}, 60.0),
        ({REFRESH: "-1"}, LONG_MAX / 1000),
        ({REFRESH: 10_000, AGE: 900_000}, 10.0),  # librdkafka's setting for the cache's age
        ({AGE: 5_000, REFRESH: 10_000}, 10.0),
        ({AGE: 5_000}, 5.0),
    ],
)
def test_librdkafkas_metadata_refresh_interval_sets_metadata_max_age(
    given: dict[str, Any], seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for client in KINDS:
        assert Config(client, {**BROKER, **given})[AGE] == seconds
    assert log_lines(caplog) == []


def test_the_tables_of_ignored_settings_are_disjoint() -> None:
    for table in (COSTLY.keys(), HARMLESS.keys(), CURES.keys(), IN_FILES):
        assert not table & OPTIONS.keys()
        assert not table & ALIASES.keys()
        assert not table & REFUSED.keys()
    assert not COSTLY.keys() & HARMLESS.keys()
    assert not (COSTLY.keys() | HARMLESS.keys()) & CURES.keys()
    assert CURES.keys() >= IN_FILES
    assert has_effect("acks", PRODUCER)
    assert has_effect("acks", None)
    assert not has_effect("acks", CONSUMER)


@pytest.mark.parametrize("why", sorted({*COSTLY.values(), *HARMLESS.values()}))
def test_the_reason_why_a_setting_is_ignored_names_existing_options_and_calls(why: str) -> None:
    """In a log line, the reason follows a colon, so it has no full stop."""
    assert why[-1] != "."
    for name in re.findall(r"(?<![\w.])[a-z]+(?:\.[a-z]+)+\b(?!\()", why):
        if not name.startswith(("odradek.", "logging.", "client.", "socket.")) or name in OPTIONS:
            assert name in OPTIONS, name
    for call in re.findall(r"client\.(\w+)\(|\b(health|explain)\(", why):
        assert any(hasattr(odradek.Consumer, name) for name in call if name), call
