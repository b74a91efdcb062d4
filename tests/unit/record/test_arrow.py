"""Test record columns as Arrow data."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.record import RecordColumns, decode
from odradek.record.arrow import (
    COLUMN_NAMES,
    FEW,
    ArrowSchemaError,
    _Constants,
    arrow_schema,
    to_record_batch,
)
from odradek.record.arrow_send import columns_from_arrow
from odradek.record.columns import EMPTY, Row
from odradek.record.reference import encode
from odradek.record.sent_columns import InvalidRowError

ROWS: list[Row] = [
    (10, 1_700_000_000_123, 0, b"k", b"v", (("a", b"1"), ("b", None))),
    (11, 0, 0, None, b"", ()),
    (12, -1, 0, b"", None, (("", b""),)),
    (13, 1_700_000_000_999, 0, None, b"w", ()),
]


def columns_of(rows: list[Row] = ROWS, **options: Any) -> RecordColumns:
    return decode(memoryview(encode(rows)), start_offset=0, **options).columns


def as_dicts(rows: list[Row]) -> list[dict[str, object]]:
    return [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 3,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(ms / 1000, UTC),
            "timestampType": kind,
            "headers": [{"key": k, "value": v} for k, v in headers] or None,
        }
        for offset, ms, kind, key, value, headers in rows
    ]


def test_requesting_headers_raises_if_the_column_names_do_not_contain_headers() -> None:
    with pytest.raises(ArrowSchemaError, match="needs 'headers' in columns: add it"):
        arrow_schema(True, ["value"])


def test_the_schema_equals_that_of_sparks_kafka_source() -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(header)),
    ]
    for include in (True, False):
        wanted = to_arrow_schema(StructType(fields if include else fields[:-1]), timezone="UTC")
        assert wanted.equals(arrow_schema(include))
        assert wanted.equals(to_record_batch(columns_of(), "t", 3, include_headers=include).schema)
        assert wanted.equals(to_record_batch(EMPTY, "t", 3, include_headers=include).schema)
    assert all(field.nullable for field in arrow_schema(True))


def test_the_batch_contains_the_values_of_all_columns() -> None:
    batch = to_record_batch(columns_of(), "t", 3, include_headers=True)
    batch.validate(full=True)
    assert batch.to_pylist() == as_dicts(ROWS)


def test_slices_of_columns_share_their_arrow_buffers() -> None:
    columns = columns_of()
    whole = to_record_batch(columns, "t", 3, include_headers=True)
    for start in range(5):
        for stop in range(start, 5):
            batch = to_record_batch(columns.slice(start, stop), "t", 3, include_headers=True)
            batch.validate(full=True)
            assert batch.to_pylist() == as_dicts(ROWS[start:stop])
            if stop > start:
                for name in ("key", "value", "offset"):
                    ours, theirs = batch.column(name).buffers(), whole.column(name).buffers()
                    assert [b and b.address for b in ours] == [b and b.address for b in theirs]


@pytest.mark.parametrize("seed", range(5))
def test_the_kernel_and_pyarrow_build_equal_small_batches(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    nulls = rng.choice((0.0, 0.3, 1.0))
    rows: list[Row] = []
    for offset in range(rng.randrange(1, FEW)):
        key, value = (
            None if rng.random() < nulls else bytes(rng.randrange(40)) for _ in ("key", "value")
        )
        rows.append((offset * 3, rng.randrange(-5, 1 << 45), 0, key, value, ()))
    columns = columns_of(rows)
    for _ in range(10):
        start = rng.randrange(len(rows))
        part = columns.slice(start, rng.randrange(start, len(rows)) + 1)
        names = rng.sample(COLUMN_NAMES[:-1], rng.randrange(1, 8))
        topic = rng.choice(("", "a", "täglich", "x" * 249))
        found = to_record_batch(part, topic, seed, names=names)
        with monkeypatch.context() as patch:
            patch.setattr("odradek.record.arrow.arrow_batch", lambda *_: None)
            wanted = to_record_batch(part, topic, seed, names=names)
        found.validate(full=True)
        assert found.equals(wanted)
        assert found.schema.equals(wanted.schema)
        assert [c.null_count for c in found.columns] == [c.null_count for c in wanted.columns]


def test_an_arrow_column_can_be_used_after_its_batch_is_deleted() -> None:
    column = to_record_batch(columns_of(), "t", 3).column("value")
    gc.collect()
    assert column.to_pylist() == [row[4] for row in ROWS]


def test_only_requested_columns_are_built() -> None:
    columns = columns_of(want_key=False, want_headers=False)
    batch = to_record_batch(columns, "t", 3, names=["offset", "value"])
    assert batch.schema.names == ["offset", "value"]
    assert batch.column("offset").to_pylist() == [10, 11, 12, 13]
    assert to_record_batch(columns, "t", 3, names=[]).num_columns == 0
    assert arrow_schema(names=["headers"]).names == ["headers"]
    with pytest.raises(ArrowSchemaError, match="unknown column 'Offset'; use key, value"):
        arrow_schema(names=["Offset"])
    with pytest.raises(ArrowSchemaError, match="twice"):
        arrow_schema(names=["key", "key"])
    with pytest.raises(ArrowSchemaError, match="'key' was requested but not decoded"):
        to_record_batch(columns, "t", 3)


def test_records_without_headers_have_null_headers() -> None:
    batch = to_record_batch(columns_of(ROWS[3:]), "t", 3, include_headers=True)
    assert batch.column("headers").to_pylist() == [None]


def test_timestamps_too_large_for_microseconds_are_null() -> None:
    limit = (2**63 - 1) // 1000
    times = [5, 2**62, limit, limit + 1, -1]
    rows: list[Row] = [(i, time, 0, None, None, ()) for i, time in enumerate(times)]
    column = to_record_batch(columns_of(rows), "t", 3).column("timestamp")
    assert column.cast(pa.int64()).to_pylist() == [5000, None, limit * 1000, None, -1000]


@pytest.mark.parametrize("form", ["batch", "table", "selected", "stream"])
def test_a_too_large_timestamp_that_became_null_is_not_sent_as_now(form: str) -> None:
    limit = (2**63 - 1) // 1000
    times = [5, limit, limit + 1, -1]
    rows: list[Row] = [(i, time, 0, None, b"v", ()) for i, time in enumerate(times)]
    names = ["value", "timestamp"]
    data: Any = to_record_batch(columns_of(rows), "t", 3, names=names)
    if form != "batch":
        data = pa.Table.from_batches([data.slice(0, 2), data.slice(2)])
    if form == "selected":
        data = data.rename_columns(["v", "timestamp"]).rename_columns(names)
    if form == "stream":
        data = data.to_reader()
    with pytest.raises(InvalidRowError, match="row 2: column 'timestamp' is null, because") as bad:
        for _ in columns_from_arrow(data):
            pass
    assert bad.value.row == 2
    own = pa.table({"value": [b"v"], "timestamp": pa.array([None], pa.timestamp("ms"))})
    assert len(list(columns_from_arrow(own))) == 1  # in other tables, null means the present time


def test_the_arrow_schema_has_the_listed_column_names() -> None:
    assert tuple(arrow_schema(True).names) == COLUMN_NAMES


@pytest.mark.slow
def test_a_batch_does_not_import_pandas() -> None:
    """The import would take a third of a second at the first batch of every process."""
    code = """
import sys
from odradek.record import BatchBuilder, decode
from odradek.record.arrow import to_record_batch
for count in (1, 2000):
    builder = BatchBuilder(1 << 20, None)
    for _ in range(count):
        builder.append(b"k", b"v", (), 1)
    columns = decode(memoryview(bytes(builder.build())), start_offset=0).columns
    batch = to_record_batch(columns, "t\\u00f6pic", 7)
    batch.validate(full=True)
    assert batch.column("topic").to_pylist() == ["t\\u00f6pic"] * count
    assert batch.column("partition").to_pylist() == [7] * count
assert "pandas" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("count", [1, 3, FEW - 1, FEW, FEW + 1])
def test_the_topic_column_repeats_any_topic_name_for_each_row(count: int) -> None:
    rows: list[Row] = [(n, 1, 0, None, b"v", ()) for n in range(count)]
    columns = decode(memoryview(encode(rows)), start_offset=0).columns
    for name in ("ab", "cd", "", "ä", "abc"):
        batch = to_record_batch(columns, name, 7)
        batch.validate(full=True)
        assert batch.column("topic").to_pylist() == [name] * count
        assert batch.column("partition").to_pylist() == [7] * count
        assert batch.column("topic")[count // 2 :].to_pylist() == [name] * (count - count // 2)


def test_columns_with_a_constant_value_are_built_once_and_shared() -> None:
    made = _Constants()
    first = made.array("a-topic", pa.string(), 3000)
    again = made.array("a-topic", pa.string(), 2000)
    assert first.to_pylist() == ["a-topic"] * 3000
    assert again.buffers()[2].address == first.buffers()[2].address
    assert len(made.array("a-topic", pa.string(), 9000)) == 9000
    assert made.array(7, pa.int32(), 5).to_pylist() == [7] * 5
    for partition in range(200):
        column = made.array(partition, pa.int32(), 60_000)
        assert column[59_999].as_py() == partition
    assert made._bytes <= made.LARGEST
    assert made._bytes == sum(kept.nbytes for kept in made._kept.values())
