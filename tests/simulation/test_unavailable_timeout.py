"""R-RB-6: with `metadata.unavailable.timeout.ms` waiting calls raise while no broker answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.common.errors import KafkaTimeoutError, NoBrokerAvailableError
from odradek.common.types import TopicPartition

P0 = TopicPartition("t", 0)
OPTION = "metadata.unavailable.timeout.ms"
LIMIT = 5.0
CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    ("admin", lambda admin: admin.list_topics(60.0)),
    ("admin", lambda admin: admin.describe_cluster(60.0)),
    ("producer", lambda producer: producer.partitions_for("other", 60.0)),
    ("producer", lambda producer: producer.warm("other", 60.0)),
    ("consumer", lambda consumer: consumer.end_offsets([P0], 60.0)),
    ("consumer", lambda consumer: consumer.poll(60.0)),
]


def client(stage: Stage, kind: str, **config: Any) -> Any:
    if kind == "consumer":
        made = stage.consumer(**config)
        made.assign([P0])
        return made
    return stage.client(Admin, **config) if kind == "admin" else stage.producer(**config)


@pytest.mark.parametrize(("kind", "call"), CALLS)
@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_waiting_calls_raise_after_the_timeout(
    kind: str, call: Callable[[Any], Any], strategy: str
) -> None:
    stage = Stage()
    config = {"metadata_unavailable_timeout_ms": LIMIT * 1000}
    it = client(stage, kind, metadata_recovery_strategy=strategy, **config)
    it.cluster_id(5.0)
    every_broker(stage.cluster, "crash")
    begin = stage.world.now
    with pytest.raises(NoBrokerAvailableError) as caught:
        call(it)
    waited = stage.world.now - begin
    assert LIMIT - 0.5 <= waited <= LIMIT + 5.0, waited
    if "waiting for records" not in str(caught.value):
        assert f"no broker could be reached for 5.0 s ({OPTION})" in str(caught.value)
    assert caught.value.attempts
    # The next call tries for a second, as a broker may be available again.
    begin = stage.world.now
    with pytest.raises(NoBrokerAvailableError):
        call(it)
    assert stage.world.now - begin == pytest.approx(1.0, abs=0.2)
    assert not stage.world.hot_loops
    every_broker(stage.cluster, "restart")
    assert it.cluster_id(30.0)
    it.close()


def test_calls_without_the_option_have_their_own_timeout() -> None:
    stage = Stage()
    with stage.client(Admin, metadata_recovery_strategy="none") as admin:
        admin.cluster_id(5.0)
        every_broker(stage.cluster, "crash")
        begin = stage.world.now
        with pytest.raises(KafkaTimeoutError):
            admin.list_topics(90.0)
        assert stage.world.now - begin == pytest.approx(90.0, abs=0.2)


def test_the_timeout_applies_to_a_cluster_that_was_never_reached() -> None:
    stage = Stage()
    every_broker(stage.cluster, "crash")
    with stage.client(Admin, metadata_unavailable_timeout_ms=3000) as admin:
        begin = stage.world.now
        with pytest.raises(NoBrokerAvailableError, match=OPTION):
            admin.list_topics(60.0)
        assert stage.world.now - begin == pytest.approx(3.0, abs=0.2)


def test_records_are_kept_and_flush_reports_their_number() -> None:
    stage = Stage()
    producer = stage.producer(metadata_unavailable_timeout_ms=3000)
    producer.send("t", b"before").result(timeout=5.0)
    every_broker(stage.cluster, "crash")
    futures = [producer.send("t", b"%d" % n, partition=0) for n in range(10)]
    with pytest.raises(NoBrokerAvailableError, match="waiting for the acknowledgement") as caught:
        producer.flush(60.0)
    assert caught.value.remaining == 10
    assert not any(future.done() for future in futures)
    every_broker(stage.cluster, "restart")
    producer.flush(30.0)
    assert len({future.result(timeout=0).offset for future in futures}) == 10
    producer.close()


def test_a_response_of_a_broker_restarts_the_timeout() -> None:
    stage = Stage()
    with stage.client(Admin, metadata_unavailable_timeout_ms=3000) as admin:
        admin.cluster_id(5.0)
        every_broker(stage.cluster, "crash")
        stage.world.after(2.0, lambda: every_broker(stage.cluster, "restart"))
        assert admin.list_topics(60.0) == ["t"]
        every_broker(stage.cluster, "crash")
        begin = stage.world.now
        with pytest.raises(NoBrokerAvailableError):
            admin.list_topics(60.0)
        assert 2.9 <= stage.world.now - begin <= 8.0


def test_lag_and_high_watermarks_return_all_assigned_partitions() -> None:
    stage = Stage()
    stage.write(range(30))
    places = [TopicPartition("t", n) for n in range(3)]
    consumer = stage.consumer(isolation_level="read_committed")
    assert consumer.lag() == consumer.high_watermarks() == {}
    consumer.assign(places)
    assert consumer.lag() == consumer.high_watermarks() == dict.fromkeys(places)
    stage.read(consumer, 30)
    assert consumer.lag() == dict.fromkeys(places, 0)
    assert consumer.high_watermarks() == dict.fromkeys(places, 10)
    consumer.seek(places[1], 4)
    assert consumer.lag()[places[1]] == consumer.lag(places[1]) == 6
    consumer.close()


def test_a_warm_producer_has_connections_for_its_first_record() -> None:
    stage = Stage(partitions=6)
    options = {"linger_ms": 0}  # without warm() the first record lingers while the client connects
    cold, warm = (stage.producer(name=name, **options) for name in ("cold", "warm"))
    warm.warm(["t"])
    assert {d.client for d in stage.world.dials} == {"warm"}
    dials = len(stage.world.dials)
    assert dials == 4, "the front door, and three leaders"
    times = []
    for producer in (warm, cold):
        begin = stage.world.now
        futures = [producer.send("t", b"x", partition=n) for n in range(6)]
        for future in futures:
            future.result(timeout=10.0)
        times.append(stage.world.now - begin)
        if producer is warm:
            assert len(stage.world.dials) == dials
    assert times[0] < times[1] / 2
    for producer in (warm, cold):
        producer.close()


def test_warm_reports_a_missing_topic_or_leader() -> None:
    stage = Stage()
    producer = stage.producer()
    with pytest.raises(KafkaTimeoutError, match="metadata of topic nowhere"):
        producer.warm(["t", "nowhere"], 2.0)
    producer.close()
    address = next(iter(stage.cluster.brokers.values())).address
    stage.world.black_hole(address, True)
    producer = stage.producer(name="another")
    with pytest.raises(KafkaTimeoutError, match=str(address)):
        producer.warm("t", 3.0)
    stage.world.black_hole(address, False)
    producer.warm("t", 30.0)
    producer.close()
