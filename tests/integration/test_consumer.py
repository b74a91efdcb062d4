"""Test the consumer on real brokers without faults; another client writes the records.

The contents of records, in each codec and as columns, are tested in tests/interop.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.other_client import Row, write_all
from tests.interop.our_client import read

from odradek.api.consumer import Consumer
from odradek.clients.consumer.fetching.fetch_request_state import FetchRequestState
from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common.errors.kafka import FetchSessionIdNotFoundError, UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.record.columns import Layout
from odradek.testing import LocalCluster


def consumer(cluster: LocalCluster, **config: Any) -> Consumer:
    config = {"auto_offset_reset": "earliest", **config}
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, **config)


def test_offset_queries_seek_and_an_out_of_range_position_work(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=2)
    rows = [Row(None, b"%d" % n, (), 1_700_000_000_000 + 1000 * n) for n in range(50)]
    write_all(cluster.bootstrap_servers, topic, rows, [0])
    first, second = (TopicPartition(topic, p) for p in (0, 1))
    with consumer(cluster, auto_offset_reset="none") as client:
        assert client.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert client.end_offsets([first, second]) == {first: 50, second: 0}
        at = 1_700_000_000_000 + 20_500
        found = client.offsets_for_times({first: at, second: at})
        assert found[second] is None
        place = found[first]
        assert place is not None
        assert (place.offset, place.timestamp_ms) == (21, 1_700_000_021_000)
        client.assign([first], until={first: 25})
        client.seek(first, place.offset)
        assert [r.offset for r in read(client, 4)] == [21, 22, 23, 24]
        assert client.poll(timeout=30) == []  # at once: the end is reached
        client.assign([first])
        client.seek(first, 1000)
        with pytest.raises(NoSuchOffsetError) as caught:
            for _ in range(10):
                client.poll(1.0)
        assert (caught.value.log_start, caught.value.log_end) == (0, 50)
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            client.describe(["nowhere"])
        assert client.cluster_id() == cluster.cluster_id
        described = client.describe([topic])[topic]
        assert [len(p.replicas) for p in described.partitions] == [1, 1]
        hint = client.bootstrap_hint()
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with Consumer(config, bootstrap_hint=hint) as other:
        other.assign([first])
        other.seek(first, 40)
        assert read(other, 10)[0].offset == 40
        assert "metadata_request" not in other._engine.events.counts


def test_a_poll_waits_for_records_that_are_written_later(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=1)
    with consumer(cluster, fetch_max_wait_ms=100) as client:
        client.assign([TopicPartition(topic, 0)])
        assert client.poll(0.3) == []
        write_all(cluster.bootstrap_servers, topic, [Row(None, b"late")])
        assert [r.value for r in client.poll(10)] == [b"late"]
        text = str(client.explain())
        assert cluster.cluster_id in text
        assert cluster.bootstrap_servers in text


def test_no_call_waits_for_a_fetch_that_brokers_hold(cluster: LocalCluster, topic: str) -> None:
    """Run calls while brokers hold a fetch for a minute, which is longer than their timeouts."""
    cluster.create_topic(topic, partitions=2)
    rows = [Row(None, b"%d" % n) for n in range(10)]
    write_all(cluster.bootstrap_servers, topic, rows, [0, 1])
    first, second = (TopicPartition(topic, p) for p in (0, 1))
    config = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 90_000}
    with consumer(cluster, **config, default_api_timeout_ms=20_000) as client:
        client.assign([first])
        read(client, 5)
        assert client.poll(0.5) == []
        client.assign([first, second])
        assert [r.partition for r in read(client, 5)] == [1] * 5
        client.seek(first, 3)
        assert [r.offset for r in read(client, 2)] == [3, 4]
        client.seek_to_beginning([second])
        assert [r.offset for r in read(client, 5)] == [0, 1, 2, 3, 4]
        assert client.end_offsets([first, second]) == {first: 5, second: 5}


@pytest.mark.parametrize("layout", ["binary", "binary_view"])
def test_a_background_thread_fetches_while_the_caller_works(
    cluster: LocalCluster, topic: str, layout: Layout
) -> None:
    cluster.create_topic(topic, partitions=2)
    rows = [Row(b"%d" % n, b"%d" % n * 300, (), 10**12 + n) for n in range(2000)]
    write_all(cluster.bootstrap_servers, topic, rows, [0, 1])
    tps = [TopicPartition(topic, p) for p in (0, 1)]
    small = {"fetch_max_bytes": 200_000, "max_partition_fetch_bytes": 50_000}
    with consumer(cluster, background=True, **small) as client:
        client.assign(tps, until=client.end_offsets(tps))
        seen: dict[int, list[bytes | None]] = {0: [], 1: []}
        for batch in client.batches(20.0, layout=layout):
            partition = batch["partition"][0].as_py()
            seen[partition] += batch["value"].to_pylist()
            assert client.position(tps[partition]) == len(seen[partition])
        assert seen == {p: [r.value for r in rows[p::2]] for p in (0, 1)}
        buffers = client._engine.network.buffers
        assert buffers.kept <= buffers.limit
        client.seek(tps[0], 10)
        first = next(client.records(20.0))
        assert (first.partition, first.offset) == (0, 10)
        assert client.poll(20.0, 5)[0].offset == 11
        client.pause(tps)
        assert client.poll(0.2) == []
        client.resume(tps[:1])
        assert client.poll(20.0, 1)[0].offset == 16
        sessions = [a.session for a in client._engine.fetcher._asked.values()]
        assert any(session.id for session in sessions)  # fetch sessions (KIP-227)


def test_a_closed_consumer_leaves_no_fetch_session(cluster: LocalCluster, topic: str) -> None:
    """Close while the broker holds a fetch (KIP-227): using its session later returns error 70."""
    cluster.create_topic(topic, partitions=1)
    write_all(cluster.bootstrap_servers, topic, [Row(None, b"1")])

    def begun(client: Consumer) -> FetchRequestState:
        client.assign([TopicPartition(topic, 0)])
        read(client, 1)
        assert client.poll(0.1) == []
        (asked,) = (a for a in client._engine.fetcher._asked.values() if a.session.id)
        assert asked.under_way
        return asked

    with consumer(cluster) as client:
        session = begun(client).session
        known = (session.id, session.epoch + 1)  # epoch of the next fetch
    with consumer(cluster) as other:
        address, network = begun(other).address, other._engine.network

        def ask(deadline: float) -> Flow[int]:
            now = yield START
            connection = network.connection(address)
            assert connection is not None
            body = FetchRequest(max_wait_ms=0, session_id=known[0], session_epoch=known[1])
            reply = network.send(connection, body, now)
            while not reply.done:
                yield Wait((reply,), deadline)
            response = reply.result()
            assert isinstance(response, FetchResponse)
            return response.error_code

        assert other._call(ask, 10.0, "answer") == FetchSessionIdNotFoundError.code
