"""Test Apicurio with a proxy for each fault, and a registry that is recreated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.registry_server import FaultProxy, RegistryServer, registry_server
from tests.unit.serialization.test_registry_faults import FAULTS, QUICK, fails, record, recovers
from typer.testing import CliRunner

from odradek.cli import build
from odradek.errors import RecordDeserializationError, SchemaRegistryError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    avro_to_arrow,
)
from odradek.serialization.record_reading import RecordReading
from odradek.testing import LocalRegistry

TEXT = '{"type":"record","name":"F","fields":[{"name":"x","type":"string"}]}'
VALUE = SerializationContext("faults", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}


@pytest.fixture
def proxy(registry: LocalRegistry) -> Iterator[RegistryServer]:
    with registry_server(kind=FaultProxy) as found:
        assert isinstance(found, FaultProxy)
        found.upstream = registry.url
        yield found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_registry_fault_raises_and_the_same_record_is_read_afterwards(
    proxy: RegistryServer, fault: str
) -> None:
    settings = {"url": proxy.url, **QUICK}
    row = AvroSerializer(SchemaRegistryClient(settings), TEXT, conf=REGISTER)({"x": "a"}, VALUE)
    assert row is not None
    for more in ({}, {"auto.register.schemas": True}, {"use.latest.version": True}):
        registry = SchemaRegistryClient(settings)
        write = AvroSerializer(registry, TEXT, conf=more)
        read: Any = RecordReading(None, AvroDeserializer(registry))
        fails(proxy, fault, registry)
        with pytest.raises(SchemaRegistryError):
            write({"x": "a"}, VALUE)
        with pytest.raises(SchemaRegistryError):
            read([record(row)])
        with pytest.raises(SchemaRegistryError):
            avro_to_arrow(pa.array([row], pa.binary()), registry)
        recovers(proxy, registry)
        assert write({"x": "a"}, VALUE) == row
        assert read([record(row)])[0].value == {"x": "a"}
        assert avro_to_arrow(pa.array([row], pa.binary()), registry).errors == {}


def test_an_unknown_id_is_a_deserialization_error(registry: LocalRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    with pytest.raises(RecordDeserializationError, match="404"):
        RecordReading(None, AvroDeserializer(client))([record(b"\0\x7f\0\0\0\2a")])


def test_schema_formats_and_guids_of_apicurio_are_handled(registry: LocalRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    number = client.register_schema("formats", Schema(TEXT))
    assert client.get_schema(number, "resolved").schema_str == TEXT
    assert client.get_schema(number, "serialized").schema_str == TEXT
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_schema_by_guid("89791762-2336-186f-9674-299b90a8e2e2")
    assert not caught.value.blames_record


def test_schemas_and_doctor_commands_work(registry: LocalRegistry, tmp_path: object) -> None:
    def run(command: str, *words: str) -> tuple[int, dict[str, object]]:
        environment = {"ODRADEK_SCHEMA_REGISTRY": registry.url}
        done = CliRunner().invoke(build(command), [command, *words, "--json"], env=environment)
        return done.exit_code, json.loads(done.stdout)

    file = f"{tmp_path}/f.avsc"
    with open(file, "w", encoding="utf-8") as opened:  # noqa: PTH123
        opened.write(TEXT)
    subject = "commands-value"
    assert run("schemas", "register", subject, file, "--dry-run")[1]["existed"] is False
    status, made = run("schemas", "register", subject, file)
    assert (status, made["version"]) == (0, 1)
    assert run("schemas", "show", subject)[1]["schema"] == TEXT
    versions = run("schemas", "versions", subject)[1]["versions"]
    assert [(one["version"], one["id"]) for one in versions] == [(1, made["id"])]  # type: ignore[attr-defined]
    assert run("schemas", "compatibility", subject, "--set", "FULL")[0] == 0
    assert run("schemas", "compatibility", subject, file)[1]["compatible"] is True
    assert subject in run("schemas", "list")[1]["subjects"]  # type: ignore[operator]
    assert run("schemas", "delete", subject, "--yes")[0] == 0
    assert run("schemas", "show", subject)[0] == 1
    assert run("doctor", "--registry", registry.url)[0] == 0
    native = registry.url.replace("/apis/ccompat/v7", "/apis/registry/v3")
    status, found = run("doctor", "--registry", native, "--timeout", "10")
    assert (status, registry.url in json.dumps(found)) == (26, True)
    base = registry.url.removesuffix("/apis/ccompat/v7")
    status, found = run("doctor", "--registry", base, "--timeout", "10")
    assert (status, registry.url in json.dumps(found)) == (26, True)


def test_clients_use_the_ids_of_a_recreated_registry() -> None:
    """Check that a new client writes ids of the recreated registry."""
    other = Schema(TEXT.replace('"F"', '"Cherry"').replace('"x"', '"cherry"'))
    with LocalRegistry() as registry:
        old = SchemaRegistryClient({"url": registry.url})
        assert AvroSerializer(old, TEXT, conf=REGISTER)({"x": "hello"}, VALUE) is not None
        port = int(registry.url.rpartition(":")[2].partition("/")[0])
    with LocalRegistry(port) as registry:
        new = SchemaRegistryClient({"url": registry.url})
        new.register_schema("cherries", other)
        row = AvroSerializer(new, TEXT, conf=REGISTER)({"x": "hello"}, VALUE)
        assert AvroDeserializer(SchemaRegistryClient({"url": registry.url}))(row, VALUE) == {
            "x": "hello"
        }
        old.clear_caches()
        assert AvroSerializer(old, TEXT)({"x": "hello"}, VALUE) == row
