"""Read one Avro value from untrusted bytes with fastavro, which trusts its input.

In: bytes without a frame, the writer schema and the reader schema. Out: the value. Must not: ignore
bytes that are left over, or pass bytes to fastavro that would make it loop forever or crash.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

from odradek.serialization.avro.depth_check import NO_BRANCH, Walk
from odradek.serialization.avro.safe_schemas import guarded
from odradek.serialization.errors import DeserializationError
from odradek.serialization.extras import fastavro
from odradek.serialization.registry.schema_cache import kept
from odradek.serialization.schema_limits import AvroLimits

BYTES = "bytes"
"""Schema of plain bytes; Confluent writes their values without Avro's length prefix."""


def is_bytes(parsed: Any) -> bool:
    """Return whether a schema is exactly the type bytes."""
    return parsed == BYTES or (isinstance(parsed, dict) and parsed.get("type") == BYTES)


class WholeBytes(io.BytesIO):
    """Byte stream that raises an error at its end.

    fastavro skips items of fixed size that the reader schema omits without checking how many bytes
    remain: ten bytes that claim 2**60 items would keep it busy for years.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if size is not None and len(found) < size:
            raise EOFError
        return found


class AvroReading:
    """Reads values of any number of schemas; each schema is analysed once."""

    def __init__(self, texts: Collection[str] = ()) -> None:
        """Read the logical types in `texts` as strings; see `safe_schemas`."""
        self._read, self._texts = fastavro().schemaless_reader, texts
        self._wanted: dict[int, tuple[Any, Any]] = {}
        """By id() of a reader schema: that schema, to keep it alive, and its copy for fastavro."""
        self._written: dict[int, tuple[Any, Any, AvroLimits]] = {}
        """By id() of a writer schema: that schema, its copy for fastavro, and its limits."""
        self._defaults: dict[int, tuple[Any, bool]] = {}
        """By id() of a reader schema: that schema, and whether a default is a list or dict."""

    def value(self, payload: bytes, written: Any, wanted: Any = None, names: bool = False) -> Any:
        """Read a value that fills all bytes; `names` is fastavro's `return_record_name`.

        Raises `DeserializationError`, and `InvalidSchemaError` for a schema whose values are
        infinite.
        """
        _, for_writer, limits = self._written_of(written)
        if limits.may_be_deep(payload):
            Walk(limits.nodes, payload).go()
        # fastavro may skip arrays of fixed-size items unchecked. Checking each read costs 2 µs.
        watched = wanted is not None and limits.has_arrays_of_fixed_size
        stream = WholeBytes(payload) if watched else io.BytesIO(payload)
        if isinstance(written, list) and payload and payload[0] & 1:
            raise DeserializationError(NO_BRANCH)  # an odd first byte is a negative branch number
        for_reader = None if wanted is None else self._wanted_of(wanted)[1]
        try:
            found = self._read(stream, for_writer, for_reader, names)
        # fastavro may raise any exception for invalid bytes.
        except Exception as error:
            raise unread(error) from None
        left = len(payload) - stream.tell()
        if left:
            raise DeserializationError(
                f"{left} byte{'' if left == 1 else 's'} left over after the Avro value"
            )
        return _apart(found) if wanted is not None and self._has_defaults(wanted) else found

    def _wanted_of(self, wanted: Any) -> tuple[Any, Any]:
        found = self._wanted.get(id(wanted))
        if found is None:
            made = (wanted, guarded(wanted, self._texts, reading=True))
            found = kept(self._wanted, id(wanted), made)
        return found

    def _has_defaults(self, wanted: Any) -> bool:
        found = self._defaults.get(id(wanted))
        if found is None:
            found = kept(self._defaults, id(wanted), (wanted, has_shared_defaults(wanted)))
        return found[1]

    def _written_of(self, written: Any) -> tuple[Any, Any, AvroLimits]:
        found = self._written.get(id(written))
        if found is None:
            limits = AvroLimits(written)
            made = (written, guarded(written, self._texts, reading=True), limits)
            found = kept(self._written, id(written), made)
        return found


def has_shared_defaults(schema: Any) -> bool:
    """Return whether a parsed schema has a default that is a list or a dict.

    fastavro puts that same object into every value whose writer schema lacks the field.
    """
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict | list) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, list):
            waiting += one
            continue
        if isinstance(one.get("default"), dict | list):
            return True
        waiting += one.values()
    return False


def _apart(value: Any) -> Any:
    """Return a copy of a value whose dicts and lists aren't shared with other values."""
    whole = [value]
    waiting: list[Any] = [whole]
    while waiting:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for at, one in items:  # replacing a value while iterating is safe
            name, inner = one if isinstance(one, tuple) else (None, one)  # a tuple: (name, record)
            if not isinstance(inner, dict | list):
                continue
            inner = inner.copy()
            waiting.append(inner)
            holder[at] = inner if name is None else (name, inner)
    return whole[0]


def unread(error: Exception) -> DeserializationError:
    """Return the `DeserializationError` for an error of fastavro."""
    if isinstance(error, RecursionError):
        return DeserializationError("its Avro values are nested too deeply")
    # fastavro's text for EOFError contains an object's address.
    why = "it is truncated" if isinstance(error, EOFError) else f"{type(error).__name__}: {error}"
    return DeserializationError(f"the data doesn't match its Avro schema: {why}")
