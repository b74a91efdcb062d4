"""R-CS-9: a client's first connection attempt is delayed randomly (`reconnect.first.jitter.ms`)."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.explain.explanation import Explanation
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition

P0 = TopicPartition("t", 0)
CLIENTS = 40


def test_clients_that_start_together_connect_at_different_times() -> None:
    stage = Stage()
    fleet = [
        stage.client(Producer, f"p{n}", reconnect_first_jitter_ms=10_000) for n in range(CLIENTS)
    ]
    begin = stage.world.now
    for producer in fleet:
        producer.send("t", b"x")
    stage.world.advance(12.0)
    first: dict[str, float] = {}
    for dial in stage.world.dials:
        first.setdefault(dial.client, dial.at - begin)
    assert len(first) == CLIENTS
    waits = sorted(first.values())
    assert waits[0] < 1.5
    assert 8.5 < waits[-1] <= 10.0
    for n in range(10):  # attempts are spread over all ten seconds
        assert sum(n <= wait < n + 1 for wait in waits) <= CLIENTS / 3
    for producer in fleet:
        producer.flush(timeout=5.0)
        producer.close()


def test_only_the_first_attempt_of_a_client_is_delayed() -> None:
    stage = Stage()
    producer = stage.producer(reconnect_first_jitter_ms=5_000)
    producer.send("t", b"x").result(timeout=10.0)
    stage.disconnect()
    begin = stage.world.now
    producer.send("t", b"x").result(timeout=10.0)
    assert stage.world.now - begin < 1.0
    producer.close()


def test_by_default_the_first_connection_attempt_is_not_delayed() -> None:
    stage = Stage()
    begin = stage.world.now
    with stage.client(Admin) as admin:
        admin.list_topics(1.0)
        assert stage.world.now - begin < 0.1


@pytest.mark.parametrize("background", [False, True])
def test_a_call_keeps_its_timeout_and_explain_reports_the_delay(background: bool) -> None:
    stage = Stage(seed=3)
    admin = stage.client(Admin, background=background, reconnect_first_jitter_ms=600_000)
    pictures: list[Explanation] = []
    begin = stage.world.now
    stage.world.after(1.0, lambda: pictures.append(admin.explain()))
    with pytest.raises(KafkaTimeoutError):
        admin.list_topics(2.0)
    assert stage.world.now - begin == pytest.approx(2.0, abs=0.1)
    (picture,) = pictures
    assert "the first connection attempt is in " in picture.diagnosis
    assert "reconnect.first.jitter.ms" in picture.addresses[0].next_dial_after
    assert stage.world.dials == []
    assert not stage.world.hot_loops
    admin.close()


def test_a_consumer_with_a_bootstrap_hint_is_delayed_too() -> None:
    """The hint contains the brokers, so the first fetch needs no metadata request."""
    stage = Stage()
    stage.write(range(3))
    with stage.consumer(name="first") as first:
        first.assign([P0])
        first.poll(1.0)
        hint = first.bootstrap_hint()
    begin, before = stage.world.now, len(stage.world.dials)
    host = stage.world.host("second", background=True)
    settings = stage.settings(reconnect_first_jitter_ms=60_000, auto_offset_reset="earliest")
    with on_host(host, Consumer, settings, bootstrap_hint=hint) as second:
        second.assign([P0])
        while not second.poll(1.0):
            assert stage.world.now - begin < 61
        first_dial = stage.world.dials[before]
    assert 0.5 < first_dial.at - begin <= 60.0


def test_a_recreated_engine_is_not_delayed_again() -> None:
    """An interruption during a step replaces the engine; the client connected long ago."""
    stage = Stage()
    with stage.client(Admin, reconnect_first_jitter_ms=3_600_000) as admin:
        admin._calls._renew()
        begin = stage.world.now
        assert admin.list_topics(5.0) == ["t"]
        assert stage.world.now - begin < 0.5
