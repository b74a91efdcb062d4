"""Read the options of keys and values whose schemas are in a registry.

In: the options without `kafka.*` (names in lower case), and the topics. Out: how keys and values
are decoded. Must not: contact a registry, or print a setting of its client (it may be a secret).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.common.errors import MissingExtraError
from odradek.common.secret import Secret
from odradek.serialization import extras
from odradek.serialization.registry.settings import SECRETS, registry_settings
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.value_options import FAILFAST, value_mode
from odradek.spark.values.decoding import CORRUPT as JSON_CORRUPT
from odradek.spark.values.decoding import Format
from odradek.spark.values.value_schema import value_schema

if TYPE_CHECKING:
    from odradek.spark.values.registry_avro import RegistryAvroFormat
    from odradek.spark.values.registry_json import RegistryJsonFormat
    from odradek.spark.values.registry_protobuf import RegistryProtobufFormat

URL, PREFIX = "schemaregistryurl", "schemaregistry."
CORRUPT = "columnNameOfCorruptRecord"
NEEDS = ("keyFormat", "keySubject", "valueSubject", "keyMessage", "valueMessage", CORRUPT)
"""Options that need a registry."""
NOT_WITH = {
    "valueSchema": "the registry has the writer schemas; set the reader schema with avroSchema",
    "avroWireFormat": "with a registry the wire format is always confluent",
    "avroSchemaId": "each value names its own schema",
}
"""Options of values that aren't allowed with a registry."""


def sealed_registry(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the schema registry's secrets wrapped."""
    return {
        name: Secret(value)
        if name.removeprefix(PREFIX) in SECRETS and isinstance(value, str)
        else value
        for name, value in options.items()
    }


def is_registry_setting(name: str) -> bool:
    """Return whether an option is a setting of the schema registry client."""
    return name.startswith(PREFIX)


def registry_settings_of(plain: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings of the schema registry client; None without one. Raises `OptionError`."""
    found = {n.removeprefix(PREFIX): value for n, value in plain.items() if n.startswith(PREFIX)}
    if URL in plain:
        return {**found, "schema.registry.url": plain[URL]}
    for name in NEEDS:
        if name.lower() in plain:
            raise OptionError(f"option {name} needs option schemaRegistryUrl")
    if found:
        raise OptionError("options schemaRegistry.* need option schemaRegistryUrl")
    return None


def parse_registry_formats(
    plain: Mapping[str, Any], settings: Mapping[str, Any], topics: tuple[str, ...]
) -> dict[str, Format]:
    """Read how keys and values are decoded with a registry, without a request to it.

    Raises `ConfigurationError`.
    """
    registry_settings(settings)  # only checks the settings
    found: dict[str, Format] = {}
    for name in ("key", "value"):
        given = str(plain.get(f"{name}format", "")).strip().lower()
        if given:
            read = FORMATS[name].get(given)
            if read is None:
                raise OptionError(
                    f"option {name}Format must be {' or '.join(FORMATS[name])} with option "
                    f"schemaRegistryUrl, not {given!r}"
                )
            found[name] = read(name, plain, settings, topics)
        elif f"{name}subject" in plain:
            raise OptionError(f"option {name}Subject needs option {name}Format")
    if not found:
        raise OptionError("option schemaRegistryUrl needs option valueFormat or keyFormat")
    return found


def require_package(form: str, what: str) -> None:
    """Check that the package for a format is installed.

    Raises `OptionError`, whose message begins with `what`.
    """
    needs = {"avro": extras.fastavro, "json": extras.jsonschema_rs, "protobuf": extras.protobuf}
    try:
        needs[form]()
    except MissingExtraError as error:
        raise OptionError(f"{what}, on the driver and each executor: {error}") from None


def _json(
    name: str, plain: Mapping[str, Any], settings: Mapping[str, Any], topics: tuple[str, ...]
) -> RegistryJsonFormat:
    from odradek.spark.values.registry_json import RegistryJsonFormat

    if name == "key":
        subject = _subject(name, plain, topics)
        return RegistryJsonFormat(settings, subject, fail_fast=value_mode(plain) == FAILFAST)
    for option in ("avroSchema", "avroWireFormat", "avroSchemaId"):
        if option.lower() in plain:
            raise OptionError(f"option {option} needs valueFormat=avro")
    corrupt = str(plain.get(CORRUPT.lower(), "")).strip()
    if corrupt not in ("", JSON_CORRUPT):
        raise OptionError(f"option {CORRUPT} must be {JSON_CORRUPT} with valueFormat=json")
    text = str(plain.get("valueschema", "")).strip()
    if text and "valuesubject" in plain:
        raise OptionError(
            "options valueSchema and valueSubject can't be combined: each sets the fields of values"
        )
    if text:
        value_schema(text)
    return RegistryJsonFormat(
        settings,
        "" if text else _subject(name, plain, topics),
        text or None,
        corrupt=bool(corrupt),
        fail_fast=value_mode(plain) == FAILFAST,
    )


def _protobuf(
    name: str, plain: Mapping[str, Any], settings: Mapping[str, Any], topics: tuple[str, ...]
) -> RegistryProtobufFormat:
    from odradek.spark.values.registry_protobuf import RegistryProtobufFormat

    require_package("protobuf", f"option {name}Format is protobuf")
    for option in ("avroSchema", "avroWireFormat", "avroSchemaId", "valueSchema"):
        if name == "value" and option.lower() in plain:
            raise OptionError(f"option {option} can't be combined with valueFormat=protobuf")
    corrupt = str(plain.get(CORRUPT.lower(), "")).strip() if name == "value" else ""
    return RegistryProtobufFormat(
        settings,
        _subject(name, plain, topics),
        str(plain.get(f"{name}message", "")).strip() or None,
        corrupt=corrupt or None,
        fail_fast=value_mode(plain) == FAILFAST,
    )


def _avro(
    name: str, plain: Mapping[str, Any], settings: Mapping[str, Any], topics: tuple[str, ...]
) -> RegistryAvroFormat:
    from odradek.spark.values.registry_avro import RegistryAvroFormat

    require_package("avro", f"option {name}Format is avro")
    if name == "value":
        for option, instead in NOT_WITH.items():
            if option.lower() in plain:
                raise OptionError(
                    f"option {option} can't be combined with option schemaRegistryUrl: {instead}"
                )
    text = str(plain.get("avroschema", "")).strip() if name == "value" else ""
    if text and "valuesubject" in plain:
        raise OptionError(
            "options avroSchema and valueSubject can't be combined: each sets the reader schema "
            "of values"
        )
    corrupt = str(plain.get(CORRUPT.lower(), "")).strip() if name == "value" else ""
    return RegistryAvroFormat(
        settings,
        "" if text else _subject(name, plain, topics),
        text or None,
        record=name == "value",
        corrupt=corrupt or None,
        fail_fast=value_mode(plain) == FAILFAST,
    )


def _subject(name: str, plain: Mapping[str, Any], topics: tuple[str, ...]) -> str:
    """Return the subject whose latest version keys or values are read as."""
    given = str(plain.get(f"{name}subject", "")).strip()
    if given:
        return given
    if len(topics) == 1:
        return f"{topics[0]}-{name}"
    inline = {"avro": " or avroSchema", "json": " or valueSchema"}
    also = inline.get(plain[f"{name}format"].strip().lower(), "") if name == "value" else ""
    raise OptionError(
        f"the query reads several topics, so option {name}Subject{also} must set the reader "
        f"schema of {name}s"
    )


FORMATS: dict[str, dict[str, Callable[..., Format]]] = {
    name: {"avro": _avro, "json": _json, "protobuf": _protobuf} for name in ("key", "value")
}
"""Functions that parse the options of a column, by format."""
