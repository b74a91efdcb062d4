"""Check columns once, as the JVM sink does, and split each batch by topic.

In: the schema of the rows; Arrow batches. Out: batches of one topic each, with the columns of
`send_arrow`. Must not: make Python objects of rows: Arrow's kernels do all of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError
from odradek.spark.sink.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

SENT = ("key", "value", "headers", "partition")
"""Columns of a record; the column `topic` contains its topic."""
_TYPES = {
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Names of the columns that are written, and the topic if it is the same for all rows."""

    sent: tuple[str, ...]
    topic: str | None
    """The topic of all rows; None: the column `topic` contains it."""

    def of_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return only the columns to write, with the topic column if rows have different topics."""
        return batch.select([*self.sent, *(() if self.topic is not None else ("topic",))])

    def by_topic(self, batch: pa.RecordBatch, first_row: int) -> Iterator[TopicRows]:
        """Split a batch by topic; rows of one topic keep their order.

        Raises `SinkRowError` for a null topic, before any row of the batch is sent.
        """
        rows = batch.select(list(self.sent))
        if self.topic is not None:
            yield TopicRows(self.topic, rows, first_row)
            return
        yield from _split(rows, batch.column("topic"), first_row)


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows for one topic, with their numbers in the task."""

    topic: str
    rows: pa.RecordBatch
    first_row: int
    taken: Any = None
    """Index of each row in the batch that begins at `first_row`; None if `rows` is contiguous."""

    def row(self, index: int) -> int:
        """Convert a row's index in `rows` to its number in the task."""
        return self.first_row + (index if self.taken is None else self.taken[index].as_py())

    def slices(self, most_bytes: int) -> Iterator[TopicRows]:
        """Divide the rows into batches of about `most_bytes` bytes; a row is never divided."""
        pieces = min(-(-self.rows.nbytes // most_bytes), self.rows.num_rows)
        if pieces <= 1:
            yield self
            return
        step = -(-self.rows.num_rows // pieces)
        for at in range(0, self.rows.num_rows, step):
            rows = self.rows.slice(at, step)
            if self.taken is None:
                yield TopicRows(self.topic, rows, self.first_row + at)
            else:
                yield TopicRows(self.topic, rows, self.first_row, self.taken.slice(at, step))


def check_columns(schema: t.StructType, options: SinkOptions) -> SinkColumns:
    """Accept the columns that the JVM sink accepts; like that sink, ignore all others."""
    found: dict[str, t.DataType] = {}
    for f in schema.fields:
        if f.name in _TYPES:
            if f.name in found:
                raise SinkSchemaError(f"column {f.name} occurs twice: rename or drop one of them")
            found[f.name] = f.dataType
    _require(schema, found, "value", "the record's value")
    if options.topic is None:
        _require(
            schema,
            found,
            "topic",
            "the topic of each row; or set option topic to send all rows to one topic",
        )
    if options.include_headers:
        _require(schema, found, "headers", "required by includeHeaders=true")
    for name, kind in found.items():
        counts = name not in options.encodings and (name != "topic" or options.topic is None)
        if counts and not _fits(name, kind):
            raise SinkSchemaError(
                f"column {name} has type {kind.simpleString()}, but must be {_TYPES[name]}: cast "
                "it (for JSON: to_json(struct(…)))"
            )
    return SinkColumns(tuple(n for n in SENT if n in found), options.topic)


def _require(schema: t.StructType, found: dict[str, Any], name: str, why: str) -> None:
    if name in found:
        return
    near = [f.name for f in schema.fields if f.name.lower() == name]
    hint = f" (names are case-sensitive: rename {near[0]!r})" if near else ""
    names = ", ".join(f.name for f in schema.fields[:20]) or "none"
    raise SinkSchemaError(
        f"column {name!r} is missing: {why}{hint}. The frame has these columns: {names}. The sink "
        "writes the columns value, key, headers, topic and partition."
    )


def _fits(name: str, kind: t.DataType) -> bool:

    if name == "partition":
        return isinstance(kind, t.IntegerType)
    if name != "headers":
        text = isinstance(kind, t.StringType | t.CharType | t.VarcharType)
        return text or (name != "topic" and isinstance(kind, t.BinaryType))
    if not isinstance(kind, t.ArrayType) or not isinstance(kind.elementType, t.StructType):
        return False
    wanted = [("key", t.StringType), ("value", t.BinaryType)]
    fields = [(f.name, type(f.dataType)) for f in kind.elementType.fields]
    return fields == wanted


def _split(rows: pa.RecordBatch, topics: Any, first_row: int) -> Iterator[TopicRows]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if topics.null_count:
        row = first_row + pc.index(pc.is_null(topics), True).as_py()
        raise SinkRowError(
            f"row {row} of this task has a null in column topic: fill it, filter such rows out, "
            "or set option topic to send all rows to one topic",
            row,
        )
    coded: Any = pc.dictionary_encode(topics)
    names, codes = coded.dictionary, coded.indices
    if len(names) == 1:
        yield TopicRows(names[0].as_py(), rows, first_row)
        return
    order = pc.array_sort_indices(codes)  # a stable sort: each topic's rows keep their order
    counts = pc.value_counts(codes)
    by_code = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
    at = 0
    for code, name in enumerate(names.to_pylist()):
        taken = order.slice(at, by_code[code])
        at += by_code[code]
        yield TopicRows(
            name,
            pa.RecordBatch.from_arrays(
                [column.take(taken) for column in rows.columns], schema=rows.schema
            ),
            first_row,
            taken,
        )
