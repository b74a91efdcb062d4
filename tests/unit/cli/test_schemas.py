"""Test `odradek schemas` and `odradek doctor --registry`."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.registry_server import RegistryServer, registry_server
from typer.testing import CliRunner

from odradek.cli import build
from odradek.cli.doctor.findings import STATUSES, Trouble
from odradek.cli.frame import results
from odradek.cli.schemas.frame import REGISTRY, REGISTRY_CONFIG
from odradek.serialization import Schema, SchemaRegistryClient
from odradek.testing import Authority

FLIGHT = '{"type": "record", "name": "Flight", "fields": [{"name": "to", "type": "string"}]}'


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


class Command:
    """A function that runs `odradek schemas` with the URL of a fake registry."""

    def __init__(self, url: str) -> None:
        self.env: dict[str, str | None] = {REGISTRY: url}

    def __call__(self, *words: str, command: str = "schemas") -> Any:
        return CliRunner().invoke(build(command), [command, *words], env=self.env)

    def json(self, *words: str, command: str = "schemas") -> tuple[int, dict[str, Any]]:
        done = self(*words, "--json", command=command)
        return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def odr(server: RegistryServer) -> Command:
    return Command(server.url)


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "flight.avsc"
    found.write_text(FLIGHT)
    return str(found)


def test_a_schema_is_registered_shown_and_listed(
    odr: Command, server: RegistryServer, file: str
) -> None:
    dry = odr.json("register", "flights-value", file, "--dry-run")
    nothing = {"dry_run": True, "subject": "flights-value", "existed": False, "failed": {}}
    server.subjects.pop("flights-value", None)
    assert dry == (0, nothing)
    where = {"subject": "flights-value", "version": 1, "id": 1, "guid": server.guid(1)}
    assert odr.json("register", "flights-value", file) == (0, {**where, "failed": {}})
    again = odr("register", "flights-value", file, "--dry-run")
    assert "Already registered as version 1 of flights-value." in again.stdout
    assert odr("list").stdout.split() == ["flights-value"]
    assert odr.json("list", "--subject", "x.*") == (0, {"subjects": [], "failed": {}})
    whole = {"type": "AVRO", "schema": FLIGHT, "references": [], "failed": {}}
    assert odr.json("show", "flights-value") == (0, {**where, **whole})
    assert odr.json("show", "--id", "1") == (0, {"id": 1, **whole})
    assert odr("show", "flights-value", "--version", "1").stdout == FLIGHT + "\n"


def test_the_versions_of_a_subject_are_listed(odr: Command, server: RegistryServer) -> None:
    SchemaRegistryClient({"url": server.url}).register_schema("s", Schema("{}", "JSON"))
    server.wrong = [(200, [1])]
    assert "VERSION" in (shown := odr("versions", "s").stdout)
    assert "JSON" in shown
    server.wrong = [(200, [1])]
    one = {"subject": "s", "version": 1, "id": 1, "guid": server.guid(1), "type": "JSON"}
    assert odr.json("versions", "s") == (0, {"subject": "s", "versions": [one], "failed": {}})


def test_the_command_compatibility_checks_a_schema_and_shows_or_sets_the_level(
    odr: Command, server: RegistryServer, file: str
) -> None:
    server.wrong = [(200, {"is_compatible": True})]
    found = {"subject": "s", "compatible": True, "reasons": [], "failed": {}}
    assert odr.json("compatibility", "s", file) == (0, found)
    server.wrong = [(200, {"is_compatible": False, "messages": ["no default"]})]
    status, document = odr.json("compatibility", "s", file)
    assert (status, document["reasons"]) == (1, ["no default"])
    assert document["failed"]["s"]["error"] == "IncompatibleSchemaError"
    server.wrong = [(404, {"error_code": 40408, "message": "none"}), (200, {"compatibility": "X"})]
    assert odr("compatibility", "s").stdout == "X (the registry's default)\n"
    server.wrong = [(200, {"compatibility": "FULL"})]
    assert odr.json("compatibility", "--set", "full")[1]["level"] == "FULL"
    dry = odr.json("compatibility", "s", "--set", "full", "--dry-run")
    assert dry[1] == {"dry_run": True, "subject": "s", "level": "FULL", "failed": {}}


def test_deleting_a_schema_needs_confirmation_and_can_be_permanent(
    odr: Command, server: RegistryServer
) -> None:
    server.wrong = [(200, [1, 2])]
    assert odr("delete", "s", "--dry-run").stdout == "Would delete s (2 versions).\n"
    refused = odr("delete", "s")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    server.wrong = [(200, [1, 2])]
    done = {"subject": "s", "versions": [1, 2], "permanent": True, "failed": {}}
    assert odr.json("delete", "s", "--permanent", "--yes") == (0, done)
    server.wrong = [(200, 2)]
    assert odr("delete", "s", "--version", "2", "--yes").stdout == "Deleted version 2 of s.\n"
    assert server.asked[-1] == "DELETE /subjects/s/versions/2"


def test_registry_errors_are_printed_with_their_class_and_code(
    odr: Command, server: RegistryServer
) -> None:
    status, document = odr.json("show", "nothing")
    assert (status, document["error"]["error"]) == (1, "SchemaNotFoundError")
    assert document["error"]["code"] == 40401
    server.rule = lambda _: (401, {"error_code": 401, "message": "no"})
    assert odr.json("list")[1]["error"]["error"] == "RegistryAuthenticationError"
    done = odr("list")
    assert (done.exit_code, done.stderr.startswith("odradek schemas list: Registry")) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["show"], "name either a subject, or an id"),
        (["show", "s", "--id", "1"], "name either a subject, or an id"),
        (["show", "s", "--version", "first"], "--version must be a number"),
        (["register", "s", "/nowhere.avsc"], "can't be read"),
        (["register", "s", "/dev/zero", "--type", "avro"], "has more than"),
        (["register", "s", "/dev/null"], "use --type"),
        (["register", "s", "FILE", "--reference", "x"], "NAME=SUBJECT:VERSION"),
        (["compatibility", "s", "FILE", "--set", "FULL"], "use one of them"),
        (["compatibility", "--set", "SOME"], "--set must be one of"),
        (["list", "--subject", "("], "regular expression"),
        (["list", "--registry-property", "nothing=1"], "unknown setting"),
        (["list", "--registry", "http://[::1"], "must be an http or https URL"),
        (["list", "--registry", "http://me:pl4nted@x"], "basic.auth.user.info"),
    ],
)
def test_wrong_arguments_are_rejected(odr: Command, file: str, words: list[str], why: str) -> None:
    status, document = odr.json(*[file if word == "FILE" else word for word in words])
    assert (status, document["error"]["error"]) == (2, "UsageError")
    assert why in document["error"]["message"]
    assert "pl4nted" not in document["error"]["message"]


def test_the_error_for_a_missing_registry_url_names_the_flag() -> None:
    odr = Command("")
    assert "use --registry URL" in odr.json("list")[1]["error"]["message"]


def test_registry_settings_are_read_from_a_clients_file(
    odr: Command, server: RegistryServer, tmp_path: Path
) -> None:
    """A file for a Kafka client may also contain the registry's settings."""
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers=h:1\nschema.registry.url={server.url}\n"
        "schema.registry.basic.auth.user.info=me:it\n"
    )
    odr.env = {REGISTRY: None, REGISTRY_CONFIG: str(path)}
    assert odr.json("list") == (0, {"subjects": [], "failed": {}})
    assert server.headers[-1]["authorization"] == "Basic bWU6aXQ="


def doctor(url: str, *words: str) -> tuple[int, dict[str, Any]]:
    odr = Command("")
    quick = ("--registry-property", "retry.backoff.ms=1", "--timeout", "1")
    return odr.json("--registry", url, *quick, *words, command="doctor")


def test_the_doctor_can_check_only_the_registry(server: RegistryServer) -> None:
    server.subjects = {"s": [1]}
    status, found = doctor(server.url)
    assert (status, found["findings"], found["explain"]) == (0, [], None)
    assert found["steps"] == [
        {"step": "schema registry", "state": "ok", "detail": f"{server.url} has 1 subject"}
    ]
    shown = Command("")("--registry", server.url, command="doctor")
    assert (shown.exit_code, "No problems found" in shown.stdout) == (0, True)


@pytest.mark.parametrize(
    ("answer", "what", "cure"),
    [
        ((401, {"message": "who?"}), "rejects this client", "basic.auth.user.info"),
        ((403, b""), "rejects this client", "administrator"),
        ((404, b"no route"), "isn't the URL of a registry", "Check the path"),
        ((302, b""), "isn't the URL of a registry", "redirects"),
        ((503, b""), "can't be used", "logs"),
    ],
)
def test_the_doctor_explains_responses_of_a_failing_registry(
    server: RegistryServer, answer: Any, what: str, cure: str
) -> None:
    server.rule = lambda _: answer
    status, found = doctor(server.url)
    assert status == STATUSES[Trouble.REGISTRY] == 26
    assert found["kind"] == "registry"
    assert what in found["first"]
    assert cure in found["findings"][0]["cure"]


def test_an_unreachable_or_untrusted_registry_is_reported(tmp_path: Path) -> None:
    status, found = doctor("http://127.0.0.1:1")
    assert (status, "can't be used" in found["first"]) == (26, True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path).issue("server", hosts=["localhost"]).both)
    with registry_server(context) as server:
        status, found = doctor(server.url)
    assert (status, "TLS with the schema registry fails" in found["first"]) == (26, True)
    assert "ssl.ca.location" in found["findings"][0]["cure"]


def test_the_error_for_apicurios_native_url_names_its_confluent_compatible_url(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server.answer

    def apicurio(method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        own, prefix, rest = path.partition("/apis/ccompat/v7")
        if not prefix:
            return 404, {"status": 404, "title": f"No handler for {own}"}
        return answer(method, rest, body, headers)

    monkeypatch.setattr(server, "answer", apicurio)
    status, found = doctor(f"{server.url}/apis/registry/v3")
    assert status == 26
    assert f"{server.url}/apis/ccompat/v7" in found["findings"][0]["cure"]


def test_the_text_of_a_schema_file_is_registered_unchanged(
    odr: Command, server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'syntax = "proto3";\n\nmessage A {\n\tstring to = 1; // \x1b[31m\n}'
    file = tmp_path / "a.proto"
    file.write_text(text + "\n")
    assert odr("register", "s", str(file)).exit_code == 0
    assert server.schemas[0]["schema"] == text
    assert odr("show", "s").stdout == odr("show", "--id", "1").stdout == text + "\n"
    monkeypatch.setattr(results, "_is_terminal", lambda: True)
    assert odr("show", "s").stdout == text.replace("\x1b", "\\x1b") + "\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.avsc", '{"type":\n "int",}', "line 2 column 8"),
        ("a.avsc", '{"type": "rekord"}', "isn't a valid Avro schema"),
        ("a.json", '{"type":\n,', "line 2 column 1"),
        ("a.json", '{"type": "nothing"}', "JSON schema isn't usable"),
    ],
)
def test_an_invalid_schema_is_not_sent(
    odr: Command, server: RegistryServer, tmp_path: Path, name: str, text: str, why: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    for verb in ("register", "compatibility"):
        done = odr(verb, "s", str(file))
        assert (done.exit_code, why in done.stderr, name in done.stderr) == (2, True, True)
    assert server.asked == []
