"""Query schema registries with Confluent's REST API.

In: settings, and ids, subjects or schemas. Out: schemas, ids, versions, compatibility levels.
Schemas and ids never change in a registry, so each is requested once per client. A new client
starts with an empty cache: the registry may have been recreated since. A schema that isn't found is
requested again after a pause, because registries that are starting report existing schemas as
missing. Must not: register anything on its own, or block an event loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

from odradek.common.arguments import refusal, text, whole_number
from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.common.printable import shell_quoted
from odradek.common.secret import private
from odradek.common.shared_deadline import share_deadline
from odradek.runtime.fork import ForkSwitch
from odradek.runtime.rest_client import (
    NoAnswerError,
    NoCredentialsError,
    RestAnswer,
    RestLimits,
    RestServers,
)
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
    UnusableSettingError,
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
"""Smallest valid version number; for registries it means the latest version."""
CONFIRM_S = 2.0
"""Seconds for which a registry must have answered before a schema counts as missing: a registry
that has just started reports all schemas as missing until it has read its topic (Karapace 6.2:
0.7 s). The time counts across calls, so that many unknown ids cause only one such delay."""
PROBE_S = 0.5
"""Seconds between requests during `CONFIRM_S`: a restart in between makes a request fail."""
MISSING = (40401, 40402, 40403)
"""Error codes for a subject, a version or a schema that doesn't exist."""

APICURIO = "/apis/ccompat/v7"
"""Path of Confluent's REST API in Apicurio Registry."""
_CHECK_URL = f"Check {URL}."
_REFUSALS: dict[int, tuple[type[SchemaRegistryError], str]] = {
    401: (RegistryAuthenticationError, "Check basic.auth.user.info or bearer.auth.token."),
    403: (RegistryAuthenticationError, "Ask the registry's administrator for this permission."),
    404: (SchemaNotFoundError, ""),
    409: (IncompatibleSchemaError, "Change the schema, or the subject's compatibility level."),
    422: (InvalidSchemaError, "Check the schema's text, type and references."),
}
"""Error classes and advice by HTTP status; the advice for 404 depends on the request."""
_NOT_YET = "Delete it without permanent=True first."
_NO_OWN = "The registry's default applies to this subject."
_BY_CODE: dict[int, tuple[type[SchemaRegistryError], str]] = {
    40404: (SchemaNotFoundError, "The subject was deleted. Register the schema again."),
    40405: (SchemaRegistryError, _NOT_YET),
    40406: (SchemaNotFoundError, "The version was deleted. Register the schema again."),
    40407: (SchemaRegistryError, _NOT_YET),
    40408: (SchemaRegistryError, _NO_OWN),
    40409: (SchemaRegistryError, _NO_OWN),
    42202: (SchemaRegistryError, "Versions are numbers from 1 on, or 'latest'."),
    42203: (SchemaRegistryError, f"Levels are {', '.join(LEVELS)}."),
    42204: (SchemaRegistryError, "Modes are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT."),
    42205: (
        SchemaRegistryError,
        "Set the mode of the subject, or the registry's mode, to READWRITE in the registry.",
    ),
    42206: (SchemaRegistryError, "Delete the schemas that reference it first."),
}
"""Error classes and advice by error code, if the HTTP status doesn't determine them."""


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

    Each client has its own cache; `clear_caches()` empties it.

    Each call raises `ArgumentError` for an invalid argument,
    `RegistryUnreachableError`, `RegistryAuthenticationError`, `SchemaNotFoundError`,
    `IncompatibleSchemaError`, `InvalidSchemaError`, or another
    `SchemaRegistryError` with the registry's message, its `status` and its `error_code`.

    >>> registry = SchemaRegistryClient({"schema.registry.url": "http://localhost:8081"})
    >>> registry.register_schema("flights-value", Schema('{"type": "string"}'))
    1
    """

    _of = "nothing"  # shown in a traceback if the settings aren't checked yet

    @private
    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check the settings without connecting. Raises `ConfigurationError`."""
        config = with_secrets(config)  # before checks: a traceback may show `config`
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
            _is_final,
        )
        self._fork, self._held = ForkSwitch(), SchemaCache(int(numbers["cache.capacity"]))

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
        return known.once(asked, lambda: self._formatted(path, asked))

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
            key, lambda: _registered(self._confirmed("POST", path, body), schema, subject_name)
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
            self._cache.added(subject_name)
            return found

        return self._cache.registered.once(key, register)

    def get_latest_version(self, subject_name: str) -> RegisteredSchema:
        """Return a subject's latest version, cached for `cache.latest.ttl.sec`."""
        # If cache.latest.ttl.sec is 0, a response would be outdated before the event loop, for
        # which a thread has fetched it, can use it.
        least = IN_LOOP if NO_WAITING.get() else 0.0

        def fetch() -> tuple[float, RegisteredSchema]:
            found = self._version(subject_name, LATEST)
            return self._clock.now() + self._time_to_live, found

        def good(held: tuple[float, RegisteredSchema]) -> bool:
            return self._clock.now() < held[0] + least

        return self._cache.latest.once(text("subject_name", subject_name), fetch, good)[1]

    def get_version(self, subject_name: str, version: int | str = LATEST) -> RegisteredSchema:
        """Return a version of a subject; the latest one is cached as in `get_latest_version`."""
        if version in (LATEST, LEAST):
            return self.get_latest_version(subject_name)
        name, number = text("subject_name", subject_name), whole_number("version", version, LEAST)
        known = self._cache.versions
        return known.once((name, number), lambda: self._version(name, number))

    # Responses to these calls aren't cached

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
        self.clear_caches()
        return _list(found, int)

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version of a subject and return its number."""
        version = whole_number("version", version, LEAST)
        path = f"/subjects/{_name(subject_name)}/versions/{version}"
        found = self._ask("DELETE", path + "?permanent=true" * permanent)
        self.clear_caches()
        return _list([found], int)[0]

    def test_compatibility(
        self, subject_name: str, schema: Schema, version: int | str = LATEST
    ) -> bool:
        """Return whether a schema is compatible with a version of its subject."""
        return compatibility(self, subject_name, schema, version)[0]

    def clear_caches(self) -> None:
        """Clear the caches of this client, and of serializers and deserializers that use it.

        Call it after the registry was recreated, or after schemas were deleted permanently.
        """
        self._servers.forget_answers()
        self._held.end()
        self._held = SchemaCache(int(self._settings.numbers["cache.capacity"]))

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

    # Requests

    @property
    def _cache(self) -> SchemaCache:
        if not self._fork.here:  # in a forked child, inherited locks may be held for ever
            self._fork = ForkSwitch()
            self.clear_caches()
        return self._held

    def _schema(self, path: str) -> Schema:
        return _schema_in(self._confirmed("GET", path, everywhere=True))

    def _formatted(self, path: str, asked: str) -> Schema:
        """Return a schema in the requested format, or as it is if the registry rejects that."""
        try:
            return self._schema(asked)
        except SchemaRegistryError as error:
            if error.status not in (400, 422):  # a proxy may have sent any other status
                raise
            return self._schema(path)

    def _version(self, subject: str, version: int | str) -> RegisteredSchema:
        path = f"/subjects/{_name(subject)}/versions/{version}"
        found = self._confirmed("GET", path, everywhere=version != LATEST)
        return _registered(found, _schema_in(found), subject)

    def _confirmed(
        self, method: str, path: str, body: object = None, *, everywhere: bool = False
    ) -> Any:
        """Return the response to a look-up; repeat the request while the schema is missing.

        The schema counts as missing once each server has answered for `CONFIRM_S` seconds without a
        failure or gap. With `everywhere`, each server has to confirm that the schema is missing;
        the error's `blames_record` is then true.
        """
        with share_deadline():
            deadline = self._servers.deadline()
            try:
                return self._ask(method, path, body)
            except SchemaNotFoundError as error:
                if error.error_code not in MISSING:
                    raise
            end = self._servers.half_way(2 * (CONFIRM_S + PROBE_S), deadline)
            is_last = False
            while True:
                steady = self._servers.are_steady(CONFIRM_S)
                if not steady:
                    is_last = self._servers.pause_towards(end, PROBE_S)
                try:
                    return self._ask(method, path, body, everywhere=everywhere)
                except SchemaNotFoundError as error:
                    if steady or is_last or error.error_code not in MISSING:
                        sure = steady and error.error_code in MISSING
                        raise error.confirmed(everywhere and sure) from None

    def _ask(self, method: str, path: str, body: object = None, *, everywhere: bool = False) -> Any:
        question = f"{method} {path}"
        try:
            answer = self._servers.call(method, path, body, everywhere=everywhere)
        except NoAnswerError as error:
            raise RegistryUnreachableError(
                f"{question}: {error}", None, f"Check {URL} and the network."
            ) from None
        except NoCredentialsError as error:
            raise RegistryAuthenticationError(
                f"{question}: {error}", None, "Check that function."
            ) from error.__cause__
        except ConfigurationError as error:
            raise UnusableSettingError(str(error)) from None
        if answer.status != 200 or answer.body is None:
            raise _refusal(question, answer)
        return answer.body


def compatibility(
    registry: SchemaRegistryClient, subject: str, schema: Schema, version: int | str
) -> tuple[bool, list[str]]:
    """Return whether a schema is compatible with a version of its subject, and the reasons."""
    if version != LATEST:
        version = whole_number("version", version, LEAST)
    path = f"/compatibility/subjects/{_name(subject)}/versions/{version}?verbose=true"
    found = _object(registry._ask("POST", path, _body(schema)))  # noqa: SLF001 - as a method asks
    reasons = found.get("messages") or []
    texts = [str(one) for one in reasons] if isinstance(reasons, list) else []
    return bool(found.get("is_compatible")), texts


def cache_of(registry: SchemaRegistryClient) -> SchemaCache:
    """Return the cache of a client; it is new after `clear_caches`, and in a forked child."""
    return registry._cache  # noqa: SLF001 - not a method, which users would see


def _is_final(answer: RestAnswer) -> bool:
    """Return whether an answer comes from a registry; if not, another server may be asked.

    Unlike a proxy, a registry sends five-digit error codes for missing objects, and JSON results.
    """
    if answer.status == 200:
        return answer.body is not None
    return not answer.passes and (answer.status in _REFUSALS.keys() - {404} or bool(_code(answer)))


def _code(answer: RestAnswer) -> int | None:
    """Return a registry's error code, which begins with an HTTP status; None if there is none."""
    found = answer.body.get("error_code") if isinstance(answer.body, dict) else None
    return found if type(found) is int and 40000 <= found < 60000 else None


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
    if schema.rule_set is not None:
        body["ruleSet"] = json.loads(schema.rule_set)
    return body


def _strange(what: str) -> SchemaRegistryError:
    return SchemaRegistryError(f"the registry's answer {what}", None, _CHECK_URL)


def _object(found: Any) -> dict[str, Any]:
    """Return a response; raise `SchemaRegistryError` if it isn't a JSON object."""
    if not isinstance(found, dict):
        raise _strange("isn't a JSON object")
    return found


def _list(found: Any, kind: type[T]) -> list[T]:
    """Return a response; raise `SchemaRegistryError` if it isn't a list of this exact type."""
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
    return Schema(words, kind, references, _rule_set(found))


def _rule_set(found: dict[str, Any]) -> str | None:
    """Return the rule set of a response as JSON; None if it has no rules."""
    rules = found.get("ruleSet")
    if not rules:
        return None
    if not isinstance(rules, dict):
        raise _strange("has an invalid rule set")
    return json.dumps(rules, sort_keys=True)


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
    rules = _rule_set(found)
    if rules != schema.rule_set and "ruleSet" in found:  # absent in some responses
        schema = replace(schema, rule_set=rules)
    return RegisteredSchema(number, named, version, schema, guid)


def _refusal(question: str, answer: RestAnswer) -> SchemaRegistryError:
    """Return the error for an unsuccessful response."""
    code = answer.body.get("error_code") if isinstance(answer.body, dict) else None
    what = f"{answer.place} answered {question} with HTTP {answer.status}"
    said = _said(answer)
    if said:
        what += f": {said}"
    kind, cure = _REFUSALS.get(answer.status, (SchemaRegistryError, _CHECK_URL))
    kind, cure = _BY_CODE.get(_code(answer) or 0, (kind, cure))
    if answer.passes:
        kind = RegistryUnreachableError
        cure = "The registry has an internal problem: check its logs."
        if answer.status == 429:
            cure = "The registry limits the rate of requests: send fewer, or raise its limit."
    elif 300 <= answer.status < 400:
        cure = f"Set {URL} to the URL that it redirects to."
    elif not _is_final(answer):
        kind = SchemaRegistryError
        cure = f"Check the path in {URL}: no registry with Confluent's REST API has this URL."
        better = apicurio(answer.place)
        if "/apis" in urlsplit(answer.place).path and better != answer.place:
            cure = f"If this is Apicurio Registry, set {URL} to {better}."
        if "/guids/" in question:
            cure += " Or the registry has no GUIDs (Confluent Platform 8 or newer has them)."
    elif not cure:
        cure = _not_found(question, answer.place)
    return kind(what, None, cure).coded(answer.status, code if isinstance(code, int) else None)


def _not_found(question: str, place: str) -> str:
    """Return the advice for a missing schema, version or subject."""
    method, _, path = question.partition(" ")
    if path.startswith("/schemas/"):
        return (
            f"Check {URL}: the schema may be registered in another registry, or it was deleted "
            "permanently."
        )
    if method == "POST" and path.startswith("/subjects/"):
        return (
            "Check the topic, subject.name.strategy and schema.registry.url, and that the schema "
            "is registered (a serializer registers it with auto.register.schemas=true)."
        )
    return (
        f"Check the subject (of serializers: the topic and subject.name.strategy) and {URL}. List "
        f"the subjects with: odradek schemas list --registry {shell_quoted(place)}"
    )


def apicurio(url: str) -> str:
    """Return the URL of Confluent's REST API if the server is Apicurio Registry."""
    return re.sub(r"(?<!/)/apis(/.*)?$", "", url).rstrip("/") + APICURIO


def _said(answer: RestAnswer) -> str:
    """Return the server's error message, from the fields that registries and proxies use."""
    if not isinstance(answer.body, dict):
        return answer.words
    texts = (answer.body.get(name) for name in ("message", "detail", "title", "error"))
    return next((text for text in texts if isinstance(text, str) and text), "")
