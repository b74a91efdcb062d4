"""`send_many` keeps all guarantees of `send`, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.simulation.produce_script import PARTITIONS, leader_of, make, values

from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.record_accumulator import COLUMN_BATCH
from odradek.common.errors import (
    ArgumentError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from odradek.common.errors.kafka import InvalidProducerEpochError
from odradek.common.errors.records import SchemaNotAtHandError
from odradek.errors import SerializationError
from odradek.record import InvalidRowError, partition_for_key
from odradek.record.list_send import PIECE_RECORDS
from odradek.runtime.hosts.record_future import ManyFuture
from odradek.serialization import SerializationContext
from odradek.simulation import SimulatedCluster, World
from odradek.testing import VirtualLoop


def test_lists_are_sent_like_the_arguments_of_send() -> None:
    world, cluster, producer = make(1)
    keys = [b"a", None, b"", b"key-4"]
    texts = [b"0", b"1", None, b"3"]
    headers: list[Any] = [[("h", b"x")], None, (), {"i": None}]
    now = int(world.wall_clock() * 1000)
    future = producer.send_many("t", texts, keys, headers, [2, 2, 2, None], [5, None, 7, 8])
    assert isinstance(future, ManyFuture)
    assert (future.rows, future.done()) == (4, False)
    ranges = future.result(timeout=5)
    assert future.errors() is None
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
    assert [row[3:] for row in cluster.records("t", other)] == [(b"key-4", b"3", (("i", None),))]
    times = [row[1] for row in cluster.records("t", 2)]
    assert times[::2] == [5, 7]
    assert now <= times[1] <= now + 10


def test_an_empty_list_completes_immediately() -> None:
    _, _, producer = make(2)
    assert producer.send_many("t", []).result(timeout=1) == []


def test_send_many_keeps_the_order_of_calls_and_shares_batches_with_send() -> None:
    _, cluster, producer = make(3, **{"linger.ms": 1000})
    for n in range(0, 60, 6):
        rows = range(n, n + 3)
        places = [i % PARTITIONS for i in rows]
        producer.send_many("t", [b"%d" % i for i in rows], partitions=places)
        for i in range(n + 3, n + 6):
            producer.send("t", b"%d" % i, partition=i % PARTITIONS)
    producer.flush(timeout=10)
    for partition in range(PARTITIONS):
        assert values(cluster, partition) == list(range(partition, 60, PARTITIONS))
        assert len(cluster.log("t", partition).batches) == 1


def test_many_records_are_sent_in_large_batches_with_little_memory() -> None:
    _, cluster, producer = make(4, **{"buffer.memory": 6 << 20})
    count = 60_000
    texts = [b"%0500d" % n for n in range(count)]
    future = producer.send_many("t", texts, partitions=[n % PARTITIONS for n in range(count)])
    assert sum(r.records for r in future.result(timeout=60)) == count
    for partition in range(PARTITIONS):
        assert values(cluster, partition) == list(range(partition, count, PARTITIONS))
        sizes = [batch.header.size for batch in cluster.log("t", partition).batches]
        assert COLUMN_BATCH * 0.9 < sorted(sizes)[len(sizes) // 2] <= COLUMN_BATCH
    assert producer._engine.accumulator.used == 0


@pytest.mark.parametrize("at", [0, 5, 20_000])
def test_no_record_of_a_list_with_an_invalid_item_is_sent(at: int) -> None:
    _, cluster, producer = make(5)
    texts: list[Any] = [b"1"] * (at + 3)
    texts[at] = "text"
    with pytest.raises(ArgumentError, match=rf"values\[{at}\]"):
        producer.send_many("t", texts)
    producer.flush(timeout=5)
    assert not any(cluster.records("t", p) for p in range(PARTITIONS))


def test_errors_of_the_cluster_report_the_number_of_sent_records() -> None:
    """If a partition is missing or a record is too large, records before it are being sent."""
    _, cluster, producer = make(6, **{"max.request.size": 2000, "max.block.ms": 1000})
    texts = [b"%d" % n for n in range(9000)]
    with pytest.raises(KafkaError, match="row 8500") as refused:
        producer.send_many("t", texts, partitions=[0] * 8500 + [99] + [0] * 499)
    assert isinstance(refused.value, InvalidRowError | KafkaTimeoutError)
    assert refused.value.__notes__[-1].startswith("The first 8192 rows are still sent, unless")
    producer.flush(timeout=5)
    assert values(cluster, 0) == list(range(8192))
    texts[3] = b"x" * 3000
    with pytest.raises(RecordTooLargeError, match="row 3: "):
        producer.send_many("t", texts, partitions=[1] * 9000)
    assert values(cluster, 1) == []


def test_an_error_that_any_call_would_raise_has_no_note_about_sent_records() -> None:
    world = World(seed=10)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=1)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}
    asked = 0

    def place(*_: Any) -> int:
        nonlocal asked
        asked += 1
        if asked == PIECE_RECORDS + 1:
            with on_host(world.host("other"), Producer, settings) as other:
                other.init_transactions()
            with pytest.raises(InvalidProducerEpochError):
                producer.send("t", b"1", partition=0).result(10)
        return 0

    producer = on_host(world.host("p"), Producer, {**settings, "partitioner": place})
    producer.init_transactions()
    producer.begin_transaction()
    for send in (lambda: producer.send_many("t", [b"v"] * 10_000), lambda: producer.send("t")):
        with pytest.raises(InvalidProducerEpochError) as refused:
            send()
        assert not hasattr(refused.value, "__notes__")
    assert asked > PIECE_RECORDS
    producer.close(0)


def test_each_record_has_its_own_error() -> None:
    _, cluster, producer = make(
        7, replicas=1, **{"batch.size": 700, "delivery.timeout.ms": 3000, "linger.ms": 5}
    )
    producer.partitions_for("t", timeout=5)
    leader = leader_of(cluster, 1)
    cluster.crash(leader.id)  # the only replica
    dead = {p for p in range(PARTITIONS) if cluster.leader("t", p) in (leader, None)}
    keys = [b"%d" % n for n in range(900)]
    future = producer.send_many("t", keys, keys)
    errors = future.errors(timeout=30)
    places = [partition_for_key(key, PARTITIONS) for key in keys]
    assert errors is not None
    assert [n for n, e in enumerate(errors) if e] == [n for n, p in enumerate(places) if p in dead]
    assert all(isinstance(error, KafkaTimeoutError) for error in errors if error)
    with pytest.raises(KafkaTimeoutError):
        future.result()
    assert sum(r.records for r in future.acknowledged()) == sum(p not in dead for p in places)


def test_serializers_are_called_for_each_record_before_any_is_sent() -> None:
    def as_text(number: int, context: SerializationContext) -> bytes:
        context.headers.append(("kind", str(context.field).encode()))
        return b"%d" % number

    world = World(seed=8)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=1)
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    make_one: Any = partial(on_host, world.host("p"), Producer, settings)
    producer = make_one(key_serializer=str.encode, value_serializer=as_text)
    own = [[("own", b"x")], None, None]
    producer.send_many("t", [1, None, 3], ["a", "b", None], own, timestamps_ms=[7, 8, 9]).result(5)
    found = [row[1:2] + row[3:] for row in cluster.records("t", 0)]
    assert found == [
        (7, b"a", b"1", (("own", b"x"), ("kind", b"value"))),
        (8, b"b", None, ()),
        (9, None, b"3", (("kind", b"value"),)),
    ]
    with pytest.raises(SerializationError):
        producer.send_many("t", [4, "no number"])
    with pytest.raises(
        ArgumentError, match="keys and values must have the same length, not 1 and 2"
    ):
        producer.send_many("t", [4, 5], ["a"])
    producer.flush(5)
    assert len(cluster.records("t", 0)) == 3


class Loop:
    """An asyncio producer, and the longest time for which its event loop was blocked."""

    def __init__(self, **more: Any) -> None:
        self.world = World(seed=9)
        self.cluster = SimulatedCluster(self.world, brokers=1)
        self.cluster.create_topic("t", partitions=1)
        self.more = more
        self.turns = 0

    def run(self, main: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async def program() -> None:
            host = self.world.host("p", mode="bytes", background=True)
            settings = {"bootstrap.servers": self.cluster.bootstrap_servers}
            async with on_host(host, AsyncProducer, settings, **self.more) as producer:
                await main(producer)

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.world)) as runner:
            runner.run(program())


def test_send_many_awaits_memory_and_reports_errors_in_an_event_loop() -> None:
    loop = Loop(buffer_memory=1 << 20)

    async def main(producer: Any) -> None:
        delivery = await producer.send_many("t", [b"%0100d" % n for n in range(30_000)])
        assert not delivery.done()
        (written,) = await delivery
        assert (written.first_offset, written.last_offset) == (0, 29_999)
        assert delivery.errors() is None
        assert delivery.acknowledged() == [written]
        with pytest.raises(ArgumentError, match=r"values\[1\]"):
            await producer.send_many("t", [b"1", 2])

    loop.run(main)
    assert [int(row[4] or b"") for row in loop.cluster.records("t", 0)] == [*range(30_000)]


def test_send_many_calls_serializers_in_an_event_loop() -> None:
    loop = Loop(value_serializer=lambda number: b"%d" % number)

    async def main(producer: Any) -> None:
        (written,) = await (await producer.send_many("t", range(1000), keys=[b"k"] * 1000))
        assert written.records == 1000
        with pytest.raises(SerializationError):
            await producer.send_many("t", ["no number"])

    loop.run(main)
    assert [int(row[4] or b"") for row in loop.cluster.records("t", 0)] == [*range(1000)]


def test_a_flush_checks_each_batch_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[ProducerBatch] = []
    leaves = ProducerBatch.leaves

    def looked(batch: ProducerBatch) -> dict[ProducerBatch, int]:
        looks.append(batch)
        return leaves(batch)

    monkeypatch.setattr(ProducerBatch, "leaves", looked)
    _, cluster, producer = make(10, **{"batch.size": 500, "linger.ms": 1000})
    producer.send_many("t", [b"%0200d" % n for n in range(900)], partitions=[0] * 900)
    producer.flush(timeout=60)
    assert len(cluster.log("t", 0).batches) > 300
    assert len(looks) < 300


def test_headers_from_an_iterator_survive_the_wait_for_a_schema() -> None:
    tries = [SchemaNotAtHandError(lambda: None)]

    def later(value: int) -> bytes:
        for error in tries:
            tries.clear()
            raise error
        return b"%d" % value

    loop = Loop(value_serializer=later)
    given = [("mine", b"1"), ("yours", b"2")]

    async def main(producer: Any) -> None:
        await (await producer.send_many("t", [1, 2], headers=[iter(given), iter(given)]))

    loop.run(main)
    assert tries == []
    assert [row[5] for row in loop.cluster.records("t", 0)] == [tuple(given)] * 2
