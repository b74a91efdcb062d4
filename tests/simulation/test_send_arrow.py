"""`send_arrow` keeps all guarantees of `send`, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import polars
import pyarrow as pa
import pytest
from tests.simulation.produce_script import PARTITIONS, every_broker, make, values
from tests.volume import part, some

from odradek.clients.producer.record_accumulator import COLUMN_BATCH
from odradek.common.errors import (
    ClientClosedError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
    RecordTooLargeError,
)
from odradek.common.types import TopicPartition
from odradek.record import InvalidRowError, partition_for_key
from odradek.record.arrow import ArrowSchemaError
from odradek.runtime.hosts.record_future import ArrowFuture, RecordFuture, RowsFuture

SCHEDULES = part(64, 12)


def numbered(first: int, count: int, **more: Any) -> pa.RecordBatch:
    """Return rows with their number as value, each in the partition of its number."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "value": pa.array([b"%d" % n for n in numbers], pa.binary()),
            "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
            **more,
        }
    )


def test_columns_are_sent_like_the_arguments_of_send() -> None:
    world, cluster, producer = make(1)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"", b"key-4"]),
            "value": pa.array([b"0", b"1", None, b"3"]),
            "partition": pa.array([2, 2, 2, None], pa.int32()),
            "timestamp": pa.array([5, None, 7, 8], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None, [], None], header),
        }
    )
    now = int(world.wall_clock() * 1000)
    future = producer.send_arrow("t", table)
    assert (future.rows, future.done()) == (4, False)
    ranges = future.result(timeout=5)
    assert future.done()
    other = partition_for_key(b"key-4", PARTITIONS)
    assert other != 2
    assert [(r.partition.partition, r.first_offset, r.last_offset, r.records) for r in ranges] == [
        (other, 0, 0, 1),
        (2, 0, 2, 3),
    ]
    assert [row[3:] for row in cluster.records("t", 2)] == [
        (b"a", b"0", (("h", b"x"),)),
        (None, b"1", ()),
        (b"", None, ()),
    ]
    times = [row[1] for row in cluster.records("t", 2)]
    assert times[::2] == [5, 7]
    assert now <= times[1] <= now + 10
    assert [row[4] for row in cluster.records("t", other)] == [b"3"]


def test_send_arrow_accepts_other_libraries_and_custom_column_names() -> None:
    _, cluster, producer = make(2)
    frame = polars.DataFrame({"id": ["a", None], "n": [b"1", b"2"], "part": [1, 1]})
    producer.send_arrow("t", frame, key="id", value="n", partition="part").result(timeout=5)
    assert [row[3:5] for row in cluster.records("t", 1)] == [(b"a", b"1"), (None, b"2")]
    with pytest.raises(ArrowSchemaError, match="'value' is missing; the data has id, n, part"):
        producer.send_arrow("t", frame)


def test_rows_without_a_key_share_the_partition_of_their_batch() -> None:
    _, cluster, producer = make(3, **{"batch.size": 2000, "linger.ms": 50})
    rows = pa.record_batch({"value": [b"%0100d" % n for n in range(300)]})
    future = producer.send_arrow("t", rows)
    assert sum(r.records for r in future.result(timeout=10)) == 300
    runs = 0
    for partition in range(PARTITIONS):
        found = values(cluster, partition)
        assert found == sorted(found)
        assert 40 < len(found) < 160
        runs += sum(b != a + 1 for a, b in pairwise(found))
    assert runs < 25  # 300 rows; the partition changes after about 18


def test_consecutive_calls_keep_the_order_and_share_batches() -> None:
    _, cluster, producer = make(4, **{"linger.ms": 1000})
    futures: list[ArrowFuture | RecordFuture] = []
    for n in range(0, 60, 6):
        futures.append(producer.send_arrow("t", numbered(n, 3)))
        rest = range(n + 3, n + 6)
        futures += [producer.send("t", b"%d" % i, partition=i % PARTITIONS) for i in rest]
    producer.flush(timeout=10)
    for partition in range(PARTITIONS):
        assert values(cluster, partition) == list(range(partition, 60, PARTITIONS))
        assert len(cluster.log("t", partition).batches) == 1
    for n, future in enumerate(futures):
        assert future.done()
        if isinstance(future, ArrowFuture):
            (offset,) = {(r.first_offset, r.last_offset, r.records) for r in future.result()}
            assert offset == (n // 2, n // 2, 1)


def test_large_data_is_sent_in_large_batches_with_little_memory() -> None:
    world, cluster, producer = make(5, **{"buffer.memory": 6 << 20})
    count = 40_000
    data = [b"%0500d" % n for n in range(count)]
    rows = pa.record_batch({"value": pa.array(data, pa.binary())})
    begin = world.now
    future = producer.send_arrow("t", rows, partition=None)
    assert producer._engine.accumulator.used <= 6 << 20
    assert world.now > begin  # 20 MB exceed the buffer of 6 MB, so the call waits
    assert sum(r.records for r in future.result(timeout=30)) == count
    sizes = [len(b.data) for p in range(PARTITIONS) for b in cluster.log("t", p).batches]
    assert max(sizes) <= COLUMN_BATCH
    assert sum(sizes) / len(sizes) > 0.8 * COLUMN_BATCH
    assert producer._engine.accumulator.used == 0


def test_the_error_of_an_invalid_row_counts_the_sent_rows() -> None:
    _, cluster, producer = make(6, **{"max.request.size": 5000})
    good, bad = numbered(0, 6), numbered(6, 6)
    bad = bad.set_column(1, "partition", pa.array([0, 1, 2, 0, 99, 1], pa.int32()))
    with pytest.raises(InvalidRowError, match="row 10: the topic has partitions 0 to 2") as caught:
        producer.send_arrow("t", pa.Table.from_batches([good, bad]))
    (note,) = caught.value.__notes__
    assert note.startswith("The first 6 rows are still sent, unless the producer is closed first")
    with pytest.raises(RecordTooLargeError, match="row 1: .* max.request.size") as large:
        producer.send_arrow("t", pa.record_batch({"value": [b"99", bytes(6000)]}))
    assert not hasattr(large.value, "__notes__")
    producer.flush(timeout=10)
    assert [values(cluster, p) for p in range(PARTITIONS)] == [[0, 3], [1, 4], [2, 5]]
    assert producer._engine.accumulator.used == 0


def test_send_arrow_without_rows_completes_immediately() -> None:
    _, _, producer = make(7)
    future = producer.send_arrow("t", numbered(0, 0))
    assert (future.done(), future.rows, future.result(timeout=0)) == (True, 0, [])


def test_the_future_of_send_arrow_raises_the_error_of_its_rows() -> None:
    _, cluster, producer = make(9, **{"delivery.timeout.ms": 4000, "request.timeout.ms": 1000})
    producer.send_arrow("t", numbered(0, 3)).result(timeout=5)
    every_broker(cluster, "crash")
    future = producer.send_arrow("t", numbered(3, 30))
    called: list[ArrowFuture] = []
    future.add_done_callback(called.append)
    with pytest.raises(KafkaTimeoutError, match="acknowledgement of 30 records"):
        future.result(timeout=0.5)
    with pytest.raises(NoBrokerAvailableError):
        future.result(timeout=10)
    assert isinstance(future.exception(timeout=0), NoBrokerAvailableError)
    assert called == [future]


def test_no_rows_are_accepted_after_the_client_ended_during_a_stream() -> None:
    _, cluster, producer = make(11)

    def stream() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 9)
        producer.close(timeout=5)
        yield numbered(9, 9)

    with pytest.raises(ClientClosedError):
        reader = pa.RecordBatchReader.from_batches(numbered(0, 0).schema, stream())
        producer.send_arrow("t", reader)
    assert sorted(n for p in range(PARTITIONS) for n in values(cluster, p)) == list(range(9))


def test_the_first_rows_of_a_slow_stream_are_sent_immediately() -> None:
    world, cluster, producer = make(12)
    producer.send("t", b"0", partition=0).result(timeout=5)

    def stream() -> Iterator[pa.RecordBatch]:
        for n in range(3, 30, 3):
            yield numbered(n, 3)
            world.advance(1.0)
            assert values(cluster, 1)[-1] == n + 1

    reader = pa.RecordBatchReader.from_batches(numbered(0, 0).schema, stream())
    producer.send_arrow("t", reader).result(timeout=5)


class Schedule:
    """A random schedule of faults while records, lists and Arrow data are sent in turns."""

    VERBS = (
        "crash", "pause", "blackhole", "accept_then_reset", "ready_then_close", "go_silent",
        "move_leader", "move", "nothing", "nothing",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world, self.cluster, self.producer = make(
            seed,
            **{
                "delivery.timeout.ms": self.rng.choice([4000, 20000, 120000]),
                "request.timeout.ms": self.rng.choice([1500, 3000]),
                "linger.ms": self.rng.choice([0, 5, 50]),
                "batch.size": self.rng.choice([200, 2000, 100000]),
                "buffer.memory": self.rng.choice([3000, 100_000, 1 << 25]),
                "max.request.size": 3000,
                "max.block.ms": self.rng.choice([100, 5000]),
            },
        )
        self.ids = sorted(self.cluster.brokers)
        self.tried = 0
        self.sent: list[tuple[range, RowsFuture | RecordFuture]] = []

    def run(self) -> None:
        for _ in range(30):
            self.fault(self.rng.choice(self.VERBS), self.rng.choice(self.ids))
            for _ in range(self.rng.randrange(6)):
                self.send()
                self.world.advance(self.rng.uniform(0, 0.2))
            self.world.advance(self.rng.uniform(0, 1))
        every_broker(self.cluster, "repair")
        self.world.advance(150)

    def send(self) -> None:
        first = self.tried
        count = self.rng.choice((1, 3, 40, 200))
        numbers = range(first, first + count)
        self.tried += count
        try:
            if count == 1:
                part = first % PARTITIONS
                self.sent.append((numbers, self.producer.send("t", b"%d" % first, partition=part)))
            elif first % 2:
                texts, places = [b"%d" % n for n in numbers], [n % PARTITIONS for n in numbers]
                self.sent.append((numbers, self.producer.send_many("t", texts, partitions=places)))
            else:
                self.sent.append((numbers, self.producer.send_arrow("t", self.stream(numbers))))
        except KafkaError:
            pass  # rows that were already in batches may be written, in order and once

    def stream(self, numbers: range) -> pa.RecordBatchReader:
        def pieces() -> Iterator[pa.RecordBatch]:
            at = numbers.start
            while at < numbers.stop:
                count = self.rng.randrange(1, 90)
                yield numbered(at, min(count, numbers.stop - at))
                at += count
                if self.rng.random() < 0.2:
                    self.world.advance(self.rng.uniform(0, 0.3))

        return pa.RecordBatchReader.from_batches(numbered(0, 0).schema, pieces())

    def fault(self, verb: str, i: int) -> None:
        cluster, rng = self.cluster, self.rng
        if verb == "move_leader":
            if len(cluster._candidates()) > 1:
                cluster.move_leader("t", rng.randrange(PARTITIONS))
        elif verb == "move":
            cluster.move(after=rng.uniform(0.5, 3))
        elif verb == "crash":
            cluster.crash(i)
            cluster.restart(i, after=rng.uniform(0.1, 3))
        elif verb != "nothing":
            getattr(cluster, verb)(i)
            self.world.after(rng.uniform(0.1, 4), lambda: cluster.repair(i))

    def check(self) -> int:
        """Compare the logs with the futures; return the number of written rows."""
        place: dict[int, int] = {}
        for partition in range(PARTITIONS):
            written = values(self.cluster, partition)
            doubled = [n for n, count in Counter(written).items() if count > 1]
            assert not doubled, f"written twice: {doubled}"
            assert written == sorted(written), "out of order"
            place.update((n, offset) for offset, n in enumerate(written))
        rows = 0
        for numbers, future in self.sent:
            assert future.done(), f"rows {numbers} have no outcome"
            if future.exception(timeout=0) is not None:
                assert isinstance(future.exception(timeout=0), KafkaError)
                continue
            lost = [n for n in numbers if n not in place]
            assert not lost, f"acknowledged, but not there: {lost}"
            if isinstance(future, RowsFuture):
                rows += len(numbers)
                self.check_ranges(numbers, future, place)
            else:
                assert future.result(timeout=0).offset in (-1, place[numbers.start])
        assert self.producer._engine.accumulator.used == 0
        return rows

    def check_ranges(self, numbers: range, future: RowsFuture, place: dict[int, int]) -> None:
        """Check that the ranges contain the offsets of the rows, unless unknown."""
        ranges = future.result(timeout=0)
        assert future.rows == len(numbers) == sum(r.records for r in ranges)
        for partition in range(PARTITIONS):
            mine = [r for r in ranges if r.partition == TopicPartition("t", partition)]
            told = {
                offset
                for r in mine
                if r.first_offset >= 0
                for offset in range(r.first_offset, r.last_offset + 1)
            }
            offsets = {place[n] for n in numbers if n % PARTITIONS == partition}
            assert told <= offsets
            unknown = sum(r.records for r in mine if r.first_offset < 0)
            assert len(told) + unknown == len(offsets)


@pytest.mark.parametrize("part", some(range(4), 2))
def test_no_record_is_lost_duplicated_or_reordered_by_random_faults(part: int) -> None:
    """This test detects a mutation that writes to batches after their release."""
    quarter = SCHEDULES // 4
    rows = 0
    for seed in range(part * quarter, (part + 1) * quarter):
        schedule = Schedule(seed)
        schedule.run()
        try:
            rows += schedule.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert rows > 5_000
