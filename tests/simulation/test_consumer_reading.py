"""Ways to read from a consumer: loops over batches and records, and the content of fetches."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.simulation.test_consumer import PARTITIONS, Reader, consumer, make, write

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.simulation import SimulatedBroker, SimulatedCluster, World
from odradek.simulation.world.environment import ReceivedRequest
from odradek.simulation.world.link import Mode


def test_loops_over_batches_and_records_end_at_a_timeout_or_at_until() -> None:
    world, _, client = make(40)
    client.assign(PARTITIONS)
    rows = {(b["partition"], b["offset"]) for t in client.batches(2.0) for b in t.to_pylist()}
    assert rows == {(p, n) for p in range(3) for n in range(100)}
    client.assign(PARTITIONS, until=dict.fromkeys(PARTITIONS, 50))
    client.seek_to_beginning()
    begin = world.now
    found = [(r.partition, r.offset) for r in client.records()]
    assert sorted(found) == [(p, n) for p in range(3) for n in range(50)]
    assert list(client.batches()) == []
    assert world.now - begin < 1.0
    kinds = {
        name: [str(b.schema.field(name).type) for b in _again(client, "binary_view")]
        for name in ("key", "value")
    }
    assert set(kinds["value"] + kinds["key"]) == {"binary_view"}


def test_fetches_do_not_wait_for_fetch_min_bytes_if_until_is_set() -> None:
    """All records before `until` already exist, so there is nothing to wait for."""
    world, _, client = make(45, fetch_min_bytes=1 << 20, fetch_max_wait_ms=5000)
    client.assign(PARTITIONS, until=dict.fromkeys(PARTITIONS, 50))
    begin = world.now
    assert len(list(client.records())) == 150
    assert world.now - begin < 1.0
    client.assign(PARTITIONS)  # without `until`, fetch.min.bytes applies
    client.seek_to_beginning()
    begin = world.now
    assert len(client.poll(10.0)) > 0
    assert world.now - begin >= 4.0


def test_pyarrow_is_imported_before_the_timeout_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first import takes longer than some timeouts."""
    _, _, client = make(46)
    client.assign(PARTITIONS)
    client.poll(2.0, 1)
    seconds, seen = client._calls.seconds, []

    def noting(*arguments: Any) -> float:
        seen.append("odradek.record.arrow" in sys.modules)
        return seconds(*arguments)

    monkeypatch.delitem(sys.modules, "odradek.record.arrow", raising=False)
    monkeypatch.setattr(client._calls, "seconds", noting)
    assert client.poll_arrow(2.0) is not None
    assert seen
    assert all(seen)


def _again(client: Consumer, layout: Any) -> Any:
    client.seek_to_beginning()
    return client.batches(1.0, layout=layout)


def test_a_loop_over_records_advances_the_position_by_one_per_record() -> None:
    _, _, client = make(41)
    tp = PARTITIONS[0]
    client.assign([tp])
    for record in client.records(1.0):
        assert client.position(tp) == record.offset + 1
        if record.offset == 7:
            break
    assert client.poll(1.0, 2)[0].offset == 8
    seen = []
    for record in client.records(1.0):  # a seek in between takes effect
        seen.append(record.offset)
        if record.offset == 12:
            client.seek(tp, 50)
        elif record.offset == 52:
            assert [r.offset for r in client.poll(1.0, 3)] == [53, 54, 55]
        elif record.offset == 60:
            client.pause([tp])
    assert seen == [10, 11, 12, 50, 51, 52, 56, 57, 58, 59, 60]


@pytest.mark.parametrize("mode", ["bytes", "messages"])
def test_fetches_contain_only_changed_partitions(mode: Mode) -> None:
    world, cluster, client = make(42, mode=mode)
    reader = Reader(client)
    client.assign(PARTITIONS)
    reader.read(300, 10, world)
    assert reader.poll(2.0) == 0
    sessions = [a.session for a in client._engine.fetcher._asked.values()]
    assert all(session.id and session.epoch > 1 for session in sessions)
    cluster.crash(1)  # a restart clears the broker's fetch sessions
    cluster.restart(1, after=1.0)
    for broker in cluster.brokers.values():
        broker.fetch_sessions.clear()  # as if evicted by other clients
    world.advance(3)
    write(world, cluster, range(300, 600))
    reader.read(600, 20, world)
    assert not world.hot_loops


def test_the_cost_of_a_fetch_depends_on_changed_partitions_only() -> None:
    world = World(seed=43)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=3000)
    client = consumer(world, cluster)
    client.assign([TopicPartition("t", p) for p in range(3000)])
    assert client.poll(2.0) == []
    assert client.poll(2.0) == []
    sent = []
    fetcher = client._engine.network
    original = fetcher.send_version

    def watched(connection: Any, body: Any, *rest: Any, **more: Any) -> Any:
        sent.append(sum(len(b) for b in body.encode(rest[0])))
        return original(connection, body, *rest, **more)

    fetcher.send_version = watched  # type: ignore[method-assign]
    write(world, cluster, range(30))
    records = [r for _ in range(4) for r in client.poll(1.0)]
    assert len(records) == 30
    assert sent
    assert max(sent) < 500


def test_buffered_records_of_many_partitions_are_returned_in_linear_time() -> None:
    """A scan of all partitions for each returned batch would take quadratic time."""
    world = World(seed=44)
    cluster = SimulatedCluster(world, brokers=1)
    many = 400
    cluster.create_topic("t", partitions=many)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with on_host(world.host("producer"), Producer, config) as producer:
        for n in range(2 * many):
            producer.send("t", b"%d" % n, partition=n % many)
        producer.flush(timeout=60)
    client = consumer(world, cluster, background=True)
    client.assign([TopicPartition("t", p) for p in range(many)])
    fetcher, looks = client._engine.fetcher, 0
    original = fetcher._candidates

    def counted(now: float) -> Any:
        nonlocal looks
        looks += 1
        return original(now)

    fetcher._candidates = counted  # type: ignore[method-assign]
    batches = [b for _ in range(many) if (b := client.poll_arrow(1.0)) is not None]
    assert len(batches) == many
    assert sum(b.num_rows for b in batches) == 2 * many
    assert looks < many / 4


@pytest.mark.parametrize("idle", [False, True], ids=["at work", "long polls"])
def test_brokers_drop_the_fetch_sessions_of_a_closed_consumer(idle: bool) -> None:
    world, cluster, client = make(47)
    client.assign(PARTITIONS)
    fetcher = client._engine.fetcher
    while not (fetcher._asked and all(a.session.id for a in fetcher._asked.values())):
        client.poll(0.01, 1)
        world.advance(0.01)
    if idle:
        while client.poll(1.0):
            pass
    kept = [len(broker.fetch_sessions) for broker in cluster.brokers.values()]
    assert sum(kept) == 3
    begin = world.now
    client.close()
    assert world.now - begin < 0.1  # close() doesn't wait for the responses
    world.advance(1.0)
    assert not any(len(broker.fetch_sessions) for broker in cluster.brokers.values())


def test_a_seek_waits_for_no_more_than_the_fetch_in_flight() -> None:
    """A broker answers a connection's requests in order, and delays fetches without records."""
    world, cluster, client = make(47, fetch_max_wait_ms=400)
    client.assign(PARTITIONS[:1])
    while client.position(PARTITIONS[0]) < 100:
        client.poll(1.0)
    client.poll(0.1)
    asked: list[tuple[float, int]] = []

    def note(_: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, FetchRequest):
            found = [p.fetch_offset for t in request.body.topics for p in t.partitions]
            asked.append((world.now, found[0] if found else -1))

    cluster.observers.append(note)
    for place in (7, 50):
        client.seek(PARTITIONS[0], place)
    begin = world.now
    assert [record.offset for record in client.poll(5.0, 3)] == [50, 51, 52]
    assert world.now - begin <= 0.4
    assert [offset for at, offset in asked if at < world.now] == [50]
