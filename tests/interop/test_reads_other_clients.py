"""Read records of Kafka's console producer (Java) and librdkafka with our consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.other_client import Row, write_all

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

LARGE = b"".join(b"value %d " % (n * n) for n in range(30_000))  # several blocks of each codec
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = [
    Row(b"N14228", b"JFK", (("source", b"test"), ("source", b"twice")), 1_700_000_000_123),
    Row(None, b"no key", (), 1),
    Row(b"tombstone", None, (("why", b"gone"), ("null", None), ("empty", b"")), 1_600_000_000_000),
    Row(b"", b"", (), 2),  # librdkafka takes 0 for "now"
    Row(None, None, (("ключ", bytes(range(256))),), 1_600_000_000_001),
    Row(b"large", LARGE, (), 5),
    Row(bytes(range(256)), "Größe ✈".encode() * 50, (("é", b"\xff"),), 1_700_000_000_124),
    *(Row(b"k%d" % n, b"value %d " % n * 9, (("n", b"%d" % n),), 10**12 + n) for n in range(2000)),
]


@pytest.fixture
def consumer(cluster: LocalCluster) -> Iterator[Consumer]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer(config) as made:
        yield made


def poll_all(consumer: Consumer, topic: str, partitions: int) -> dict[int, list[Row]]:
    """Return all records that a topic has now, read one by one."""
    places = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(places, until=consumer.end_offsets(places, timeout=60))
    found: dict[int, list[Row]] = {p: [] for p in range(partitions)}
    while records := consumer.poll(timeout=10.0, max_records=300):
        for r in records:
            assert (r.offset, r.timestamp_type) == (len(found[r.partition]), 0)
            assert r.leader_epoch == 0
            found[r.partition].append(Row(r.key, r.value, r.headers, r.timestamp_ms))
    assert [consumer.position(place) for place in places] == [len(rows) for rows in found.values()]
    return found


def poll_all_arrow(consumer: Consumer, topic: str, partitions: int) -> dict[int, list[Row]]:
    """Return all records that a topic has now, read as columns."""
    places = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign([])  # drop the positions
    consumer.assign(places, until=consumer.end_offsets(places, timeout=60))
    found: dict[int, list[Row]] = {p: [] for p in range(partitions)}
    while (batch := consumer.poll_arrow(timeout=10.0, include_headers=True)) is not None:
        batch.validate(full=True)
        times: list[Any] = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for r, microseconds in zip(batch.drop_columns("timestamp").to_pylist(), times, strict=True):
            assert (r["topic"], r["timestampType"]) == (topic, 0)
            rows = found[r["partition"]]
            assert r["offset"] == len(rows)
            headers = tuple((h["key"], h["value"]) for h in r["headers"] or ())
            rows.append(Row(r["key"], r["value"], headers, microseconds // 1000))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_all_records_of_librdkafka_are_read(
    cluster: LocalCluster, topic: str, consumer: Consumer, codec: str
) -> None:
    cluster.create_topic(topic, partitions=2)
    more: dict[str, Any] = {"compression.type": codec, "linger.ms": 50}
    write_all(cluster.bootstrap_servers, topic, ROWS, (0, 1), **more)
    expected = {0: ROWS[::2], 1: ROWS[1::2]}
    assert poll_all(consumer, topic, 2) == expected
    assert poll_all_arrow(consumer, topic, 2) == expected


# No codec: test_console_tools; Java's other codecs, which brokers use too: test_recompression.
@pytest.mark.parametrize("codec", ["snappy"])
def test_all_records_of_kafkas_console_producer_are_read(
    cluster: LocalCluster, topic: str, consumer: Consumer, codec: str
) -> None:
    rows = [
        Row(b"N14228", b"JFK", (("source", b"test"), ("source", b"twice"))),
        Row(None, b"no key", (("h", b"1"),)),
        Row(b"tombstone", None, (("null", None),)),
        Row("ключ".encode(), "Größe ✈".encode(), (("имя", "é".encode()),)),
        Row(b"large", LARGE, (("n", b"large"),)),
        *(Row(b"k%d" % n, b"value %d " % n * 9, (("n", b"%d" % n),)) for n in range(300)),
    ]

    def text(content: bytes | None) -> str:
        return "NIL" if content is None else content.decode()

    lines = "".join(
        f"{','.join(f'{name}:{text(content)}' for name, content in row.headers)}"
        f"\t{text(row.key)}\t{text(row.value)}\n"
        for row in rows
    )
    cluster.create_topic(topic)
    before = int(time.time() * 1000)
    cluster.console_producer(
        topic, lines.encode(), "--compression-codec", codec,
        *(option
          for setting in ("parse.key=true", "parse.headers=true", "null.marker=NIL")
          for option in ("--reader-property", setting)),
    )  # fmt: skip
    after = int(time.time() * 1000)
    for found in (poll_all(consumer, topic, 1)[0], poll_all_arrow(consumer, topic, 1)[0]):
        assert [Row(r.key, r.value, r.headers) for r in found] == rows
        times = [r.timestamp_ms or 0 for r in found]
        assert before <= times[0]
        assert times == sorted(times)
        assert times[-1] <= after
