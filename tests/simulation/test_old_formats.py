"""Records of formats 0 and 1: reads, seeks, corrupt messages, skipping on request."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from tests.fuzz.old_messages import message, wrapper
from tests.simulation.scene import Stage
from tests.simulation.test_hostile_records import MB, TP, offsets
from tests.simulation.test_spark_sink_abort import Clock

from odradek.api.consumer import Consumer
from odradek.common.errors import CorruptRecordError
from odradek.common.errors.records import RecordLimitError
from odradek.record.compression import compress
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.values.schema import arrow_schema, full_schema
from odradek.testing.simulated import KafkaSimulation

HOWS = ["poll", "records", "arrow"]
EACH = 5
"""Records per batch."""


def plain(base: int, magic: int) -> bytes:
    return b"".join(message(base + n, magic, b"k", b"v", time=7) for n in range(EACH))


def wrapped(base: int, magic: int, codec: int) -> bytes:
    inner = plain(0 if magic else base, magic)
    return bytes(wrapper(inner, base + EACH - 1, magic, codec, time=7))


def bomb(base: int) -> bytes:
    inner = message(0, 1, None, bytes(40 * MB))
    packed = compress(1, None, memoryview(inner))
    return bytes(wrapper(b"", base + EACH - 1, 1, 1, packed=packed))


def torn(base: int) -> bytes:
    made = bytearray(wrapped(base, 1, 1))
    made[-1] ^= 1
    return bytes(made)


def reader_of(third: bytes | None = None, **config: Any) -> Consumer:
    """Return a reader of four batches: plain messages, a wrapper, `third`, and format 2."""
    stage = Stage(7, brokers=1, partitions=1)
    with stage.producer() as producer:
        for _ in range(4):
            for _ in range(EACH):
                producer.send("t", b"v", b"k", [("h", b"x")], timestamp_ms=9)
            producer.flush(timeout=60)
    batches = stage.cluster.log("t", 0).batches
    assert [b.header.count for b in batches] == [EACH] * 4
    batches[0].data = plain(0, 0)
    batches[1].data = wrapped(5, 0, 2)
    batches[2].data = wrapped(10, 1, 3) if third is None else third
    made = stage.consumer(**config)
    made.assign([TP])
    return made


@pytest.mark.parametrize("how", HOWS)
def test_a_topic_with_several_formats_is_read_completely(how: str) -> None:
    client = reader_of()
    assert list(offsets(client, how)) == list(range(20))
    for start in (3, 7, 12):
        client.seek(TP, start)
        assert list(offsets(client, how)) == list(range(start, 20))


def test_records_have_the_timestamps_of_their_format() -> None:
    client = reader_of()
    found = []
    while records := client.poll(1.0):
        found += records
    assert [(r.timestamp_ms, r.timestamp_type) for r in found] == [
        *[(-1, -1)] * 10,
        *[(7, 0)] * 5,
        *[(9, 0)] * 5,
    ]
    assert {(r.key, r.value) for r in found} == {(b"k", b"v")}
    assert [r.headers for r in found] == [()] * 15 + [(("h", b"x"),)] * 5
    assert [r.leader_epoch for r in found] == [-1] * 15 + [0] * 5


def test_until_may_be_an_offset_within_a_compressed_message_set() -> None:
    client = reader_of()
    client.assign([TP], until={TP: 8})
    assert list(offsets(client, "poll")) == list(range(8))
    assert client.position(TP) == 8


@pytest.mark.parametrize("small", [40, 100])
def test_all_records_are_read_although_small_fetches_truncate_messages(small: int) -> None:
    limits: dict[str, Any] = {"max.partition.fetch.bytes": small, "fetch.max.bytes": small}
    client = reader_of(**limits)
    assert list(offsets(client, "poll")) == list(range(20))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("third", "kind", "why"),
    [
        (torn(10), CorruptRecordError, "record batch at offset 14: its checksum is wrong"),
        (bomb(10), RecordLimitError, r"max\.decompression\.ratio"),
    ],
    ids=["torn", "bomb"],
)
def test_a_corrupt_wrapper_message_raises_an_error_and_can_be_skipped(
    third: bytes, kind: type[CorruptRecordError], why: str, how: str
) -> None:
    client = reader_of(third)
    found: list[int] = []
    with pytest.raises(kind, match=rf"t-0: .*{why}.*seek\(\) to 15") as caught:
        found += offsets(client, how)
    error = caught.value
    assert (error.partition, error.offset, error.next_offset) == (TP, 10, 15)
    client.seek(TP, 15)
    assert list(offsets(client, how)) == list(range(15, 20))


def test_a_corrupt_wrapper_message_is_skipped_on_request(caplog: pytest.LogCaptureFixture) -> None:
    client = reader_of(torn(10), **{"on.corrupt.record": "skip"})
    with caplog.at_level(logging.WARNING, "odradek.consumer"):
        assert list(offsets(client, "poll")) == [*range(10), *range(15, 20)]
    (line,) = [r.getMessage() for r in caplog.records if r.name == "odradek.consumer"]
    assert "the consumer skips offsets 10 to 14 (on.corrupt.record=skip)" in line


def test_a_spark_task_reads_its_range() -> None:
    with KafkaSimulation(brokers=1) as simulation:
        simulation.create_topic("t", partitions=1)
        for _ in range(2 * EACH):
            simulation.send("t", b"v").result(10)
            simulation.advance(1.0)
        batches = simulation.cluster.log("t", 0).batches
        batches[0].data = plain(0, 0)[: len(message(0, 0, b"k", b"v"))]
        assert batches[0].last_offset == 0
        for n in range(1, EACH):
            batches[n].data = bytes(message(n, 1, None, b"old", time=7))
        consumer: Any = simulation.consumer({"auto.offset.reset": "none"})
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
        options = parse_options(given, BATCH)
        reader = RangeReader(
            consumer, KafkaOffsetRange(TP, 0, 2 * EACH), None, options, Clock(simulation)
        )
        target = arrow_schema(full_schema(include_headers=False))
        rows = pa.Table.from_batches(list(reader.batches(tuple(target.names), target))).to_pylist()
    assert [row["offset"] for row in rows] == list(range(2 * EACH))
    assert [row["timestampType"] for row in rows] == [-1] + [0] * (2 * EACH - 1)
    assert [row["value"] for row in rows] == [b"v"] + [b"old"] * 4 + [b"v"] * 5
