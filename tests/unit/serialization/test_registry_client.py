"""Test the registry client: number of requests, caches, settings and errors."""

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


def test_each_schema_is_requested_from_the_registry_once(server: RegistryServer) -> None:
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


def test_a_new_client_does_not_share_caches_with_others(server: RegistryServer) -> None:
    """The registry was recreated: the same id now belongs to another schema."""
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
    assert (write("a", of), read(row, of)) == (row, "a")  # the first client uses its cache
    one.clear_caches()
    assert write("a", of) == b"\0\0\0\0\2\2a"
    assert read(b"\0\0\0\0\1\2", of) == 1


def test_a_forked_child_has_its_own_cache(server: RegistryServer) -> None:
    """A lock that another thread holds during the fork would never be released in the child."""
    one = client(server)
    cache = cache_of(one)
    assert cache_of(one) is cache
    child = os.fork()
    if not child:
        os._exit(int(cache_of(one) is cache or cache_of(one) is not cache_of(one)))
    assert os.waitpid(child, 0)[1] == 0
    assert cache_of(one) is cache


def test_a_deleted_schema_is_removed_from_the_cache(server: RegistryServer) -> None:
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


def test_a_missing_schema_is_requested_again(server: RegistryServer) -> None:
    one = client(server)
    with pytest.raises(SchemaNotFoundError):
        one.get_schema(1)
    one.register_schema("t-value", TEXT)
    assert one.get_schema(1) == TEXT


@pytest.mark.parametrize(("seconds", "questions"), [(0, 2), (300, 1)])
def test_the_latest_version_is_cached_until_its_ttl(
    server: RegistryServer, seconds: int, questions: int
) -> None:
    one = client(server, cache_latest_ttl_sec=seconds)
    one.register_schema("t-value", TEXT)
    server.asked.clear()
    assert one.get_latest_version("t-value").version == 1
    assert one.get_latest_version("t-value").schema == TEXT
    assert len(server.asked) == questions
    newer = Schema('{"type": "int"}')
    one.register_schema("t-value", newer)
    assert (
        one.get_latest_version("t-value").schema == newer
    )  # the client itself registered the newer version
    assert one.get_version("t-value", 1).schema == TEXT


def test_schema_type_references_and_special_characters_are_stored_unchanged(
    server: RegistryServer,
) -> None:
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
def test_each_http_error_status_has_its_error_class_and_remedy(
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
    assert server.asked == ["GET /subjects"]  # the client doesn't retry


def test_a_token_in_the_registrys_response_is_redacted(server: RegistryServer) -> None:
    server.wrong = [(401, {"message": "unknown token s3cr3t-t0ken"})]
    with pytest.raises(RegistryAuthenticationError, match=r"unknown token \[hidden\]"):
        client(server, bearer_auth_token="s3cr3t-t0ken").get_subjects()  # noqa: S106


@pytest.mark.parametrize(
    "escaped", ["p\\u0026q\\u003dx\\/y", "".join(f"\\u{ord(one):04x}" for one in "p&q=x/y")]
)
def test_an_escaped_password_in_the_registrys_response_is_redacted(
    server: RegistryServer, escaped: str
) -> None:
    """Some JSON libraries, such as Gson, escape characters that have a meaning in HTML."""
    server.wrong = [(401, f'{{"message": "bad me:{escaped}"}}'.encode())]
    with pytest.raises(RegistryAuthenticationError) as caught:
        client(server, basic_auth_user_info="me:p&q=x/y").get_subjects()
    assert "p&q" not in str(caught.value)
    assert "[hidden]" in str(caught.value)


@pytest.mark.parametrize("wrong", [None, "1?x=y", 1.5, True, b"1", [1], 2**70])
def test_an_argument_that_is_not_a_number_is_rejected_without_a_request(
    server: RegistryServer, wrong: Any
) -> None:
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
def test_an_argument_that_is_not_a_schema_is_rejected_without_a_request(
    server: RegistryServer, wrong: Any, words: str
) -> None:
    """A registry may answer an unknown schema type with a server error."""
    one = client(server)
    for call in (one.register_schema, one.registered_schema, one.lookup_schema):
        with pytest.raises(ArgumentError, match=words):
            call("s", wrong)
    with pytest.raises(ArgumentError, match=words):
        one.test_compatibility("s", wrong)
    assert server.asked == []


def test_the_repr_of_a_client_has_its_urls_without_secrets() -> None:
    config = {"schema.registry.url": "http://a:1,http://b:2/x", "basic.auth.user.info": "me:word"}
    assert repr(SchemaRegistryClient(config)) == "<SchemaRegistryClient of http://a:1,http://b:2/x>"
    assert "object" not in repr(AsyncSchemaRegistryClient.__new__(AsyncSchemaRegistryClient))
    shown = repr(AsyncSchemaRegistryClient(config))
    assert shown == "<AsyncSchemaRegistryClient of http://a:1,http://b:2/x>"


@pytest.mark.parametrize("wrong", [None, 1, b"s", ["s"], "\ud800"])
def test_an_argument_that_is_not_a_string_is_rejected_without_a_request(
    server: RegistryServer, wrong: Any
) -> None:
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
def test_a_reference_without_a_valid_version_is_an_error(
    server: RegistryServer, version: str
) -> None:
    references = f'[{{"name": "a", "subject": "b", "version": {version}}}]'
    server.wrong = [(200, f'{{"schema": "1", "references": {references}}}'.encode())]
    with pytest.raises(SchemaRegistryError, match="invalid references"):
        client(server).get_schema(1)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_temporary_error_is_retried(server: RegistryServer, status: int) -> None:
    server.wrong = [(status, {}), (status, {})]
    assert client(server).get_subjects() == []
    assert len(server.asked) == 3


def test_an_error_that_persists_is_raised_at_the_timeout(server: RegistryServer) -> None:
    server.rule = lambda _: (503, {"message": "later"})
    with pytest.raises(
        RegistryUnreachableError, match=r"HTTP 503: later.*check its logs"
    ) as caught:
        client(server, default_api_timeout_ms=400).get_subjects()
    assert caught.value.status == 503
    assert caught.value.retriable


@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_incomplete_response_raises_at_the_timeout(server: RegistryServer, status: int) -> None:
    server.stalls, server.rule = True, lambda _: (status, {"message": "it goes on"})
    with pytest.raises(RegistryUnreachableError, match="didn't respond in time"):
        client(server, default_api_timeout_ms=300).get_subjects()


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, {"x": 1}), (200, b"")])
def test_an_invalid_response_is_an_error(server: RegistryServer, answer: Any) -> None:
    server.wrong = [answer]
    with pytest.raises(SchemaRegistryError):
        client(server).get_schema(1)


def test_the_next_registry_url_is_used_if_one_does_not_respond(server: RegistryServer) -> None:
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
def test_credentials_are_sent_in_the_header(
    server: RegistryServer, settings: dict[str, Any], header: str
) -> None:
    one = SchemaRegistryClient({"url": server.url, **QUICK, **settings})
    one.get_subjects()
    assert server.headers[0]["authorization"] == header


def test_a_token_function_is_called_for_each_request(server: RegistryServer) -> None:
    tokens = iter(["first", "second"])
    given = {"url": server.url, **QUICK, "bearer.auth.token": lambda: next(tokens)}
    one = SchemaRegistryClient(given)
    one.get_subjects()
    one.get_subjects()
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == ["Bearer first", "Bearer second"]


def test_the_cluster_and_identity_pool_settings_of_oauth_are_sent_as_headers(
    server: RegistryServer,
) -> None:
    more = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    one = SchemaRegistryClient({"url": server.url, "bearer.auth.token": "x", **more})
    one.get_subjects()
    assert server.headers[0]["target-sr-cluster"] == "lsrc-1"
    assert server.headers[0]["confluent-identity-pool-id"] == "pool-1"


def test_mutual_tls_is_supported(tmp_path: Path) -> None:
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


def test_changed_certificate_files_are_read_again(tmp_path: Path) -> None:
    """A file that is only partly written causes a connection error, which can be retried."""
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
def test_invalid_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
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
def test_a_clients_settings_must_be_a_dict(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="a dict"):
        SchemaRegistryClient(given)


def test_only_registry_urls_in_the_list_of_allowed_urls_are_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ALLOWED_URLS, "https://tokens.example/,http://registry.example:8081")
    SchemaRegistryClient({"url": "http://registry.example:8081/"})
    with pytest.raises(ConfigurationError, match=rf"schema\.registry\.url.*{ALLOWED_URLS}"):
        SchemaRegistryClient({"url": "http://registry.example:8081,http://other.example"})


def test_the_asyncio_client_registers_and_fetches_schemas(server: RegistryServer) -> None:
    async def asked() -> tuple[int, Schema]:
        one = AsyncSchemaRegistryClient({"url": server.url, **QUICK})
        number = await one.register_schema("t-value", TEXT)
        return number, await one.get_schema(number)

    assert asyncio.run(asked()) == (1, TEXT)


def test_the_blocking_and_the_asyncio_registry_client_have_the_same_methods() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert calls(AsyncSchemaRegistryClient) == calls(SchemaRegistryClient)


def test_methods_have_the_argument_names_of_confluent_kafka(server: RegistryServer) -> None:
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
def test_a_response_that_is_not_from_a_registry_is_an_error(
    server: RegistryServer, answer: Any
) -> None:
    """A proxy or another service may respond with status 200 and any JSON document."""
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
def test_a_response_list_with_items_of_a_wrong_type_is_an_error(
    server: RegistryServer, answer: Any
) -> None:
    asked = client(server)
    for ask in (asked.get_subjects, lambda: asked.get_versions("odd")):
        server.wrong = [(200, answer)]
        with pytest.raises(SchemaRegistryError, match="isn't a JSON list"):
            ask()


@pytest.mark.parametrize("more", [{"version": "1"}, {"guid": 1}, {"subject": ["t"]}], ids=str)
def test_a_response_about_a_schema_version_with_a_field_of_a_wrong_type_is_an_error(
    server: RegistryServer, more: dict[str, Any]
) -> None:
    server.wrong = [(200, {"id": 1, "schema": "{}", **more})]
    with pytest.raises(SchemaRegistryError, match="has an invalid"):
        client(server).get_version("odd", 1)


def test_the_schema_cache_contains_at_most_its_capacity(server: RegistryServer) -> None:
    one = client(server, cache_capacity=1)
    for text in ('"int"', '"long"'):
        one.register_schema("t-value", Schema(text))
    server.asked.clear()
    for number in (1, 1, 2, 1):
        one.get_schema(number)
    assert server.asked == [f"GET /schemas/ids/{number}" for number in (1, 2, 1)]


def test_a_404_without_a_registry_error_code_means_a_wrong_path(server: RegistryServer) -> None:
    server.wrong = [(404, {"message": "Not Found"})]
    with pytest.raises(SchemaRegistryError, match="Check the path") as caught:
        SchemaRegistryClient({"url": server.url}).get_latest_version("s-value")
    assert not isinstance(caught.value, SchemaNotFoundError)


@pytest.mark.parametrize("level", ["flights-value", "", None])
def test_an_invalid_compatibility_level_is_not_sent(server: RegistryServer, level: Any) -> None:
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
def test_the_error_for_a_missing_schema_has_a_remedy(
    server: RegistryServer, call: Callable[[SchemaRegistryClient], Any], cure: str
) -> None:
    with pytest.raises(SchemaNotFoundError) as caught:
        call(client(server))
    assert cure in caught.value.cure
    assert ".." not in str(
        RecordDeserializationError(TopicPartition("t", 0), 5, "value", str(caught.value))
    )


@pytest.mark.parametrize("path", ["/apis", "/apis/", "/apis/registry/v3"])
def test_the_error_for_apicurios_native_url_names_the_confluent_compatible_url(
    server: RegistryServer, path: str
) -> None:
    server.rule = lambda _: (404, {"status": 404, "title": "No handler"})
    with pytest.raises(SchemaRegistryError) as caught:
        SchemaRegistryClient({"url": server.url + path, **QUICK}).get_subjects()
    assert caught.value.cure.endswith(f" to {server.url}/apis/ccompat/v7.")
