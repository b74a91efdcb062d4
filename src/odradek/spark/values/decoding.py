"""Values decoded to columns on the way to Spark, whole batches at a time: the options, and JSON.

In: the column `value` as it came. Out: a struct column of the type that option valueSchema gives,
by the rules of Spark's `from_json`. Must not: know Kafka or a cluster; make objects of rows whose
batch decodes as it is. Avro is in `avro_values`, which is imported where it is asked for.

A batch is written as lines of JSON and read by Arrow in one go. Arrow takes all lines or none, so a
part that has a line it doesn't take is gone through value by value: what fits in it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Protocol

from odradek.common.errors import KafkaError
from odradek.spark.problems import OptionError
from odradek.spark.values.value_schema import value_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

CORRUPT = "_corrupt_record"
"""A string field of this name gets the text of values that can't be decoded, as in `from_json`."""
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)
"""Spark's names for what becomes of values that don't fit."""
TOGETHER = 1024
"""Values that are read together: so many are gone through one by one where one of them is bad."""

MORE_MEMBERS = r'\}[ \t\r\n]*,[ \t\r\n]*"'
"""An object's end with a member behind it: of the object around, or of none."""


class ValueDecodeError(KafkaError):
    """A value isn't what option valueSchema says, and option valueMode is FAILFAST."""

    def __init__(self, row: int, why: str) -> None:
        self.row, self.why = row, why
        super().__init__(f"value {row} of a batch: {why}")


class ValueDecoder(Protocol):
    """Decodes the values of one task."""

    bad: dict[int, str]
    """Of the last `decode`: by its number, why a value doesn't fit, and is null or in part."""

    def decode(self, values: pa.Array) -> pa.Array:
        """Give the struct of each value; null where a value is null."""


class Format(Protocol):
    """How a column is decoded; plain data, so it travels to tasks."""

    def resolved(self) -> Format:
        """The same with what isn't in the options looked up."""

    def schema(self) -> DataType:
        """Give the type of the decoded column."""

    def decoder(self, target: Any) -> ValueDecoder:
        """Make what decodes the values of one task to this type of Arrow's."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """How JSON values are decoded; plain data, so it travels to tasks."""

    schema_text: str
    fail_fast: bool = False

    def resolved(self) -> JsonFormat:
        """All of it is in the options."""
        return self

    def schema(self) -> StructType:
        """Give the type of the column `value`."""
        return value_schema(self.schema_text)

    def decoder(self, target: pa.StructType) -> JsonDecoder:
        """Make what decodes the values of one task."""
        return JsonDecoder(target, fail_fast=self.fail_fast)


def parse_value_format(plain: Mapping[str, str]) -> Format | None:
    """Read valueFormat and the options that go with it (names in small letters)."""
    given = plain.get("valueformat", "").strip().lower()
    for name in ("valueSchema", "valueMode"):
        if name.lower() in plain and not given:
            raise OptionError(f"option {name} is given without option valueFormat")
    for name in ("avroSchema", "avroWireFormat", "avroSchemaId"):
        if name.lower() in plain and given != "avro":
            raise OptionError(f"option {name} is given without valueFormat=avro")
    if not given:
        return None
    if given not in ("json", "avro"):
        raise OptionError(f"option valueFormat must be json or avro, not {given!r}")
    fail_fast = value_mode(plain) == FAILFAST
    if given == "avro":
        from odradek.spark.values.avro_values import parse_avro_format

        return parse_avro_format(plain, fail_fast=fail_fast)
    text = plain.get("valueschema", "").strip()
    if not text:
        raise OptionError(
            "option valueFormat needs option valueSchema, like id bigint, tags array<string>"
        )
    value_schema(text)
    return JsonFormat(text, fail_fast)


def value_mode(plain: Mapping[str, str]) -> str:
    """Read valueMode; where bad values have a topic of their own, they are no rows by default."""
    usual = DROPMALFORMED if "deadlettertopic" in plain else PERMISSIVE
    mode = plain.get("valuemode", usual).strip().upper()
    if mode not in MODES:
        raise OptionError(f"option valueMode must be {' or '.join(MODES)}, not {mode!r}")
    return mode


def in_parts(
    part: Callable[[pa.Array, int], pa.Array], values: pa.Array, target: pa.DataType
) -> pa.Array:
    """Decode so many values at a time; `part` also gets the place of its first one."""
    import pyarrow as pa

    parts = [part(values.slice(at, TOGETHER), at) for at in range(0, len(values), TOGETHER)]
    if not parts:
        return pa.nulls(0, target)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def kept_where(rows: Collection[int], values: pa.Array) -> pa.Array:
    """The values of these rows; null elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = pa.array([at in rows for at in range(len(values))], pa.bool_())
    return pc.if_else(kept, values, pa.scalar(None, values.type))


class JsonDecoder:
    """Decodes the JSON values of one task."""

    def __init__(self, target: pa.StructType, *, fail_fast: bool) -> None:
        import pyarrow as pa

        self._target, self._fail_fast = target, fail_fast
        self._fields = [field for field in target if field.name != CORRUPT]
        self._corrupt = len(self._fields) < target.num_fields
        self._plain = pa.struct(self._fields)
        self._read = pa.schema([("v", _as_read(self._plain))])
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Give the struct of each value; null where a value is null."""
        self.bad = {}
        return in_parts(self._part, values, self._target)

    def _part(self, values: pa.Array, first: int) -> pa.Array:
        import pyarrow as pa

        try:
            found = self._together(values)
        except (pa.ArrowInvalid, UnicodeDecodeError, OverflowError):
            found = None
        if found is None:
            return self._one_by_one(values, first)
        if not self._corrupt:
            return found
        columns = dict(zip((f.name for f in self._fields), found.flatten(), strict=True))
        columns[CORRUPT] = pa.nulls(len(found), pa.string())
        return pa.StructArray.from_arrays(
            [columns[field.name] for field in self._target],
            fields=list(self._target),
            mask=found.is_null(),
        )

    def _together(self, values: pa.Array) -> pa.Array | None:
        """Have Arrow read all values; None where it finds another number of them.

        Each stands in an object of its own line: so none can end early, or swallow the next. What
        looks as if further members came behind an object is read once more, in a list: what may
        follow a value in an object (`,"w":2`) can't there, and the other way round.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._fields:
            return None  # nothing but the corrupt record
        shown = pc.fill_null(values, b"null")
        table = _read_lines(b'{"v":', shown, b"}\n", self._read)
        if table.num_rows != len(values):
            return None
        doubtful = shown.filter(pc.match_substring_regex(shown, MORE_MEMBERS))
        if len(doubtful):
            listed = _read_lines(b'{"v":[', doubtful, b"]}\n", pa.schema([("no", pa.int8())]))
            if listed.num_rows != len(doubtful):
                return None
        found = table.column("v").combine_chunks()
        if found.null_count != values.null_count:
            return None  # a JSON null, which is no null to from_json
        return found if found.type == self._plain else found.cast(self._plain)

    def _one_by_one(self, values: pa.Array, first: int) -> pa.Array:
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        for number, value in enumerate(values):
            given: bytes | None = value.as_py()
            row, why = _decoded(given, self._fields)
            if why and self._fail_fast:
                raise ValueDecodeError(first + number, why)
            if why:
                self.bad[first + number] = why
            if why and self._corrupt and row is not None and given is not None:
                row[CORRUPT] = given.decode(errors="replace")
            rows.append(row)
        return pa.array(rows, self._target)


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


class _MisfitError(Exception):
    """Something isn't of the type that the schema says."""


def _decoded(given: bytes | None, fields: list[pa.Field]) -> tuple[dict[str, Any] | None, str]:
    """Decode one value as `from_json` does: the row, and what is wrong with it."""
    nothing = dict.fromkeys((field.name for field in fields), None)
    if given is None or not given.strip():
        return None, ""  # from_json takes an empty text for none
    try:
        document = json.loads(given)
    except (ValueError, RecursionError) as error:
        return dict(nothing), f"not JSON: {error}"
    if document is None:
        return dict(nothing), ""
    if not isinstance(document, dict):
        return dict(nothing), f"a JSON {type(document).__name__}, not an object"
    problems: list[str] = []
    return _struct(document, fields, "", problems), "; ".join(problems)


def _struct(
    document: dict[str, Any], fields: list[pa.Field], where: str, problems: list[str]
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields:
        row[field.name] = None
        try:
            row[field.name] = _fitting(
                document.get(field.name), field.type, f"{where}{field.name}", problems
            )
        except (_MisfitError, ValueError, OverflowError, RecursionError):
            problems.append(f"field {where}{field.name} isn't {field.type}")
    return row


def _fitting(given: Any, kind: pa.DataType, where: str, problems: list[str]) -> Any:
    """Give what a type makes of JSON, or raise."""
    import pyarrow as pa

    if given is None:
        return None
    if pa.types.is_struct(kind):
        return _struct(_of(given, dict), list(kind), f"{where}.", problems)
    if pa.types.is_list(kind):
        return [_fitting(each, kind.value_type, where, problems) for each in _of(given, list)]
    if pa.types.is_integer(kind):
        bits = 1 << (kind.bit_width - 1)
        if not -bits <= _of(given, int) < bits:
            raise _MisfitError
        return given
    for test, read in _READ:
        if getattr(pa.types, test)(kind):
            return read(given, kind)
    raise _MisfitError


def _of(given: Any, kind: type) -> Any:
    if type(given) is not kind:
        raise _MisfitError
    return given


def _floating(given: Any, _: pa.DataType) -> float:
    if type(given) is str and given in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF"):
        return float(given)
    if type(given) not in (int, float):
        raise _MisfitError
    return float(given)


def _text(given: Any, _: pa.DataType) -> str:
    """Give the text of whatever stands there, as from_json does."""
    found = given
    if not isinstance(given, str):
        found = json.dumps(given, separators=(",", ":"), ensure_ascii=False)
    found.encode()  # raises a ValueError for half of a surrogate pair, which no column can hold
    return str(found)


def _timestamp(given: Any, kind: pa.DataType) -> datetime:
    found = datetime.fromisoformat(_of(given, str))
    if kind.tz is None:
        if found.tzinfo is not None:
            raise _MisfitError
        return found
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_READ: tuple[tuple[str, Callable[[Any, pa.DataType], Any]], ...] = (
    ("is_boolean", lambda given, _: _of(given, bool)),
    ("is_floating", _floating),
    ("is_string", _text),
    ("is_date", lambda given, _: date.fromisoformat(_of(given, str))),
    ("is_timestamp", _timestamp),
)
