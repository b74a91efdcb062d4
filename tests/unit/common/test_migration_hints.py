"""Test that each setting, method and class of other clients is accepted or answered with a hint.

`settings_of_others.json` contains the settings of the four other clients: Java's from the constants
of its config classes, librdkafka's from its CONFIGURATION.md, the two Python clients' from their
tables and signatures.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.common.arguments import record_bytes
from odradek.common.config import ADMIN, CONSUMER, OPTIONS, PRODUCER, Config
from odradek.common.errors import (
    ArgumentError,
    ConfigurationError,
    KafkaError,
)
from odradek.common.options.migration_hints import CLASSES, CURES, KEYWORDS, METHODS
from odradek.common.options.option_aliases import ALIASES, REFUSED, dotted
from odradek.common.public_names import PLACES

FROZEN: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("settings_of_others.json").read_text()
)
HERE: dict[str, Any] = {
    "Producer": odradek.Producer,
    "Consumer": odradek.Consumer,
    "Admin": odradek.Admin,
    "RecordFuture": odradek.RecordFuture,
    "AsyncProducer": odradek.AsyncProducer,
    "AsyncConsumer": odradek.AsyncConsumer,
    "AsyncAdmin": odradek.AsyncAdmin,
    "DeliveryFuture": odradek.DeliveryFuture,
    "ConsumerRecord": odradek.ConsumerRecord,
    "RecordMetadata": odradek.RecordMetadata,
}


def settings() -> Iterator[tuple[str, str]]:
    """Yield each setting with its kind of client."""
    for clients in FROZEN.values():
        for client, names in clients.items():
            yield from ((client, name) for name in names)


@pytest.mark.parametrize(("client", "name"), sorted(set(settings())))
def test_a_setting_of_another_client_is_accepted_or_rejected_with_a_hint(
    client: str, name: str
) -> None:
    """An error must name the replacement, and not only say that the option is unknown."""
    try:
        Config(client, {name: "1"} | ({} if "servers" in name else {"bootstrap.servers": "h:1"}))
    except ConfigurationError as error:
        text = str(error)
        name = dotted(name)
        known = ALIASES.get(name, name) in OPTIONS or name in REFUSED
        assert known or f" {client}: {CURES[name]}" in text
    except KafkaError:  # the option exists, but "1" isn't a valid value
        assert ALIASES.get(dotted(name), dotted(name)) in OPTIONS


def test_librdkafkas_global_message_size_is_a_producer_option(tmp_path: Path) -> None:
    """A file of settings for all kinds of clients may contain this setting."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h:1\nmessage.max.bytes=2000000\n")
    found = odradek.read_properties(file)
    assert Config(PRODUCER, found)["max.request.size"] == 2_000_000
    for client in (CONSUMER, ADMIN):
        Config(client, found)


@pytest.mark.parametrize(
    ("of", "name"), [(of, name) for of, row in METHODS.items() for name in row]
)
def test_the_error_for_another_clients_method_names_odradeks_method(of: str, name: str) -> None:
    cls = HERE[of]
    assert not hasattr(cls, name)
    thing: Any = cls.__new__(cls, *getattr(cls, "_fields", ()))
    assert name not in dir(thing)
    with pytest.raises(AttributeError) as caught:
        getattr(thing, name)
    text, cure = f"{of!r} object has no attribute {name!r}", METHODS[of][name]
    reason = cure.removeprefix("nothing")
    expected = f": write {cure}" if reason == cure else f", and needs none{reason}"
    assert str(caught.value) == text + expected


@pytest.mark.parametrize(
    ("call", "keyword"), [(call, keyword) for call, row in KEYWORDS.items() for keyword in row]
)
def test_the_error_for_another_clients_keyword_names_odradeks_keyword(
    call: str, keyword: str
) -> None:
    method = getattr(odradek.Consumer, call, None) or getattr(odradek.Producer, call)
    assert keyword not in inspect.signature(method).parameters
    with pytest.raises(ArgumentError) as caught:
        method(None, **{keyword: 1})
    assert (
        str(caught.value) == f"{call}() has no argument {keyword}: write {KEYWORDS[call][keyword]}"
    )


@pytest.mark.parametrize("value", [{"a": 1}, ["a"], ("a", "b")])
def test_the_error_for_an_object_instead_of_bytes_recommends_json(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"must be bytes .* not \w+: use json\.dumps"):
        record_bytes("value", value)


@pytest.mark.parametrize("call", KEYWORDS)
def test_methods_that_reject_keywords_remain_coroutine_functions(call: str) -> None:
    of = odradek.AsyncProducer if call == "send_offsets_to_transaction" else odradek.AsyncConsumer
    method: Any = getattr(of, call)
    assert inspect.iscoroutinefunction(method)
    keyword = next(iter(KEYWORDS[call]))
    with pytest.raises(ArgumentError, match=f"has no argument {keyword}: write "):
        method(None, **{keyword: 1}).send(None)


def test_a_subclass_of_a_client_gives_the_same_hints_as_the_client() -> None:
    class Mine(odradek.Producer):
        pass

    mine: Any = Mine(bootstrap_servers="h:1")
    with pytest.raises(AttributeError, match="^'Mine' object has no attribute 'produce': write"):
        _ = mine.produce


def test_an_unknown_attribute_raises_an_attribute_error_without_a_hint() -> None:
    producer: Any = odradek.Producer(bootstrap_servers="h:1")
    with pytest.raises(AttributeError, match="^'Producer' object has no attribute 'nonsense'$"):
        _ = producer.nonsense
    assert not hasattr(producer, "produce")
    module: Any = odradek
    with pytest.raises(AttributeError, match="^module 'odradek' has no attribute 'Nonsense'$"):
        _ = module.Nonsense


@pytest.mark.parametrize("name", CLASSES)
def test_the_error_for_another_clients_class_names_odradeks_class(name: str) -> None:
    text = f"^{name} is a name of another client: write "
    with pytest.raises(AttributeError, match=text) as caught:
        getattr(odradek, name)
    assert caught.value.name == name
    with pytest.raises(ImportError, match=text):
        exec(f"from odradek import {name}", {})  # noqa: S102 - our own text
    kept = re.search(r"`from (\S+) import (\w+)`", str(caught.value))
    if kept is not None:
        assert hasattr(import_module(kept[1]), kept[2])


def test_an_import_of_another_clients_class_gives_a_hint() -> None:
    with pytest.raises(ImportError, match=r"AsyncProducer\(.*odradek.compat.aiokafka import AIO"):
        from odradek import AIOKafkaProducer  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match=r"write .*docs/switching"):
        from odradek import KafkaProducer  # type: ignore[attr-defined]  # noqa: F401


def test_hints_name_only_calls_and_options_that_exist() -> None:
    """In the hints, methods are recognized by parentheses and options by dots."""
    there = {name for cls in HERE.values() for name in dir(cls)} | set(PLACES)
    outside = {"dumps", "encode", "getLogger", "function", "len", "sum"}
    texts = [
        *CURES.values(),
        *CLASSES.values(),
        *(c for row in METHODS.values() for c in row.values()),
        *(c for row in KEYWORDS.values() for c in row.values()),
    ]
    for text in texts:
        for called in re.findall(r"(\w+)\(", text):
            assert called in there | outside, text
        for called, given in re.findall(r"(\w+)\(([^()]*)\)", text):
            takers = [getattr(cls, called) for cls in HERE.values() if hasattr(cls, called)]
            if called in PLACES:  # a client's constructor
                takers.append(getattr(import_module(PLACES[called]), called))
            for keyword in re.findall(r"(\w+)=", given):
                assert any(keyword in inspect.signature(take).parameters for take in takers), text
        for option in re.findall(r"give ([a-z]+(?:\.[a-z]+)+)", text):
            assert option in OPTIONS, text
