"""Measure the cost of each stage of a record's path on one core, from memory, in ns per record.

In: nothing. Out: one JSON line with a value per stage. The stages between socket and program run
here without a broker, repeatedly in reused buffers, as in a running client; the rest of a client's
CPU time is its work per fetch and the kernel's (see the results of the client `raw`). `python -m
benchmarks.stages --json FILE` adds the result to a file of results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
from benchmarks import about, data
from benchmarks.run import read, write

from odradek.record import KERNEL, BatchBuilder, ColumnEncoder, StopReason, decode
from odradek.record.arrow import to_record_batch
from odradek.record.arrow_send import columns_from_arrow

BATCH_BYTES = 128 << 10
FETCH_BYTES = 8 << 20
PARTITIONS = 4
ROOM = 1 << 30
REPEATS = 15
NOW_MS = 1_760_000_000_000
CODECS = ("lz4", "snappy", "zstd", "gzip")


def pool(value_size: int) -> tuple[list[bytes], list[bytes]]:
    """Return keys and values as the drivers generate them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool"
        data.write_pool(path, value_size)
        text = path.read_bytes()
    keys, values = [], []
    at = 0
    while at < len(text):
        key, value = int.from_bytes(text[at : at + 4]), int.from_bytes(text[at + 4 : at + 8])
        keys.append(text[at + 8 : at + 8 + key])
        values.append(text[at + 8 + key : at + 8 + key + value])
        at += 8 + key + value
    return keys, values


def fetched(keys: list[bytes], values: list[bytes], codec: str | None) -> tuple[memoryview, int]:
    """Return record batches as in a broker's response, about 8 MiB before compression."""
    out = bytearray()
    count = size = 0
    rows = iter([*zip(keys, values, strict=True)] * 2)
    while size < FETCH_BYTES and (batch := _batch(rows, codec)) is not None:
        builder, plain = batch
        out += (
            count.to_bytes(8) + bytes(builder.build())[8:]
        )  # the checksum doesn't cover the base offset
        count += builder.count
        size += plain
    return memoryview(out), count


def _batch(rows: Iterator[tuple[bytes, bytes]], codec: str | None) -> tuple[Any, int] | None:
    builder = BatchBuilder(2 * BATCH_BYTES, codec)
    for key, value in rows:
        builder.append(key, value, (), NOW_MS)
        if builder.estimated_size > BATCH_BYTES - 1000:
            break
    return (builder, builder.estimated_size) if builder.count else None


def timed(work: Callable[[], object], records: int) -> float:
    """Return the CPU time per record in ns: the median of some runs after two warm-up runs."""
    times = []
    for turn in range(REPEATS + 2):
        begin = time.process_time_ns()
        kept = work()
        if turn > 1:
            times.append(time.process_time_ns() - begin)
        del kept  # returns the buffers to their pool
    return statistics.median(times) / records


def reading(keys: list[bytes], values: list[bytes], name: str) -> Iterator[tuple[str, float]]:
    """Measure CRC, decoding, and the creation of Arrow batches; then decoding with each codec."""
    buffer, count = fetched(keys, values, None)
    plain = bytes(buffer)  # google_crc32c takes only bytes
    yield f"read {name}: CRC alone", timed(lambda: google_crc32c.value(plain), count)
    yield (
        f"read {name}: decode, CRC and copy to columns",
        timed(lambda: decode(buffer, start_offset=0, want_headers=False), count),
    )
    yield (
        f"read {name}: decode to views",
        timed(
            lambda: decode(buffer, start_offset=0, want_headers=False, layout="binary_view"), count
        ),
    )
    columns = decode(buffer, start_offset=0, want_headers=False).columns
    yield (
        f"read {name}: wrap as an Arrow batch",
        timed(lambda: to_record_batch(columns, "topic", 0), count),
    )
    for codec in CODECS:
        packed, n = fetched(keys, values, codec)

        def unpack(buffer: memoryview = packed) -> object:
            return decode(buffer, start_offset=0, want_headers=False)

        yield f"read {name}: decode, {codec}", timed(unpack, n)


def writing(keys: list[bytes], values: list[bytes], name: str) -> Iterator[tuple[str, float]]:
    """Measure appending Arrow rows to batches, then completing the batches with each codec."""
    rows = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})

    def encode() -> list[BatchBuilder]:
        done = []
        (columns,) = columns_from_arrow(rows)
        encoder = ColumnEncoder(columns, PARTITIONS, 1 << 20)
        at = 0
        while at < columns.count:
            found = encoder.encode(at, columns.count, timestamp_ms=NOW_MS, room=ROOM)
            at = found.row
            if found.reason in (StopReason.BATCH, StopReason.FULL) and at < columns.count:
                builder = BatchBuilder(BATCH_BYTES, None)
                encoder.use(found.partition, builder)
                done.append(builder)
        return done

    yield (
        f"write {name}: hash of the key and append",
        timed(encode, rows.num_rows),
    )
    for codec in (None, *CODECS):
        what = "seal with CRC" if codec is None else f"{codec} and seal"

        def builders(codec: str | None = codec) -> list[BatchBuilder]:
            found = []
            pairs = iter(zip(keys, values, strict=True))
            while (batch := _batch(pairs, codec)) is not None:
                found.append(batch[0])
            return found

        times = []
        for _ in range(3):
            made = builders()
            begin = time.process_time_ns()
            for builder in made:
                builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
            times.append((time.process_time_ns() - begin) / len(keys))
        yield f"write {name}: {what}", statistics.median(times)


def main() -> None:
    """Measure all stages; print the result, or add it to a file of results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="a store of the benchmarks to add it to")
    options = parser.parse_args()
    found: dict[str, float] = {}
    for size, name in ((100, "100 B"), (1024, "1 KiB")):
        keys, values = pool(size)
        for stage, nanoseconds in (*reading(keys, values, name), *writing(keys, values, name)):
            found[stage] = round(nanoseconds, 2)
            print(f"{nanoseconds:10.1f} ns  {stage}", file=sys.stderr)
    result = {"kernel": KERNEL, "machine": about.machine(), "ns_per_record": found}
    if options.json is None:
        print(json.dumps(result))
        return
    store = read(options.json)
    store["stages"] = result
    write(options.json, store)


if __name__ == "__main__":
    main()
