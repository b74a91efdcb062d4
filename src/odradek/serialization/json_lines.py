"""Many values of JSON read by Arrow in one go.

In: a column of JSON. Out: a column of one type, or None where Arrow doesn't take all of it. It is
strict, so what it takes is what Python reads: it refuses texts that aren't UTF-8, names that come
twice, numbers that don't fit, and what is of another kind. Must not: let a value end early, or
swallow the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MORE_MEMBERS = r'\}[ \t\r\n]*,[ \t\r\n]*"'
"""An object's end with a member behind it: of the object around, or of none."""


class ArrowJson:
    """Reads values of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        import pyarrow as pa

        self._kind = kind
        self._read = pa.schema([("v", _as_read(kind))])

    def read(self, values: pa.Array, *, parsed: bool = False) -> pa.Array | None:
        """Have Arrow read a binary column; None where it finds what it doesn't take.

        Each stands in an object of its own line: so none can end early, or swallow the next. What
        looks as if further members came behind an object is read once more, in a list: what may
        follow a value in an object (`,"w":2`) can't there, and the other way round. `parsed`: each
        is known to be JSON, so it may be other than an object or null.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        shown = pc.fill_null(values, b"null")
        try:
            table = _read_lines(b'{"v":', shown, b"}\n", self._read)
            if table.num_rows != len(values):
                return None
            if not parsed:
                doubtful = shown.filter(pc.match_substring_regex(shown, MORE_MEMBERS))
                if len(doubtful):
                    nothing = pa.schema([("no", pa.int8())])
                    listed = _read_lines(b'{"v":[', doubtful, b"]}\n", nothing)
                    if listed.num_rows != len(doubtful):
                        return None
            found = table.column("v").combine_chunks()
            if not parsed and found.null_count != values.null_count:
                return None  # a JSON null, or one with something behind it
            return found if found.type == self._kind else found.cast(self._kind)
        except (pa.ArrowInvalid, UnicodeDecodeError, OverflowError):
            return None


def _read_lines(before: bytes, values: pa.Array, after: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json as arrow_json

    lines = pc.binary_join_element_wise(before, values, after, b"")
    lines = lines.cast(pa.string())  # refuses what isn't UTF-8; the reader would take it
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


def _as_read(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's reader knows for one that it is cast to afterwards."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind
