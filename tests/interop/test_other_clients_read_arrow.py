"""Read the records of `send_arrow` with Kafka's console consumer (Java) and librdkafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.other_client import Row, read_all
from tests.interop.test_other_clients_read import CODECS, ROWS, java_line, java_lines

from odradek.api.producer import Producer
from odradek.record.key_hash import partition_for_key
from odradek.testing import LocalCluster

PARTITIONS = 7
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(rows: list[Row], wide: bool = False) -> pa.Table:
    """Return rows as Arrow data; `wide`: 64-bit offsets, two chunks, sliced from more rows."""
    kind = pa.large_binary() if wide else pa.binary()
    more = [Row(b"before", b"", (("x", b""),), 0)] * 3 if wide else []
    rows = [*more, *rows, *more]
    lists = [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows]
    columns: dict[str, Any] = {
        "key": pa.array([row.key for row in rows], kind),
        "value": pa.array([row.value for row in rows], kind),
        "headers": pa.array(lists, HEADER_TYPE),
        "timestamp": pa.array(
            [row.timestamp_ms for row in rows], pa.timestamp("ms", "UTC") if wide else pa.int64()
        ),
        "partition": pa.array([None if row.partition < 0 else row.partition for row in rows]),
    }
    if all(row.partition < 0 for row in rows):
        del columns["partition"]
    made = pa.table(columns)
    if wide:
        made = pa.concat_tables([made.slice(3, 20), made.slice(23, len(rows) - 26)])
    return made


@pytest.mark.long  # shorter tests: librdkafka reads rows below
def test_kafkas_console_consumer_reads_all_rows(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=len(CODECS))
    rows = [row for row in ROWS if row.key != b"large"]
    for partition, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec}
        with Producer(settings) as producer:
            placed = [replace(row, partition=partition) for row in rows]
            future = producer.send_arrow(topic, table(placed, wide=partition % 2 == 1))
            (written,) = future.result(timeout=60)
        assert (future.rows, written.records) == (len(rows), len(rows))
        place = (written.partition.partition, written.first_offset, written.last_offset)
        assert place == (partition, 0, len(rows) - 1)
    expected = [
        java_line(row, partition, offset)
        for partition in range(len(CODECS))
        for offset, row in enumerate(rows)
    ]
    assert java_lines(cluster, topic, len(expected)) == sorted(expected)


@pytest.mark.parametrize("wide", [False, True])
def test_librdkafka_reads_all_rows_in_the_partitions_of_their_keys(
    cluster: LocalCluster, topic: str, wide: bool
) -> None:
    """Write small batches, so that one call fills, closes and starts many."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    rows = [
        Row(b"key %d" % (n * n % 1009), b"v" * (n % 300), ROWS[n % 4].headers, 10**12 + n)
        for n in range(5000)
    ]
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 3000}
    with Producer(settings) as producer:
        first = producer.send_arrow(topic, table(rows[:2000], wide))
        for row in rows[2000:2500]:
            producer.send(topic, row.value, row.key, row.headers, timestamp_ms=row.timestamp_ms)
        second = producer.send_arrow(topic, table(rows[2500:], wide))
        written = sum(r.last_offset - r.first_offset + 1 for r in first.result() + second.result())
    assert written == len(rows) - 500
    expected: dict[int, list[Row]] = {partition: [] for partition in range(PARTITIONS)}
    for row in rows:
        expected[partition_for_key(row.key or b"", PARTITIONS)].append(row)
    assert read_all(cluster.bootstrap_servers, topic, PARTITIONS) == expected
