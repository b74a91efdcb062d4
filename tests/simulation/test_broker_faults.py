"""Faults of random schedules, other than crashes: each has its documented effect, and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest
from tests.simulation.scene import Stage
from tests.simulation.transactional import Scene as Transactional

from odradek.api.producer import Producer
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import ERRORS
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message, Request
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers import broker_faults
from odradek.simulation.brokers.broker_handlers import HANDLERS
from odradek.simulation.brokers.injected_errors import APIS, READS, Injection, mark, refusal
from odradek.simulation.faults.fault_arguments import Fault
from odradek.simulation.faults.response_faults import honest
from odradek.simulation.logs.topics import NO_LEADER
from odradek.simulation.runs.explore import run_schedule
from odradek.simulation.runs.schedule import Schedule, ScheduledClient, from_json

P0 = TopicPartition("t", 0)


class Scene(Stage):
    """A cluster with topic `t`, and counts of the requests by type."""

    def __init__(self, brokers: int = 1, partitions: int = 1) -> None:
        super().__init__(1, brokers, partitions)
        self.asked: Counter[str] = Counter()
        self.cluster.observers.append(lambda b, c, r: self.asked.update([type(r.body).__name__]))

    def producer(self, **more: Any) -> Producer:
        return super().producer(**{"linger_ms": 0, **more})


def test_a_transaction_ends_although_its_partition_was_removed() -> None:
    """The topic is recreated with fewer partitions; a removed one has an open transaction."""
    scene = Transactional(2)
    producer = scene.producer()
    producer.begin_transaction()
    producer.send("t", b"1", partition=2).result(timeout=10)
    broker_faults.recreate_topic(scene.cluster, "t", 1)
    producer.commit_transaction(timeout=30)
    scene.world.advance(1.0)
    with pytest.raises(TopicRecreatedError), producer.transaction():
        producer.send("t", b"placed among three partitions", partition=0)
    with producer.transaction():
        producer.send("t", b"2", partition=0)
    scene.world.advance(1.0)
    assert [row[4] for row in scene.cluster.log("t", 0).visible_rows()] == [b"2"]


def test_a_partition_created_without_live_brokers_gets_a_leader_later() -> None:
    scene = Scene()
    scene.cluster.pause(1)
    scene.cluster.add_partitions("t", 1)
    assert scene.cluster.topics["t"].partitions[1].leader == NO_LEADER
    scene.cluster.repair(1)  # before the controller considers the broker dead
    assert scene.cluster.topics["t"].partitions[1].leader == 1


def _request(api: str) -> type[Request[Any]]:
    kinds: Any = HANDLERS
    found: dict[str, type[Request[Any]]] = {kind.API_NAME: kind for kind in kinds}
    return found[api]


@pytest.mark.parametrize("api", APIS)
def test_every_version_of_a_response_can_contain_an_error(api: str) -> None:
    kind = _request(api)
    for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1):
        response: Message = kind.RESPONSE()
        if isinstance(response, FindCoordinatorResponse) and version >= 4:
            response.coordinators = [Coordinator("g")]
        if api in READS:
            mark(response, 7)
        else:
            response = refusal(kind(), 7)
        assert _encoded(response, version)


def _encoded(response: Message, version: int) -> bytes:
    from odradek.protocol.headers import encode_response

    return b"".join(encode_response(response, version, 1))


@pytest.mark.parametrize("done", [True, False])
def test_an_injected_produce_error_occurs_n_times_with_or_without_effect(done: bool) -> None:
    scene = Scene()
    broker_faults.answer_error(scene.cluster, "Produce", 20, 2, done, True)
    producer = scene.producer()
    future = producer.send("t", b"1", partition=0)
    with pytest.raises(KafkaError):
        future.result(timeout=0.05)
    assert scene.values() == ([b"1"] if done else [])
    assert future.result(timeout=10).offset == 0
    assert scene.values() == [b"1"]
    assert scene.asked["ProduceRequest"] == 3


def test_an_injected_error_may_apply_to_one_batch_and_its_retries_only() -> None:
    made = Injection("Produce", 20, 2, True, True)
    scene = Scene()
    producer = scene.producer(batch_size=1)
    producer.send("t", b"0", partition=0).result(timeout=10)
    scene.cluster.brokers[1].injections.append(made)
    futures = [producer.send("t", b"%d" % n, partition=0) for n in (1, 2, 3)]
    assert futures[1].result(timeout=0.05).offset == 2  # futures[0] is still refused meanwhile
    assert futures[0].result(timeout=10).offset == 1
    assert made.left == 0


def test_injected_error_codes_must_be_true_about_whether_a_request_had_an_effect() -> None:
    assert not honest({"api": "Produce", "code": 46})
    assert not honest({"api": "Produce", "code": 45, "done": True})
    assert all(honest({"api": "Produce", "code": code, "done": True}) for code in (6, 7, 20))
    assert not honest({"api": "EndTxn", "code": 49, "done": True})
    assert honest({"api": "EndTxn", "code": 49})
    assert all(honest({"api": "Metadata", "code": code}) for code in ERRORS if code)


def test_a_slow_api_delays_its_responses() -> None:
    scene = Scene()
    producer = scene.producer()
    producer.send("t", b"0", partition=0).result(timeout=10)
    broker_faults.slow_api(scene.cluster, "Produce", 1.5)
    begin = scene.world.now
    future = producer.send("t", b"1", partition=0)
    assert future.result(timeout=10).offset == 1
    assert 1.5 <= scene.world.now - begin < 1.6
    broker_faults.slow_api(scene.cluster, "Produce", 0)
    begin = scene.world.now
    producer.send("t", b"2", partition=0).result(timeout=10)
    assert scene.world.now - begin < 0.1


def test_a_quota_mutes_the_connection_after_an_immediate_response() -> None:
    scene = Scene()
    producer = scene.producer()
    producer.send("t", b"0", partition=0).result(timeout=10)
    broker_faults.quota(scene.cluster, 2.0)
    begin = scene.world.now
    producer.send("t", b"1", partition=0).result(timeout=10)
    assert scene.world.now - begin < 0.1  # the response is sent immediately
    producer.send("t", b"2", partition=0).result(timeout=10)
    assert 2.0 <= scene.world.now - begin < 2.2


def test_delayed_requests_arrive_after_requests_of_the_next_connection() -> None:
    scene = Scene()
    producer = scene.producer()
    producer.send("t", b"0", partition=0).result(timeout=10)
    arrived: list[float] = []
    scene.cluster.observers.append(
        lambda b, c, r: arrived.append(scene.world.now) if r.api_key == 0 else None
    )
    broker_faults.late_packets(scene.cluster, 1, 0.5)
    producer.send("t", b"1", partition=0).result(timeout=10)  # on the next connection
    scene.world.advance(3.0)
    assert len(arrived) == 2
    assert scene.cluster.duplicates_refused == 1
    assert scene.values() == [b"0", b"1"]


def test_a_fault_changes_a_brokers_release_and_its_api_versions() -> None:
    scene = Scene()
    seen: list[int] = []
    scene.cluster.observers.append(
        lambda b, c, r: seen.append(r.version) if r.api_key == 0 else None
    )
    producer = scene.producer()
    for name in ("newest", "2.4", "3.5", "newest"):
        broker_faults.release(scene.cluster, 1, name)
        producer.send("t", b"1", partition=0).result(timeout=20)
    assert seen == [13, 8, 9, 13]
    broker_faults.mend(scene.cluster)
    assert scene.cluster.brokers[1].versions is None


def _cut(cluster: SimulatedCluster) -> None:
    broker_faults.unclean_election(cluster, "t", 0, 2)


def _anew(cluster: SimulatedCluster) -> None:
    broker_faults.recreate_topic(cluster, "t")


@pytest.mark.parametrize(("act", "left"), [(_cut, 1), (_anew, 0)], ids=["unclean", "anew"])
def test_checkers_know_the_records_that_faults_remove(
    act: Callable[[SimulatedCluster], None], left: int
) -> None:
    scene = Scene(3)
    producer = scene.producer()
    for n in range(3):
        producer.send("t", b"%d" % n, partition=0).result(timeout=10)
    epoch = scene.cluster.topics["t"].partitions[0].leader_epoch
    assert not broker_faults.disturbed(scene.cluster, "t", 0)
    act(scene.cluster)
    assert broker_faults.disturbed(scene.cluster, "t", 0)
    assert scene.values() == [b"0"][:left]
    assert broker_faults.lost_values(scene.cluster, "t", 0) == {b"0", b"1", b"2"} - set(
        scene.values()
    )
    if act is _cut:
        assert scene.cluster.topics["t"].partitions[0].leader_epoch > epoch


def test_deleted_records_cant_be_read() -> None:
    scene = Scene()
    producer = scene.producer()
    for n in range(4):
        producer.send("t", b"%d" % n, partition=0).result(timeout=10)
    broker_faults.delete_records(scene.cluster, "t", 0, 0.5)
    consumer = scene.consumer()
    consumer.assign([P0])
    assert [r.offset for r in consumer.poll(5.0)] == [2, 3]


def test_a_log_truncated_before_its_start_starts_at_its_end() -> None:
    scene = Scene()
    with scene.producer() as producer:
        producer.send("t", b"0").result(10)
        producer.send_arrow("t", pyarrow.table({"value": [b"1", b"2"]}))
        producer.flush(10)
    log = scene.cluster.log("t", 0)
    log.delete_before(2)  # within the second batch
    log.truncate(2)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (1, 1, 1)
    with scene.producer() as producer, scene.consumer() as consumer:
        consumer.assign([P0])
        producer.send("t", b"3").result(10)
        assert [record.value for record in consumer.poll(10)] == [b"3"]


def test_a_deleted_topic_is_recreated_when_the_faults_end() -> None:
    scene = Scene(partitions=3)
    old = scene.cluster.topics["t"].id
    broker_faults.recreate_topic(scene.cluster, "t", 1)
    broker_faults.delete_topic(scene.cluster, "t")
    assert "t" not in scene.cluster.topics
    broker_faults.mend(scene.cluster)
    assert len(scene.cluster.topics["t"].partitions) == 3
    assert scene.cluster.topics["t"].id != old


def test_records_lost_without_a_fault_are_still_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records that an unclean election removes are no violation, all other lost records are."""
    schedule = Schedule(
        7,
        (ScheduledClient("producer-1", "producer", 6, 0.0, {"linger.ms": 0}),),
        (Fault(2.0, "unclean_election", {"partition": 0, "lost": 3}),),
        heal_at=3.0,
    )
    assert run_schedule(schedule).ok
    monkeypatch.setattr(broker_faults, "lost_values", lambda *_: set())
    from odradek.simulation.checkers import invariants as checkers

    monkeypatch.setattr(checkers, "lost_values", lambda *_: set())
    violation = run_schedule(schedule).violation
    assert violation is not None
    assert "is lost" in violation


def test_schedules_of_all_faults_are_saved_and_loaded() -> None:
    schedule = Schedule(
        1,
        (ScheduledClient("producer-1", "producer", 1, volume=60),),
        (
            Fault(0.0, "slow_api", {"api": "Metadata", "seconds": 3.0}),
            Fault(0.1, "answer_error", {"api": "Produce", "code": 20, "count": 2, "done": True}),
            Fault(0.2, "release", {"i": 1, "name": "3.5"}),
        ),
    )
    assert from_json(schedule.to_json()) == schedule
