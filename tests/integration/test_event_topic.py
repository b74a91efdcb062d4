"""Test `events.topic` with real brokers: the topic contains the events that a listener gets."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.interop.our_client import read

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.clients.calls import client_calls
from odradek.testing import LocalCluster


def test_a_client_publishes_its_events_without_waiting(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.client_config()
    with Admin(config) as admin:
        admin.create_topics([NewTopic(name, 2, 1) for name in (topic, f"{topic}-events")])
    heard: list[str] = []
    told = {"client.id": "teller", "events.topic": f"{topic}-events"}
    with monkeypatch.context() as patched, Producer({**config, **told}) as producer:
        patched.setattr(client_calls, "EVENTS_TIMEOUT", 30.0)  # a busy machine may take over 1 s
        producer.listen(lambda event: heard.append(event.kind))
        producer.send(topic, b"x").result(30)
    lines = published(config, f"{topic}-events", len(heard))
    assert [line["kind"] for line in lines] == heard
    assert {line["client"] for line in lines} == {"teller"}
    assert {"dial", "ready", "metadata"} <= set(heard)

    nowhere = {**told, "events.bootstrap.servers": "127.0.0.1:1"}
    with Producer({**config, **nowhere}) as producer:
        begin = time.monotonic()
        producer.send(topic, b"x").result(30)
        assert time.monotonic() - begin < 10
        begin = time.monotonic()
    assert time.monotonic() - begin < 10


def published(config: dict[str, str], topic: str, count: int) -> list[dict[str, Any]]:
    """Return the events of one client, which are in one partition, in order."""
    with Consumer(config, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(2)])
        return [json.loads(record.value or b"") for record in read(consumer, count)]
