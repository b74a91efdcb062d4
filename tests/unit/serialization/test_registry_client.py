"""A registry's client: what is asked how often, what goes wrong and what is said about it."""

from __future__ import annotations

import asyncio
import os
import pickle
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.registry_server import RegistryServer, registry_server

from odradek import ArgumentError, ConfigurationError, Secret, TopicPartition
from odradek.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RecordDeserializationError,
    RegistryAuthenticationError,
    RegistryUnreachableError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from odradek.runtime.credentials.allowed_sources import ALLOWED_URLS
from odradek.serialization import (
    AsyncSchemaRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.serialization.registry.client import cache_of
from odradek.testing import Authority

TEXT = Schema('{"type": "string"}')
QUICK = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 2, "default.api.timeout.ms": 60000}


def client(server: RegistryServer, **more: Any) -> SchemaRegistryClient:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return SchemaRegistryClient({"schema.registry.url": server.url, **QUICK, **settings})


def test_each_schema_is_asked_for_once(server: RegistryServer) -> None:
    one = client(server)
    assert one.register_schema("t-value", TEXT) == one.register_schema("t-value", TEXT) == 1
    threads = [threading.Thread(target=one.get_schema, args=(1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.get_schema(1) == TEXT
    assert server.asked == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]
    found = one.lookup_schema("t-value", TEXT)
    assert (found.schema_id, found.version, found.guid) == (1, 1, server.guid(1))
    assert one.lookup_schema("t-value", TEXT) is found
    assert one.get_schema_by_guid(server.guid(1)) is one.get_schema_by_guid(server.guid(1))
    assert len(server.asked) == 4


def test_a_new_client_starts_without_what_others_know(server: RegistryServer) -> None:
    """The registry was recreated, and has another schema under the id."""
    of = SerializationContext("t", MessageField.VALUE)
    conf = {"auto.register.schemas": True}
    one = client(server)
    write, read = AvroSerializer(one, TEXT.schema_str, conf=conf), AvroDeserializer(one)
    row = write("a", of)
    assert read(row, of) == "a"
    server.schemas, server.subjects = [{"schema": '"int"'}], {}
    other = client(server)
    assert other.get_schema(1).schema_str == '"int"'
    assert AvroSerializer(other, TEXT.schema_str, conf=conf)("a", of) == b"\0\0\0\0\2\2a"
    assert (write("a", of), read(row, of)) == (row, "a")  # of the registry before
    one.clear_caches()
    assert write("a", of) == b"\0\0\0\0\2\2a"
    assert read(b"\0\0\0\0\1\2", of) == 1


def test_a_forked_child_has_a_cache_of_its_own(server: RegistryServer) -> None:
    """A lock that another thread holds at the fork is held for ever in the child."""
    one = client(server)
    cache = cache_of(one)
    assert cache_of(one) is cache
    child = os.fork()
    if not child:
        os._exit(int(cache_of(one) is cache or cache_of(one) is not cache_of(one)))
    assert os.waitpid(child, 0)[1] == 0
    assert cache_of(one) is cache


def test_what_is_deleted_is_not_known_any_more(server: RegistryServer) -> None:
    one = client(server)
    one.register_schema("t-value", TEXT)
    for delete, answer in (
        (lambda: one.delete_subject("t-value", permanent=True), [1]),
        (lambda: one.delete_version("t-value", 1), 1),
    ):
        assert one.get_schema(1) == TEXT
        server.wrong = [(200, answer)]
        delete()
        server.asked.clear()
        one.get_schema(1)
        one.register_schema("t-value", TEXT)
        assert len(server.asked) == 2


def test_version_minus_one_is_the_latest(server: RegistryServer) -> None:
    one = client(server)
    one.register_schema("t-value", TEXT)
    assert one.get_version("t-value", -1).version == 1
    one.register_schema("t-value", Schema('"int"'))
    assert one.get_version("t-value", -1).version == 2


def test_what_is_not_there_is_asked_for_again(server: RegistryServer) -> None:
    one = client(server)
    with pytest.raises(SchemaNotFoundError):
        one.get_schema(1)
    one.register_schema("t-value", TEXT)
    assert one.get_schema(1) == TEXT


@pytest.mark.parametrize(("seconds", "questions"), [(0, 2), (300, 1)])
def test_latest_version(server: RegistryServer, seconds: int, questions: int) -> None:
    one = client(server, cache_latest_ttl_sec=seconds)
    one.register_schema("t-value", TEXT)
    server.asked.clear()
    assert one.get_latest_version("t-value").version == 1
    assert one.get_latest_version("t-value").schema == TEXT
    assert len(server.asked) == questions
    newer = Schema('{"type": "int"}')
    one.register_schema("t-value", newer)
    assert one.get_latest_version("t-value").schema == newer  # its own registration is known
    assert one.get_version("t-value", 1).schema == TEXT


def test_references_and_kinds(server: RegistryServer) -> None:
    written = Schema("{}", "JSON", (SchemaReference("other.json", "other", 3),))
    client(server).register_schema("a b/c", written)
    assert server.asked == ["POST /subjects/a%20b%2Fc/versions"]
    assert client(server).get_schema(1) == written


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, RegistryAuthenticationError, "basic.auth.user.info"),
        (403, RegistryAuthenticationError, "this permission"),
        (404, SchemaNotFoundError, "subject.name.strategy"),
        (409, IncompatibleSchemaError, "compatibility level"),
        (422, InvalidSchemaError, "schema's text"),
        (418, SchemaRegistryError, "Check schema.registry.url"),
    ],
)
def test_refusals(
    server: RegistryServer, status: int, kind: type[SchemaRegistryError], words: str
) -> None:
    server.wrong = [(status, {"error_code": 40999, "message": "no \x1b[31m, for us3r:pa55word"})]
    one = client(server, basic_auth_user_info="us3r:pa55word")
    with pytest.raises(kind, match=words) as caught:
        one.get_subjects()
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.error_code) == (status, 40999)
    for said in (str(error), str(pickle.loads(pickle.dumps(error)))):  # noqa: S301
        assert "\x1b" not in said
        assert "GET /subjects" in said
    assert server.asked == ["GET /subjects"]  # no second try


def test_a_token_that_the_registry_repeats_is_not_shown(server: RegistryServer) -> None:
    server.wrong = [(401, {"message": "unknown token s3cr3t-t0ken"})]
    with pytest.raises(RegistryAuthenticationError, match=r"unknown token \[hidden\]"):
        client(server, bearer_auth_token="s3cr3t-t0ken").get_subjects()  # noqa: S106


@pytest.mark.parametrize(
    "escaped", ["p\\u0026q\\u003dx\\/y", "".join(f"\\u{ord(one):04x}" for one in "p&q=x/y")]
)
def test_a_password_that_the_registry_escapes_is_not_shown(
    server: RegistryServer, escaped: str
) -> None:
    """Gson, for one, escapes what HTML would take for more than text."""
    server.wrong = [(401, f'{{"message": "bad me:{escaped}"}}'.encode())]
    with pytest.raises(RegistryAuthenticationError) as caught:
        client(server, basic_auth_user_info="me:p&q=x/y").get_subjects()
    assert "p&q" not in str(caught.value)
    assert "[hidden]" in str(caught.value)


@pytest.mark.parametrize("wrong", [None, "1?x=y", 1.5, True, b"1", [1], 2**70])
def test_what_is_no_number_is_asked_of_nobody(server: RegistryServer, wrong: Any) -> None:
    one = client(server)
    for call in (
        lambda: one.get_schema(wrong),
        lambda: one.get_version("s", wrong),
        lambda: one.delete_version("s", wrong),
        lambda: one.test_compatibility("s", Schema("1"), wrong),
    ):
        with pytest.raises(ConfigurationError, match="schema_id|version"):
            call()
    assert server.asked == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('"string"', r"schema must be a Schema, not .*Schema\(text"),
        (None, "schema must be a Schema"),
        ({"type": "string"}, "schema must be a Schema, not dict"),
        (Schema('"string"', "avro"), "schema_type must be one of AVRO, JSON, PROTOBUF, not 'avro'"),
    ],
)
def test_what_is_no_schema_is_asked_of_nobody(
    server: RegistryServer, wrong: Any, words: str
) -> None:
    """A registry may answer a kind that it doesn't know as if it were out of order."""
    one = client(server)
    for call in (one.register_schema, one.registered_schema, one.lookup_schema):
        with pytest.raises(ArgumentError, match=words):
            call("s", wrong)
    with pytest.raises(ArgumentError, match=words):
        one.test_compatibility("s", wrong)
    assert server.asked == []


def test_what_clients_are_shown_as() -> None:
    config = {"schema.registry.url": "http://a:1,http://b:2/x", "basic.auth.user.info": "me:word"}
    assert repr(SchemaRegistryClient(config)) == "<SchemaRegistryClient of http://a:1,http://b:2/x>"
    assert "object" not in repr(AsyncSchemaRegistryClient.__new__(AsyncSchemaRegistryClient))
    shown = repr(AsyncSchemaRegistryClient(config))
    assert shown == "<AsyncSchemaRegistryClient of http://a:1,http://b:2/x>"


@pytest.mark.parametrize("wrong", [None, 1, b"s", ["s"], "\ud800"])
def test_what_is_no_text_is_asked_of_nobody(server: RegistryServer, wrong: Any) -> None:
    one = client(server)
    for call in (
        lambda: one.get_latest_version(wrong),
        lambda: one.get_version(wrong, 1),
        lambda: one.lookup_schema(wrong, Schema("1")),
        lambda: one.register_schema(wrong, Schema("1")),
        lambda: one.delete_subject(wrong),
        lambda: one.get_schema_by_guid(wrong),
        lambda: one.set_compatibility(wrong),
    ):
        with pytest.raises(ConfigurationError, match="subject|guid|level"):
            call()
    assert server.asked == []


@pytest.mark.parametrize(
    "version", ["1e999", "NaN", '"x"', "[]", "-2", "1.5", "true", "1" + "0" * 99]
)
def test_references_without_a_number_are_a_strange_answer(
    server: RegistryServer, version: str
) -> None:
    references = f'[{{"name": "a", "subject": "b", "version": {version}}}]'
    server.wrong = [(200, f'{{"schema": "1", "references": {references}}}'.encode())]
    with pytest.raises(SchemaRegistryError, match="invalid references"):
        client(server).get_schema(1)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_may_pass_is_tried_again(server: RegistryServer, status: int) -> None:
    server.wrong = [(status, {}), (status, {})]
    assert client(server).get_subjects() == []
    assert len(server.asked) == 3


def test_what_does_not_pass_ends_in_time(server: RegistryServer) -> None:
    server.rule = lambda _: (503, {"message": "later"})
    with pytest.raises(
        RegistryUnreachableError, match=r"HTTP 503: later.*check its logs"
    ) as caught:
        client(server, default_api_timeout_ms=400).get_subjects()
    assert caught.value.status == 503
    assert caught.value.retriable


@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_answer_that_stops_in_the_middle_ends_in_time(
    server: RegistryServer, status: int
) -> None:
    server.stalls, server.rule = True, lambda _: (status, {"message": "it goes on"})
    with pytest.raises(RegistryUnreachableError, match="didn't respond in time"):
        client(server, default_api_timeout_ms=300).get_subjects()


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, {"x": 1}), (200, b"")])
def test_answers_that_are_none(server: RegistryServer, answer: Any) -> None:
    server.wrong = [answer]
    with pytest.raises(SchemaRegistryError):
        client(server).get_schema(1)


def test_a_url_that_answers_stands_in_for_others(server: RegistryServer) -> None:
    urls = f"http://127.0.0.1:1, {server.url}/"
    one = SchemaRegistryClient({"url": urls, **QUICK})
    assert one.get_subjects() == []
    with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1:1.*refused.*attempts"):
        SchemaRegistryClient(
            {"url": "http://127.0.0.1:1", **QUICK, "default.api.timeout.ms": 400}
        ).get_subjects()


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"basic.auth.user.info": "me:it"}, f"Basic {b64encode(b'me:it').decode()}"),
        ({"basic.auth.user.info": Secret("me:it")}, f"Basic {b64encode(b'me:it').decode()}"),
        ({"bearer.auth.token": "abc"}, "Bearer abc"),
        ({"bearer.auth.token": lambda: "abc"}, "Bearer abc"),
    ],
)
def test_authentication(server: RegistryServer, settings: dict[str, Any], header: str) -> None:
    one = SchemaRegistryClient({"url": server.url, **QUICK, **settings})
    one.get_subjects()
    assert server.headers[0]["authorization"] == header


def test_a_function_of_tokens_is_asked_for_each_request(server: RegistryServer) -> None:
    tokens = iter(["first", "second"])
    given = {"url": server.url, **QUICK, "bearer.auth.token": lambda: next(tokens)}
    one = SchemaRegistryClient(given)
    one.get_subjects()
    one.get_subjects()
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == ["Bearer first", "Bearer second"]


def test_a_token_is_for_a_cluster_and_a_pool(server: RegistryServer) -> None:
    more = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    one = SchemaRegistryClient({"url": server.url, "bearer.auth.token": "x", **more})
    one.get_subjects()
    assert server.headers[0]["target-sr-cluster"] == "lsrc-1"
    assert server.headers[0]["confluent-identity-pool-id"] == "pool-1"


def test_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, mine = authority.issue("server", hosts=["localhost"]), authority.issue("me")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with registry_server(context) as server:
        url = server.url.replace("https:", "HTTPS:")
        settings = {"url": url, "ssl.ca.location": str(authority.certificate), **QUICK}
        own = {
            "ssl.certificate.location": str(mine.certificate),
            "ssl.key.location": str(mine.encrypted_key("s3sam0pen")),
            "ssl.key.password": "s3sam0pen",
        }
        assert SchemaRegistryClient(settings | own).get_subjects() == []
        for wrong in (settings, {"url": server.url, **QUICK, **own}):
            with pytest.raises(RegistryUnreachableError, match="TLS|reset|closed"):
                SchemaRegistryClient(wrong).get_subjects()
    with pytest.raises(ConfigurationError, match="ssl.ca.location"):
        SchemaRegistryClient(settings | {"ssl.ca.location": "/nowhere.pem"}).get_subjects()


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    """A file that is being written is an error of the connection, not of the client."""
    first, second = (Authority(tmp_path / name, name) for name in ("first", "second"))
    trust, new = tmp_path / "trust.pem", second.certificate.read_bytes()
    trust.write_bytes(first.certificate.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(first.issue("server", hosts=["localhost"]).both)
    with registry_server(context) as server:
        client = SchemaRegistryClient({"url": server.url, "ssl.ca.location": str(trust), **QUICK})
        assert client.get_subjects() == []
        context.load_cert_chain(second.issue("server", hosts=["localhost"]).both)
        for end in (0, len(new) // 2):
            trust.write_bytes(new[:end])
            with pytest.raises(RegistryUnreachableError, match="TLS"):
                client.get_subjects()
        trust.write_bytes(new)
        assert client.get_subjects() == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "schema.registry.url is missing"),
        ({"url": "ftp://x"}, "http or https"),
        ({"url": "http://x:port"}, "http or https"),
        ({"url": "http://x", "bearer.auth.token": "a\nb"}, "an HTTP header can't contain"),
        ({"url": "file:///etc/passwd"}, "http or https"),
        ({"url": "http://[::1"}, "http or https"),
        ({"url": "http://u:secret@[::1"}, "http or https"),
        ({"url": "http://u:secret@x"}, "basic.auth.user.info"),
        ({"url": "http://x", "basic.auth.user.info": "nocolon"}, "user:password"),
        ({"url": "http://x", "basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "combined"),
        ({"url": "http://x", "schema.registry.urll": "y"}, "unknown setting"),
        ({"url": "http://x", "request.timeout.ms": -1}, ">= 0"),
        ({"url": "http://x", "request.timeout.ms": "soon"}, "a number"),
        ({"url": "http://x", "ssl.key.location": "k"}, "ssl.certificate.location"),
        ({"url": 5}, "a string, not int"),
        ({"url": ""}, "schema.registry.url is empty"),
        ({"url": "http://x", "schema.registry.url": "http://y"}, "combined"),
        ({"url": "http://x", "basic.auth.credentials.source": "URL"}, "must be USER_INFO, with"),
        ({"url": "http://x", "bearer.auth.credentials.source": "USER_INFO"}, "be STATIC_TOKEN"),
    ],
)
def test_settings_that_can_not_be_used(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        SchemaRegistryClient(settings)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [SchemaRegistryClient, AsyncSchemaRegistryClient])
@pytest.mark.parametrize("name", ["basic.auth.user.info", "bearer.auth.token", "ssl.key.password"])
def test_no_traceback_shows_a_secret(kind: Any, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind({"url": "http://x", "no.such.setting": 1, name: "me:pl4nted-s3cret"})
    inside = [frame.locals for frame in caught.traceback[1:]]
    assert inside
    assert "pl4nted" not in repr([dict(found) for found in inside])


@pytest.mark.parametrize("given", [None, "http://x", 5])
def test_settings_that_are_none(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="a dict"):
        SchemaRegistryClient(given)


def test_only_allowed_urls_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_URLS, "https://tokens.example/,http://registry.example:8081")
    SchemaRegistryClient({"url": "http://registry.example:8081/"})
    with pytest.raises(ConfigurationError, match=rf"schema\.registry\.url.*{ALLOWED_URLS}"):
        SchemaRegistryClient({"url": "http://registry.example:8081,http://other.example"})


def test_a_loop_goes_on_meanwhile(server: RegistryServer) -> None:
    async def asked() -> tuple[int, Schema]:
        one = AsyncSchemaRegistryClient({"url": server.url, **QUICK})
        number = await one.register_schema("t-value", TEXT)
        return number, await one.get_schema(number)

    assert asyncio.run(asked()) == (1, TEXT)


def test_both_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert calls(AsyncSchemaRegistryClient) == calls(SchemaRegistryClient)


def test_programs_of_confluent_kafka_name_arguments_so(server: RegistryServer) -> None:
    settings: dict[str, Any] = {"schema.registry.url": server.url, **QUICK}
    with SchemaRegistryClient(settings) as one:
        of: dict[str, Any] = {"subject_name": "s", "schema": TEXT}
        assert one.register_schema(**of, normalize_schemas=True) == 1
        assert one.lookup_schema(**of, normalize_schemas=True).version == 1
        for version in (1, "latest"):
            assert one.get_version(subject_name="s", version=version).schema == TEXT
        assert one.get_version("s") == one.get_latest_version(subject_name="s")
        server.wrong = [(200, {"is_compatible": True})]
        server.wrong += [(200, {"compatibility": "FULL"}), (200, {"compatibilityLevel": "FULL"})]
        server.wrong += [(200, [1]), (200, 1), (200, [1])]
        assert one.test_compatibility(**of, version="latest")
        assert one.set_compatibility(subject_name="s", level="FULL") == "FULL"
        assert one.get_compatibility(subject_name="s") == "FULL"
        assert one.get_versions(subject_name="s") == [1]
        assert one.delete_version(subject_name="s", version=1) == 1
        assert one.delete_subject(subject_name="s", permanent=True) == [1]

    async def main() -> None:
        async with AsyncSchemaRegistryClient(settings) as other:
            assert await other.register_schema(**of, normalize_schemas=True) == 1
            assert (await other.get_version(subject_name="s")).version == 1

    asyncio.run(main())


REFERENCES: tuple[Any, ...] = (5, [5], [{}], [{"name": "n"}])
STRANGE: tuple[Any, ...] = (
    *([], "text", 5, {}, {"schema": 5}, {"schema": "s", "schemaType": [1]}),
    *({"schema": "s", "references": given} for given in REFERENCES),
)


@pytest.mark.parametrize("answer", STRANGE, ids=str)
def test_an_answer_that_is_none_of_a_registry_is_its_error(
    server: RegistryServer, answer: Any
) -> None:
    """A proxy, or another service, may answer 200 with any JSON."""
    asked = client(server)
    questions: list[Callable[[], object]] = [
        lambda: asked.get_schema(77),
        lambda: asked.get_latest_version("odd"),
        lambda: asked.lookup_schema("odd", TEXT),
    ]
    if not isinstance(answer, dict):
        questions += [
            lambda: asked.test_compatibility("odd", TEXT),
            lambda: asked.get_compatibility("odd"),
            lambda: asked.set_compatibility("full", "odd"),
        ]
    if not isinstance(answer, list):
        questions += [
            asked.get_subjects,
            lambda: asked.get_versions("odd"),
            lambda: asked.delete_subject("odd"),
        ]
    if type(answer) is not int:
        questions.append(lambda: asked.delete_version("odd", 1))
    for ask in questions:
        server.wrong = [(200, answer)]
        with pytest.raises(SchemaRegistryError, match="the registry's answer"):
            ask()


@pytest.mark.parametrize("answer", [[1, "a"], [None], ["a", ["b"]], [True]], ids=str)
def test_a_list_of_other_things_is_an_error(server: RegistryServer, answer: Any) -> None:
    asked = client(server)
    for ask in (asked.get_subjects, lambda: asked.get_versions("odd")):
        server.wrong = [(200, answer)]
        with pytest.raises(SchemaRegistryError, match="isn't a JSON list"):
            ask()


@pytest.mark.parametrize("more", [{"version": "1"}, {"guid": 1}, {"subject": ["t"]}], ids=str)
def test_a_version_with_something_else_in_it(server: RegistryServer, more: dict[str, Any]) -> None:
    server.wrong = [(200, {"id": 1, "schema": "{}", **more})]
    with pytest.raises(SchemaRegistryError, match="has an invalid"):
        client(server).get_version("odd", 1)


def test_a_cache_has_its_capacity(server: RegistryServer) -> None:
    one = client(server, cache_capacity=1)
    for text in ('"int"', '"long"'):
        one.register_schema("t-value", Schema(text))
    server.asked.clear()
    for number in (1, 1, 2, 1):
        one.get_schema(number)
    assert server.asked == [f"GET /schemas/ids/{number}" for number in (1, 2, 1)]


def test_a_server_without_such_a_path_is_no_registry(server: RegistryServer) -> None:
    server.wrong = [(404, {"message": "Not Found"})]
    with pytest.raises(SchemaRegistryError, match="Check the path") as caught:
        SchemaRegistryClient({"url": server.url}).get_latest_version("s-value")
    assert not isinstance(caught.value, SchemaNotFoundError)


@pytest.mark.parametrize("level", ["flights-value", "", None])
def test_a_level_that_is_none_is_not_sent(server: RegistryServer, level: Any) -> None:
    with pytest.raises(ArgumentError, match="BACKWARD_TRANSITIVE.*second argument"):
        SchemaRegistryClient({"url": server.url}).set_compatibility(level, "BACKWARD")
    assert server.asked == []


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        (lambda one: one.get_schema(99), "it was deleted permanently"),
        (lambda one: one.get_schema_by_guid("x"), "it was deleted permanently"),
        (lambda one: one.delete_subject("missing"), "odradek schemas list --registry http://"),
        (lambda one: one.get_latest_version("missing"), "odradek schemas list --registry http://"),
        (lambda one: one.lookup_schema("missing", TEXT), "auto.register.schemas=true"),
    ],
)
def test_cures_for_what_is_missing(
    server: RegistryServer, call: Callable[[SchemaRegistryClient], Any], cure: str
) -> None:
    with pytest.raises(SchemaNotFoundError) as caught:
        call(client(server))
    assert cure in caught.value.cure
    assert ".." not in str(
        RecordDeserializationError(TopicPartition("t", 0), 5, "value", str(caught.value))
    )


@pytest.mark.parametrize("path", ["/apis", "/apis/", "/apis/registry/v3"])
def test_the_path_of_apicurio_is_named(server: RegistryServer, path: str) -> None:
    server.rule = lambda _: (404, {"status": 404, "title": "No handler"})
    with pytest.raises(SchemaRegistryError) as caught:
        SchemaRegistryClient({"url": server.url + path, **QUICK}).get_subjects()
    assert caught.value.cure.endswith(f" to {server.url}/apis/ccompat/v7.")
