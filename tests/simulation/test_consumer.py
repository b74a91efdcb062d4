"""The consumer during faults of its cluster, in virtual time."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.group_scene import MADE
from tests.simulation.produce_script import every_broker, leader_of

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common.errors import (
    ClientClosedError,
    ClusterIdMismatchError,
    CorruptRecordError,
    IllegalStateError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.world.link import Mode

PARTITIONS = [TopicPartition("t", p) for p in range(3)]


def make(
    seed: int, count: int = 300, *, mode: Mode = "bytes", background: bool = False, **config: Any
) -> tuple[World, SimulatedCluster, Consumer]:
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", partitions=3)
    write(world, cluster, range(count))
    return world, cluster, consumer(world, cluster, mode=mode, background=background, **config)


def consumer(
    world: World,
    cluster: SimulatedCluster,
    *,
    mode: Mode = "bytes",
    background: bool = False,
    hint: dict[str, Any] | None = None,
    **config: Any,
) -> Consumer:
    config = {"auto_offset_reset": "earliest", **config}
    host = world.host("consumer", mode=mode, background=background)
    servers = cluster.bootstrap_servers
    MADE.append(on_host(host, Consumer, bootstrap_servers=servers, bootstrap_hint=hint, **config))
    return MADE[-1]


def write(world: World, cluster: SimulatedCluster, numbers: range, size: int = 0) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 1000}
    with on_host(world.host("producer"), Producer, config) as producer:
        for n in numbers:
            producer.send("t", b"%d" % n + bytes(size), partition=n % 3)
        producer.flush(timeout=60)


class Reader:
    """A consumer that keeps its records, and asserts that each is the next one of its partition."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self.values: dict[int, list[int]] = defaultdict(list)

    def poll(self, timeout: float = 1.0, most: int | None = None) -> int:
        records = self.client.poll(timeout, most)
        for r in records:
            assert r.offset == len(self.values[r.partition])
            self.values[r.partition].append(int(r.value or b""))
        for tp in PARTITIONS:  # positions match the returned records (R-GR-1)
            if tp.partition in self.values:
                assert self.client.position(tp) == len(self.values[tp.partition])
        return len(records)

    @property
    def count(self) -> int:
        return sum(map(len, self.values.values()))

    def read(self, count: int, limit: float, world: World) -> None:
        end = world.now + limit
        while self.count < count:
            self.poll()
            assert world.now < end, f"{self.count} of {count}\n{self.client.explain()}"
        for partition, found in self.values.items():
            assert found == list(range(partition, count, 3))


@pytest.mark.parametrize("mode", ["bytes", "messages"])
def test_all_records_arrive_in_order_while_the_cluster_moves(mode: Mode) -> None:
    world, cluster, client = make(1, mode=mode)
    reader = Reader(client)
    client.assign(PARTITIONS)
    reader.read(300, 10, world)
    world.after(1.0, lambda: cluster.move(after=5.0))
    assert client.poll(timeout=3.0) == []
    world.advance(10)
    write(world, cluster, range(300, 600))
    reader.read(600, 20, world)
    counts = client._engine.events.counts
    assert counts["rebootstrap"] == counts["rebootstrapped"] == 1
    assert counts["first_record"] == 2
    assert not world.hot_loops


@pytest.mark.parametrize("fault", ["crash", "pause", "go_silent", "bounce"])
def test_reading_resumes_soon_after_a_leader_fails(fault: str) -> None:
    world, cluster, client = make(2)
    reader = Reader(client)
    client.assign(PARTITIONS)
    reader.poll(most=20)
    leader = leader_of(cluster)
    getattr(cluster, fault)(leader.id)
    reader.read(300, 15, world)
    assert not world.hot_loops


def test_fetches_follow_the_new_leader_in_a_response_immediately() -> None:
    world, cluster, client = make(3)
    reader = Reader(client)
    client.assign(PARTITIONS)
    reader.read(300, 10, world)
    cluster.move_leader("t", 0)
    write(world, cluster, range(300, 303))
    begin = world.now
    reader.read(303, 10, world)
    assert world.now - begin < 1.0  # KIP-951: no backoff and no metadata request first


def test_reading_ends_exactly_at_until_and_further_polls_return_immediately() -> None:
    world, _, client = make(4)
    tp = PARTITIONS[1]
    client.assign([tp], until={tp: 33})
    client.seek(tp, 7)
    offsets = []
    while client.position(tp) < 33:
        offsets += [r.offset for r in client.poll(1.0, 5)]
    assert offsets == list(range(7, 33))
    begin = world.now
    assert client.poll(timeout=60) == []
    assert client.poll_arrow(timeout=60) is None
    assert world.now == begin
    client.assign([tp], until={tp: 40})  # the call doesn't change the position
    assert [r.offset for r in client.poll(1.0)] == list(range(33, 40))


def test_poll_arrow_returns_the_same_records_as_poll() -> None:
    _, _, client = make(5)
    client.assign(PARTITIONS)
    rows = set()
    while (batch := client.poll_arrow(1.0)) is not None:
        assert len(set(batch.column("partition").to_pylist())) == 1
        names = ("partition", "offset", "value")
        rows |= set(zip(*(batch.column(n).to_pylist() for n in names), strict=True))
    client.seek_to_beginning()
    records = set()
    while found := client.poll(1.0):
        records |= {(r.partition, r.offset, r.value) for r in found}
    assert rows == records
    assert len(rows) == 300
    client.seek(PARTITIONS[0], 0)
    first = client.poll(1.0, 10)  # a poll may leave decoded rows for poll_arrow
    rest = client.poll_arrow(1.0, columns=["offset"])
    assert rest is not None
    assert len(first) == 10
    assert rest.schema.names == ["offset"]
    assert rest.column("offset").to_pylist()[0] == 10


def test_seeks_drop_fetched_records() -> None:
    _, _, client = make(6)
    tp = PARTITIONS[0]
    client.assign([tp])
    assert client.poll(1.0, 3)[-1].offset == 2
    client.seek(tp, 50)
    assert client.poll(1.0, 3)[0].offset == 50
    client.seek_to_end([tp])
    assert client.position(tp) == 100
    client.seek_to_beginning()
    assert client.position(tp, timeout=5) == 0
    client.pause([tp])
    assert client.poll(0.5) == []
    client.resume([tp])
    assert client.poll(0.5, 1)[0].offset == 0


def test_polls_that_never_wait_make_progress() -> None:
    world, _, client = make(7)
    reader = Reader(client)
    client.assign(PARTITIONS)
    for _ in range(1000):
        reader.poll(timeout=0)
        world.advance(0.001)
        if reader.count == 300:
            return
    raise AssertionError(f"{reader.count} records\n{client.explain()}")


def test_long_pauses_between_polls_do_not_count_as_failures() -> None:
    world, _, client = make(8, background=False)
    client.assign(PARTITIONS)
    reader = Reader(client)
    while reader.count < 300:
        reader.poll(0.5, 50)
        world.advance(100)  # responses are buffered in the client or in the kernel
    assert not {"dial_failed", "rebootstrap"} & client._engine.events.counts.keys()


def test_offsets_of_the_beginning_the_end_and_a_timestamp_are_looked_up() -> None:
    world, cluster, client = make(9)
    assert client.beginning_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 0)
    assert client.end_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 100)
    world.advance(100)
    now_ms = int(world.wall_clock() * 1000)
    write(world, cluster, range(300, 303))
    found = client.offsets_for_times({PARTITIONS[0]: now_ms, PARTITIONS[1]: now_ms + 10_000})
    first = found[PARTITIONS[0]]
    assert first is not None
    assert first.offset == 100
    assert found[PARTITIONS[1]] is None
    assert client.end_offsets([]) == {}
    assert [p.partition for p in client.partitions_for("t")] == [0, 1, 2]
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        client.describe(["nowhere"])


def test_offsets_of_a_missing_partition_raise_an_error_within_the_timeout() -> None:
    world, _, client = make(10)
    begin = world.now
    with pytest.raises(KafkaTimeoutError, match="t-7.*the topic has 3 partitions"):
        client.end_offsets([TopicPartition("t", 7)], timeout=3)
    assert 3.0 - 1e-6 <= world.now - begin <= 3.1


def test_calls_time_out_and_name_all_addresses_if_every_broker_is_dead() -> None:
    world, cluster, client = make(11, 30)
    client.assign(PARTITIONS)
    Reader(client).read(30, 10, world)
    addresses = {str(b.address) for b in cluster.brokers.values()} | {cluster.bootstrap_servers}
    every_broker(cluster, "crash")
    begin = world.now
    assert client.poll(timeout=4.0) == []
    assert 4.0 - 1e-6 <= world.now - begin <= 4.1
    for call in (
        lambda: client.end_offsets(PARTITIONS, timeout=2.5),
        lambda: client.describe(["t"], timeout=2.5),
        lambda: client.offsets_for_times({PARTITIONS[0]: 0}, timeout=2.5),
    ):
        begin = world.now
        with pytest.raises(NoBrokerAvailableError) as caught:
            call()
        assert 2.5 - 1e-6 <= world.now - begin <= 2.6
        assert addresses <= {str(a.address) for a in caught.value.attempts}
        assert "refused" in str(caught.value)
    text = str(client.explain())
    assert all(address in text for address in addresses)
    assert not world.hot_loops


def test_poll_names_the_disabled_rebootstrap_after_the_cluster_moved() -> None:
    config: dict[str, Any] = {
        "metadata_recovery_strategy": "none",
        "metadata_unavailable_timeout_ms": 10_000,
    }
    world, cluster, client = make(13, 30, **config)
    client.assign(PARTITIONS)
    client.poll(1.0)
    cluster.move(after=1.0)
    begin = world.now
    with pytest.raises(NoBrokerAvailableError, match=r"strategy=none.*rebootstrap would try"):
        while True:
            assert world.now - begin < 30
            client.poll(5.0)
    assert 10.0 <= world.now - begin <= 15.0
    with pytest.raises(NoBrokerAvailableError):
        client.poll(5.0)
    assert client._engine.events.counts.get("rebootstrap", 0) == 0


@pytest.mark.parametrize("recycled", [False, True])
def test_finding_a_wrong_cluster_is_a_permanent_error(recycled: bool) -> None:
    _, cluster, client = make(14, 30)
    client.assign(PARTITIONS)
    seen = [(r.partition, r.offset) for r in client.poll(1.0)]
    while found := client.poll(0.2):
        seen += [(r.partition, r.offset) for r in found]
    assert len(seen) == 30
    cluster.replace_with_foreign(after=0.5, recycle_addresses=recycled)
    with pytest.raises(ClusterIdMismatchError) as caught:
        for _ in range(60):
            assert client.poll(1.0) == []
    assert (caught.value.expected, caught.value.found) == (
        "simulated-cluster-0001",
        "foreign-cluster-0002",
    )
    for call in (lambda: client.poll(1.0), lambda: client.end_offsets(PARTITIONS)):
        with pytest.raises(ClusterIdMismatchError):
            call()
    client.close()


def test_poll_raises_for_a_missing_or_invalid_position_without_a_reset_policy() -> None:
    _, _, client = make(15, auto_offset_reset="none")
    tp, other = PARTITIONS[:2]
    client.assign([tp, other])
    client.seek(other, 0)
    with pytest.raises(IllegalStateError, match=r"t-0 has no position.*seek"):
        client.poll(1.0)
    client.seek(tp, 1000)
    with pytest.raises(NoSuchOffsetError) as caught:
        for _ in range(10):
            client.poll(1.0)
    error = caught.value
    assert (error.partition, error.position, error.log_start, error.log_end) == (tp, 1000, 0, 100)
    client.seek(other, 0)
    going_on: list[int] = []
    while not going_on:
        with suppress(NoSuchOffsetError):  # the error is raised again after each backoff
            going_on = [r.partition for r in client.poll(1.0)]
    assert set(going_on) == {1}
    client.seek(tp, 99)
    client.assign([tp])
    assert [r.offset for r in client.poll(1.0)] == [99]


def test_poll_raises_for_a_deleted_topic_and_reads_it_once_recreated() -> None:
    world, cluster, client = make(17, default_api_timeout_ms=8000)
    client.assign(PARTITIONS)
    reader = Reader(client)
    reader.read(300, 10, world)
    cluster.delete_topic("t")
    begin = world.now
    with pytest.raises(UnknownTopicOrPartitionError, match="t-"):
        while True:
            assert world.now - begin < 30
            assert client.poll(1.0) == []
    assert 8.0 <= world.now - begin <= 12.0
    cluster.create_topic("t", partitions=3)
    write(world, cluster, range(30))
    found: list[tuple[int, int]] = []
    while len(found) < 30 and world.now < begin + 60:
        try:
            found += [(r.partition, r.offset) for r in client.poll(1.0)]
        except UnknownTopicOrPartitionError:  # an error for each partition
            continue
    assert sorted(found) == [(p, n) for p in range(3) for n in range(10)]


def test_a_batch_larger_than_the_fetch_limit_is_read() -> None:
    world, cluster, client = make(18, 0, max_partition_fetch_bytes=300, fetch_max_bytes=600)
    write(world, cluster, range(60), size=500)
    client.assign(PARTITIONS)
    found = 0
    while found < 60:
        records = client.poll(2.0)
        assert records, client.explain()
        found += len(records)


def test_a_corrupt_batch_is_named_and_can_be_skipped() -> None:
    _, cluster, client = make(21)
    batches = cluster.log("t", 0).batches
    bad = batches[len(batches) // 2]
    bad.data = bad.data[:-1] + bytes([bad.data[-1] ^ 1])
    client.assign(PARTITIONS)
    found: list[tuple[int, int]] = []
    errors: list[str] = []
    for _ in range(30):
        try:
            found += [(r.partition, r.offset) for r in client.poll(0.3)]
        except CorruptRecordError as error:
            errors.append(f"{error} {client.position(PARTITIONS[0])}")
            if len(errors) == 3:
                client.seek(PARTITIONS[0], bad.last_offset + 1)
    assert len(errors) == 3
    assert all(f"t-0: record batch at offset {bad.base_offset}" in text for text in errors)
    assert all(text.endswith(f" {bad.base_offset}") for text in errors)
    whole = {(p, n) for p in range(3) for n in range(100)}
    lost = {(0, n) for n in range(bad.base_offset, bad.last_offset + 1)}
    assert len(found) == len(set(found))
    assert set(found) == whole - lost


def test_a_leader_hint_saves_the_metadata_request() -> None:
    world, cluster, client = make(19)
    client.describe(["t"])
    client.assign(PARTITIONS)
    client.poll(1.0)
    second = consumer(world, cluster, hint=client.bootstrap_hint())
    second.assign(PARTITIONS)
    for tp in PARTITIONS:
        second.seek(tp, 0)
    assert second.poll(1.0)
    counts = second._engine.events.counts
    assert "metadata_request" not in counts
    assert second.cluster_id() == client.cluster_id() == "simulated-cluster-0001"


def test_wrong_calls_raise_errors_that_name_the_right_call() -> None:
    _, _, client = make(20, 0)
    with pytest.raises(IllegalStateError, match="assign"):
        client.poll(1.0)
    with pytest.raises(IllegalStateError, match=r"needs group.id; .* assign"):
        client.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="t-0"):
        client.seek(PARTITIONS[0], 3)
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        client.poll(0)
