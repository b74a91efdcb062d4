"""Read log segments in formats 0 and 1, from before Kafka 0.11, from a current broker.

The segments are put into the broker's directory while it is stopped. Java's and librdkafka's
consumers read the same records.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from tests.fuzz.old_messages import message, wrapper
from tests.interop.other_client import settings
from tests.time_limits import HANG_S

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.compat import confluent_kafka as compat
from odradek.record.compression import CODECS, compress
from odradek.record.lz4_frame import _header_checksum
from odradek.testing import LocalCluster

TOPIC = "old"
NO_TYPE, CREATED, APPENDED = -1, 0, 1
BEGAN = 1_400_000_000_000
LIVE = 3
"""Number of records in format 2 that are appended to each partition."""


class Found(NamedTuple):
    """Record in the form of each client."""

    offset: int
    time: int
    kind: int
    key: bytes | None
    value: bytes | None


def content(offset: int) -> tuple[bytes | None, bytes | None]:
    key = None if offset % 3 == 0 else b"key %d" % offset
    value = None if offset % 5 == 4 else b"value %d " % offset * (1 + offset % 200)
    return key, value


def plain(magic: int, offset: int) -> tuple[bytes, list[Found]]:
    """Return an uncompressed message."""
    key, value = content(offset)
    time, kind = (BEGAN + offset, CREATED) if magic else (-1, NO_TYPE)
    made = message(offset, magic, key, value, time=time)
    return bytes(made), [Found(offset, time, kind, key, value)]


def wrapped(
    magic: int, codec: int, offsets: list[int], *, append_time: bool = False
) -> tuple[bytes, list[Found]]:
    """Return a wrapper message; in format 1 its messages have offsets relative to the first one."""
    parts, rows = bytearray(), []
    for offset in offsets:
        made, (row,) = plain(magic, offset)
        inner = bytearray(made)
        if magic:
            inner[:8] = (offset - offsets[0]).to_bytes(8, "big")
        parts += inner
        rows.append(row._replace(time=BEGAN, kind=APPENDED) if append_time else row)
    packed = bytearray(compress(codec, None, memoryview(parts)))
    if magic == 0 and CODECS[codec] == "lz4":  # old clients write another checksum (KAFKA-3160)
        packed[6] = _header_checksum(memoryview(packed)[:6])
    made_of = wrapper(
        parts, offsets[-1], magic, codec,
        time=BEGAN, append_time=append_time, packed=bytes(packed),
    )  # fmt: skip
    return bytes(made_of), rows


def segment(*parts: tuple[bytes, list[Found]]) -> tuple[bytes, list[Found]]:
    return b"".join(p[0] for p in parts), [row for p in parts for row in p[1]]


SEGMENTS = [
    segment(
        plain(0, 0), plain(0, 1),
        *(wrapped(0, codec, list(range(first, first + 300)))
          for codec, first in ((1, 2), (2, 302), (3, 602))),
        wrapped(0, 1, [905, 907, 911]),
        plain(0, 920),
    ),
    segment(
        plain(1, 0), plain(1, 1),
        *(wrapped(1, codec, list(range(first, first + 300)))
          for codec, first in ((1, 2), (2, 302), (3, 602))),
        wrapped(1, 1, [905, 907, 911]),
        wrapped(1, 2, [912, 913], append_time=True),
        plain(1, 920),
    ),
    segment(plain(0, 0), wrapped(0, 2, [1, 2]), plain(1, 3), wrapped(1, 3, [4, 5])),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("old-formats")
    # Records of 2014 are older than the retention time.
    with LocalCluster(brokers=1, directory=directory, config={"log.retention.ms": "-1"}) as made:
        made.create_topic(TOPIC, partitions=len(SEGMENTS))
        (broker,) = made.running
        made.stop(broker)
        for number, (data, _) in enumerate(SEGMENTS):
            put(directory, number, data)
        made.start(broker)
        with Producer({"bootstrap.servers": made.bootstrap_servers}) as producer:
            for n in range(LIVE * len(SEGMENTS)):
                place = n % len(SEGMENTS)
                headers = [("n", b"%d" % n)]
                producer.send(TOPIC, b"new", None, headers, place, BEGAN).result(timeout=30)
        yield made


def put(directory: Path, partition: int, data: bytes) -> None:
    """Replace a partition's segment; the broker rewrites its indexes."""
    (folder,) = directory.glob(f"**/{TOPIC}-{partition}")
    for file in folder.glob(f"{'0' * 20}.*"):
        file.unlink()
    (folder / f"{'0' * 20}.log").write_bytes(data)


def expected(partition: int) -> list[Found]:
    rows = SEGMENTS[partition][1]
    first = rows[-1].offset + 1
    return rows + [Found(first + n, BEGAN, CREATED, None, b"new") for n in range(LIVE)]


def by_partition(found: list[tuple[int, Found]]) -> dict[int, list[Found]]:
    rows: dict[int, list[Found]] = {n: [] for n in range(len(SEGMENTS))}
    for partition, row in found:
        rows[partition].append(row)
    return rows


ALL = {n: expected(n) for n in range(len(SEGMENTS))}
PLACES = [TopicPartition(TOPIC, n) for n in ALL]


@pytest.fixture
def consumer(cluster: LocalCluster) -> Iterator[Consumer]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer(config) as made:
        made.assign(PLACES, until=made.end_offsets(PLACES, timeout=60))
        yield made


def test_records_of_all_formats_are_read(consumer: Consumer) -> None:
    found = []
    while records := consumer.poll(timeout=10.0, max_records=300):
        for r in records:
            row = Found(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value)
            found.append((r.partition, row))
            assert bool(r.headers) == (r.value == b"new")
            assert (r.leader_epoch >= 0) == (r.value == b"new")
    assert by_partition(found) == ALL


def test_an_asyncio_consumer_reads_records_of_all_formats(cluster: LocalCluster) -> None:
    async def read() -> list[tuple[int, int]]:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
        found: list[tuple[int, int]] = []
        async with AsyncConsumer(config) as consumer:
            consumer.assign(PLACES, until=await consumer.end_offsets(PLACES, timeout=60))
            while records := await consumer.poll(timeout=10.0):
                found += [(r.partition, r.offset) for r in records]
        return found

    assert sorted(asyncio.run(read())) == [(n, row.offset) for n in ALL for row in ALL[n]]


@pytest.mark.parametrize("layout", ["binary", "binary_view"])
def test_columns_of_all_formats_are_read(consumer: Consumer, layout: Any) -> None:
    found = []
    while (batch := consumer.poll_arrow(timeout=10.0, layout=layout)) is not None:
        batch.validate(full=True)
        times = batch.column("timestamp").cast("int64").to_pylist()
        for r, time in zip(batch.drop_columns("timestamp").to_pylist(), times, strict=True):
            row = Found(r["offset"], time // 1000, r["timestampType"], r["key"], r["value"])
            found.append((r["partition"], row))
    assert by_partition(found) == ALL


def test_seek_finds_an_offset_within_a_compressed_message(consumer: Consumer) -> None:
    for number, offset in ((0, 450), (1, 450), (1, 906), (1, 913), (2, 5)):
        place = TopicPartition(TOPIC, number)
        consumer.assign([place])
        consumer.seek(place, offset)
        (first,) = consumer.poll(timeout=10.0, max_records=1)
        assert first.offset == min(row.offset for row in ALL[number] if row.offset >= offset)


def test_java_reads_the_same_records(cluster: LocalCluster) -> None:
    names = ("timestamp", "partition", "offset", "key", "value")
    words = [w for n in names for w in ("--formatter-property", f"print.{n}=true")]
    count = sum(map(len, ALL.values()))
    printed = cluster.console_consumer(TOPIC, *words, max_messages=count, timeout=60)
    kinds = {CREATED: "CreateTime", APPENDED: "LogAppendTime"}

    def text(piece: bytes | None) -> str:
        return "null" if piece is None else piece.decode()

    lines = [
        "\t".join(
            (
                f"{kinds[r.kind]}:{r.time}" if r.kind in kinds else "NO_TIMESTAMP",
                *(f"Partition:{number}", f"Offset:{r.offset}", text(r.key), text(r.value)),
            )
        )
        for number, rows in ALL.items()
        for r in rows
    ]
    assert sorted(printed.splitlines()) == sorted(lines)


def messages(module: Any, cluster: LocalCluster) -> dict[int, list[tuple[Any, ...]]]:
    """Return the records' fields as confluent-kafka, or our module with its API, returns them."""
    consumer = module.Consumer(
        settings(cluster.bootstrap_servers, **{"group.id": "g", "enable.auto.commit": False})
    )
    found: dict[int, list[tuple[Any, ...]]] = {n: [] for n in ALL}
    try:
        consumer.assign([module.TopicPartition(TOPIC, n, 0) for n in ALL])
        while any(len(found[n]) < len(ALL[n]) for n in ALL):
            got = consumer.consume(1000, timeout=10)
            assert got
            for m in got:
                assert m.error() is None, m.error()
                said = (m.offset(), m.timestamp(), m.key(), m.value(), m.headers())
                found[m.partition()].append(said)
    finally:
        consumer.close()
    return found


def test_librdkafka_reads_the_same_records(cluster: LocalCluster) -> None:
    theirs = messages(confluent_kafka, cluster)
    assert messages(compat, cluster) == theirs
    assert [(row[0], row[2], row[3]) for row in theirs[0]] == [
        (row.offset, row.key, row.value) for row in ALL[0]
    ]


def test_the_copy_command_copies_records_of_all_formats(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "odradek", "copy", TOPIC, "copied", "--create", "--json"]
    command += ["--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == sum(map(len, ALL.values()))
