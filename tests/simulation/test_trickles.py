"""R-TI-1: a connection that trickles bytes counts as silent; slow or throttled ones don't."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.simulation.brokers import broker_faults
from odradek.simulation.world.link import Mode

P0 = TopicPartition("t", 0)
TIMEOUT = 4.0
FINE: dict[str, Any] = {"request_timeout_ms": int(TIMEOUT * 1000)}
EVERY = 1.5
"""Seconds between two bytes."""
MODES: list[Mode] = ["bytes", "messages"]


def trickle_now(stage: Stage, *, both: bool = False) -> None:
    """Let the current connections deliver single bytes; new connections work."""
    for broker in stage.cluster.brokers.values():
        for session in broker.sessions:
            session.peer.trickle(EVERY, both=both)


def events(client: Producer | Consumer) -> list[Event]:
    found: list[Event] = []
    client._engine.events.listen(found.append)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("both", [False, True])
def test_a_connection_that_trickles_is_replaced_at_the_request_timeout(
    both: bool, mode: Mode
) -> None:
    stage = Stage(brokers=1, partitions=1)
    with stage.client(Producer, mode=mode, **FINE) as producer:
        producer.send("t", b"0", partition=0).result(10)
        seen = events(producer)
        trickle_now(stage, both=both)
        began = stage.world.now
        producer.send("t", b"1", partition=0).result(20)
        took = stage.world.now - began
    assert TIMEOUT <= took < TIMEOUT + 1.0
    assert "silent" in {e.kind for e in seen}
    assert stage.values() == [b"0", b"1"]


def test_a_consumer_continues_after_a_response_that_trickled() -> None:
    stage = Stage(brokers=1, partitions=1)
    stage.write(range(3))
    with stage.consumer(**FINE) as consumer:
        consumer.assign([P0])
        assert stage.read(consumer, 3) == [0, 1, 2]
        trickle_now(stage)
        stage.write(range(3, 5))
        began = stage.world.now
        assert stage.read(consumer, 2) == [3, 4]
        assert stage.world.now - began < TIMEOUT + 2.0


def test_metadata_is_requested_from_another_broker_than_a_trickling_one() -> None:
    """A leader moves while the broker that was asked for metadata trickles."""
    stage = Stage(brokers=3, partitions=3)
    # a release whose errors don't name new leaders
    broker_faults.release_of_all(stage.cluster, "3.5")
    partitions = stage.cluster.topics["t"].partitions
    took = []
    with stage.producer() as producer:
        for moved in partitions:
            old = moved.leader
            new = next(r for r in moved.replicas if r != old)
            (bad,) = {1, 2, 3} - {old, new}
            for p in sorted(partitions, key=lambda p: p.leader != bad):
                producer.send("t", b"0", partition=p.index).result(10)
            stage.world.run_until(stage.world.now + 1.0)
            stage.cluster.hand_over("t", moved.index)
            assert moved.leader == new
            broker_faults.trickle(stage.cluster, EVERY, i=bad)
            began = stage.world.now
            producer.send("t", b"1", partition=moved.index).result(30)
            took.append(stage.world.now - began)
            broker_faults.trickle(stage.cluster, 0.0, i=bad)
            stage.world.run_until(stage.world.now + 5.0)
    assert max(took) < 4.0, took


@pytest.mark.parametrize("bad", [(1, 2), (2, 1)])
def test_metadata_is_requested_from_a_third_broker_if_others_are_silent_or_slow(
    bad: tuple[int, int],
) -> None:
    """With 2,000 bytes per second a connection isn't silent, but the response takes too long."""
    silent, slow = bad
    stage = Stage(brokers=5, partitions=3000)  # a response of more than 100 KB
    with stage.producer() as producer:
        for p in range(5):
            producer.send("t", b"0", partition=p).result(10)
        stage.world.run_until(stage.world.now + 1.0)
        seen = events(producer)
        stage.cluster.go_silent(silent)
        broker_faults.trickle(stage.cluster, 0.0005, i=slow)
        producer._engine.metadata.request("a test")
        producer._host.wake()
        stage.world.run_until(stage.world.now + 6.0)
        assert any(e.kind == "metadata" for e in seen), [str(e) for e in seen]


def test_trickling_handshakes_end_at_their_timeout() -> None:
    stage = Stage(brokers=2, partitions=1)
    leader = stage.cluster.topics["t"].partitions[0].leader
    broker_faults.trickle(stage.cluster, 0.1, i=3 - leader)
    with stage.producer() as producer:
        began = stage.world.now
        producer.send("t", b"0", partition=0).result(30)
        assert stage.world.now - began < 5.0


@pytest.mark.parametrize("bandwidth", [2_000, 20_000])
def test_a_large_response_over_a_slow_link_is_read_to_its_end(bandwidth: int) -> None:
    """60 KB take up to 30 s with a request timeout of 4 s: no request is repeated."""
    stage = Stage(brokers=1, partitions=1)
    stage.write(range(3), size=20_000)
    with stage.consumer(**FINE) as consumer:
        consumer.assign([P0])
        assert consumer.position(P0, 10.0) == 0
        seen = events(consumer)
        stage.world.change_link(bandwidth=bandwidth)
        values: list[bytes] = []
        end = stage.world.now + 60
        while len(values) < 3:
            values += [r.value or b"" for r in consumer.poll(1.0)]
            assert stage.world.now < end, consumer.explain()
        kinds = [e.kind for e in seen]
        assert "silent" not in kinds
        assert "disconnected" not in kinds


def test_responses_over_a_very_slow_link_get_smaller_until_they_arrive_in_time() -> None:
    """At 200 bytes per second a whole response takes minutes; a part of it arrives in time."""
    stage = Stage(brokers=1, partitions=1)
    for n in range(40):
        stage.write(range(n, n + 1), size=200)
    with stage.consumer(**FINE) as consumer:
        consumer.assign([P0])
        assert consumer.position(P0, 10.0) == 0
        stage.world.change_link(bandwidth=200)
        values: list[int] = []
        end = stage.world.now + 200
        while len(values) < 40:
            values += [int((r.value or b"").rstrip(b"\0")) for r in consumer.poll(1.0)]
            assert stage.world.now < end, f"{len(values)} of 40\n{consumer.explain()}"
    assert values == list(range(40))


def test_a_fetch_that_waits_for_records_is_not_slow() -> None:
    """The limit on response sizes ends, although each fetch waits for records for 8 s."""
    stage = Stage(brokers=1, partitions=1)
    stage.write(range(1))
    with stage.consumer(fetch_max_wait_ms=8000, fetch_min_bytes=1_000_000) as consumer:
        consumer.assign([P0])
        assert stage.read(consumer, 1) == [0]
        trickle_now(stage)
        stage.write(range(1, 3))
        stage.world.run_until(stage.world.now + 60.0)
        fetcher = consumer._engine.fetcher
        assert fetcher._slow.limits
        for n in range(3, 40):
            stage.write(range(n, n + 1))
            consumer.poll(10.0)
        assert not fetcher._slow.limits, fetcher._slow.limits


def test_slow_large_metadata_is_requested_from_one_other_broker() -> None:
    """The first response counts; there is no third request, and no second one on a slow link."""
    stage = Stage(brokers=3, partitions=0)
    stage.cluster.create_topic("t", partitions=3000)
    with stage.producer(metadata_max_age_ms=30_000) as producer:
        producer.send("t", b"0", partition=0).result(10)
        seen = events(producer)
        stage.world.change_link(bandwidth=20_000)
        while not any(e.kind == "metadata" for e in seen):
            stage.world.run_until(stage.world.now + 1.0)
            assert stage.world.now < 120
        asked = [str(e.fields["address"]) for e in seen if e.kind == "metadata_request"]
        assert 1 < len(asked) == len(set(asked)) <= 2
        assert not [e for e in seen if e.kind in ("metadata_failed", "dial_failed")]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_throttle_that_was_announced_does_not_count_as_silence(idempotent: bool) -> None:
    """KAFKA-16083: each response announces 11 s, in which the broker reads nothing."""
    stage = Stage(brokers=1, partitions=4)
    with stage.producer(
        enable_idempotence=idempotent, linger_ms=0, max_in_flight_requests_per_connection=5
    ) as producer:
        producer.send("t", b"warm", partition=0).result(10)
        seen = events(producer)
        broker_faults.quota(stage.cluster, 11.0)
        stage.world.change_link(latency=0.1)
        sent = []
        for n in range(8):  # one request each, up to the limit of requests in flight
            sent.append(producer.send("t", b"%d" % n, partition=n % 4))
            stage.world.run_until(stage.world.now + 0.01)
        for future in sent:
            future.result(110)
        kinds = {e.kind for e in seen}
    assert not kinds & {"silent", "disconnected", "dial_failed", "outage_begun"}
    values = [v for p in range(4) for v in stage.values(p)]
    assert sorted(v for v in values if v) == sorted([b"warm", *(b"%d" % n for n in range(8))])


def test_calls_time_out_during_a_throttle() -> None:
    stage = Stage(brokers=1, partitions=1)
    with stage.producer(delivery_timeout_ms=5000, request_timeout_ms=4000) as producer:
        producer.send("t", b"0", partition=0).result(10)
        broker_faults.quota(stage.cluster, 30.0)
        producer.send("t", b"1", partition=0).result(10)
        began = stage.world.now
        late = producer.send("t", b"2", partition=0)
        assert late.exception(20) is not None
        assert 5.0 <= stage.world.now - began < 5.2


def test_a_slow_broker_has_the_request_timeout_in_addition_to_the_throttle() -> None:
    """The second response arrives after 11 s, 5 s of which were announced, at a timeout of 8 s."""
    stage = Stage(brokers=1, partitions=2)
    with stage.producer(request_timeout_ms=8000) as producer:
        producer.send("t", b"0", partition=0).result(10)
        seen = events(producer)
        broker_faults.quota(stage.cluster, 5.0)
        broker_faults.slow_api(stage.cluster, "Produce", 3.0)
        sent = []
        for n in range(2):
            sent.append(producer.send("t", b"%d" % n, partition=n))
            stage.world.run_until(stage.world.now + 0.01)
        for future in sent:
            future.result(20)
    assert "disconnected" not in {e.kind for e in seen if e.fields.get("failure")}
