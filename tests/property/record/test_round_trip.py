"""Random records through every writer and reader of `odradek.record`; kio reads them too."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch
from tests.volume import examples

from odradek.record import BatchBuilder, decode, read_header
from odradek.record.arrow import to_record_batch
from odradek.record.arrow_send import columns_from_arrow
from odradek.record.columns import Headers, Row
from odradek.record.compression import CODECS as CODEC_NAMES
from odradek.record.encoder import Rows
from odradek.record.reference import encode

CODECS = st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"])
TIMES = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-1, (2**63 - 1) // 1000)
)
BYTES = st.one_of(st.none(), st.binary(max_size=80), st.integers(60, 9000).map(bytes))
NAMES = st.text(max_size=12)
HEADERS: st.SearchStrategy[Headers] = st.lists(
    st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=3
).map(tuple)
CONTENTS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=12)
Content = tuple[int, bytes | None, bytes | None, Headers]
relaxed = settings(deadline=None, max_examples=examples(80))


@st.composite
def logs(draw: st.DrawFn) -> list[list[Row]]:
    """Return batches of rows with ascending offsets and gaps, as compaction leaves them."""
    offset = draw(st.integers(0, 2**40))
    batches = []
    for contents in draw(st.lists(CONTENTS, min_size=1, max_size=4)):
        rows: list[Row] = []
        for time, key, value, headers in contents:
            offset += draw(st.integers(1, 3))
            rows.append((offset, time, 0, key, value, headers))
        batches.append(rows)
    return batches


@relaxed
@given(logs(), CODECS, st.data())
def test_any_part_of_a_log_is_decoded_in_one_or_several_calls(
    batches: list[list[Row]], codec: str | None, data: st.DataObject
) -> None:
    rows = [row for batch in batches for row in batch]
    first, last = rows[0][0], rows[-1][0]
    buffer = memoryview(b"".join(encode(batch, compression=codec) for batch in batches))
    start = data.draw(st.integers(first - 1, last + 2))
    until = data.draw(st.none() | st.integers(start, last + 2))
    expected = [r for r in rows if r[0] >= start and (until is None or r[0] < until)]
    found = decode(buffer, start_offset=start, until_offset=until)
    assert list(found.columns) == expected
    assert found.finished
    assert found.next_offset == max(
        start, last + 1 if until is None else min(until, last + 1, until)
    )

    step = data.draw(st.integers(1, 5))
    cut = data.draw(st.sampled_from(["max_records", "stop_after"]))
    position, at, pieces = start, 0, list[Row]()
    for _ in range(len(rows) + len(batches) + 1):
        part = decode(
            buffer[at:],
            start_offset=position,
            until_offset=until,
            max_records=step if cut == "max_records" else None,
            stop_after=step if cut == "stop_after" else None,
        )
        assert part.columns.count <= step or cut == "stop_after"
        pieces += part.columns
        position, at = part.next_offset, at + part.bytes_consumed
        if part.finished:
            break
    assert part.finished
    assert pieces == expected
    assert position == found.next_offset


@relaxed
@given(CONTENTS, CODECS, st.data())
def test_the_batch_builder_writes_the_same_bytes_as_the_reference_encoder(
    contents: list[Content], codec: str | None, data: st.DataObject
) -> None:
    builder = BatchBuilder(data.draw(st.sampled_from([200, 2000, 1 << 20])), codec)
    taken: list[Row] = []
    for time, key, value, headers in contents:
        if builder.append(key, value, headers, time) is None:
            break
        taken.append((len(taken), time, 0, key, value, headers))
    built = builder.build(producer_id=9, producer_epoch=2, base_sequence=5)
    assert len(built) <= builder.estimated_size
    assert list(decode(built, start_offset=0).columns) == taken
    used = CODEC_NAMES[read_header(built).codec]
    again = encode(taken, compression=used, producer_id=9, producer_epoch=2, base_sequence=5)
    assert again == built


@relaxed
@given(CONTENTS)
def test_kio_reads_the_same_records_from_a_batch(contents: list[Content]) -> None:
    # kio keeps whole seconds only, and needs times within the range of `datetime`.
    builder = BatchBuilder(1 << 20, None)
    for i, (_, key, value, headers) in enumerate(contents):
        builder.append(key, value, headers, 1_700_000_000_000 + 1000 * i)
    built = bytes(builder.build(producer_id=9, producer_epoch=2, base_sequence=5))
    batch, size = read_batch(built, 0)
    assert size == len(built)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 5)
    theirs = [
        (
            r.offset,
            int(r.timestamp.timestamp()),
            r.key,
            r.value,
            [(h.key, h.value) for h in r.headers],
        )
        for r in batch.records
    ]
    assert theirs == [
        (i, 1_700_000_000 + i, key, value, [(name.encode(), content) for name, content in headers])
        for i, (_, key, value, headers) in enumerate(contents)
    ]


@relaxed
@given(logs(), st.data())
def test_records_converted_to_arrow_and_back_are_equal(
    batches: list[list[Row]], data: st.DataObject
) -> None:
    rows = [row for batch in batches for row in batch]
    columns = decode(memoryview(b"".join(map(encode, batches))), start_offset=0).columns
    a = data.draw(st.integers(0, len(rows)))
    b = data.draw(st.integers(a, len(rows)))
    batch = to_record_batch(columns.slice(a, b), "t", 1, include_headers=True)
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == [r[0] for r in rows[a:b]]
    pieces = columns_from_arrow(batch.select(["headers", "value", "key", "timestamp", "partition"]))
    sent = [Rows(c, 2, 1 << 20).get(i)[:5] for c in pieces for i in range(c.count)]
    assert sent == [(r[3], r[4], r[5], 1, r[1]) for r in rows[a:b]]
    assert list(columns.slice(a, b)) == rows[a:b]


@relaxed
@given(logs(), st.integers(0, 2**40))
def test_a_batch_is_decoded_after_a_broker_set_its_offset_and_leader_epoch(
    batches: list[list[Row]], base: int
) -> None:
    """Change both fields in place, as brokers do: the checksum doesn't include them."""
    batch = bytearray(encode(batches[0], leader_epoch=1))
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, 44)
    found = decode(memoryview(batch), start_offset=0)
    moved = base - batches[0][0][0]
    assert list(found.columns) == [(r[0] + moved, *r[1:]) for r in batches[0]]
    assert found.last_leader_epoch == 44
