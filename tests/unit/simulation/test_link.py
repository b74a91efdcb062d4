from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.common.types import Address
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation import LinkProfile, SimulatedCluster, World
from odradek.simulation.world.link import Mode

BROKER = ("10.0.0.2", 9092)


def connected(mode: Mode = "bytes", **profile: Any) -> tuple[Any, Any]:
    world = World(5)
    cluster = SimulatedCluster(world, 1)
    client = RawClient(world, mode, LinkProfile(**profile))
    client.dial(*BROKER)
    assert client.connected
    return client, cluster


def test_a_connection_attempt_takes_a_round_trip() -> None:
    client, _ = connected(latency=0.002, jitter=0.0)
    (dial,) = client.world.dials
    assert (dial.at, dial.client, dial.outcome) == (0.004, "raw", "accepted")
    assert (dial.ip, dial.port) == BROKER


def test_a_connection_without_a_listener_is_refused() -> None:
    client = RawClient(World())
    client.dial("10.9.9.9", 9092)
    assert client.lost == ["refused"]
    assert client.world.dials[0].outcome == "refused"


def test_a_connection_to_a_black_hole_gets_no_answer() -> None:
    world = World()
    SimulatedCluster(world, 1)
    world.black_hole(Address(*BROKER), True)
    client = RawClient(world)
    client.dial(*BROKER)
    world.advance(100)
    assert not client.connected
    assert client.lost == []
    assert world.dials[0].outcome == "dropped"


@pytest.mark.parametrize("mode", ["bytes", "messages"])
def test_responses_arrive_in_order_despite_jitter(mode: Mode) -> None:
    client, cluster = connected(mode, latency=0.001, jitter=0.5)
    cluster.create_topic("t", 3)
    for i in range(20):
        if i % 2:
            client.send(DescribeClusterRequest(), 2)
        else:
            client.send(MetadataRequest(None), 13)
    client.world.advance(60)
    names = [m.API_NAME for _, m in client.answers]
    assert names == ["Metadata", "DescribeCluster"] * 10


def test_responses_as_bytes_and_as_messages_arrive_at_the_same_simulated_times() -> None:
    answers = []
    for mode in ("bytes", "messages"):
        client, _ = connected(mode, jitter=0.01)
        for _ in range(30):
            client.send(MetadataRequest(None), 13)
        client.world.advance(60)
        answers.append(client.answers)
    assert len(answers[0]) == 30
    assert answers[0] == answers[1]


def test_the_link_splits_bytes_at_random_positions() -> None:
    client, _ = connected()
    for _ in range(200):
        client.send(MetadataRequest(None), 13)
    client.world.advance(60)
    assert len(client.answers) == 200
    assert 1 in client.deliveries
    assert max(client.deliveries) > 3


def test_a_large_response_arrives_gradually_on_a_slow_link() -> None:
    client, cluster = connected(bandwidth=1000.0)
    for i in range(60):
        cluster.create_topic(f"topic-{i}")
    client.send(MetadataRequest(None), 13)
    client.world.advance(1.0)
    assert client.answers == []
    assert len(client.deliveries) >= 3
    client.world.advance(60)
    assert len(client.answers) == 1
    assert len(client.answers[0][1].topics) == 60


def test_packets_to_a_black_hole_arrive_after_the_fault_is_repaired() -> None:
    client, _ = connected()
    client.link.hold(True)
    client.send(DescribeClusterRequest(), 2)
    client.world.advance(60)
    assert client.answers == []
    client.link.hold(False)
    client.world.advance(1)
    assert len(client.answers) == 1


def test_a_lost_frame_resets_the_connection() -> None:
    client, cluster = connected(loss=1.0)
    client.send(DescribeClusterRequest(), 2)
    client.world.advance(1)
    assert [type(error) for error in client.lost] == [ConnectionResetError]
    assert not cluster.brokers[1].sessions


def test_a_broker_that_stops_sends_its_pending_responses_first() -> None:
    client, cluster = connected(latency=0.1, jitter=0.0)
    client.send(DescribeClusterRequest(), 2)
    client.world.advance(0.101)
    cluster.crash(1)
    client.world.advance(1)
    assert len(client.answers) == 1
    assert client.lost == [None]


def test_a_broker_is_notified_of_a_closed_connection() -> None:
    client, cluster = connected()
    client.send(DescribeClusterRequest(), 2)
    client.link.close_by_client()
    client.world.advance(1)
    assert client.answers == client.lost == []
    assert not cluster.brokers[1].sessions
