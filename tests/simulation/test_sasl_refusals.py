"""R-CS-4: refused credentials raise in every waiting call, without overloading brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.sasl_scene import PARTITIONS, PASSWORD, Scene

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import CredentialsRefusedError, IllegalStateError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedHost

ONE_ATTEMPT = 1.0
"""Allowed seconds for DNS, a connection attempt, a held response and a round of all brokers."""


def _send(producer: Producer) -> object:
    return producer.send("t", b"1").result(timeout=30)


def _read(consumer: Consumer) -> object:
    consumer.assign([TopicPartition("t", 0)])
    return consumer.poll(30.0)


def _join(consumer: Consumer) -> object:
    consumer.subscribe(["t"])
    return consumer.poll(30.0)


CALLS: dict[str, tuple[type, dict[str, Any], Callable[[Any], object]]] = {
    "producer": (Producer, {}, _send),
    "idempotent producer": (Producer, {"enable.idempotence": True}, _send),
    "transactional producer": (
        Producer,
        {"transactional.id": "x"},
        lambda p: p.init_transactions(timeout=30),
    ),
    "consumer": (Consumer, {}, _read),
    "group consumer": (Consumer, {"group.id": "g"}, _join),
    "group consumer of KIP-848": (Consumer, {"group.id": "g", "group.protocol": "consumer"}, _join),
    "admin": (Admin, {}, lambda a: a.list_topics(timeout=30)),
    "admin's description": (Admin, {}, lambda a: a.describe_cluster(timeout=30)),
}


@contextmanager
def client_of(scene: Scene, which: str, **more: Any) -> Iterator[Any]:
    kind, config, _ = CALLS[which]
    with scene.client(kind, which.replace(" ", "-"), **more, **config) as client:
        yield client


def brokers(scene: Scene) -> list[str]:
    return [str(broker.address) for broker in scene.cluster.brokers.values()]


@pytest.mark.parametrize("which", CALLS)
def test_every_call_raises_an_authentication_error_within_one_attempt(which: str) -> None:
    scene = Scene()
    scene.sasl.users["alice"] = "another"
    call = CALLS[which][2]
    with client_of(scene, which) as client:
        for _ in range(3):
            began = scene.world.now
            with pytest.raises(CredentialsRefusedError) as caught:
                call(client)
            assert scene.world.now - began < ONE_ATTEMPT
            assert PASSWORD not in repr(caught.value)
            assert caught.value.address is not None
            scene.world.advance(1.5)
        began, dials = scene.world.now, len(scene.world.dials)
        scene.world.advance(20.0)
        assert len(scene.world.dials) - dials <= 25, "no storm"
        scene.sasl.users["alice"] = PASSWORD
        scene.world.advance(2.0)
        call(client)


@pytest.mark.parametrize("which", CALLS)
def test_closing_a_refused_client_raises_nothing_and_ends_in_time(which: str) -> None:
    scene = Scene(refusing={1, 2, 3})
    with client_of(scene, which) as client:
        with pytest.raises(CredentialsRefusedError):
            CALLS[which][2](client)
        began = scene.world.now
    assert scene.world.now - began < 5.1


def test_calls_during_the_backoff_raise_without_a_connection_attempt() -> None:
    scene = Scene()
    scene.sasl.users.clear()
    if scene.world.make_host is not SimulatedHost:
        pytest.skip("an event loop runs between calls, and connects")
    with scene.client(Admin, background=False) as admin:
        with pytest.raises(CredentialsRefusedError):
            admin.list_topics(timeout=30)
        dials, now = len(scene.world.dials), scene.world.now
        errors = []
        for _ in range(5):
            with pytest.raises(CredentialsRefusedError) as caught:
                admin.list_topics(timeout=30)
            errors.append(caught.value)
        assert scene.world.now == now
        assert len(scene.world.dials) == dials
        assert len({id(e) for e in errors}) == 5, "each caller gets an error of its own"
        scene.world.advance(5.0)
        with pytest.raises(CredentialsRefusedError):
            admin.list_topics(timeout=30)
        assert len(scene.world.dials) == dials + 1


@pytest.mark.parametrize("refusing", [1, 2, 3])
def test_one_broker_of_three_that_refuses_does_not_affect_the_others(refusing: int) -> None:
    scene = Scene(refusing={refusing})
    first = scene.cluster.brokers[refusing].address
    servers = ",".join([str(first), *(a for a in brokers(scene) if a != str(first))])
    config = {"bootstrap_servers": servers, "delivery_timeout_ms": 4000, "linger_ms": 0}
    config["request_timeout_ms"] = 2000
    with client_of(scene, "producer", **config) as producer:
        futures = [producer.send("t", b"%d" % n, partition=n) for n in range(PARTITIONS)]
        led = [scene.cluster.leader("t", p) for p in range(PARTITIONS)]
        for future, leader in zip(futures, led, strict=True):
            assert leader is not None
            if leader.id != refusing:
                future.result(timeout=10)
                continue
            with pytest.raises(KafkaTimeoutError) as caught:
                future.result(timeout=10)
            assert isinstance(caught.value.__cause__, CredentialsRefusedError)
        with pytest.raises(KafkaTimeoutError):
            producer.send("t", b"4", partition=refusing - 1).result(timeout=10)
    refused = [d for d in scene.world.dials if d.ip == first.host]
    assert len(refused) <= 2 + scene.world.now * 1.3


def test_a_refusal_waits_for_slow_addresses() -> None:
    """A metadata round continues for a second after the first refusal: other brokers may accept."""
    scene = Scene(refusing={1})
    for slow in (2, 3):
        scene.cluster.slow_handshake(slow, 0.7)
    servers = ",".join(brokers(scene))
    with client_of(scene, "admin", bootstrap_servers=servers) as admin:
        assert admin.list_topics(timeout=10) == ["t"]


def test_a_call_to_a_refusing_broker_waits_while_others_accept_the_client() -> None:
    """The broker may accept the client later; the refusal is the cause of the timeout."""
    scene = Scene(refusing={2})
    led = {p: scene.cluster.leader("t", p) for p in range(PARTITIONS)}
    (partition,) = (p for p, broker in led.items() if broker is not None and broker.id == 2)
    servers = ",".join(brokers(scene))
    with client_of(scene, "consumer", bootstrap_servers=servers) as consumer:
        began = scene.world.now
        with pytest.raises(KafkaTimeoutError) as caught:
            consumer.end_offsets([TopicPartition("t", partition)], timeout=8.0)
        assert scene.world.now - began >= 7.9
        assert isinstance(caught.value.__cause__, CredentialsRefusedError)


def test_a_refusal_does_not_affect_open_connections_to_other_brokers() -> None:
    scene = Scene()
    with client_of(scene, "producer", linger_ms=0) as producer:
        for n in range(PARTITIONS):
            producer.send("t", b"%d" % n, partition=n).result(timeout=5)
        scene.sasl.users.clear()
        scene.cluster.brokers[1].disconnect_all()
        futures = []
        for n in range(3, 60):
            futures.append(producer.send("t", b"%d" % n, partition=n % PARTITIONS))
            scene.world.advance(0.1)
        done = [f.done() for f in futures]
        assert done.count(True) > 30
        scene.sasl.users["alice"] = PASSWORD
        producer.flush(timeout=10)
        for future in futures:
            future.result(timeout=1)
    assert sorted(scene.numbers()) == list(range(60))


def test_a_producer_that_is_refused_later_keeps_its_records_until_they_expire() -> None:
    scene = Scene()
    config = {"linger_ms": 0, "delivery_timeout_ms": 6000, "request_timeout_ms": 2000}
    with client_of(scene, "producer", **config) as producer:
        producer.send("t", b"0", partition=0).result(timeout=5)
        scene.sasl.users.clear()
        scene.disconnect()
        late = producer.send("t", b"1", partition=1)
        with pytest.raises(KafkaTimeoutError) as caught:
            late.result(timeout=20)
        assert isinstance(caught.value.__cause__, CredentialsRefusedError)
        assert 5.9 < scene.world.now < 7.0
        kept = producer.send("t", b"2", partition=1)
        scene.world.after(3.0, lambda: scene.sasl.users.update(alice=PASSWORD))
        producer.flush(timeout=10)
        kept.result(timeout=1)
    assert scene.numbers() == [0, 2]


@pytest.mark.parametrize("which", ["consumer", "group consumer", "admin"])
def test_a_client_is_refused_after_its_password_changed(which: str) -> None:
    scene = Scene()
    call = CALLS[which][2]
    more = {} if which == "admin" else {"auto_offset_reset": "earliest"}
    with client_of(scene, which, **more) as client:
        scene.write(range(1))
        assert call(client)
        scene.sasl.users["alice"] = "another"
        scene.disconnect()
        began = scene.world.now
        with pytest.raises(CredentialsRefusedError):
            call(client)
        assert scene.world.now - began < 2 * ONE_ATTEMPT
        scene.sasl.users["alice"] = PASSWORD
        scene.world.advance(3.0)
        if which != "admin":
            scene.write(range(1))
        assert call(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_client_continues_after_its_password_is_replaced(mechanism: str) -> None:
    scene = Scene(mechanism=mechanism, session_lifetime=4.0)
    with client_of(scene, "producer", linger_ms=0) as producer:
        producer.send("t", b"0", partition=0).result(timeout=5)
        scene.sasl.users["alice"] = "another"
        producer.set_sasl_credentials("alice", "another")
        for n in range(1, 100):
            producer.send("t", b"%d" % n, partition=0)
            scene.world.advance(0.1)
        producer.flush(timeout=10)
    assert scene.numbers() == list(range(100))
    assert scene.sasl.refused == 0
    assert scene.sasl.reauthenticated >= 2


def test_replacing_the_password_of_a_client_without_one_raises() -> None:
    scene = Scene()
    scene.cluster.sasl = None
    with scene.plain() as admin, pytest.raises(IllegalStateError, match="no SASL") as caught:
        admin.set_sasl_credentials("alice", PASSWORD)
    assert PASSWORD not in str(caught.value)


def test_an_earlier_refusal_by_one_broker_is_not_raised_by_later_calls() -> None:
    scene = Scene(refusing={1})
    config = {"connections_max_idle_ms": 5000, "bootstrap_servers": ",".join(brokers(scene))}
    with client_of(scene, "admin", **config) as admin:
        for _ in range(4):
            admin.list_topics(timeout=5)
            scene.sasl.refusing.clear()
            scene.world.advance(40.0)


def test_a_refusal_at_a_reused_address_is_not_final_while_others_are_unreachable() -> None:
    scene = Scene()
    with client_of(scene, "consumer", auto_offset_reset="earliest") as consumer:
        scene.write(range(1))
        assert CALLS["consumer"][2](consumer)
        scene.sasl.refusing.add(1)
        for i in scene.cluster.brokers:
            scene.cluster.bounce(i, after=0.5 if i == 1 else 4.0)
        scene.world.after(4.0, scene.sasl.refusing.clear)
        with scene.producer() as writer:
            scene.world.after(6.0, lambda: writer.send("t", b"1", partition=0))
            assert consumer.poll(20.0)


def test_an_outage_is_not_reported_as_a_refusal() -> None:
    scene = Scene()
    with client_of(scene, "admin") as admin:
        admin.list_topics()
        every_broker(scene.cluster, "crash")
        with pytest.raises(KafkaTimeoutError) as caught:
            admin.list_topics(timeout=5)
        assert caught.value.__cause__ is None
