"""A batch or response above the client's limit raises, and other partitions are read."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.clients.consumer import consumer_engine
from odradek.common.errors import AnswerTooLargeError, KafkaError
from odradek.common.errors.records import FetchTooLargeError
from odradek.common.types import TopicPartition
from odradek.network import client_connections, frame
from odradek.simulation import World

MB = 1 << 20
PARTITIONS = [TopicPartition("t", p) for p in range(3)]


def scene(patch: pytest.MonkeyPatch, fetch_max_bytes: int = MB) -> tuple[World, Consumer]:
    """Create three partitions of ten records, one of which has a batch of 3 MB at offset 5."""
    patch.setattr(consumer_engine, "FRAME_SLACK", MB)
    patch.setattr(client_connections, "FRAME_SLACK", 0)
    stage = Stage(3, brokers=1)
    stage.cluster.log("t", 1).max_message_bytes = 4 * MB
    with stage.producer(max_request_size=4 * MB) as producer:
        for n in range(10):
            for tp in PARTITIONS:
                large = tp.partition == 1 and n == 5
                producer.send("t", bytes(3 * MB if large else 10), partition=tp.partition)
            producer.flush(timeout=60)
    limits = {"fetch_max_bytes": fetch_max_bytes, "max_partition_fetch_bytes": 100_000}
    client = stage.consumer(**limits)
    client.assign(PARTITIONS)
    return stage.world, client


def test_the_error_names_the_partition_and_other_partitions_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, client = scene(monkeypatch)
    found: set[tuple[int, int]] = set()
    errors: list[KafkaError] = []
    while world.now < 60 and (len(found) < 25 or len(errors) < 3):
        try:
            found |= {(r.partition, r.offset) for r in client.poll(1.0)}
        except FetchTooLargeError as error:
            errors.append(error)
    assert found == {(p, n) for p in range(3) for n in range(10) if p != 1 or n < 5}
    assert len(errors) == 3  # the error is raised repeatedly
    for one in errors:
        assert isinstance(one, FetchTooLargeError)
        assert (one.partition, one.offset) == (PARTITIONS[1], 5)
        assert 3 * MB < one.size < 3 * MB + 1000
        assert not one.retriable
        for part in ("t-1", "offset 5", str(one.size), "fetch.max.bytes", "seek()"):
            assert part in str(one)
    client.seek(PARTITIONS[1], 6)
    assert [r.offset for r in client.poll(5.0)] == [6, 7, 8, 9]


def test_a_large_batch_does_not_count_as_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker works, so the client never logs an unstable cluster."""
    world, client = scene(monkeypatch)
    failures = 0
    client.listen(lambda e: e.fields.get("failure") and pytest.fail(str(e)))
    while failures < 8 and world.now < 60:
        try:
            client.poll(1.0)
        except FetchTooLargeError:
            failures += 1
    assert failures == 8
    assert [r.getMessage() for r in caplog.records if "outage" in r.getMessage()] == []


def test_any_other_response_above_the_limit_raises_each_time_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call fails immediately, with a remedy; a retry would get the same response."""
    stage = Stage(3, brokers=1)
    with stage.client(Admin) as admin:
        admin.describe_cluster()
        for n in range(300):
            stage.cluster.create_topic(f"{n:0200}", partitions=1)
        began = stage.world.now
        monkeypatch.setattr(frame, "FIRST_LIMIT", 1000)
        for connection in admin._engine.network.connections.values():
            connection.reader.limit = 20_000
        for _ in range(3):
            admin._engine.network.frame_limit = 20_000
            with pytest.raises(AnswerTooLargeError, match="response to Metadata .* ask for fewer"):
                admin.list_topics(timeout=20)
        assert stage.world.now - began < 5
    (line,) = [r.getMessage() for r in caplog.records if "the response to" in r.getMessage()]
    assert "accepts at most 20000" in line
    assert not [r for r in caplog.records if "outage" in r.getMessage()]


@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
def test_metadata_that_is_too_large_does_not_count_as_an_outage(
    known: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first call raises immediately; a client that has metadata keeps using it."""
    stage = Stage(3, brokers=1)
    stage.cluster.create_topic("large", partitions=2000)
    monkeypatch.setattr(frame, "FIRST_LIMIT", 1000)
    with stage.producer(max_block_ms=5000, metadata_max_age_ms=10_000) as producer:
        if known:
            producer.send("t", b"one").result()
        network, updater = producer._engine.network, producer._engine.updater
        network.frame_limit = 20_000
        for connection in network.connections.values():
            connection.reader.limit = 20_000
        began = stage.world.now
        with pytest.raises(KafkaError) as caught:
            producer.send("large", b"one").result()
        if not known:
            assert isinstance(caught.value, AnswerTooLargeError)
            assert stage.world.now - began < 2
        assert "response to Metadata" in str(caught.value)
        if known:
            producer.send("t", b"two").result()
        stage.world.advance(30.0)
        assert not updater.history
    said = [r.getMessage() for r in caplog.records]
    assert not [one for one in said if "outage" in one or "no broker answers" in one]


def test_all_records_are_read_with_the_limit_that_the_error_recommends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, client = scene(monkeypatch)
    with pytest.raises(FetchTooLargeError) as caught:
        while client.poll(10.0):
            pass
    _, client = scene(monkeypatch, caught.value.size)
    found = 0
    while records := client.poll(2.0):
        found += len(records)
    assert found == 30
