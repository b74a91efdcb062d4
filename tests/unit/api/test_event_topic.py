"""Test the producer that publishes a client's events to `events.topic`."""

from __future__ import annotations

from typing import cast

import pytest
from tests.time_limits import HANG_S

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.config import CONSUMER, PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.network.sasl.plain import Plain
from odradek.runtime.events.event_topic import EventTopic, producer_settings


def test_the_events_producer_uses_the_connection_settings_of_its_client() -> None:
    config = Config(
        CONSUMER,
        {
            "bootstrap.servers": "a:1,b:2",
            "client.id": "reader",
            "events.topic": "events",
            "group.id": "g",
            "fetch.min.bytes": 5,
            "reconnect.backoff.ms": 20,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "planted",
            "cluster.id.expected": "x",
        },
    )
    settings = producer_settings(config)
    made = Config(PRODUCER, settings)
    assert made["bootstrap.servers"] == config["bootstrap.servers"]
    assert made["client.id"] == "reader-events"
    assert made["sasl.password"] == config["sasl.password"]
    assert made["reconnect.backoff.ms"] == 0.02
    assert made["cluster.id.expected"] == "x"
    assert made["events.topic"] is None  # no events about the events producer
    assert "planted" not in repr(settings)
    assert "planted" not in repr(EventTopic(config, Producer))


@pytest.mark.slow
def test_the_events_producer_gets_changed_credentials_before_and_after_it_connects() -> None:
    """With the old password, a login would fail every second and might lock the account."""
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "events.topic": "events",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "old",
    }
    with Consumer(config) as client:
        published = client._calls.event_topic
        assert isinstance(published, EventTopic)
        client.set_sasl_credentials("alice", "newer")
        sink = published._open()  # the event queue calls `_open` at the first event
        try:
            assert credentials_of(cast("Producer", sink._producer)) == ("alice", "newer")
            client.set_sasl_credentials("bob", "newest")
            assert credentials_of(cast("Producer", sink._producer)) == ("bob", "newest")
        finally:
            sink.close(0.0)
    # Otherwise the thread that publishes events might log an error during a later test.
    if published.queue._thread is not None:
        published.queue._thread.join(HANG_S)
        assert not published.queue._thread.is_alive()


def credentials_of(producer: Producer) -> tuple[str | None, str]:
    network = producer._engine.network
    assert isinstance(network.mechanism, Plain)
    return network.user, network.mechanism.credentials.password.reveal()


def test_events_can_be_published_to_another_cluster() -> None:
    config = Config(
        PRODUCER,
        bootstrap_servers="a:1",
        events_topic="events",
        events_bootstrap_servers="c:3",
        cluster_id_expected="x",
        transactional_id="t",
        linger_ms=7,
    )
    settings = producer_settings(config)
    made = Config(PRODUCER, settings)
    assert [str(address) for address in made["bootstrap.servers"]] == ["c:3"]
    assert made["cluster.id.expected"] is made["transactional.id"] is None
    assert made["linger.ms"] == 0.1
    with pytest.raises(ConfigurationError, match=r"events\.bootstrap"):
        Config(PRODUCER, bootstrap_servers="a:1", events_bootstrap_servers="no port")
