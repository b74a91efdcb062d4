"""Batches above max.message.bytes are split and sent again (KIP-126)."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import leader_of, make

from odradek.api.producer import Producer
from odradek.clients.producer.batch import RecordMetadata
from odradek.common.errors import KafkaTimeoutError, RecordTooLargeError
from odradek.common.errors.kafka import OutOfOrderSequenceNumberError
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.logs.partition_log import StoredBatch


def limited(seed: int, limit: int, **config: Any) -> tuple[World, SimulatedCluster, Producer]:
    world, cluster, producer = make(seed, partitions=2, **config)
    for partition in cluster.topics["t"].partitions:
        partition.log.max_message_bytes = limit
    return world, cluster, producer


def text(n: int, size: int, rng: random.Random) -> bytes:
    return b"%d/" % n + rng.randbytes(size)


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd", "snappy"])
def test_each_future_of_a_split_batch_has_its_own_offset(compression: str) -> None:
    _, cluster, producer = limited(
        1, 2000, **{"compression.type": compression, "linger.ms": 50, "batch.size": 16384}
    )
    rng = random.Random(7)
    sent = [(b"k%d" % n, text(n, 100, rng), [("h", None), ("i", b"x")]) for n in range(300)]
    futures = [producer.send("t", v, k, h, partition=n % 2) for n, (k, v, h) in enumerate(sent)]
    producer.flush(timeout=60)
    assert all(f.done() for f in futures)
    stored = {p: cluster.records("t", p) for p in range(2)}
    assert sum(map(len, stored.values())) == 300
    for n, (future, (key, value, headers)) in enumerate(zip(futures, sent, strict=True)):
        place = future.result(timeout=0)
        offset, timestamp, _, found_key, found, found_headers = stored[n % 2][place.offset]
        assert (offset, found_key, found) == (place.offset, key, value)
        assert list(found_headers) == headers
        assert place.timestamp_ms == timestamp
        assert place.offset == n // 2  # offsets are in the order of sending
    assert producer._engine.events.counts["split"] > 0
    assert producer._engine.sender.identity.bumps == 0
    assert producer._engine.accumulator.used == 0


def test_the_size_limit_of_a_partition_is_remembered_for_a_while() -> None:
    world, cluster, producer = limited(2, 3000, **{"linger.ms": 5, "batch.size": 32768})
    splits = []
    producer.listen(lambda event: splits.append(event.at) if event.kind == "split" else None)
    for n in range(3000):
        producer.send("t", b"%d" % n + b"x" * 90, partition=0)
        if n % 100 == 99:
            world.advance(0.1)
    producer.flush(timeout=60)
    assert [row[4] for row in cluster.records("t", 0)] == [
        b"%d" % n + b"x" * 90 for n in range(3000)
    ]
    assert 1 <= len(splits) <= 30
    learned = splits[-1]
    assert learned < world.now - 1.0  # later batches were small enough
    cluster.topics["t"].partitions[0].log.max_message_bytes = 1 << 20
    world.advance(700.0)  # the limit may have been raised, so larger batches are tried again
    before = len(cluster.topics["t"].partitions[0].log.batches)
    for _ in range(200):
        producer.send("t", b"x" * 90, partition=0)
    producer.flush(timeout=60)
    assert len(cluster.topics["t"].partitions[0].log.batches) == before + 1


def test_a_single_record_that_is_too_large_names_the_topics_limit() -> None:
    _, cluster, producer = limited(3, 1000, **{"linger.ms": 5})
    small = [producer.send("t", b"%d" % n, partition=0) for n in range(5)]
    large = producer.send("t", b"x" * 5000, partition=0)
    more = [producer.send("t", b"%d" % n, partition=0) for n in range(5, 10)]
    with pytest.raises(RecordTooLargeError, match=r"t-0.*max\.message\.bytes"):
        large.result(timeout=60)
    assert [f.result(timeout=60).offset for f in [*small, *more]] == list(range(10))
    assert [row[4] for row in cluster.records("t", 0)] == [b"%d" % n for n in range(10)]


def test_send_arrow_reports_the_right_offsets_after_a_split() -> None:
    _, cluster, producer = limited(4, 4000, **{"batch.size": 65536})
    data = pa.table(
        {
            "value": [b"%d" % n + b"y" * 50 for n in range(4000)],
            "partition": pa.array([n % 2 for n in range(4000)], pa.int32()),
        }
    )
    ranges = producer.send_arrow("t", data).result(timeout=60)
    assert [(r.partition, r.first_offset, r.last_offset, r.records) for r in ranges] == [
        (TopicPartition("t", p), 0, 1999, 2000) for p in range(2)
    ]
    for p in range(2):
        got = [row[4] for row in cluster.records("t", p)]
        assert got == [b"%d" % n + b"y" * 50 for n in range(p, 4000, 2)]


def test_callbacks_of_a_split_batch_are_called_once_and_in_order() -> None:
    _, _, producer = limited(5, 1500, **{"linger.ms": 20})
    told: list[int] = []

    def note(error: BaseException | None, place: RecordMetadata) -> None:
        told.append(place.offset if error is None else -1)

    for n in range(100):
        producer.send("t", b"%d" % n + b"z" * 50, partition=0, on_delivery=note)
    producer.flush(timeout=60)
    assert told == list(range(100))


@pytest.mark.parametrize("written", [True, False])
def test_a_batch_that_may_already_be_appended_is_not_split(
    written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to the batch is lost, and max.message.bytes lowered before the retry."""
    world, cluster, producer = limited(7, 1 << 20, **{"linger.ms": 50, "request.timeout.ms": 1000})
    producer.send("t", b"first", partition=0).result(timeout=10)
    log, leader = cluster.log("t", 0), leader_of(cluster)
    append = log.append

    def lose_the_answer(*arguments: Any, **more: Any) -> StoredBatch:
        monkeypatch.undo()
        log.max_message_bytes = 1000
        world.after(0.0, lambda: cluster.half_open(leader.id))
        return append(*arguments, **more)

    if written:
        monkeypatch.setattr(log, "append", lose_the_answer)
    else:
        log.max_message_bytes = 1000
        cluster.half_open(leader.id)
    values = [b"%d/" % n + b"x" * 100 for n in range(40)]
    futures = [producer.send("t", value, partition=0) for value in values]
    producer.flush(timeout=60)
    producer.send("t", b"last", partition=0).result(timeout=10)
    assert [row[4] for row in cluster.records("t", 0)] == [b"first", *values, b"last"]
    assert producer._engine.events.counts["split"] >= 1
    if written:
        for future in futures:
            with pytest.raises(OutOfOrderSequenceNumberError, match="may have been written"):
                future.result(timeout=0)
    else:
        assert [future.result(timeout=0).offset for future in futures] == list(range(1, 41))
    assert producer._engine.accumulator.used == 0


def test_parts_of_a_split_batch_keep_its_delivery_timeout() -> None:
    world, cluster, producer = limited(
        6, 1500, **{"linger.ms": 5, "delivery.timeout.ms": 4000, "request.timeout.ms": 1000}
    )
    producer.send("t", b"0", partition=0).result(timeout=5)
    cluster.session_timeout = 1000.0

    def silence(event: Event) -> None:
        if event.kind == "split":
            world.after(0.0, lambda: cluster.go_silent(leader_of(cluster).id))

    producer.listen(silence)
    begin = world.now
    futures = [producer.send("t", b"x" * 100, partition=0) for n in range(40)]
    with pytest.raises(KafkaTimeoutError):
        futures[-1].result(timeout=30)
    assert world.now - begin == pytest.approx(4.0, abs=0.1)
