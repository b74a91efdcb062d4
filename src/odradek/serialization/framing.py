"""Share settings, subjects and ids between the serializers of all three formats.

In: a registry, settings with Confluent's names, a schema. Out: the id of a schema under a subject,
requested once; payloads framed with their schema id, and the schemas of framed payloads. Must not:
know a format, or register a schema unless a setting says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from odradek.common.errors import ConfigurationError
from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import SerializationError
from odradek.serialization.registry.client import SchemaRegistryClient, cache_of
from odradek.serialization.registry.rules import READ, WRITE, check_migration, check_rules
from odradek.serialization.registry.schema_cache import Kept, SchemaCache
from odradek.serialization.registry.schemas import RegisteredSchema, Schema
from odradek.serialization.registry.subjects import strategy
from odradek.serialization.wire_format import SchemaId, add_header

PREFIX, HEADER = "prefix", "header"
WRITING: dict[str, Any] = {
    "auto.register.schemas": False,
    "use.latest.version": False,
    "normalize.schemas": False,
    "subject.name.strategy": "TOPIC",
    "schema.id.location": PREFIX,
}
"""Settings of serializers, with their defaults."""
READING: dict[str, Any] = {"use.latest.version": False, "subject.name.strategy": "TOPIC"}
"""Settings of deserializers, with their defaults."""

ToDict = Callable[[Any, Any], Any]
"""Function of an object and a `SerializationContext`, called before serialization."""
FromDict = Callable[[Any, Any], Any]
"""Function of a deserialized value and a `SerializationContext`."""


class _Named(Protocol):
    """Function that returns a subject's name, as selected by `subject.name.strategy`."""

    def __call__(self, context: SerializationContext | None, name: str | None, /) -> str | None: ...


def read_settings(given: Mapping[str, Any] | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults for those that aren't set. Raises `ConfigurationError`."""
    found = {**known, **(given or {})}
    strange = sorted(map(str, found.keys() - known.keys()))
    if strange:
        raise ConfigurationError(
            f"{', '.join(strange)}: unknown setting; the settings are {', '.join(sorted(known))}"
        )
    for name, default in known.items():
        if isinstance(default, bool):
            found[name] = _flag(name, found[name])
    if found.get("auto.register.schemas") and found["use.latest.version"]:
        raise ConfigurationError(
            "auto.register.schemas and use.latest.version can't be combined: one registers the "
            "schema, the other uses the latest registered one"
        )
    if found.get("schema.id.location", PREFIX) not in (PREFIX, HEADER):
        raise ConfigurationError(f"schema.id.location must be {PREFIX} or {HEADER}")
    return found


def _flag(name: str, value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, bool):
        return value
    raise ConfigurationError(f"{name} must be true or false, not {value!r}")


def _client(registry: object) -> SchemaRegistryClient:
    if not isinstance(registry, SchemaRegistryClient):
        raise ConfigurationError(
            "schema_registry_client must be a SchemaRegistryClient (for AsyncProducer too), not "
            f"{type(registry).__name__}"
        )
    return registry


class Framer:
    """Adds schema ids to payloads, as a prefix or in a header."""

    def __init__(self, registry: SchemaRegistryClient, settings: Mapping[str, Any]) -> None:
        self._registry = _client(registry)
        self._registers = settings["auto.register.schemas"]
        self.takes_latest = settings["use.latest.version"]
        self._normalizes = settings["normalize.schemas"]
        self._in_header = settings["schema.id.location"] == HEADER
        self._strategy: _Named = strategy(
            "subject.name.strategy", settings["subject.name.strategy"]
        )
        self._kept: Kept[str, RegisteredSchema] = Kept(self.cache)

    def cache(self) -> SchemaCache:
        """Return the registry client's cache, whose `over` is true once the client dropped it."""
        return cache_of(self._registry)

    def subject(self, context: SerializationContext | None, name: str | None) -> str:
        """Return the subject of a record's schema. Raises `SerializationError`."""
        found = self._strategy(context, name)
        if not found:
            raise ConfigurationError("subject.name.strategy returned no subject")
        return found

    def registered(self, subject: str, schema: Callable[[], Schema | None]) -> RegisteredSchema:
        """Look up or register the schema, or get the latest version, as the settings say.

        Raises `SchemaRegistryError`, also for a schema with rules for writing.
        """
        if self.takes_latest:
            latest = self._registry.get_latest_version(subject)
            check_rules(latest.schema, WRITE)
            return latest
        known = self._kept.known()
        found = known.get(subject)
        if found is not None:
            return found
        mine = schema()
        if mine is None:
            raise SerializationError("schema_str is required unless use.latest.version is true")
        ask = self._registry.lookup_schema
        if self._registers:
            ask = self._registry.registered_schema
        found = ask(subject, mine, self._normalizes)
        check_rules(found.schema, WRITE)
        known[subject] = found
        return found

    def reference(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Return a referenced schema with its version; register it with `auto.register.schemas`."""
        if self._registers:
            self._registry.registered_schema(subject, schema, self._normalizes)
        return self._registry.lookup_schema(subject, schema, self._normalizes)

    def framed(
        self,
        payload: bytes,
        found: RegisteredSchema,
        context: SerializationContext | None,
        indexes: tuple[int, ...] | None = None,
    ) -> bytes:
        """Return the payload with its schema id in front, or add the GUID to the headers."""
        of = SchemaId(found.schema_id, found.guid, indexes)
        if self._in_header:
            add_header(of, context)
            return payload
        return of.prefix() + payload


def written_schema(registry: SchemaRegistryClient, of: SchemaId) -> Schema:
    """Return the writer schema with an id or GUID.

    Raises `SchemaRegistryError`, also for a schema with rules for reading.
    """
    if of.id is not None:
        found = registry.get_schema(of.id)
    else:
        found = registry.get_schema_by_guid(of.guid or "")
    check_rules(found, READ)
    return found


class Unframer:
    """Finds the schema of serialized bytes."""

    def __init__(self, registry: SchemaRegistryClient, settings: Mapping[str, Any]) -> None:
        self._registry = _client(registry)
        self.takes_latest = settings["use.latest.version"]
        self._strategy: _Named = strategy(
            "subject.name.strategy", settings["subject.name.strategy"]
        )

    def cache(self) -> SchemaCache:
        """Return the registry client's cache, whose `over` is true once the client dropped it."""
        return cache_of(self._registry)

    def schema(self, of: SchemaId) -> Schema:
        """Return the writer schema with an id or GUID. Raises `SchemaRegistryError`."""
        return written_schema(self._registry, of)

    def latest(
        self, context: SerializationContext | None, name: str | None, written: Schema
    ) -> Schema:
        """Return the subject's latest schema; with `use.latest.version` it is the reader schema."""
        found = self._registry.get_latest_version(self._strategy(context, name) or "").schema
        check_rules(found, READ)
        check_migration(written, found)
        return found
