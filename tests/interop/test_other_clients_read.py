"""Read records of our producer with Kafka's console consumer (Java) and librdkafka."""

from __future__ import annotations

import pytest
from tests.interop.other_client import Row, read_all, write_all

from odradek.api.producer import Producer
from odradek.clients.producer.batch import RecordMetadata
from odradek.testing import LocalCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = (("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -5), ("zstd", 19))
LARGE = b"".join(b"value %d " % (n * n) for n in range(30_000))  # several blocks of each codec
# Text without tabs, so that the console consumer's lines can be split.
ROWS = [
    Row(b"N14228", b"JFK", (("source", b"test"), ("source", b"twice")), 1_700_000_000_123),
    Row(None, b"no key", (), 1),
    Row(b"tombstone", None, (("why", b"gone"), ("null", None)), 1_600_000_000_000),
    Row("ключ".encode(), "Größe ✈".encode(), (("имя", "é".encode()),), 1_700_000_000_124),
    Row(b"large", LARGE, (), 5),
    *(Row(b"k%d" % n, b"value %d " % n * 9, (("n", b"%d" % n),), 10**12 + n) for n in range(60)),
]
# Records that are ambiguous in a line of text.
BINARY = [Row(b"", b"", (), 0), Row(None, None, (("\t", bytes(range(256))), ("empty", b"")), 1)]


def write(
    cluster: LocalCluster,
    topic: str,
    codec: str,
    partition: int | None = None,
    level: int | None = None,
    rows: list[Row] = ROWS,
) -> list[RecordMetadata]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec}
    if level is not None:
        config[f"compression.{codec}.level"] = str(level)
    with Producer(config) as producer:
        futures = [
            producer.send(topic, row.value, row.key, row.headers, partition, row.timestamp_ms)
            for row in rows
        ]
        producer.flush(timeout=60)
        return [future.result(timeout=0) for future in futures]


def java_line(row: Row, partition: int, offset: int) -> str:
    """Return the console consumer's line for a record, with all fields."""
    headers = ",".join(
        f"{name}:{'null' if content is None else content.decode()}" for name, content in row.headers
    )
    return "\t".join(
        (
            f"CreateTime:{row.timestamp_ms}",
            f"Partition:{partition}",
            f"Offset:{offset}",
            headers or "NO_HEADERS",
            "null" if row.key is None else row.key.decode(),
            "null" if row.value is None else row.value.decode(),
        )
    )


def java_lines(cluster: LocalCluster, topic: str, count: int) -> list[str]:
    """Return the console consumer's lines for a topic, with all fields."""
    names = ("timestamp", "partition", "offset", "headers", "key", "value")
    options = [("--formatter-property", f"print.{name}=true") for name in names]
    words = [word for option in options for word in option]
    printed = cluster.console_consumer(topic, *words, max_messages=count, timeout=60)
    return sorted(printed.splitlines())


def test_kafkas_console_consumer_reads_all_records(cluster: LocalCluster, topic: str) -> None:
    """Use one partition for each codec and level, because starting Java takes a second."""
    ways = [*((codec, None) for codec in CODECS), *LEVELS]
    cluster.create_topic(topic, partitions=len(ways))
    for partition, (codec, level) in enumerate(ways):
        write(cluster, topic, codec, partition, level)
    expected = [
        java_line(row, partition, offset)
        for partition in range(len(ways))
        for offset, row in enumerate(ROWS)
    ]
    assert java_lines(cluster, topic, len(expected)) == sorted(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_all_records(cluster: LocalCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic)
    results = write(cluster, topic, codec, rows=[*ROWS, *BINARY])
    found = read_all(cluster.bootstrap_servers, topic, 1)
    assert found == {0: [*ROWS, *BINARY]}
    places = [(row.offset, row.timestamp_ms) for row in found[0]]
    assert [(one.offset, one.timestamp_ms) for one in results] == places


@pytest.mark.long  # shorter tests: test_same_partitions.py, unit/record/test_murmur2.py (Java)
def test_the_same_key_goes_to_the_same_partition_as_with_java_and_librdkafka(
    cluster: LocalCluster, topic: str
) -> None:
    keys = [f"ключ {n}" if n % 5 == 0 else "k" * (n % 9) + str(n) for n in range(200)]
    places = {}
    for who in ("ours", "java", "librdkafka"):
        cluster.create_topic(f"{topic}-{who}", partitions=7)
        rows = [Row(key.encode(), b"x") for key in keys]
        if who == "ours":
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for row in rows:
                    producer.send(f"{topic}-ours", row.value, row.key)
        elif who == "java":
            lines = "".join(f"{key}\tx\n" for key in keys).encode()
            cluster.console_producer(f"{topic}-java", lines, "--reader-property", "parse.key=true")
        else:
            servers = cluster.bootstrap_servers
            write_all(servers, f"{topic}-librdkafka", rows, partitioner="murmur2_random")
        found = read_all(cluster.bootstrap_servers, f"{topic}-{who}", 7)
        places[who] = {row.key: partition for partition, rows in found.items() for row in rows}
    assert len(places["ours"]) == len(keys)
    assert places["ours"] == places["java"] == places["librdkafka"]
    assert set(places["ours"].values()) == set(range(7))
