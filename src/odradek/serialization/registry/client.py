"""Query schema registries with Confluent's REST API.

In: settings, and ids, subjects or schemas. Out: schemas, ids, versions, compatibility levels.
Schemas and ids never change, so each is requested once per process: clients with the same settings
share a cache. Must not: register anything on its own, cache what a registry refused, or block an
event loop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote

from odradek.common.arguments import refusal, text, whole_number
from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.common.secret import private
from odradek.runtime.rest import NoAnswerError, RestAnswer, RestLimits, RestServers
from odradek.runtime.system_clock import SystemClock
from odradek.runtime.tls.file_contexts import FileContexts
from odradek.runtime.tls.pem_context import pem_context
from odradek.serialization.context import NO_WAITING
from odradek.serialization.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryAuthenticationError,
    RegistryUnreachableError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from odradek.serialization.registry.schema_cache import IN_LOOP, SchemaCache
from odradek.serialization.registry.schemas import (
    AVRO,
    KINDS,
    RegisteredSchema,
    Schema,
    SchemaReference,
)
from odradek.serialization.registry.settings import (
    URL,
    RegistrySettings,
    registry_settings,
    with_secrets,
)

T = TypeVar("T")
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
LATEST = "latest"
LEVELS = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
"""Compatibility levels of Confluent's registry."""
LEAST = -1
"""The least version: registries take it for the latest one."""
MOST_CACHES = 32
"""Registries whose schemas a process keeps; the one that came first is forgotten."""

_REFUSALS: dict[int, tuple[type[SchemaRegistryError], str]] = {
    401: (RegistryAuthenticationError, "Check basic.auth.user.info or bearer.auth.token."),
    403: (RegistryAuthenticationError, "Ask the registry's administrator for this permission."),
    404: (
        SchemaNotFoundError,
        (
            "Check the topic, subject.name.strategy and schema.registry.url, and that the schema "
            "is registered (a serializer registers it with auto.register.schemas=true)."
        ),
    ),
    409: (IncompatibleSchemaError, "Change the schema, or the subject's compatibility level."),
    422: (InvalidSchemaError, "Check the schema's text, type and references."),
}


_caches: dict[tuple[int, RegistrySettings, int], SchemaCache] = {}


def _shared_cache(settings: RegistrySettings) -> SchemaCache:
    """Return the cache for these settings in this process; a forked child has its own."""
    most = int(settings.numbers["cache.capacity"])
    key = (os.getpid(), settings, most)
    found = _caches.get(key)
    if found is None:
        while len(_caches) >= MOST_CACHES:
            _caches.pop(next(iter(_caches)), None)
        found = _caches.setdefault(key, SchemaCache(most))
    return found


class SchemaRegistryClient:
    """A client of a schema registry (Confluent's REST API); threads may share one.

    `config` has Confluent's names:

    - `schema.registry.url`: one or more URLs, separated by commas; any of them is used
    - `basic.auth.user.info` (`user:password`), or `bearer.auth.token` (a string, or a function that
      returns one), with `bearer.auth.logical.cluster` and `bearer.auth.identity.pool.id`
    - `basic.auth.credentials.source` (only `USER_INFO`), `bearer.auth.credentials.source` (only
      `STATIC_TOKEN`)
    - `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `ssl.key.password` (PEM)
    - `request.timeout.ms` (10,000: one request to one server), `default.api.timeout.ms` (30,000: a
      call with its retries), `retry.backoff.ms`, `retry.backoff.max.ms`
    - `cache.latest.ttl.sec` (300: how long a subject's latest version is cached), `cache.capacity`
      (1,000: how many schemas, and how many answers of other kinds, are cached)

    Clients with the same settings share their cache within a process.

    Each call raises `ArgumentError` for an invalid argument,
    `RegistryUnreachableError`, `RegistryAuthenticationError`, `SchemaNotFoundError`,
    `IncompatibleSchemaError`, `InvalidSchemaError`, or another
    `SchemaRegistryError` with the registry's message, its `status` and its `error_code`.

    >>> registry = SchemaRegistryClient({"schema.registry.url": "http://localhost:8081"})
    >>> registry.register_schema("flights-value", Schema('{"type": "string"}'))
    1
    """

    _of = "nothing"  # until the settings are checked: a traceback may show a client before

    @private
    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check the settings without connecting. Raises `ConfigurationError`."""
        config = with_secrets(config)  # first: the rest may raise
        settings = registry_settings(config)
        numbers = settings.numbers
        self._settings, self._of = settings, ",".join(settings.urls)
        self._time_to_live = numbers["cache.latest.ttl.sec"]
        self._clock = SystemClock()
        self._servers = RestServers(
            settings.urls,
            settings.headers,
            FileContexts(
                [file for file in settings.files if file is not None],
                partial(pem_context, *settings.files, settings.key_password),
            ).context,
            RestLimits(
                numbers["default.api.timeout.ms"] / 1000, numbers["request.timeout.ms"] / 1000
            ),
            ExponentialBackoff(
                numbers["retry.backoff.ms"] / 1000, numbers["retry.backoff.max.ms"] / 1000
            ),
            CONTENT_TYPE,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._of}>"

    def __enter__(self) -> Self:
        """Return the client, as confluent-kafka's does; nothing needs to be closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    # These calls are used by serializers; each response is cached.

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        """Return the schema with an id.

        `fmt`: the registry's parameter `format`; "serialized" returns the descriptor of a Protobuf
        file in base64. Registries that don't support it return the schema unchanged.
        """
        schema_id = whole_number("schema_id", schema_id, 0)
        known, path = self._cache.schemas, f"/schemas/ids/{schema_id}"
        if fmt is None:
            return known.once(schema_id, lambda: self._schema(path))
        asked = f"{path}?format={_quoted('fmt', fmt)}"
        return known.once(asked, lambda: self._schema(asked))

    def get_schema_by_guid(self, guid: str) -> Schema:
        """Return the schema with a GUID; not all registries support GUIDs."""
        known, path = self._cache.schemas, f"/schemas/guids/{_quoted('guid', guid)}"
        return known.once(guid, lambda: self._schema(path))

    def lookup_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Return the id and version of a schema that is registered under a subject."""
        path = f"/subjects/{_name(subject_name)}?normalize={_flag(normalize_schemas)}"
        body, key = _body(schema), (subject_name, schema, normalize_schemas)
        return self._cache.looked_up.once(
            key, lambda: _registered(self._ask("POST", path, body), schema, subject_name)
        )

    def register_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> int:
        """Register a schema under a subject, unless it is registered already; return its id."""
        return self.registered_schema(subject_name, schema, normalize_schemas).schema_id

    def registered_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject; return its id, and its GUID if there is one."""
        path = f"/subjects/{_name(subject_name)}/versions?normalize={_flag(normalize_schemas)}"
        body, key = _body(schema), (subject_name, schema, normalize_schemas)

        def register() -> RegisteredSchema:
            found = _registered(self._ask("POST", path, body), schema, subject_name)
            self._cache.latest.forget(lambda one: one == subject_name)
            return found

        return self._cache.registered.once(key, register)

    def get_latest_version(self, subject_name: str) -> RegisteredSchema:
        """Return a subject's latest version, cached for `cache.latest.ttl.sec`."""
        # A response that a thread has just fetched for an event loop counts there, whatever the
        # setting.
        least = IN_LOOP if NO_WAITING.get() else 0.0

        def fetch() -> tuple[float, RegisteredSchema]:
            found = self._version(subject_name, LATEST)
            return self._clock.now() + self._time_to_live, found

        def good(held: tuple[float, RegisteredSchema]) -> bool:
            return self._clock.now() < held[0] + least

        return self._cache.latest.once(text("subject_name", subject_name), fetch, good)[1]

    def get_version(self, subject_name: str, version: int | str = LATEST) -> RegisteredSchema:
        """Return a version of a subject; the latest one is cached as in `get_latest_version`."""
        if version == LATEST:
            return self.get_latest_version(subject_name)
        name, number = text("subject_name", subject_name), whole_number("version", version, LEAST)
        known = self._cache.versions
        return known.once((name, number), lambda: self._version(name, number))

    # All else is asked each time

    def get_subjects(self) -> list[str]:
        """Return all subjects."""
        return _list(self._ask("GET", "/subjects"), str)

    def get_versions(self, subject_name: str) -> list[int]:
        """Return the version numbers of a subject."""
        return _list(self._ask("GET", f"/subjects/{_name(subject_name)}/versions"), int)

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """Delete a subject and return its versions.

        With `permanent`, a subject that is already deleted is removed permanently.
        """
        path = f"/subjects/{_name(subject_name)}"
        found = self._ask("DELETE", path + "?permanent=true" * permanent)
        self._cache.forget(subject_name)
        return _list(found, int)

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version of a subject and return its number."""
        version = whole_number("version", version, LEAST)
        path = f"/subjects/{_name(subject_name)}/versions/{version}"
        found = self._ask("DELETE", path + "?permanent=true" * permanent)
        self._cache.forget(subject_name)
        return _list([found], int)[0]

    def test_compatibility(
        self, subject_name: str, schema: Schema, version: int | str = LATEST
    ) -> bool:
        """Return whether a schema is compatible with a version of its subject."""
        if version != LATEST:
            version = whole_number("version", version, LEAST)
        path = f"/compatibility/subjects/{_name(subject_name)}/versions/{version}"
        return bool(_object(self._ask("POST", path, _body(schema))).get("is_compatible"))

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility level of a subject, or the default level, like `BACKWARD`."""
        found = _object(self._ask("GET", _config(subject_name)))
        return str(found.get("compatibilityLevel") or found.get("compatibility"))

    def set_compatibility(self, level: str, subject_name: str | None = None) -> str:
        """Set the compatibility level of a subject, or the default level, and return it.

        Raises `ArgumentError` for an unknown level, for example if level and subject are swapped.
        """
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise ArgumentError(
                f"level must be one of {', '.join(LEVELS)}, not {level!r}; the subject is the "
                "second argument"
            )
        found = _object(self._ask("PUT", _config(subject_name), {"compatibility": level.upper()}))
        return str(found.get("compatibility") or found.get("compatibilityLevel"))

    # Asking

    @property
    def _cache(self) -> SchemaCache:
        return _shared_cache(self._settings)

    def _schema(self, path: str) -> Schema:
        return _schema_in(self._ask("GET", path))

    def _version(self, subject: str, version: int | str) -> RegisteredSchema:
        found = self._ask("GET", f"/subjects/{_name(subject)}/versions/{version}")
        return _registered(found, _schema_in(found), subject)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        try:
            answer = self._servers.call(method, path, body)
        except NoAnswerError as error:
            raise RegistryUnreachableError(
                f"{method} {path}: {error}", None, f"Check {URL} and the network."
            ) from None
        if answer.status != 200 or answer.body is None:
            raise _refusal(f"{method} {path}", answer)
        return answer.body


def _name(subject: str) -> str:
    return _quoted("subject_name", subject)


def _flag(given: object) -> str:
    return "true" if given else "false"


def _quoted(name: str, value: str) -> str:
    """Return a quoted part of a path. Raises `ArgumentError` if it isn't a string."""
    return quote(text(name, value), safe="")


def _config(subject: str | None) -> str:
    return "/config" if subject is None else f"/config/{_name(subject)}"


def _body(schema: Schema) -> dict[str, Any]:
    """Return the body of a request with a schema. Raises `ArgumentError` if it is invalid."""
    if not isinstance(schema, Schema):
        raise refusal("schema", "a Schema", schema, 'Schema(text, "AVRO")')
    if schema.schema_type not in KINDS:
        raise refusal("schema_type", f"one of {', '.join(KINDS)}", schema.schema_type)
    body: dict[str, Any] = {"schema": schema.schema_str}
    if schema.schema_type != AVRO:
        body["schemaType"] = schema.schema_type
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    return body


def _strange(what: str) -> SchemaRegistryError:
    return SchemaRegistryError(f"the registry's answer {what}", None, f"Check {URL}.")


def _object(found: Any) -> dict[str, Any]:
    """Return a response that must be a JSON object: the server may be anything."""
    if not isinstance(found, dict):
        raise _strange("isn't a JSON object")
    return found


def _list(found: Any, kind: type[T]) -> list[T]:
    """Return a response that must be a list of this type; true and false aren't numbers."""
    if not isinstance(found, list) or not all(type(one) is kind for one in found):
        raise _strange(f"isn't a JSON list of {'strings' if kind is str else 'numbers'}")
    return found


def _schema_in(answer: Any) -> Schema:
    found = _object(answer)
    words, kind = found.get("schema"), found.get("schemaType") or AVRO
    if not (isinstance(words, str) and isinstance(kind, str)):
        raise _strange("has no schema")
    try:
        references = tuple(
            SchemaReference(
                text("name", one["name"]),
                text("subject", one["subject"]),
                whole_number("version", one["version"], LEAST),
            )
            for one in found.get("references") or ()
        )
    except (KeyError, TypeError, ConfigurationError):
        raise _strange("has invalid references") from None
    return Schema(words, kind, references)


def _registered(answer: Any, schema: Schema, subject: str) -> RegisteredSchema:
    found = _object(answer)
    number, version, guid = found.get("id"), found.get("version"), found.get("guid")
    if type(number) is not int:
        raise _strange("has no id")
    if not isinstance(version, int | None) or not isinstance(guid, str | None):
        raise _strange("has an invalid version or GUID")
    named = found.get("subject") or subject
    if not isinstance(named, str):
        raise _strange("has an invalid subject")
    return RegisteredSchema(number, named, version, schema, guid)


def _refusal(question: str, answer: RestAnswer) -> SchemaRegistryError:
    """Return the error for a response with an error status."""
    body = answer.body if isinstance(answer.body, dict) else {}
    said, code = body.get("message"), body.get("error_code")
    what = f"{answer.place} answered {question} with HTTP {answer.status}"
    if isinstance(said, str) and said:
        what += f": {said}"
    kind, cure = _REFUSALS.get(answer.status, (SchemaRegistryError, f"Check {URL}."))
    if answer.status == 404 and not isinstance(code, int):
        # A registry has error codes for missing objects; any other server doesn't know the path.
        kind = SchemaRegistryError
        cure = f"This isn't a schema registry: also check the path in {URL}."
    if answer.passes:
        kind, cure = (
            RegistryUnreachableError,
            "The registry has an internal problem: check its logs.",
        )
    elif 300 <= answer.status < 400:
        cure = f"Set {URL} to the URL that it redirects to."
    return kind(what, None, cure).coded(answer.status, code if isinstance(code, int) else None)
