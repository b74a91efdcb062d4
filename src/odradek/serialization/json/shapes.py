"""Convert values of Arrow columns to values that can be written as JSON.

In: a type, a JSON Schema. Out: functions that convert values as Spark's `to_json` does: nulls of a
struct are left out, times are ISO 8601, bytes are base64, NaN and infinity are strings. Must not:
round a number: decimals keep all their digits.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.serialization.json.types import plain_schema

if TYPE_CHECKING:
    import pyarrow as pa

_Shape = Callable[[Any], Any]


class JsonShapes:
    """Functions that convert Arrow values to JSON values."""

    def __init__(self, document: Any) -> None:
        """Use the JSON Schema `document`; None if there is none."""
        self._document = document

    def of(self, kind: pa.DataType, schema: Any, where: str) -> _Shape:
        """Return the function for one type.

        `schema` is the matching part of the JSON Schema, if known. Raises `ConfigurationError` for
        a type that JSON can't represent.
        """
        import pyarrow as pa

        plain = plain_schema(schema, self._document)
        plain = plain if isinstance(plain, dict) else {}
        if pa.types.is_struct(kind):
            return self._struct(kind, plain, where)
        if pa.types.is_map(kind):
            return self._map(kind, plain, where)
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            return self.of(kind.value_type, schema, where)
        if _is_one_of(kind, _LISTS):
            item = self.of(kind.value_type, plain.get("items"), f"{where}'s items")
            return lambda given: [None if one is None else item(one) for one in given]
        if pa.types.is_decimal(kind) and kind.scale == 0:
            return int
        for tests, shape in _PLAIN:
            if _is_one_of(kind, tests):
                return shape
        raise ConfigurationError(
            f"{where} is {kind}, which JSON can't represent exactly: cast the column"
        )

    def _struct(self, kind: pa.StructType, schema: dict[str, Any], where: str) -> _Shape:
        properties, required = schema.get("properties"), schema.get("required")
        known = properties if isinstance(properties, dict) else {}
        needed = required if isinstance(required, list) else []
        fields = [
            (one.name, self.of(one.type, known.get(one.name), f"{where}.{one.name}"))
            for one in kind
        ]

        def made(given: dict[str, Any]) -> dict[str, Any]:
            there = {n: shape(given[n]) for n, shape in fields if given[n] is not None}
            # The schema requires these members, so they are null instead of missing.
            return there | {n: None for n in given if given[n] is None and n in needed}

        return made

    def _map(self, kind: pa.MapType, schema: dict[str, Any], where: str) -> _Shape:
        if not _is_one_of(kind.key_type, _TEXTS):
            raise ConfigurationError(
                f"{where} is {kind}, but keys in JSON are strings: cast the column"
            )
        item = self.of(kind.item_type, schema.get("additionalProperties"), f"{where}'s values")
        return lambda given: {key: None if one is None else item(one) for key, one in given.items()}


def _same(given: Any) -> Any:
    return given


def _number(given: float) -> float | str:
    return given if math.isfinite(given) else json.dumps(given)


def _iso(given: Any) -> str:
    """Return a date, a local time, or a time in UTC with Z, as ISO 8601."""
    return str(given.isoformat()).replace("+00:00", "Z")


_TEXTS = ("string", "large_string", "string_view")
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
_BYTES = ("binary", "large_binary", "fixed_size_binary", "binary_view")
_PLAIN: tuple[tuple[tuple[str, ...], _Shape], ...] = (
    (("boolean", "integer", "decimal", "null", *_TEXTS), _same),
    (("floating",), _number),
    (("date", "timestamp"), _iso),
    (_BYTES, lambda given: b64encode(given).decode()),
)
"""Names of Arrow's type predicates, and the functions that convert values of these types to JSON.
"""


def _is_one_of(kind: pa.DataType, names: tuple[str, ...]) -> bool:
    import pyarrow as pa

    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)
