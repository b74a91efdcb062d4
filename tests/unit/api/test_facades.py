"""Test what all kinds of clients have in common: timeouts, close, `repr`, configuration."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Consumer, Producer, TopicPartition
from odradek.api.base import on_host
from odradek.common.arguments import checked_timeout
from odradek.common.errors import (
    ArgumentError,
    ClientBrokenError,
    ClientClosedError,
    ConfigurationError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.simulation import SimulatedCluster, World

FACADES = (Producer, Consumer, Admin)
SERVERS = "127.0.0.1:1"


def simulated_admin() -> tuple[World, SimulatedCluster, Admin]:
    world = World(seed=5)
    cluster = SimulatedCluster(world, brokers=3)
    host = world.host("admin", background=False)
    return world, cluster, on_host(host, Admin, bootstrap_servers=cluster.bootstrap_servers)


@pytest.mark.parametrize("bad", [-1, -0.001, math.nan])
def test_a_negative_or_nan_timeout_is_rejected(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        checked_timeout(bad)


def test_a_timeout_may_be_zero_or_infinite() -> None:
    assert checked_timeout(0) == 0
    assert math.isfinite(checked_timeout(math.inf))


@pytest.mark.parametrize("facade", FACADES)
def test_an_unused_client_may_be_closed_twice_and_its_repr_says_closed(facade: Any) -> None:
    with facade(bootstrap_servers=SERVERS, client_id="me") as client:
        assert repr(client) == f"<{facade.__name__} me of {SERVERS}>"
    client.close()
    assert repr(client).endswith("closed>")


@pytest.mark.parametrize("facade", FACADES)
def test_a_client_checks_its_configuration_when_it_is_created(facade: Any) -> None:
    with pytest.raises(ConfigurationError, match="did you mean retry"):
        facade({"bootstrap.servers": SERVERS, "retry.backof.ms": 1})
    with pytest.raises(ConfigurationError, match="twice"):
        facade({"bootstrap.servers": SERVERS}, bootstrap_servers=SERVERS)


def test_calls_on_a_closed_or_broken_client_raise_the_reason() -> None:
    _, _, admin = simulated_admin()
    admin.close()
    with pytest.raises(ClientClosedError, match="Admin is closed"):
        admin.list_topics()
    _, _, broken = simulated_admin()
    broken.list_topics()

    def bug(_: float) -> None:
        raise ZeroDivisionError("division by zero")

    broken._engine.post(bug)
    for _ in range(2):
        with pytest.raises(ClientBrokenError, match="division"):
            broken.list_topics()
    broken.close()


@pytest.mark.slow
def test_events_are_written_to_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_EVENTS_DIR", str(tmp_path))
    with (
        Consumer(bootstrap_servers=SERVERS, client_id="c1") as client,
        pytest.raises(KafkaTimeoutError, match=SERVERS),
    ):
        client.end_offsets([TopicPartition("t", 0)], timeout=0.5)
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["client"] for line in lines} == {"c1"}
    assert {"dial", "dial_failed"} <= {line["kind"] for line in lines}


@pytest.mark.parametrize("strategy", ["none", "rebootstrap"])
def test_poll_raises_after_a_minute_of_outage_only_without_metadata_recovery(
    monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """R-RB-6: `poll` raises only with `metadata.recovery.strategy=none`."""
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=1)
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "metadata.recovery.strategy": strategy,
    }
    host = world.host("c")
    with on_host(host, Consumer, config) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(1.0)
        cluster.crash(1)
        consumer.poll(5.0)
        monkeypatch.setattr(host, "run", lambda *_: False)
        assert consumer.poll(0.1) == []
        world.advance(60.0)
        if strategy == "rebootstrap":
            assert consumer.poll(0.1) == []
        else:
            with pytest.raises(NoBrokerAvailableError):
                consumer.poll(0.1)
        monkeypatch.undo()


@pytest.mark.parametrize("hint", [{"brokers": []}, {"brokers": 1, "topics": {}}, [1], "hint", 1.5])
def test_a_bootstrap_hint_that_no_consumer_returned_is_rejected(hint: Any) -> None:
    with pytest.raises(ArgumentError, match="bootstrap_hint must be the result of Consumer"):
        Consumer(bootstrap_servers="h:1", bootstrap_hint=hint)


def test_an_empty_bootstrap_hint_is_ignored() -> None:
    with Consumer(bootstrap_servers="h:1") as one:
        hint = one.bootstrap_hint()
    assert hint == {}
    Consumer(bootstrap_servers="h:1", bootstrap_hint=hint).close()


def test_a_type_error_names_the_public_method() -> None:
    with (
        Producer(bootstrap_servers=SERVERS) as producer,
        pytest.raises(TypeError, match=r"^Producer\.send\(\) got an unexpected keyword"),
    ):
        producer.send("t", b"x", valeu=b"y")  # type: ignore[call-arg]
