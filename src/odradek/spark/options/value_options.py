"""Options of values whose schema is an option itself: valueFormat, valueSchema, valueMode.

In: the options without `kafka.*` (names in small letters). Out: how values are decoded. Must not:
know a schema registry. Avro's options are in `avro_values`, which is imported for Avro only.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.values.decoding import Format, JsonFormat
from odradek.spark.values.value_schema import value_schema

PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)
"""Spark's names for what becomes of values that don't fit."""


def parse_value_format(plain: Mapping[str, str]) -> Format | None:
    """Read valueFormat and the options that belong to it (names in lower case)."""
    given = plain.get("valueformat", "").strip().lower()
    for name in ("valueSchema", "valueMode"):
        if name.lower() in plain and not given:
            raise OptionError(f"option {name} needs option valueFormat")
    for name in ("avroSchema", "avroWireFormat", "avroSchemaId"):
        if name.lower() in plain and given != "avro":
            raise OptionError(f"option {name} needs valueFormat=avro")
    if not given:
        return None
    if given == "protobuf":
        raise OptionError("option valueFormat=protobuf needs option schemaRegistryUrl")
    if given not in ("json", "avro"):
        raise OptionError(f"option valueFormat must be json or avro, not {given!r}")
    fail_fast = value_mode(plain) == FAILFAST
    if given == "avro":
        from odradek.spark.values.avro_values import parse_avro_format

        return parse_avro_format(plain, fail_fast=fail_fast)
    text = plain.get("valueschema", "").strip()
    if not text:
        raise OptionError(
            "option valueFormat=json needs option valueSchema, like id bigint, tags "
            "array<string>; or option schemaRegistryUrl, if the values start with a schema id"
        )
    value_schema(text)
    return JsonFormat(text, fail_fast)


def value_mode(plain: Mapping[str, str]) -> str:
    """Read valueMode; with a dead letter topic, bad values are dropped by default."""
    usual = DROPMALFORMED if "deadlettertopic" in plain else PERMISSIVE
    mode = plain.get("valuemode", usual).strip().upper()
    if mode not in MODES:
        raise OptionError(f"option valueMode must be {' or '.join(MODES)}, not {mode!r}")
    return mode
