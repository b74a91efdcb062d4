"""Records that need far more memory than their size, or are corrupt: reported, or skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.volume import pairs

from odradek.api.consumer import Consumer
from odradek.common.errors import CorruptRecordError
from odradek.common.errors.records import RecordLimitError
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.record.batch import HEADER_SIZE, seal
from odradek.record.compression import compress
from odradek.record.varint import write_varint

TP = TopicPartition("t", 0)
MB = 1 << 20


def reader_of(hostile: Callable[[int], bytes] | None = None, **config: Any) -> Consumer:
    """Return a reader of four batches of five records; `hostile` returns the third one's bytes."""
    stage = Stage(7, brokers=1, partitions=1)
    with stage.producer() as producer:
        for _ in range(4):
            for n in range(5):
                producer.send("t", b"v", headers=[("n", b"%d" % n)])
            producer.flush(timeout=60)
    batches = stage.cluster.log("t", 0).batches
    assert [b.header.count for b in batches] == [5] * 4
    if hostile is not None:
        batches[2].data = hostile(batches[2].base_offset)
    made = stage.consumer(**config)
    made.assign([TP])
    return made


def packed(records: bytes, base: int) -> bytes:
    made = bytearray(HEADER_SIZE) + compress(4, None, memoryview(records))
    times = {"base_timestamp": 0, "max_timestamp": 0}
    seal(made, attributes=4, last_offset_delta=4, count=5, base_offset=base, **times)
    return bytes(made)


def with_headers(counts: tuple[int, ...]) -> Callable[[int], bytes]:
    def made(base: int) -> bytes:
        records = b""
        for delta, count in enumerate(counts):
            body = b"\0\0" + write_varint(delta) + b"\x01\x02v" + write_varint(count)
            body += b"\0\x01" * count
            records += write_varint(len(body)) + body
        return packed(records, base)

    return made


MANY = with_headers((1, 1, 8_400_000, 1, 1))


def bomb(base: int) -> bytes:
    body = b"\0\0\0\x01" + write_varint(40 * MB) + bytes(40 * MB) + b"\0"
    return packed(write_varint(len(body)) + body, base)


def torn(base: int) -> bytes:
    good = packed(b"".join(b"\x0e\0\0%s\x01\x01\0" % write_varint(n) for n in range(5)), base)
    return good[:-1] + bytes([good[-1] ^ 1])


HOSTILE: dict[str, tuple[Callable[[int], bytes], set[int], str]] = {
    "headers": (MANY, {12}, "8400000 headers"),
    "bomb": (bomb, {10, 11, 12, 13, 14}, "max.decompression.ratio"),
    "torn": (torn, {10, 11, 12, 13, 14}, "its checksum is wrong"),
}
"""Hostile batches by name, with the number of skipped offsets and the reason."""


def offsets(client: Consumer, how: str) -> Iterator[int]:
    """Read until no more records arrive."""
    if how == "records":
        for record in client.records(1.0):
            yield record.offset
    elif how == "poll":
        while records := client.poll(1.0):
            yield from (r.offset for r in records)
    else:
        while (batch := client.poll_arrow(1.0, include_headers=True)) is not None:
            yield from batch.column("offset").to_pylist()


@pytest.mark.parametrize("how", ["poll", "records", "arrow"])
def test_a_record_beyond_a_limit_is_reported_and_can_be_skipped_by_a_seek(how: str) -> None:
    client = reader_of(MANY)
    found: list[int] = []
    with pytest.raises(RecordLimitError) as caught:
        for offset in offsets(client, how):
            found.append(offset)  # noqa: PERF402 - what came before the error
    assert found == list(range(12))  # all records before the hostile one are returned
    error = caught.value
    assert (error.partition, error.offset, error.next_offset) == (TP, 12, 13)
    assert (error.option, error.found, error.record) == ("max.headers.per.record", 8_400_000, 12)
    for part in ("t-0", "offset 12", "8400000", "10000", "seek() to 13", "max.headers.per.record"):
        assert part in str(error)
    assert client.position(TP) == 12
    with pytest.raises(RecordLimitError, match="offset 12 has"):
        client.poll(2.0)
    client.seek(TP, 13)
    assert list(offsets(client, how)) == list(range(13, 20))


@pytest.mark.parametrize(("lies", "how"), pairs(HOSTILE, ["poll", "records", "arrow"]))
def test_skipped_records_are_reported_once(
    lies: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    hostile, left_out, reason = HOSTILE[lies]
    client = reader_of(hostile, **{"on.corrupt.record": "skip"})
    events: list[Event] = []
    client._engine.events.listen(events.append)
    with caplog.at_level(logging.WARNING, "odradek.consumer"):
        assert list(offsets(client, how)) == [n for n in range(20) if n not in left_out]
    assert client.position(TP) == 20
    (line,) = [r.getMessage() for r in caplog.records if r.name == "odradek.consumer"]
    first, last = min(left_out), max(left_out)
    assert reason in line
    assert "t-0: record batch at offset 10: " in line
    assert f"the consumer skips offsets {first} to {last} (on.corrupt.record=skip)" in line
    (event,) = [e for e in events if e.kind == "skipped"]
    assert (event.fields["offset"], event.fields["next_offset"]) == (first, last + 1)


def test_limits_of_records_can_be_configured() -> None:
    for option, value, hostile in (
        ("max.headers.per.record", 8_400_000, MANY),
        ("max.decompression.ratio", 100_000, bomb),
    ):
        client = reader_of(hostile, **{option: value})
        if hostile is bomb:  # the batch has one record, but claims five
            with pytest.raises(CorruptRecordError, match="runs past its end"):
                list(offsets(client, "poll"))
        else:
            assert list(offsets(client, "poll")) == list(range(20))
    beyond: tuple[tuple[str, int, Callable[[int], bytes] | None], ...] = (
        ("max.records.per.batch", 4, None),
        ("max.headers.per.record", 0, None),
        ("max.decompressed.batch.bytes", 1000, bomb),
    )
    for option, value, made in beyond:
        client = reader_of(made, **{option: value})
        with pytest.raises(RecordLimitError) as caught:
            list(offsets(client, "poll"))
        assert caught.value.option == option


def test_arrow_batches_with_many_headers_are_split() -> None:
    """No single record exceeds the limit, so none is skipped."""
    counts = (4000, 4000, 4000, 4000, 4000)
    client = reader_of(with_headers(counts), **{"max.decompressed.batch.bytes": 200_000})
    batches = []
    while (batch := client.poll_arrow(1.0, include_headers=True)) is not None:
        batches.append([len(headers) for headers in batch.column("headers").to_pylist()])
    assert [n for batch in batches for n in batch] == [1] * 10 + [4000] * 5 + [1] * 5
    assert max(sum(batch) for batch in batches) * 16 < 200_000
    client = reader_of(with_headers(counts), **{"max.decompressed.batch.bytes": 50_000})
    with pytest.raises(RecordLimitError, match="max.decompressed.batch.bytes is 50000") as caught:
        list(offsets(client, "arrow"))
    # a single record exceeds the limit
    assert (caught.value.offset, caught.value.next_offset) == (10, 11)


def test_poll_arrow_without_headers_ignores_the_limit_of_headers() -> None:
    client = reader_of(MANY)
    found: list[int] = []
    while (batch := client.poll_arrow(1.0)) is not None:
        found += batch.column("offset").to_pylist()
    assert found == list(range(20))


def test_each_record_has_its_own_headers() -> None:
    client = reader_of()
    first = client.poll(1.0, 2)
    assert [r.headers for r in first] == [(("n", b"0"),), (("n", b"1"),)]
    assert isinstance(first[0].headers, tuple)
    assert first[0][7] == first[0].headers
    batch = client.poll_arrow(1.0, include_headers=True)  # the rest of the same response
    assert batch is not None
    assert batch.column("headers").to_pylist()[0] == [{"key": "n", "value": b"2"}]
    assert client.position(TP) > 2
