"""KIP-714: subscribed metrics are pushed in time and once, without delaying other requests."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    MetricsData,
)
from tests.property.test_refused_verbs import WholeRefusal
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.scene import Stage

from odradek import AsyncProducer
from odradek.api.admin import Admin
from odradek.api.base import Client
from odradek.api.producer import Producer
from odradek.common.errors import IllegalStateError, KafkaTimeoutError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest
from odradek.record.compression import decompress
from odradek.simulation.brokers.telemetry_handlers import NO_ID
from odradek.simulation.brokers.telemetry_receiver import Pushed, TelemetryReceiver
from odradek.testing import KafkaSimulation

SENT = "org.apache.kafka.producer.record.send.total"


def staged(**receiver: Any) -> tuple[Stage, TelemetryReceiver]:
    stage, found = Stage(brokers=1, partitions=1), TelemetryReceiver(**receiver)
    stage.cluster.receive_telemetry(found)
    return stage, found


def read(pushed: Pushed) -> list[Metric]:
    data = pushed.metrics
    if pushed.compression_type:
        data = bytes(decompress(pushed.compression_type, memoryview(data)))
    (resource,) = MetricsData.FromString(data).resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "odradek"
    return list(scope.metrics)


def points(pushed: Pushed, name: str) -> list[float]:
    found = [metric for metric in read(pushed) if metric.name == name]
    return [p.as_int for m in found for p in m.sum.data_points] + [
        p.as_double for m in found for p in m.gauge.data_points
    ]


def send(producer: Producer, records: int) -> None:
    for _ in range(records):
        producer.send("t", b"x", partition=0).result(5.0)


def test_deltas_are_pushed_at_each_interval_and_at_close() -> None:
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 3)
    begun = stage.world.now
    assert receiver.asked == [NO_ID]
    assert receiver.pushed == []
    stage.world.advance(16.0)
    send(producer, 4)
    stage.world.advance(10.0)
    producer.close()
    first, second, _ = receiver.pushed
    assert 5.0 <= first.at - begun <= 15.1
    assert second.at - first.at == pytest.approx(10.0, abs=0.1)
    assert [points(p, SENT) for p in receiver.pushed] == [[3], [4], [0]]
    assert [p.terminating for p in receiver.pushed] == [False, False, True]
    assert len({p.client_instance_id for p in receiver.pushed}) == 1
    assert first.client_instance_id != NO_ID
    assert len(receiver.asked) == 1


def test_sums_and_gauges_can_be_read_by_opentelemetry() -> None:
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 3)
    stage.world.advance(16.0)
    found = {metric.name: metric for metric in read(receiver.pushed[0])}
    sent = found[SENT].sum
    assert sent.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    assert sent.is_monotonic
    (point,) = sent.data_points
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    assert point.time_unix_nano == pytest.approx(receiver_time(stage, receiver), abs=1e9)
    (topic,) = found["org.apache.kafka.producer.topic.record.send.total"].sum.data_points
    assert [(a.key, a.value.string_value) for a in topic.attributes] == [("topic", "t")]
    (size,) = found["org.apache.kafka.producer.buffer.total.bytes"].gauge.data_points
    assert size.as_double == 32 << 20
    nodes = "org.apache.kafka.producer.node.request.total"
    assert {"node-1", "node--1"} <= {
        a.value.string_value
        for metric in read(receiver.pushed[0])
        if metric.name == nodes
        for p in metric.sum.data_points
        for a in p.attributes
    }
    assert found["odradek.dial.total"].sum.is_monotonic
    producer.close()


def receiver_time(stage: Stage, receiver: TelemetryReceiver) -> float:
    now = stage.world.now - receiver.pushed[0].at
    return (stage.world.wall_clock() - now) * 1e9


def test_cumulative_sums_continue_over_several_pushes() -> None:
    stage, receiver = staged(interval=10.0, delta=False)
    producer = stage.producer()
    send(producer, 3)
    stage.world.advance(16.0)
    send(producer, 4)
    stage.world.advance(10.0)
    assert [points(p, SENT) for p in receiver.pushed] == [[3], [7]]
    (metric,) = [m for m in read(receiver.pushed[1]) if m.name == SENT]
    assert metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    producer.close()


def sums(pushed: Pushed) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return each sum's value and start time by name and attributes."""
    return {
        (m.name, *sorted(a.value.string_value for a in p.attributes)): (
            p.as_int,
            p.start_time_unix_nano,
        )
        for m in read(pushed)
        for p in m.sum.data_points
    }


def test_a_cumulative_sum_that_restarts_has_a_later_start_time() -> None:
    """Metrics of a topic are removed after a while without records; then they restart at 0."""
    stage, receiver = staged(interval=10.0, delta=False)
    producer = stage.producer(metadata_max_idle_ms=30_000, metadata_max_age_ms=10_000)
    for count in (3, 1):
        send(producer, count)
        stage.world.advance(100.0)
    producer.close()
    sent_to_t = ("org.apache.kafka.producer.topic.record.send.total", "t")
    found = [sums(pushed) for pushed in receiver.pushed]
    values = [one[sent_to_t] for one in found if sent_to_t in one]
    assert [value for value, _ in dict.fromkeys(values)] == [3, 1]
    for before, after in pairwise(found):
        for name in before.keys() & after.keys():
            (value, since), (later, later_since) = before[name], after[name]
            assert (since, value) <= (later_since, later), name
    starts = [min(since for _, since in one.values()) for one in found]
    assert len(set(starts)) == 1, "the others count from the beginning"
    (begun,) = set(starts)
    assert values[0][1] == begun < values[-1][1]


def test_the_last_push_does_not_repeat_the_push_in_flight() -> None:
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 3)
    stage.cluster.brokers[1].delays[PushTelemetryRequest.API_KEY] = 0.2
    while not receiver.pushed:
        stage.world.advance(0.01)
    producer.close()
    assert [points(p, SENT) for p in receiver.pushed] == [[3], [0]]


def test_no_push_is_sent_while_the_previous_one_is_in_flight() -> None:
    """A second push would repeat the sums of the previous push, which isn't answered yet."""
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 1)
    while not receiver.pushed:
        stage.world.advance(0.1)
    stage.world.advance(receiver.pushed[0].at + 9.8 - stage.world.now)
    send(producer, 3)
    stage.cluster.brokers[1].delays[PushTelemetryRequest.API_KEY] = 0.5
    producer.close()
    assert [points(p, SENT) for p in receiver.pushed] == [[1], [3]]
    assert [p.terminating for p in receiver.pushed] == [False, True]


def test_a_slow_telemetry_receiver_delays_no_record(caplog: pytest.LogCaptureFixture) -> None:
    """A broker answers a connection's requests in order, so pushes have their own connection."""
    stage, receiver = staged(interval=5.0)
    stage.cluster.brokers[1].delays[PushTelemetryRequest.API_KEY] = 20.0
    caplog.set_level("INFO", "odradek")
    with stage.producer() as producer:
        for _ in range(120):
            begun = stage.world.now
            send(producer, 1)
            assert stage.world.now - begun < 0.5
            stage.world.advance(0.5)
        pushed = sum(sum(points(p, SENT)) for p in receiver.pushed)
    assert len(receiver.pushed) >= 3
    assert pushed <= 120, "an answer that is slow isn't lost"
    told = [r.getMessage() for r in caplog.records if r.name != "odradek.asyncio"]
    assert [
        line for line in told if "silent" in line or "outage" in line or "doesn't" in line
    ] == []


@pytest.mark.parametrize("interval", [-1.0, -0.001, 0.0, 0.001, 0.099])
def test_an_invalid_interval_is_replaced_by_five_minutes(interval: float) -> None:
    stage, receiver = staged(interval=interval)
    with stage.producer() as producer:
        send(producer, 1)
        stage.world.advance(140.0)
        assert receiver.pushed == []
        stage.world.advance(320.0)
        assert 1 <= len(receiver.pushed) <= 2


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownSubscriptionIdError,
        errors.UnsupportedCompressionTypeError,
        errors.ThrottlingQuotaExceededError,
        errors.TelemetryTooLargeError,
    ],
)
def test_a_refused_telemetry_subscription_is_requested_again_after_an_interval(error: Any) -> None:
    """The request isn't repeated immediately, whatever the error (R-RT-1)."""
    stage, receiver = staged(interval=10.0)
    asked = stage.cluster.brokers[1].requests
    stage.cluster.brokers[1].injections.append(
        WholeRefusal("GetTelemetrySubscriptions", error.code, 3)
    )
    with stage.producer() as producer:
        send(producer, 1)
        stage.world.advance(60.0)
        assert asked["GetTelemetrySubscriptions"] == 1
        stage.world.advance(1000.0)
        assert asked["GetTelemetrySubscriptions"] == 4
        assert receiver.pushed != []


@pytest.mark.parametrize(
    ("accepted", "used"), [((9, 4), 4), ((-1, 99, 1, 4), 1), ((9,), 0), ((0, 4), 0)]
)
def test_unknown_codecs_are_skipped(accepted: tuple[int, ...], used: int) -> None:
    stage, receiver = staged(compression_types=accepted)
    with stage.producer() as producer:
        send(producer, 5)
    (last,) = receiver.pushed
    assert last.compression_type == used
    assert points(last, SENT) == [5]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_pushes_are_compressed_with_the_brokers_first_codec(codec: int) -> None:
    stage, receiver = staged(compression_types=(codec, 1))
    with stage.producer() as producer:
        send(producer, 5)
    (last,) = receiver.pushed
    assert last.compression_type == codec
    assert points(last, SENT) == [5]


def test_only_subscribed_metrics_are_pushed() -> None:
    wanted = ("org.apache.kafka.producer.record.", "org.apache.kafka.producer.connection.count")
    stage, receiver = staged(requested_metrics=wanted)
    with stage.producer() as producer:
        send(producer, 1)
    names = {metric.name for metric in read(receiver.pushed[0])}
    assert SENT in names
    assert all(name.startswith(wanted) for name in names)


@pytest.mark.parametrize("word", ["", "*"])
def test_an_empty_prefix_and_an_asterisk_subscribe_to_all_metrics(word: str) -> None:
    stage, receiver = staged(requested_metrics=(word,))
    with stage.producer() as producer:
        send(producer, 1)
    names = {metric.name for metric in read(receiver.pushed[0])}
    assert {SENT, "odradek.dial.total"} <= names


def test_a_broker_that_subscribes_no_metrics_is_asked_again_later() -> None:
    stage, receiver = staged(requested_metrics=(), interval=10.0)
    with stage.producer() as producer:
        send(producer, 1)
        stage.world.advance(35.0)
    assert len(receiver.asked) == 4
    assert len(set(receiver.asked)) == 2, "its id is kept"
    assert receiver.pushed == []


def test_no_request_is_sent_to_brokers_without_a_telemetry_receiver() -> None:
    stage = Stage(brokers=1, partitions=1)
    with stage.producer() as producer:
        send(producer, 1)
        stage.world.advance(900.0)
        flows = producer._engine.flows
    asked = stage.cluster.brokers[1].requests
    assert not {"GetTelemetrySubscriptions", "PushTelemetry"} & set(asked)
    assert flows <= 2


def test_the_push_can_be_disabled() -> None:
    stage, receiver = staged()
    with stage.producer(enable_metrics_push=False) as producer:
        send(producer, 1)
        stage.world.advance(60.0)
    assert (receiver.asked, receiver.pushed) == ([], [])


def test_a_changed_telemetry_subscription_is_requested_immediately() -> None:
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 3)
    stage.world.advance(16.0)
    receiver.subscription_id, receiver.requested_metrics = 2, (SENT,)
    send(producer, 2)
    stage.world.advance(26.0)
    assert len(receiver.asked) == 2
    assert [points(p, SENT) for p in receiver.pushed][:2] == [[3], [2]], "nothing is lost"
    assert {metric.name for metric in read(receiver.pushed[1])} == {SENT}
    producer.close()


@pytest.mark.parametrize(
    ("error", "asked", "goes_on"),
    [
        (errors.TelemetryTooLargeError, 2, True),
        (errors.ThrottlingQuotaExceededError, 1, True),
        (errors.UnsupportedCompressionTypeError, 2, True),
        (errors.InvalidRecordError, 1, False),
        (errors.UnknownServerError, 1, False),
    ],
)
def test_the_error_of_a_refused_push_determines_whether_pushes_continue(
    error: Any, asked: int, goes_on: bool
) -> None:
    stage, receiver = staged(interval=10.0, compression_types=(4,))
    producer = stage.producer()
    send(producer, 1)
    receiver.refuses = [error.code]
    stage.world.advance(60.0)
    assert len(receiver.asked) == asked
    assert (len(receiver.pushed) > 0) is goes_on
    if error is errors.UnsupportedCompressionTypeError:
        assert {p.compression_type for p in receiver.pushed} == {0}
    send(producer, 1)
    producer.close()
    assert len(stage.values()) == 2


def test_a_client_that_pushed_too_early_still_sends_its_last_push() -> None:
    stage, receiver = staged(interval=10.0)
    producer = stage.producer()
    send(producer, 1)
    stage.world.advance(20.0)
    receiver.refuses = [errors.ThrottlingQuotaExceededError.code]
    while receiver.refuses:
        stage.world.advance(0.1)
    producer.close()
    assert receiver.pushed[-1].terminating


def test_pushes_above_the_brokers_limit_are_not_sent() -> None:
    stage, receiver = staged(interval=10.0, max_bytes=50)
    with stage.producer() as producer:
        send(producer, 1)
        stage.world.advance(60.0)
    assert receiver.pushed == []
    assert stage.cluster.brokers[1].requests["PushTelemetry"] == 0


def test_pushes_continue_after_an_outage_and_a_move_of_the_cluster() -> None:
    """Pushes open no connection; they continue with all sums once another request opens one."""
    stage, receiver = staged(interval=5.0)
    producer = stage.producer()
    send(producer, 3)
    stage.world.advance(8.0)
    pushed = len(receiver.pushed)
    assert pushed >= 1
    stage.cluster.move(after=20.0)
    stage.world.advance(15.0)
    assert len(receiver.pushed) == pushed
    stage.world.advance(30.0)
    send(producer, 4)
    stage.world.advance(30.0)
    producer.close()
    total = sum(sum(points(p, SENT)) for p in receiver.pushed)
    assert total == 7
    assert len({p.client_instance_id for p in receiver.pushed}) == 1


def test_a_silent_broker_does_not_delay_close() -> None:
    stage, _ = staged()
    producer = stage.producer()
    send(producer, 1)
    stage.cluster.pause(1)
    begun = stage.world.now
    producer.close(5.0)
    assert stage.world.now - begun < 1.0


def test_pushes_respect_throttle_times() -> None:
    """KIP-219: a push that is due during the throttle time waits."""
    stage, receiver = staged(interval=1.0)
    producer = stage.producer()
    stage.cluster.throttle(1, 5.0)
    producer.send("t", b"x", partition=0)
    stage.world.advance(1.0)
    begun = stage.world.now
    stage.cluster.throttle(1, 0.0)
    stage.world.advance(30.0)
    assert 2.0 < receiver.pushed[0].at - begun < 16.0
    assert len(receiver.pushed) > 10
    producer.close()


@PROTOCOLS
def test_a_member_of_a_group_sends_its_group_labels(protocol: str) -> None:
    scene, receiver = Scene(protocol), TelemetryReceiver(interval=5.0)
    scene.cluster.receive_telemetry(receiver)
    scene.write(range(8))
    receiver.pushed.clear()
    consumer = scene.subscribed(client_rack="r1", group_instance_id="i")
    scene.read(consumer, 8)
    consumer.close()
    (last,) = receiver.pushed
    (resource,) = MetricsData.FromString(last.metrics).resource_metrics
    attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert len(attributes.pop("group_member_id")) > 5, "also after it has left"
    assert attributes == {"client_rack": "r1", "group_id": "g", "group_instance_id": "i"}
    assert points(last, "org.apache.kafka.consumer.fetch.manager.records.consumed.total") == [8, 8]
    assert points(last, "org.apache.kafka.consumer.coordinator.rebalance.total") == [1]


async def test_asyncio_clients_push_metrics(kafka_simulation: KafkaSimulation) -> None:
    receiver = TelemetryReceiver(interval=5.0)
    kafka_simulation.cluster.receive_telemetry(receiver)
    kafka_simulation.create_topic("t", partitions=1)
    servers = {"bootstrap.servers": kafka_simulation.bootstrap_servers}
    async with AsyncProducer(servers) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
        await asyncio.sleep(8.0)
        await producer.send_and_wait("t", b"x", partition=0)
    assert [p.terminating for p in receiver.pushed][-1]
    assert sum(sum(points(p, SENT)) for p in receiver.pushed) == 2
    assert len(receiver.pushed) >= 2


def test_client_instance_id_returns_the_id_from_the_broker() -> None:
    stage, receiver = staged(interval=10.0)
    with stage.producer() as producer, stage.consumer() as consumer, stage.client(Admin) as admin:
        clients: tuple[Client[Any], ...] = (producer, consumer, admin)
        for n, client in enumerate(clients, 1):
            assert client.client_instance_id(5.0) == UUID(int=n)
            assert client.client_instance_id(0.0) == UUID(int=n)
        assert receiver.asked == [NO_ID] * 3
        stage.world.advance(16.0)
    assert {p.client_instance_id for p in receiver.pushed} == {UUID(int=n).bytes for n in (1, 2, 3)}


def test_the_error_says_why_a_client_has_no_instance_id() -> None:
    stage, receiver = staged(interval=10.0)
    with (
        stage.producer(enable_metrics_push=False) as producer,
        pytest.raises(IllegalStateError, match=r"set enable.metrics.push=true"),
    ):
        producer.client_instance_id(5.0)
    without = Stage()
    with (
        without.producer() as producer,
        pytest.raises(errors.UnsupportedVersionError, match="don't accept client metrics"),
    ):
        producer.client_instance_id(5.0)
    stage.cluster.crash(1)
    with stage.producer() as producer:
        begun = stage.world.now
        with pytest.raises(KafkaTimeoutError, match="waiting for the id of this client"):
            producer.client_instance_id(3.0)
        assert stage.world.now - begun == pytest.approx(3.0, abs=0.1)
        stage.cluster.restart(1)
        assert producer.client_instance_id(30.0)
    for broker in stage.cluster.brokers.values():
        broker.injections.append(
            WholeRefusal("GetTelemetrySubscriptions", errors.InvalidRequestError.code or 0, 9)
        )
    with stage.producer() as producer, pytest.raises(errors.InvalidRequestError):
        producer.client_instance_id(5.0)
    assert len(receiver.asked) == 1


async def test_asyncio_clients_return_their_instance_id(kafka_simulation: KafkaSimulation) -> None:
    kafka_simulation.cluster.receive_telemetry(TelemetryReceiver(interval=10.0))
    async with AsyncProducer(bootstrap_servers=kafka_simulation.bootstrap_servers) as producer:
        assert await producer.client_instance_id(5.0) == UUID(int=1)


def test_an_interrupted_client_keeps_its_instance_id() -> None:
    """A Ctrl-C in a step leads to a new engine."""
    stage, _ = staged()
    consumer = stage.consumer()
    consumer.assign([TopicPartition("t", 0)])
    known, engine = consumer.client_instance_id(5.0), consumer._engine
    engine.torn = True  # the state after an interrupted step
    consumer._calls._renew()
    assert consumer.client_instance_id(5.0) == known
    assert consumer._engine is not engine
    consumer.close()
