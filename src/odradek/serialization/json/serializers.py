"""JSON with a schema registry: objects that a JSON Schema describes.

In: objects, or bytes with a schema id. Out: bytes, or objects. jsonschema-rs validates: it takes 4
µs instead of jsonschema's 500, and supports all drafts. Must not: fetch referenced schemas from
anywhere but the registry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from odradek.common.secret import private
from odradek.serialization.avro.serializers import given_function, given_schema
from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import (
    DeserializationError,
    InvalidSchemaError,
    SchemaRegistryError,
    SerializationError,
)
from odradek.serialization.extras import jsonschema_rs
from odradek.serialization.framing import (
    READING,
    WRITING,
    Framer,
    FromDict,
    ToDict,
    Unframer,
    read_settings,
)
from odradek.serialization.plain import parsed_json, written_json
from odradek.serialization.registry.client import SchemaRegistryClient, cache_of
from odradek.serialization.registry.references import referred
from odradek.serialization.registry.schema_cache import Kept, SchemaCache, kept
from odradek.serialization.registry.schemas import JSON, RegisteredSchema, Schema
from odradek.serialization.schema_limits import BASE, STANDARD, JsonLimits, joined
from odradek.serialization.wire_format import SchemaId, schema_of

VALIDATE = {"validate": True}
"""Setting of serializers and deserializers: whether values are validated."""
SAID = 300
"""Maximum number of characters of a validator's message in an error."""
_NOT_SCHEMAS = ("const", "default", "enum", "examples")
_ESCAPE = re.compile(r"\\(.)(-(?!\]))?", re.DOTALL)
"""Matches an escape in a regular expression, and a following hyphen unless `]` follows it."""


class JsonChecks:
    """Validators by schema, each created once."""

    def __init__(self, registry: SchemaRegistryClient | None) -> None:
        self._rs = jsonschema_rs()
        self._registry = registry
        self._made: Kept[Schema, tuple[Any, Any, JsonLimits]] = Kept(
            lambda: SchemaCache(0) if registry is None else cache_of(registry)
        )

    def check(self, schema: Schema, value: Any) -> str | None:
        """Return why a value is invalid, or None.

        Raises `InvalidSchemaError` for an invalid schema.
        """
        validator, exact, limits = self.prepare(schema)
        too_much = limits.check(value)
        if too_much is not None:
            return too_much
        try:
            (exact if limits.compares_long_integers(value) else validator).validate(value)
        except self._rs.ValidationError as error:
            path = "".join(f"/{one}" for one in error.instance_path) or "the root"
            return f"{path}: {error.message[:SAID]}"
        except (ValueError, TypeError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def check_own(self, schema: Schema, value: Any) -> str | None:
        """Check a value like `check`; an invalid schema is the program's own, not the record's."""
        self.prepare_own(schema)
        return self.check(schema, value)

    def prepare_own(self, schema: Schema) -> tuple[Any, Any, JsonLimits]:
        """Prepare a schema like `prepare`; an invalid one is the program's own, not a record's."""
        try:
            return self.prepare(schema)
        except SchemaRegistryError as error:
            raise error.blameless() from error.__cause__

    def prepare(self, schema: Schema) -> tuple[Any, Any, JsonLimits]:
        """Return a schema's validators, without and with `_UniqueItems`, and its limits.

        Raises `InvalidSchemaError`.
        """
        known = self._made.known()
        found = known.get(schema)
        if found is None:
            found = kept(known, schema, self._validator(schema))
        return found

    def _validator(self, schema: Schema) -> tuple[Any, Any, JsonLimits]:
        parsed = json_of(schema)
        others = {} if self._registry is None else _by_uri(schema, parsed, self._registry)

        def retrieve(uri: str) -> Any:
            if uri in others:
                return others[uri]
            names = ", ".join(one.name for one in schema.references) or "none"
            raise ValueError(
                f"{uri.removeprefix(BASE)} isn't one of the schema's references ({names})"
            )

        def made(keywords: dict[str, Any]) -> Any:
            # Other clients don't check formats either: dates without a zone are common.
            return self._rs.validator_for(
                parsed,
                retriever=retrieve,
                base_uri=BASE,
                validate_formats=False,
                keywords=keywords,
            )

        try:
            try:
                validator = made({})
            except ValueError:
                for one in (parsed, *others.values()):
                    _repair(one)
                validator = made({})
        # jsonschema-rs has its own exceptions for invalid schemas and unresolved references.
        except Exception as error:
            raise InvalidSchemaError(
                f"the JSON schema isn't usable: {str(error)[:SAID]}",
                None,
                "Change the schema (patterns are ECMA 262 regular expressions), or set validate "
                "to false.",
            ) from None
        limits = JsonLimits(parsed, others)
        exact = made({"uniqueItems": _UniqueItems}) if limits.unique else validator
        return validator, exact, limits


class _UniqueItems:
    """The keyword `uniqueItems`, for values with many long integers.

    The validator's own check compares each long integer with all others: 264 KB take 32 seconds.
    It is still used for other values, because it needs no copy of the value in Python.
    """

    def __init__(self, _: Any, required: Any, __: Any) -> None:
        self._required = required is True

    def validate(self, instance: Any) -> None:
        """Raise `ValueError` if two items of a list are equal."""
        if self._required and isinstance(instance, list) and len(instance) > 1:
            texts = [_compared(one) for one in instance]
            if len(set(texts)) < len(texts):
                raise ValueError("it has equal items")


def _compared(value: Any) -> str:
    """Return a text that is equal exactly for equal JSON values; needs no recursion.

    A peer can choose numbers whose hashes collide, but not texts, whose hashes are randomized.
    """
    texts: list[str] = []
    waiting = [value]  # items that are bytes are finished text
    while waiting:
        one = waiting.pop()
        if isinstance(one, bytes):
            texts.append(one.decode())
        elif isinstance(one, str):
            texts.append(json.dumps(one))
        elif isinstance(one, dict):
            waiting.append(b"}")
            for name in sorted(one, reverse=True):
                waiting += one[name], json.dumps(name).encode()
            texts.append("{")
        elif isinstance(one, list | tuple):
            waiting += b"]", *reversed(one)
            texts.append("[")
        else:
            whole = isinstance(one, float) and one.is_integer()
            texts.append(f"{int(one) if whole else one!r},")
    return "".join(texts)


def _by_uri(schema: Schema, parsed: Any, registry: SchemaRegistryClient) -> dict[str, Any]:
    """Return the documents of all schemas that a schema needs, by the URIs that refer to them.

    A reference's name is resolved like a `$ref`: against the URI of the referencing schema, and, as
    in Java, against the URI of the whole schema.
    """
    needed = {one: found.schema for one, found in referred(schema, registry)}
    documents = {one: json_of(found) for one, found in needed.items()}
    own = _identified(BASE, parsed)
    found: dict[str, Any] = {}
    waiting, met = [(own, schema)], set[Any]()
    for base, one in waiting:  # `waiting` grows during the loop
        for reference in one.references:
            uri, document = joined(base, reference.name), documents[reference]
            found.setdefault(uri, document)
            identified = _identified(uri, document)
            found.setdefault(identified, document)
            if reference not in met:
                met.add(reference)
                waiting.append((identified, needed[reference]))
    for reference, document in documents.items():
        found.setdefault(joined(own, reference.name), document)
    return found


def _identified(uri: str, document: Any) -> str:
    """Return the URI in a document's `$id`, resolved against `uri`; `uri` if it has none."""
    own = document.get("$id") if isinstance(document, dict) else None
    return joined(uri, own).partition("#")[0] if isinstance(own, str) else uri


def _repair(document: Any) -> None:
    r"""Change parts of a schema that the validator rejects and other programs accept.

    An unknown `$schema` is removed, so the latest draft is used, as by Python's jsonschema. In
    regular expressions, `\Z` becomes `$`, and a hyphen after a class like `\w` is escaped.
    """
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        if not isinstance(one, dict):
            continue
        draft, pattern, members = map(one.get, ("$schema", "pattern", "patternProperties"))
        if isinstance(draft, str) and not draft.startswith(STANDARD):
            del one["$schema"]
        if isinstance(pattern, str):
            one["pattern"] = _ESCAPE.sub(_rewritten, pattern)
        if isinstance(members, dict):
            one["patternProperties"] = {
                _ESCAPE.sub(_rewritten, name): inner for name, inner in members.items()
            }
        waiting += [inner for name, inner in one.items() if name not in _NOT_SCHEMAS]


def _rewritten(found: re.Match[str]) -> str:
    if found[1] == "Z":
        return "$" + (found[2] or "")
    if found[2] and found[1] in "wWdDsS":
        return f"\\{found[1]}\\-"
    return found[0]


def json_of(schema: Schema) -> Any:
    """Return the schema as parsed JSON. Raises `InvalidSchemaError`."""
    _must_be_json(schema)
    try:
        return json.loads(schema.schema_str)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"the text isn't a valid JSON schema: {error}", None, "") from None


def _must_be_json(schema: Schema) -> None:
    if schema.schema_type != JSON:
        raise InvalidSchemaError(
            f"the schema has type {schema.schema_type}, not JSON", None, "Check the topic."
        )


@lru_cache(maxsize=256)
def _title(schema: Schema) -> str | None:
    found = json_of(schema)
    return found.get("title") if isinstance(found, dict) else None


class JSONSerializer:
    """Serialize objects to JSON, validated with a JSON Schema and framed with its id.

    `schema_str`: a JSON Schema as a string, or a `Schema` (with references); None with
    `use.latest.version`. Its `title` is the record's name for RECORD and TOPIC_RECORD.
    `to_dict(obj, context)`: converts an object to a value that JSON can represent.
    `conf`: the settings of `AvroSerializer`, and `validate` (true).

    The JSON is UTF-8 without spaces, as confluent-kafka writes it.

    Call it with an object and a `SerializationContext`; None returns None. Raises
    `SerializationError`, and `SchemaRegistryError` if the schema isn't available.
    """

    @private
    def __init__(
        self,
        schema_str: str | Schema | None,
        schema_registry_client: SchemaRegistryClient,
        to_dict: ToDict | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Check schema and settings without connecting to the registry."""
        settings = read_settings(conf, WRITING | VALIDATE)
        self._framer = Framer(schema_registry_client, settings)
        self._checks = JsonChecks(schema_registry_client) if settings["validate"] else None
        self._to_dict = given_function("to_dict", to_dict)
        self._schema: Schema | None = None
        self._name: str | None = None
        if schema_str is not None:
            self._schema = given_schema(schema_str, JSON)
            self._name = _title(self._schema)
            if self._checks is not None and not self._schema.references:
                self._checks.prepare_own(self._schema)  # don't register an invalid schema
        elif not self._framer.takes_latest:
            raise SerializationError("schema_str is required unless use.latest.version is true")

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Serialize an object; return None for None."""
        if obj is None:
            return None
        found = self._registered(ctx)
        value = obj if self._to_dict is None else self._to_dict(obj, ctx)
        return self._framer.framed(self.payload(value, found.schema), found, ctx)

    def schema(self, ctx: SerializationContext | None) -> Schema:
        """Return the schema that records of this context are written with."""
        return self._registered(ctx).schema

    def payload(self, value: Any, schema: Schema) -> bytes:
        """Return a value as JSON, without framing."""
        written = written_json(value)  # first, because it rejects values nested too deeply
        if self._checks is not None:
            why = self._checks.check_own(schema, value)
            if why is not None:
                raise SerializationError(f"the data doesn't match its JSON schema: {why}")
        return written

    def _registered(self, ctx: SerializationContext | None) -> RegisteredSchema:
        schema = self._schema
        return self._framer.registered(self._framer.subject(ctx, self._name), lambda: schema)


class JSONDeserializer:
    """Deserialize framed JSON to dicts and validate it.

    `schema_str`: the schema to validate with. If None, the writer schema is used, or with
    `use.latest.version` the subject's latest version.
    `from_dict(value, context)`: converts the value to an object.
    `schema_registry_client`: without a registry only `schema_str` is used.
    `conf`: `use.latest.version`, `subject.name.strategy`, `validate` (true).

    Call it with bytes and a `SerializationContext`; None returns None. Raises
    `DeserializationError`, and `SchemaRegistryError` if the schema isn't available.
    """

    @private
    def __init__(
        self,
        schema_str: str | Schema | None = None,
        from_dict: FromDict | None = None,
        schema_registry_client: SchemaRegistryClient | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Check schema and settings without connecting to the registry."""
        settings = read_settings(conf, READING | VALIDATE)
        registry = schema_registry_client
        self._unframer = None if registry is None else Unframer(registry, settings)
        self._checks = JsonChecks(registry) if settings["validate"] else None
        self._from_dict = given_function("from_dict", from_dict)
        self._schema = None if schema_str is None else given_schema(schema_str, JSON)
        if self._schema is not None:
            json_of(self._schema)
            if self._checks is not None and not self._schema.references:
                self._checks.prepare_own(self._schema)

    def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Deserialize bytes to an object; return None for None."""
        if data is None:
            return None
        found, at = schema_of(data, ctx)
        try:
            value = parsed_json(data[at:])
        except DeserializationError:
            self._refuse_other_kinds(found)
            raise
        if self._checks is not None:
            why = self._why(self._checks, value, found, ctx)
            if why is not None:
                raise DeserializationError(f"the data doesn't match its JSON schema: {why}")
        return value if self._from_dict is None else self._from_dict(value, ctx)

    def _refuse_other_kinds(self, found: SchemaId) -> None:
        """Raise for bytes that aren't JSON, if their schema has a different format."""
        if self._unframer is None:
            return
        try:
            written = self._unframer.schema(found)
        except SchemaRegistryError as error:
            if not error.blames_record:
                raise
            return  # the caller reports invalid JSON
        _must_be_json(written)

    def _why(
        self, checks: JsonChecks, value: Any, of: SchemaId, ctx: SerializationContext | None
    ) -> str | None:
        """Return why the value is invalid, or None."""
        if self._schema is not None:
            return checks.check_own(self._schema, value)
        if self._unframer is None:
            return None
        written = self._unframer.schema(of)
        if not self._unframer.takes_latest:
            return checks.check(written, value)
        title = _title(written)
        try:
            latest = self._unframer.latest(ctx, title, written)
        except SchemaRegistryError as error:
            raise error.blameless() from error.__cause__
        return checks.check_own(latest, value)
