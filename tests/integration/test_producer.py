"""Test the producer on real brokers without faults; another client reads the records.

The contents of records, in each codec and as columns, are tested in tests/interop.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence

import pandas
import polars
import pyarrow as pa
import pytest
from tests.interop.other_client import Row, place_topic, read_all
from tests.own_time import ends_at

from odradek.api.producer import Producer
from odradek.clients.producer.delivery import OffsetRange
from odradek.common.errors import KafkaTimeoutError, RecordTooLargeError
from odradek.testing import LocalCluster


def dump(cluster: LocalCluster, topics: Sequence[str]) -> dict[str, str]:
    """Return the log of each topic's partition 0, as Kafka's own tool prints it."""
    data = cluster.directory / "broker-0" / "data"
    logs = ",".join(str(data / f"{topic}-0" / f"{0:020}.log") for topic in topics)
    text = cluster.run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", logs])
    return dict(zip(topics, text.split("Dumping ")[1:], strict=True))


def test_only_idempotent_batches_have_sequence_numbers(cluster: LocalCluster, topic: str) -> None:
    """Check sequence numbers: with idempotence each batch has one, without it none."""
    plain: dict[str, dict[str, object]] = {
        f"{topic}-1": {"acks": 1},
        f"{topic}-0": {"acks": 0},
        f"{topic}-plain": {"enable.idempotence": False},
    }
    for name, options in plain.items():
        cluster.create_topic(name, partitions=1)
        write_both_ways(cluster, name, options)
    cluster.create_topic(topic, partitions=1)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "zstd"}
    with Producer(config, batch_size=2000) as producer:
        for n in range(500):
            producer.send(topic, b"%d" % n * 10, partition=0)
        producer.flush(timeout=60)
    logs = dump(cluster, [*plain, topic])
    for name in plain:
        numbers = re.findall(r"baseSequence: (-?\d+) .*producerId: (-?\d+)", logs[name])
        assert set(numbers) == {("-1", "-1")}, name
    check_sequence_numbers(logs[topic])


def check_sequence_numbers(log: str) -> None:
    batches = re.findall(
        r"baseOffset: (\d+) .*count: (\d+) baseSequence: (\d+) .*"
        r"producerId: (\d+) producerEpoch: (\d+) .*compresscodec: (\w+)",
        log,
    )
    assert len(batches) >= 10, log
    assert {codec for *_, codec in batches} <= {"zstd", "none"}
    assert len({(identity, epoch) for _, _, _, identity, epoch, _ in batches}) == 1
    expected = 0
    for offset, count, sequence, *_ in batches:
        assert int(offset) == int(sequence) == expected
        expected += int(count)
    assert expected == 500


def write_both_ways(cluster: LocalCluster, topic: str, options: dict[str, object]) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **options}
    one_by_one, table = 200, pa.table({"value": [b"%d" % n for n in range(200, 400)]})
    with Producer(config) as producer:
        futures = [producer.send(topic, b"%d" % n) for n in range(one_by_one)]
        producer.flush(timeout=60)  # otherwise records of both kinds may share a batch
        ranges = producer.send_arrow(topic, table).result(timeout=60)
        offsets = [future.result(timeout=0).offset for future in futures]
    answered = options.get("acks") != 0
    assert offsets == (list(range(200)) if answered else [-1] * 200)
    assert [(r.first_offset, r.records) for r in ranges] == [(200 if answered else -1, 200)]
    end = time.monotonic() + 20  # with acks=0 no response has confirmed the records
    while len(found := read_all(cluster.bootstrap_servers, topic, 1)[0]) < 400:
        assert time.monotonic() < end, len(found)
    assert [r.value for r in found] == [b"%d" % n for n in range(400)]


def test_threads_that_share_a_producer_keep_their_records_in_order(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=3000) as producer:

        def send(thread: int) -> None:
            for n in range(1000):
                producer.send(topic, b"%d:%d" % (thread, n), b"%d" % thread)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(30)
        producer.flush(timeout=60)
    rows = [r for p in read_all(cluster.bootstrap_servers, topic, 3).values() for r in p]
    assert len(rows) == 4000
    for thread in range(4):
        mine = [r.value for r in rows if r.key == b"%d" % thread]
        assert mine == [b"%d:%d" % (thread, n) for n in range(1000)]


@pytest.mark.parametrize(
    "codec",
    [*(pytest.param(codec, marks=pytest.mark.long) for codec in ("none", "lz4")), "zstd"],
)
def test_arrow_streams_larger_than_buffer_memory_are_sent_from_threads(
    cluster: LocalCluster, topic: str, codec: str
) -> None:
    """Send streams and single records and flush at the same time: each stream keeps its order."""
    cluster.create_topic(topic, partitions=3)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec}
    rows, pieces = 40_000, 8
    with Producer(config, buffer_memory=3 << 20) as producer:

        def stream(thread: int) -> None:
            def batches() -> Iterator[pa.RecordBatch]:
                for start in range(0, rows, rows // pieces):
                    numbers = range(start, start + rows // pieces)
                    yield pa.record_batch(
                        {
                            "key": pa.array([b"%d" % (n % 50) for n in numbers], pa.binary()),
                            "value": pa.array([b"%d:%0100d" % (thread, n) for n in numbers]),
                        }
                    )

            schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
            reader = pa.RecordBatchReader.from_batches(schema, batches())
            outcomes[thread] = producer.send_arrow(topic, reader).result(timeout=60)

        def send() -> None:
            for n in range(2000):
                producer.send(topic, b"9:%d" % n, b"%d" % (n % 50))
            producer.flush(timeout=60)

        outcomes: dict[int, list[OffsetRange]] = {}
        threads = [threading.Thread(target=stream, args=(n,)) for n in (0, 1)]
        threads.append(threading.Thread(target=send))
        for one in threads:
            one.start()
        for one in threads:
            one.join(90)
        assert producer._engine.accumulator.used == 0
    found = read_all(cluster.bootstrap_servers, topic, 3)
    assert sum(map(len, found.values())) == 2 * rows + 2000
    for partition, records in found.items():
        for thread in (0, 1, 9):
            mark = b"%d:" % thread
            mine = [int((r.value or b"")[2:]) for r in records if (r.value or b"").startswith(mark)]
            assert mine == sorted(set(mine))
            ranges = [r for r in outcomes.get(thread, ()) if r.partition.partition == partition]
            assert thread == 9 or sum(r.records for r in ranges) == len(mine)
            for r in ranges:
                part = records[r.first_offset : r.last_offset + 1]
                assert {(one.value or b"")[:2] for one in part} == {mark}


def test_polars_and_pandas_data_frames_are_sent(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=1)
    rows = {"id": ["a", "b", None], "text": ["x", None, "é"], "at": [1, 2, 3]}
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for frame in (polars.DataFrame(rows), pandas.DataFrame(rows)):
            producer.send_arrow(topic, frame, key="id", value="text", timestamp="at").result(60)
    expected = [Row(b"a", b"x", (), 1), Row(b"b", None, (), 2), Row(None, "é".encode(), (), 3)]
    assert read_all(cluster.bootstrap_servers, topic, 1) == {0: expected * 2}


def test_a_single_record_waits_for_linger_ms(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1500) as producer:
        producer.send(topic, b"warm")
        producer.flush(timeout=60)
        begin = time.monotonic()
        producer.send(topic, b"alone").result(timeout=60)
        assert 1.48 <= time.monotonic() - begin <= 10.0
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send(topic, b"flushed")
        producer.flush(timeout=60)
        assert future.done()


def test_batches_larger_than_max_message_bytes_are_split(cluster: LocalCluster, topic: str) -> None:
    """Check KIP-126; a record that is too large by itself fails alone."""
    limit = {"max.message.bytes": "2000"}
    place_topic(cluster.bootstrap_servers, topic, [[0], [0]], limit)
    texts: list[list[bytes]] = [[], []]
    for codec in ("none", "gzip", "zstd", "lz4", "snappy"):
        config = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec}
        with Producer(config, linger_ms=50) as producer:
            values = [b"%s %d " % (codec.encode(), n) + os.urandom(100) for n in range(200)]
            futures = [producer.send(topic, v, partition=n % 2) for n, v in enumerate(values)]
            large = producer.send(topic, os.urandom(5000), partition=1)
            rows = producer.send_arrow(
                topic, pa.table({"value": values, "partition": [n % 2 for n in range(200)]})
            )
            producer.flush(timeout=30)
            for n, future in enumerate(futures):
                assert future.result(timeout=0).offset == len(texts[n % 2])
                texts[n % 2].append(values[n])
            assert isinstance(large.exception(timeout=0), RecordTooLargeError)
            for p, found in enumerate(rows.result(timeout=0)):
                first, last = len(texts[p]), len(texts[p]) + 99
                assert (found.first_offset, found.last_offset, found.records) == (first, last, 100)
                texts[p] += values[p::2]
            assert producer._engine.events.counts["split"]
    stored = read_all(cluster.bootstrap_servers, topic, 2)
    assert [[row.value for row in stored[p]] for p in range(2)] == texts


def test_send_to_a_missing_topic_or_partition_times_out_with_the_reason(
    cluster: LocalCluster, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=2000) as producer:
        producer.cluster_id(timeout=60)  # connected: from now on only the topic is missing
        expected = pytest.raises(KafkaTimeoutError, match=rf"{topic}.*UNKNOWN_TOPIC_OR_PARTITION")
        with ends_at(2.0), expected:
            producer.send(topic, b"nowhere").result(timeout=60)
        cluster.create_topic(topic, partitions=2)
        assert [p.partition for p in producer.partitions_for(topic, timeout=60)] == [0, 1]
        # The partition may have been added since, so `send` waits for it as long as in Java.
        with ends_at(2.0), pytest.raises(KafkaTimeoutError, match="has partitions 0 to 1"):
            producer.send(topic, b"", partition=2).result(timeout=60)
