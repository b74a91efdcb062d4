"""The work of a consumer per partition, with very many partitions or topics."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.clients.consumer.fetching import fetch_session
from odradek.clients.consumer.fetching.fetcher import Fetcher
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Cluster
from odradek.network.engine import Engine
from odradek.protocol import packed_metadata
from odradek.protocol.packed_metadata import PackedMetadataResponse
from odradek.record import read_header
from odradek.record.columns import CREATE_TIME
from odradek.record.reference import encode

RECORDS = 20


def filled(partitions: int) -> tuple[Stage, Consumer]:
    """Write a batch to each partition; a fetch response has space for a fifth of the batches."""
    stage = Stage(partitions=0)
    topic = stage.cluster.create_topic("many", partitions)
    data = encode((n, 1, CREATE_TIME, b"k", bytes(80), ()) for n in range(RECORDS))
    header = read_header(memoryview(data))
    for partition in topic.partitions:
        partition.log.commit(partition.log.append(data, header, partition.leader_epoch))
    room = len(data) * partitions // 5
    client = stage.consumer(auto_offset_reset="earliest", fetch_max_bytes=room)
    client.assign([TopicPartition("many", n) for n in range(partitions)])
    return stage, client


def read(client: Consumer, records: int) -> None:
    found = 0
    while found < records:
        batch = client.poll_arrow(10.0)
        assert batch is not None
        found += batch.num_rows


def test_the_leader_of_a_partition_is_looked_up_once_for_all_fetches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more lookup is needed for the reset. Most leaders are busy at each attempt to fetch."""
    asked: Counter[int] = Counter()
    look_up = Cluster.partition

    def counted(cluster: Cluster, topic: str, partition: int) -> Any:
        asked[partition] += 1
        return look_up(cluster, topic, partition)

    _, client = filled(200)
    monkeypatch.setattr(Cluster, "partition", counted)
    read(client, 200 * RECORDS)
    assert len(asked) == 200
    assert max(asked.values()) <= 3, asked.most_common(5)


def test_the_leader_is_looked_up_again_after_an_election() -> None:
    stage, client = filled(30)
    read(client, 30 * RECORDS)
    stage.cluster.stop(1)
    topic = stage.cluster.topics["many"]
    stage.world.advance(5.0)
    data = encode((n, 1, CREATE_TIME, b"k", b"v", ()) for n in range(3))
    header = read_header(memoryview(data))
    for partition in topic.partitions:
        partition.log.commit(partition.log.append(data, header, partition.leader_epoch))
    read(client, 30 * 3)


def test_the_list_of_topics_is_decoded_in_chunks_without_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_metadata, "SLICE", 2000)
    said: list[str] = []
    step, read_on = Engine.step, PackedMetadataResponse.read_on

    def steps(engine: Engine, now: float) -> float | None:
        said.append("step")
        return step(engine, now)

    def reads(answer: PackedMetadataResponse) -> bool:
        said.append("read")
        return read_on(answer)

    def refused(*_: Any) -> Any:
        raise AssertionError("a partition was read")

    stage = Stage(partitions=0)
    names = [f"topic-{n:03d}" for n in range(60)]
    for name in names:
        stage.cluster.create_topic(name, 20)
    client = stage.consumer()
    monkeypatch.setattr(Engine, "step", steps)
    monkeypatch.setattr(PackedMetadataResponse, "read_on", reads)
    monkeypatch.setattr(packed_metadata, "_partition", refused)
    assert client.list_topics(timeout=10.0) == names
    at = [n for n, what in enumerate(said) if what == "read"]
    assert len(at) > 5
    assert all("step" in said[a:b] for a, b in pairwise(at))


def test_a_fetch_without_changes_visits_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """All partitions are in the session; only partitions with records or changes are visited."""
    stage, client = filled(100)
    read(client, 100 * RECORDS)
    assert client.poll_arrow(3.0) is None
    looked = Counter[str]()
    candidates, topics = Fetcher._candidates, fetch_session._topics

    def counted(fetcher: Fetcher, now: float) -> Any:
        looked["partitions"] += 1
        return candidates(fetcher, now)

    def named(wanted: Any, known: Any, by_id: bool) -> Any:
        looked["requests"] += 1
        return topics(wanted, known, by_id)

    monkeypatch.setattr(Fetcher, "_candidates", counted)
    monkeypatch.setattr(fetch_session, "_topics", named)
    before = sum(broker.requests["Fetch"] for broker in stage.cluster.brokers.values())
    assert client.poll_arrow(5.0) is None
    after = sum(broker.requests["Fetch"] for broker in stage.cluster.brokers.values())
    assert after - before >= 24
    assert not looked
    data = encode([(0, 1, CREATE_TIME, b"k", b"v", ())])
    log = stage.cluster.topics["many"].partitions[7].log
    for _ in range(2):
        log.commit(log.append(data, read_header(memoryview(data)), 0))
        read(client, 1)
    assert looked
    client.pause([TopicPartition("many", 7)])
    log.commit(log.append(data, read_header(memoryview(data)), 0))
    assert client.poll_arrow(3.0) is None
    client.resume([TopicPartition("many", 7)])
    read(client, 1)


def test_state_of_partitions_that_are_no_longer_assigned_is_removed() -> None:
    _, client = filled(30)
    read(client, 30 * RECORDS)
    fetcher = client._calls.engine.fetcher
    assert len(fetcher._routes) == 30
    client.assign([])
    client.list_topics(timeout=10.0)
    assert not fetcher._routes
