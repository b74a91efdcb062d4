"""Read many JSON values with one call of Arrow.

In: a column of JSON. Out: a column of one type, or None if Arrow can't read all of it exactly as
Python does. Values are rejected if they aren't UTF-8, have duplicate names, numbers out of range or
a different type, and also if Arrow and Python read their times or floats differently: the result
for a row must not depend on the other rows. Must not: let a value end early, or extend into the
next one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MORE_MEMBERS = r'\}[ \t\r\n]*,[ \t\r\n]*"'
"""Matches the end of an object that is followed by a comma and a member's name."""
NEGATIVE_WHOLE_ZERO = r"-0([^.0-9eE]|$)"
"""Matches the integer -0: Arrow reads it as the float -0.0, but Python as 0, which becomes 0.0."""
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-9]{2}(:[0-9]{2}(\.[0-9]{1,%d})?)?%s$"
"""Matches times that Arrow and Python read alike; formatted with fraction digits and a zone."""
ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"
EDGES = r"^(0000|(0001-01-01|9999-12-31).*[+-][0-9]{2}:[0-9]{2}$)"
"""Matches year 0, which Python doesn't support, and days that a zone may shift out of range."""


class ArrowJson:
    """Reads many JSON values of one type at once, with Arrow."""

    def __init__(self, kind: pa.DataType) -> None:
        import pyarrow as pa

        self._kind = kind
        self._read = pa.schema([("v", _as_read(kind))])

    def read(self, values: pa.Array, *, parsed: bool = False) -> pa.Array | None:
        """Parse a binary column with Arrow; return None if it contains something Arrow can't read.

        Each value is put into an object on a line of its own, so that no value can end early or
        extend into the next. A value that may contain further members after its end is parsed
        again, in a list: text that may follow a value in an object (`,"w":2`) can't follow it in a
        list, and vice versa. `parsed`: all values are known to be valid JSON and may have any type;
        otherwise they must be objects or null.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        shown = pc.fill_null(values, b"null")
        try:
            table = _read_lines(b'{"v":', shown, b"}\n", self._read)
            if table.num_rows != len(values):
                return None
            if not parsed:
                if _has_long_numbers(shown):
                    return None
                doubtful = shown.filter(pc.match_substring_regex(shown, MORE_MEMBERS))
                if len(doubtful):
                    nothing = pa.schema([("no", pa.int8())])
                    listed = _read_lines(b'{"v":[', doubtful, b"]}\n", nothing)
                    if listed.num_rows != len(doubtful):
                        return None
            found = table.column("v").combine_chunks()
            if not parsed and found.null_count != values.null_count:
                return None  # a value is null, perhaps with other text after it
            if _has_any(found, _is_infinite):
                return None  # it was an integer of hundreds of digits, which Python rejects
            if (
                _has_any(found, _is_negative_zero)
                and pc.any(pc.match_substring_regex(shown, NEGATIVE_WHOLE_ZERO)).as_py()
            ):
                return None
            return _as_wanted(found, self._kind)
        except (pa.ArrowInvalid, UnicodeDecodeError, OverflowError):
            return None


def _read_lines(before: bytes, values: pa.Array, after: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json as arrow_json

    lines = pc.binary_join_element_wise(before, values, after, b"")
    lines = lines.cast(pa.string())  # the cast rejects invalid UTF-8, unlike the reader
    _, offsets, data = lines.buffers()
    begin, end = lines.offset, lines.offset + len(lines)
    bounds = memoryview(offsets).cast("i")
    text = data.slice(bounds[begin], bounds[end] - bounds[begin])
    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def _has_long_numbers(values: pa.Array) -> bool:
    """Return whether a row may have an integer with more digits than Python reads.

    Such an integer may be in a member that the type doesn't have.
    """
    import pyarrow.compute as pc

    most = sys.get_int_max_str_digits()
    long_ones = values.filter(pc.greater(pc.binary_length(values), most))
    if not most or not len(long_ones):
        return False
    number = re.compile(rb"(?<![0-9])[0-9]{%d}" % (most + 1))  # `(?<!…)` keeps the time linear
    return any(number.search(one.as_py()) for one in long_ones)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type to read with Arrow's JSON reader before the result is cast to `kind`."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    return pa.float64() if pa.types.is_float32(kind) else kind  # the cast rounds to float32


def _as_wanted(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to `kind`; raise `ArrowInvalid` for texts that Python may read differently."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if found.type == kind:
        return found
    if pa.types.is_timestamp(kind):
        return _times(found, kind)
    if not pa.types.is_nested(kind):
        if pa.types.is_date(kind) and pc.any(pc.match_substring_regex(found, EDGES)).as_py():
            raise pa.ArrowInvalid("a date that Python may read differently")
        return found.cast(kind)
    parts, buffers = _parts(found)
    kinds = [field.type for field in kind] if pa.types.is_struct(kind) else [kind.value_type]
    children = [_as_wanted(one, of) for one, of in zip(parts, kinds, strict=True)]
    return pa.Array.from_buffers(
        kind, len(found), buffers, found.null_count, found.offset, children=children
    )


def _parts(found: pa.Array) -> tuple[list[pa.Array], list[pa.Buffer | None]]:
    """Return the child arrays and the own buffers of a struct or list array."""
    import pyarrow as pa

    if pa.types.is_struct(found.type):
        return [found.field(at) for at in range(found.type.num_fields)], found.buffers()[:1]
    return [found.values], found.buffers()[:2]


def _has_any(found: pa.Array, test: Callable[[pa.Array], pa.Array]) -> bool:
    """Return whether `test` is true for any float in an array or its child arrays."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(found.type):
        return any(_has_any(one, test) for one in _parts(found)[0])
    return pa.types.is_floating(found.type) and bool(pc.any(test(found)).as_py())


def _is_infinite(found: pa.Array) -> Any:
    import pyarrow.compute as pc

    return pc.is_inf(found)


def _is_negative_zero(found: pa.Array) -> Any:
    import pyarrow.compute as pc

    return pc.and_(pc.equal(found, 0.0), pc.less(pc.divide(1.0, found), 0.0))


def _times(texts: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """Parse texts as timestamps; if the type has a zone, texts without a zone are in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    digits = 9 if kind.unit == "ns" else 6
    known = pc.match_substring_regex(texts, TIME % (digits, "" if kind.tz is None else f"{ZONE}?"))
    edge = pc.match_substring_regex(texts, EDGES)
    if pc.all(pc.and_not(known, edge)).as_py() is False:  # `all` is None if all are null
        raise pa.ArrowInvalid("a time that Python may read differently")
    if kind.tz is not None:
        zoned = pc.match_substring_regex(texts, f"{ZONE}$")
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return texts.cast(kind)
