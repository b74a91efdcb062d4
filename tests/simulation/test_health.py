"""`health()`: the conditions that it reports, the ones that it doesn't, and its low cost."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker
from tests.simulation.scene import Stage

from odradek import AsyncConsumer, AsyncProducer
from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.clients.explain.health import STUCK, Health
from odradek.common.errors import CommitFailedError, KafkaError
from odradek.common.types import TopicPartition
from odradek.testing import KafkaSimulation

P0 = TopicPartition("t", 0)


def test_a_client_without_any_request_is_healthy() -> None:
    stage = Stage()
    with stage.client(Admin) as admin:
        assert admin.health() == Health(True, None, None, None, (), None, None)


def test_a_client_is_healthy_since_the_first_response() -> None:
    stage = Stage()
    with stage.producer() as producer:
        producer.send("t", b"x", partition=0).result(5.0)
        answered = stage.world.wall_clock()
        stage.world.advance(100.0)
        found = producer.health()
    assert (found.ok, found.reason, found.cure, found.group, found.lag) == (True,) + (None,) * 4
    assert found.since == pytest.approx(answered, abs=0.1)
    assert [b.id for b in found.brokers] == [1, 2, 3]
    assert "ready" in {b.state for b in found.brokers} <= {"ready", "idle"}
    assert json.loads(json.dumps(found.to_dict()))["brokers"][0]["id"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.ok = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fault", "reason", "cure"),
    [
        ("crash", "nothing listens there", "Start the broker"),
        ("go_silent", "never answers", "security.protocol"),
        ("ready_then_close", "closes the connection at the first request", "read its log"),
    ],
)
def test_an_outage_has_a_start_a_reason_and_a_remedy(fault: str, reason: str, cure: str) -> None:
    stage = Stage()
    producer = stage.producer()
    producer.send("t", b"x").result(5.0)
    every_broker(stage.cluster, fault)
    begun = stage.world.wall_clock()
    producer.send("t", b"x")
    stage.world.advance(20.0)
    found = producer.health()
    assert not found.ok
    assert found.since == pytest.approx(begun, abs=6.0)
    assert reason in (found.reason or "")
    assert cure in (found.cure or "")
    stage.cluster.heal()
    if fault == "crash":
        every_broker(stage.cluster, "restart")
    producer.flush(30.0)
    back = producer.health()
    assert back.ok
    assert back.reason is None
    assert back.since is not None
    assert begun + 15.0 < back.since <= stage.world.wall_clock()
    producer.close()
    assert producer.health().reason == "this Producer is closed"


def test_one_failed_broker_of_three_is_reported_but_not_as_an_outage() -> None:
    stage = Stage()
    producer = stage.producer()
    for n in range(3):
        producer.send("t", b"x", partition=n).result(5.0)
    led = [p for p in range(3) if getattr(stage.cluster.leader("t", p), "id", None) == 2]
    stage.cluster.crash(2)
    producer.send("t", b"x", partition=led[0])
    stage.world.advance(1.0)
    found = producer.health()
    assert found.ok
    assert "nothing listens there" in (found.reason or "")
    assert [b.state for b in found.brokers if b.id == 2] == ["failing"]
    producer.close()


def test_a_record_without_a_leader_is_reported_after_a_while() -> None:
    stage = Stage(brokers=3, partitions=3)
    topic = stage.cluster.topics["t"]
    producer = stage.producer(delivery_timeout_ms=600_000)
    producer.send("t", b"x", partition=0).result(5.0)
    leader = stage.cluster.leader("t", 0)
    assert leader is not None
    topic.partitions[0].replicas = [leader.id]
    stage.cluster.stop(leader.id)
    stage.world.advance(1.0)
    sent = stage.world.wall_clock()
    producer.send("t", b"x", partition=0)
    stage.world.advance(STUCK - 3.0)
    assert producer.health().ok
    stage.world.advance(5.0)
    found = producer.health()
    assert not found.ok
    assert "a record for topic t is 1" in (found.reason or "")
    assert "leader" in (found.reason or "")
    assert found.since == pytest.approx(sent, abs=0.2)
    with pytest.raises(KafkaError):
        producer.close(0)


def test_a_missing_topic_is_reported_with_a_remedy_and_does_not_affect_other_topics() -> None:
    stage = Stage()
    producer = stage.producer()
    producer.send("tt", b"x")
    stage.world.advance(STUCK + 5.0)
    found = producer.health()
    assert found.ok
    assert found.reason == "topic tt doesn't exist (did you mean t?)"
    assert found.cure == (
        "Create it with: odradek topics create tt --bootstrap-server "
        f"{stage.cluster.bootstrap_servers}"
    )
    with pytest.raises(KafkaError):
        producer.close(0)


@PROTOCOLS
@pytest.mark.parametrize("topics", [["tt"], ["tt", "t"]])
def test_a_member_is_unhealthy_if_all_its_topics_are_missing(
    protocol: str, topics: list[str]
) -> None:
    scene = Scene(protocol)
    consumer = scene.member()
    consumer.subscribe(topics)
    begun = scene.world.wall_clock()
    consumer.poll(STUCK - 3.0)
    assert consumer.health().ok
    consumer.poll(6.0)
    found = consumer.health()
    assert found.ok == ("t" in topics)
    assert found.reason == "topic tt doesn't exist (did you mean t?)"
    assert "odradek topics create tt" in (found.cure or "")
    assert found.since == pytest.approx(begun, abs=1.0)
    scene.cluster.create_topic("tt", partitions=1)
    consumer.poll(30.0)
    found = consumer.health()
    assert (found.ok, found.reason) == (True, None)


@pytest.mark.parametrize("beside", [[], [P0]])
@pytest.mark.parametrize("missing", [TopicPartition("tt", 0), TopicPartition("t", 7)])
def test_an_assigned_partition_that_does_not_exist_is_reported(
    missing: TopicPartition, beside: list[TopicPartition]
) -> None:
    scene = Scene()
    consumer = scene.consumer()
    consumer.assign([missing, *beside])
    consumer.poll(STUCK + 5.0)
    found = consumer.health()
    assert found.ok == bool(beside)
    reasons = {"tt": "topic tt doesn't exist (did you mean t?)", "t": "topic t has no partition 7"}
    assert found.reason == reasons[missing.topic]
    assert "odradek " in (found.cure or "")
    consumer.assign([P0])
    consumer.poll(10.0)
    assert consumer.health().ok
    consumer.close()


@PROTOCOLS
def test_a_member_reports_its_state_and_its_lag(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    consumer = scene.subscribed()
    scene.read(consumer, 40)
    found = consumer.health()
    assert found.ok
    assert found.group is not None
    assert (found.group.group_id, found.group.state, found.group.assigned) == ("g", "stable", 4)
    assert found.lag == 0
    consumer.seek_to_beginning()
    consumer.position(P0, 5.0)
    assert (consumer.health().lag or 0) >= 10


@PROTOCOLS
@pytest.mark.parametrize("instance", [None, "one"])
def test_an_application_that_does_not_poll_is_reported(
    protocol: str, instance: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    consumer = scene.subscribed(max_poll_interval_ms=20_000, group_instance_id=instance)
    consumer.poll(5.0)
    scene.world.advance(15.0)
    assert consumer.health().ok
    scene.world.advance(10.0)
    found = consumer.health()
    assert not found.ok
    why = found.reason or ""
    assert "poll() wasn't called for max.poll.interval.ms (20 s)" in why
    assert ("the consumer has left group 'g'" in why) == (instance is None)
    assert ("session.timeout.ms" in why) == (instance is not None)
    assert "max.poll.records" in (found.cure or "")
    assert f"But {why}." in consumer.explain().diagnosis
    assert [r.getMessage() for r in caplog.records].count(f"{why}. {found.cure}") == 1
    (lost,) = [r.getMessage() for r in caplog.records if "partitions were lost" in r.getMessage()]
    assert ("already" in lost) == (instance is None)
    with pytest.raises(CommitFailedError, match="max.poll.interval.ms .20 s.") as refused:
        consumer.commit({TopicPartition("t", 0): 1})
    assert why in str(refused.value)
    consumer.poll(10.0)
    assert consumer.health().ok


@PROTOCOLS
def test_a_member_without_an_assignment_for_long_is_reported(protocol: str) -> None:
    scene = Scene(protocol)
    members = [scene.subscribed("m0", max_poll_interval_ms=600_000)]
    while not members[0].assignment():
        members[0].poll(1.0)
    members.append(scene.subscribed("m1", max_poll_interval_ms=600_000))
    begun = scene.world.now
    while members[1].health().ok and scene.world.now < begun + 120:
        members[1].poll(1.0)  # the other member doesn't poll, which blocks a classic group
    if protocol == "classic":
        assert "has assigned this consumer no partitions for 1" in str(members[1].health().reason)
        assert scene.world.now - begun == pytest.approx(STUCK, abs=2.0)
        members[0].poll(1.0)
        members[1].poll(5.0)
        assert members[1].health().ok


def test_the_error_that_ended_a_client_is_reported() -> None:
    stage = Stage()
    admin = stage.client(Admin)
    admin.list_topics(5.0)
    stage.cluster.replace_with_foreign(after=0.0)
    with pytest.raises(KafkaError):
        for _ in range(60):
            admin.list_topics(2.0)
    ended = stage.world.wall_clock()
    stage.world.advance(50.0)
    found = admin.health()
    assert not found.ok
    assert "the client has stopped: ClusterIdMismatchError" in (found.reason or "")
    assert "start a new client" in (found.cure or "")
    assert found.since == pytest.approx(ended, abs=0.1)
    admin.close()


@pytest.mark.parametrize("trouble", [False, True])
def test_health_sends_no_request_starts_no_thread_and_takes_no_lock(trouble: bool) -> None:
    stage = Stage()
    consumer = stage.consumer()
    consumer.assign([P0])
    consumer.poll(1.0)
    if trouble:
        every_broker(stage.cluster, "crash")
        consumer.poll(5.0)
    engine, counts = consumer._engine, dict(consumer._engine.events.counts)
    before = (engine.flows, len(engine.effects), len(engine.inputs))
    seen: list[Health] = []
    with engine.lock:  # this thread holds the lock, so another thread would wait forever
        other = threading.Thread(target=lambda: seen.append(consumer.health()))
        other.start()
        other.join(30.0)
    assert seen == [consumer.health()]
    assert seen[0].ok is not trouble
    assert (engine.flows, len(engine.effects), len(engine.inputs)) == before
    assert dict(engine.events.counts) == counts
    consumer.close()


def test_health_of_a_healthy_client_builds_no_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cost doesn't grow with the number of addresses, as no text about them is built."""
    stage = Stage()
    with stage.client(Producer) as producer:
        producer.send("t", b"x").result(5.0)
        monkeypatch.setattr("odradek.clients.explain.explanation.explain", _not_called)
        assert producer.health().ok


def _not_called(*_: Any) -> Callable[..., Any]:
    raise AssertionError("it was explained")


def test_control_characters_in_texts_of_brokers_are_escaped() -> None:
    stage = Stage()
    producer = stage.producer()
    producer.send("t", b"x").result(5.0)
    producer._engine.ended = KafkaError("\x1b[2J")
    assert "\x1b" not in (producer.health().reason or "")
    producer._engine.ended = None
    producer.close()


async def test_health_of_asyncio_clients_equals_that_of_sync_clients(
    kafka_simulation: KafkaSimulation,
) -> None:
    kafka_simulation.create_topic("t", partitions=3)
    servers = {"bootstrap.servers": kafka_simulation.bootstrap_servers}
    async with AsyncProducer(servers) as producer, AsyncConsumer(servers) as consumer:
        await producer.warm("t")
        assert {b.state for b in producer.health().brokers} == {"ready"}
        consumer.assign([P0])
        await producer.send_and_wait("t", b"x", partition=0)
        consumer.seek_to_beginning()
        assert len(await consumer.poll(5.0)) == 1
        assert (consumer.health().lag, consumer.lag(), consumer.high_watermarks()) == (
            0,
            {P0: 0},
            {P0: 1},
        )
        for broker in kafka_simulation.brokers:
            kafka_simulation.crash(broker)
        await producer.send("t", b"y")
        await asyncio.sleep(10.0)
        assert not producer.health().ok
        for broker in kafka_simulation.brokers:
            kafka_simulation.restart(broker)
        await producer.flush(60.0)
        assert producer.health().ok


@pytest.mark.parametrize(("asked", "kept"), [(5.0, 5.0), (2_000_000.0, 60.0)])
def test_a_throttling_broker_is_reported_and_throttles_for_a_minute_at_most(
    asked: float, kept: float
) -> None:
    """KIP-219: throttle_time_ms may be 24 days; brokers send their quota window of some seconds."""
    stage = Stage(brokers=1)
    admin = stage.client(Admin)
    stage.cluster.throttle(1, asked)
    admin.list_topics()
    found, picture = admin.health(), admin.explain()
    assert found.ok
    assert f"throttles this client for {kept:.0f} s" in (found.reason or "")
    assert "quota" in (found.cure or "")
    assert "It works slowly" in picture.diagnosis
    assert "because of a quota" in picture.diagnosis
    stage.cluster.throttle(1, 0.0)
    begin = stage.world.now
    admin.list_topics(timeout=kept + 1.0)
    assert kept - 1.0 < stage.world.now - begin < kept + 0.5
    assert admin.health().reason is None
    admin.close()
