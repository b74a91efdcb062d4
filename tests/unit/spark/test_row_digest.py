"""The digest of rows: independent of order and batches, changed by every byte and every null."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from odradek import record
from odradek.spark.sink import row_digest
from odradek.spark.sink.row_digest import MASK, VERSION, digest

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
        ("topic", pa.string()),
    ]
)


@pytest.fixture(params=["kernel", "numpy"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the native module and with the numpy code that replaces it."""
    if request.param == "numpy":
        monkeypatch.setattr(record, "text_hashes", None)
    elif record.text_hashes is None:
        pytest.skip("no kernel here: ODRADEK_KERNEL, or nothing that compiles")


def one(**given: Any) -> int:
    row = {"key": "k", "value": b"v", "headers": None, "partition": 1, "topic": "t"} | given
    return digest(pa.RecordBatch.from_pylist([row], SCHEMA))


def some(count: int, seed: int) -> pa.RecordBatch:
    r = random.Random(seed)

    def header(n: int) -> dict[str, Any]:
        return {"key": f"h{n}", "value": r.choice([None, b"", r.randbytes(9)])}

    rows = [
        {
            "key": r.choice([None, "", "x" * r.randint(0, 20)]),
            "value": r.choice([None, b"", r.randbytes(r.randint(0, 30))]),
            "headers": r.choice([None, [], [header(n) for n in range(r.randint(1, 4))]]),
            "partition": r.choice([None, r.randint(0, 5)]),
            "topic": r.choice("ab"),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def test_the_number_of_rows_hashed_at_once_does_not_change_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = some(200, 7)
    wanted = digest(whole)  # all rows are hashed at once
    for size in (1, 500, 3000):
        monkeypatch.setattr(row_digest, "PIECE", size)
        assert digest(whole) == wanted
    assert digest(whole.slice(0, 0)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_digest_does_not_depend_on_row_order_batches_or_buffer_offsets(seed: int) -> None:
    whole = some(200, seed)
    wanted = digest(whole)
    shuffled = random.Random(seed).sample(range(200), 200)
    assert digest(whole.take(pa.array(shuffled))) == wanted
    parts = [digest(whole.slice(at, 23)) for at in range(0, 200, 23)]
    assert sum(parts) & MASK == wanted
    assert digest(whole.slice(3, 11)) == digest(
        pa.RecordBatch.from_pylist(whole.slice(3, 11).to_pylist(), SCHEMA)
    )
    assert digest(whole.slice(0, 199)) != wanted
    assert digest(whole.slice(0, 0)) == 0


def test_every_difference_between_rows_changes_the_digest() -> None:
    found = [
        one(),
        one(key=None),
        one(key=""),
        one(key="v", value=b"k"),
        one(value=None),
        one(value=b""),
        one(value=b"\0"),
        one(value=b"v\0"),
        one(value=b"\0v"),
        one(value=b"12345678"),
        one(value=b"12345678\0"),
        one(value=b"1234567890123456"),
        one(value=b"9012345612345678"),
        one(headers=[]),
        one(headers=[{"key": "a", "value": b"b"}]),
        one(headers=[{"key": "b", "value": b"a"}]),
        one(headers=[{"key": "a", "value": None}]),
        one(headers=[{"key": "a", "value": b"b"}] * 2),
        one(headers=[{"key": "a", "value": b"b"}, {"key": "c", "value": b"d"}]),
        one(headers=[{"key": "c", "value": b"d"}, {"key": "a", "value": b"b"}]),
        one(partition=None),
        one(partition=0),
        one(topic="u"),
    ]
    assert len(set(found)) == len(found)


def test_values_swapped_between_rows_change_the_digest() -> None:
    def two(*values: bytes) -> int:
        return digest(pa.RecordBatch.from_pydict({"key": [b"1", b"2"], "value": list(values)}))

    assert len({two(b"a", b"b"), two(b"b", b"a"), two(b"a", b"a"), two(b"ab", b"")}) == 4


def test_binary_types_with_the_same_bytes_have_the_same_digest() -> None:
    values = [b"", None, b"abc", b"0123456789abcdef"]
    kinds: list[Any] = [pa.binary(), pa.large_binary(), pa.binary_view()]
    assert (
        len({digest(pa.RecordBatch.from_pydict({"value": pa.array(values, k)})) for k in kinds})
        == 1
    )


def test_the_digest_of_a_row_is_the_same_in_every_release() -> None:
    """Stored markers are compared with new digests: if a digest changes, `VERSION` must, too."""
    assert (VERSION, f"{one(headers=[{'key': 'a', 'value': b'b'}]):016x}") == (
        1,
        "969e0cbf4ff0b52b",
    )


def test_the_digest_of_empty_headers_does_not_depend_on_other_rows() -> None:
    kind = pa.schema([("headers", HEADERS)])
    one_header: list[Any] = [{"key": "a", "value": b"b"}]
    rows = [{"headers": given} for given in ([], [], None, one_header, [])]
    batch = pa.RecordBatch.from_pylist(rows, kind)
    wanted = digest(batch)
    for cut in range(1, len(rows)):
        assert (digest(batch.slice(0, cut)) + digest(batch.slice(cut))) & MASK == wanted
    alone = [digest(pa.RecordBatch.from_pylist([row], kind)) for row in rows]
    assert sum(alone) & MASK == wanted
