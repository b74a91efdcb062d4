"""Texts, numbers and JSON as bytes, without a schema.

In: an object or bytes, and a context, which is ignored. Out: bytes, or an object. The bytes are
those of Java's serializers with these names; None remains None. Must not: convert values of other
types.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from itertools import chain, zip_longest
from typing import Any

from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import DeserializationError, SerializationError
from odradek.serialization.schema_limits import MOST_DIGITS

_DECIMAL = "\ue000a decimal of Odradek\ue000"
"""Placeholder for a decimal until the value is written; a string with this text is rejected."""


class StringSerializer:
    """Serialize strings with one of Python's encodings (default UTF-8)."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Encode a string as bytes; None for None. Raises `SerializationError`."""
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except (UnicodeError, AttributeError) as error:
            raise SerializationError(
                f"expected a string that {self.codec} can encode: {error}"
            ) from None


class StringDeserializer:
    """Deserialize bytes to strings with one of Python's encodings (default UTF-8)."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """Decode bytes to a string; None for None. Raises `DeserializationError`."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise DeserializationError(f"the data isn't valid {self.codec} text: {error}") from None


class _Number:
    """Base class of serializers and deserializers for numbers of a fixed size."""

    form: struct.Struct
    kind: str

    def _packed(self, obj: Any) -> bytes | None:
        if obj is None:
            return None
        try:
            return self.form.pack(obj)
        except struct.error as error:
            raise SerializationError(f"expected {self.kind}: {error}") from None

    def _unpacked(self, value: bytes | None) -> Any:
        if value is None:
            return None
        if len(value) != self.form.size:
            raise DeserializationError(
                f"expected {self.kind}, not {len(value)} byte{'' if len(value) == 1 else 's'}"
            )
        return self.form.unpack(value)[0]


class IntegerSerializer(_Number):
    """Serialize ints to 4 bytes, big-endian, signed."""

    form, kind = struct.Struct(">i"), "an int of 4 bytes"

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Encode a number as bytes; None for None. Raises `SerializationError`."""
        return self._packed(obj)


class IntegerDeserializer(_Number):
    """Deserialize 4 bytes, big-endian, signed, to an int."""

    form, kind = struct.Struct(">i"), "an int of 4 bytes"

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the number that the bytes encode; None for None. Raises `DeserializationError`."""
        found: int | None = self._unpacked(value)
        return found


class LongSerializer(_Number):
    """Serialize ints to 8 bytes, big-endian, signed."""

    form, kind = struct.Struct(">q"), "an int of 8 bytes"

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Encode a number as bytes; None for None. Raises `SerializationError`."""
        return self._packed(obj)


class LongDeserializer(_Number):
    """Deserialize 8 bytes, big-endian, signed, to an int."""

    form, kind = struct.Struct(">q"), "an int of 8 bytes"

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the number that the bytes encode; None for None. Raises `DeserializationError`."""
        found: int | None = self._unpacked(value)
        return found


class DoubleSerializer(_Number):
    """Serialize floats to 8 bytes, big-endian."""

    form, kind = struct.Struct(">d"), "a float of 8 bytes"

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Encode a number as bytes; None for None. Raises `SerializationError`."""
        return self._packed(obj)


class DoubleDeserializer(_Number):
    """Deserialize 8 bytes, big-endian, to a float."""

    form, kind = struct.Struct(">d"), "a float of 8 bytes"

    def __call__(
        self, value: bytes | None, ctx: SerializationContext | None = None
    ) -> float | None:
        """Return the number that the bytes encode; None for None. Raises `DeserializationError`."""
        found: float | None = self._unpacked(value)
        return found


class PlainJSONSerializer:
    """Serialize objects to JSON in UTF-8, without spaces, schema or framing."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Encode an object as JSON; None for None. Raises `SerializationError`."""
        return None if obj is None else written_json(obj)


class PlainJSONDeserializer:
    """Deserialize JSON in UTF-8 without schema or framing."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Decode JSON to an object; None for None. Raises `DeserializationError`."""
        return None if value is None else parsed_json(value)


def parsed_json(value: bytes | memoryview) -> Any:
    """Parse JSON. Raises `DeserializationError` if it is invalid."""
    try:
        return json.loads(bytes(value))
    except (ValueError, RecursionError) as error:
        framed = bytes(value[:1]) == b"\0"  # the error of `json` would be about UTF-16
        why = (
            "it starts with a zero byte, like data that is framed with a schema id"
            if framed
            else error
        )
        raise DeserializationError(f"the data isn't valid JSON: {why}") from None


def written_json(value: Any) -> bytes:
    """Return an object as JSON in UTF-8 without spaces; decimals keep all their digits.

    Raises `SerializationError` if JSON can't represent it, or a decimal has too many digits.
    """
    decimals: list[str] = []

    def told(other: Any) -> str:
        if not isinstance(other, Decimal) or not other.is_finite():
            raise TypeError(f"Object of type {type(other).__name__} is not JSON serializable")
        if max(other.adjusted(), 0) - min(int(other.as_tuple().exponent), 0) >= MOST_DIGITS:
            raise ValueError(f"a decimal has more than {MOST_DIGITS} digits")
        decimals.append(f"{other:f}")
        return _DECIMAL

    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=told)
        if decimals:
            text = _with_decimals(text, decimals)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"the object can't be written as JSON: {error}") from None


def _with_decimals(text: str, decimals: list[str]) -> str:
    """Replace the placeholders with decimals, which Python's JSON encoder doesn't support."""
    parts = text.split(f'"{_DECIMAL}"')
    if len(parts) != len(decimals) + 1:
        raise ValueError(f"the string {_DECIMAL!r} is reserved")
    return "".join(chain.from_iterable(zip_longest(parts, decimals, fillvalue="")))
