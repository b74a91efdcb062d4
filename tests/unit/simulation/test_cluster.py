from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.protocol.messages import produce as p
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.record import BatchBuilder
from odradek.simulation import SimulatedCluster, World

Dial = Callable[..., Any]


@pytest.fixture
def world() -> World:
    return World(11)


@pytest.fixture
def cluster(world: World) -> SimulatedCluster:
    made = SimulatedCluster(world, 3)
    made.create_topic("t", 6)
    return made


@pytest.fixture
def dial(world: World, cluster: SimulatedCluster) -> Dial:
    def dial(broker: int | None = None) -> Any:
        client = RawClient(world)
        client.dial((cluster.brokers[broker] if broker else cluster.front_door).address.host)
        return client

    return dial


def metadata(client: Any, version: int = 13) -> MetadataResponse:
    answer: MetadataResponse | None = client.ask(MetadataRequest(None), version)
    assert answer is not None
    return answer


def leaders(answer: MetadataResponse) -> list[int]:
    return [part.leader_id for topic in answer.topics for part in topic.partitions]


def epochs(answer: MetadataResponse) -> list[int]:
    return [part.leader_epoch for topic in answer.topics for part in topic.partitions]


def produce(client: Any, cluster: SimulatedCluster, value: bytes, partition: int) -> None:
    builder = BatchBuilder(1 << 16, None)
    builder.append(None, value, (), 1000)
    data = p.PartitionProduceData(partition, builder.build())
    topic_id = cluster.topics["t"].id
    client.send(
        p.ProduceRequest(acks=-1, topic_data=[p.TopicProduceData("", topic_id, [data])]), 13
    )


def stored(cluster: SimulatedCluster, partition: int) -> list[bytes | None]:
    return [row[4] for row in cluster.records("t", partition)]


def test_metadata_names_brokers_leaders_and_the_cluster(dial: Dial) -> None:
    answer = metadata(dial())
    assert [b.node_id for b in answer.brokers] == [1, 2, 3]
    assert answer.cluster_id == "simulated-cluster-0001"
    assert leaders(answer) == [1, 2, 3, 1, 2, 3]
    assert epochs(answer) == [0] * 6


def test_partitions_of_a_crashed_broker_get_new_leaders_when_the_controller_notices(
    world: World, cluster: SimulatedCluster, dial: Dial
) -> None:
    client = dial(1)
    cluster.crash(2)
    assert leaders(metadata(client)) == [1, 2, 3, 1, 2, 3]
    assert dial(2).lost == ["refused"]
    world.advance(cluster.session_timeout)
    answer = metadata(client)
    assert [b.node_id for b in answer.brokers] == [1, 3]
    assert leaders(answer) == [1, 3, 3, 1, 3, 3]
    assert epochs(answer) == [0, 1, 0, 0, 1, 0]
    offline = [part.offline_replicas for part in answer.topics[0].partitions]
    assert offline == [[2]] * 6


def test_a_broker_that_restarts_at_once_is_no_longer_a_leader(
    world: World, cluster: SimulatedCluster, dial: Dial
) -> None:
    cluster.bounce(2, after=0.3)
    world.advance(1.0)
    answer = metadata(dial(2))
    assert [b.node_id for b in answer.brokers] == [1, 2, 3]
    assert leaders(answer) == [1, 3, 3, 1, 3, 3]
    assert epochs(answer)[1] == 1


def test_an_orderly_stop_moves_the_brokers_leaderships_first(
    cluster: SimulatedCluster, dial: Dial
) -> None:
    client = dial(1)
    held = dial(2)
    cluster.stop(2)
    assert leaders(metadata(client)) == [1, 3, 3, 1, 3, 3]
    assert held.lost == [None]


def test_a_paused_broker_accepts_connections_and_answers_later(
    world: World, cluster: SimulatedCluster, dial: Dial
) -> None:
    cluster.pause(1)
    client = dial(1)
    assert client.connected
    assert client.ask(ApiVersionsRequest(), 4, 1.0) is None
    cluster.resume(1)
    world.advance(1.0)
    assert len(client.answers) == 1


def test_a_broker_that_was_paused_too_long_loses_its_leaderships(
    world: World, cluster: SimulatedCluster, dial: Dial
) -> None:
    cluster.pause(1)
    world.advance(10.0)
    assert leaders(metadata(dial(2))) == [2, 2, 3, 2, 2, 3]
    cluster.resume(1)
    world.advance(1.0)
    assert [b.node_id for b in metadata(dial(1)).brokers] == [1, 2, 3]


def test_packets_to_a_black_hole_broker_are_kept_until_the_fault_is_repaired(
    world: World, cluster: SimulatedCluster, dial: Dial
) -> None:
    client = dial(1)
    cluster.blackhole(1)
    assert client.ask(MetadataRequest(None), 13, 1.0) is None
    late = dial(1)
    assert not late.connected
    assert late.lost == client.lost == []
    cluster.repair(1)
    world.advance(1.0)
    assert len(client.answers) == 1


def test_a_broker_can_reset_connections_after_accepting_them(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    held = dial(1)
    cluster.accept_then_reset(1)
    client = dial(1)
    world.advance(0.1)
    assert client.connected
    lost = [*client.lost, *held.lost]
    assert [type(error) for error in lost] == [ConnectionResetError] * 2


def test_a_broker_can_close_connections_after_the_handshake(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    cluster.ready_then_close(1)
    client = dial(1)
    assert client.ask(ApiVersionsRequest(), 4) is not None
    world.advance(0.1)
    assert client.lost == [None]


def test_a_silent_broker_never_answers_requests(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    cluster.go_silent(1)
    client = dial(1)
    assert client.connected
    assert client.ask(MetadataRequest(None), 13, 60.0) is None
    cluster.repair(1)
    world.advance(60.0)
    assert client.answers == []


def test_the_bootstrap_address_connects_to_any_running_broker(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    for i in (1, 3):
        cluster.crash(i)
    assert dial().connected
    assert len(cluster.brokers[2].sessions) == 1
    cluster.crash(2)
    assert dial().lost == ["refused"]
    name = cluster.bootstrap_servers.rpartition(":")[0]
    assert world.dns[name] == [cluster.front_door.address.host]


@pytest.mark.parametrize("old", ["refused", "blackholed"])
def test_a_moved_cluster_keeps_its_data_and_id_and_changes_its_addresses(
    cluster: SimulatedCluster, world: World, dial: Dial, old: Any
) -> None:
    client = dial(1)
    produce(client, cluster, b"kept", 0)
    world.advance(0.1)
    places = {b.address for b in cluster.brokers.values()}
    cluster.move(after=5.0, old=old)
    world.advance(1.0)
    assert client.lost == ([None] if old == "refused" else [])
    assert dial().lost == ["refused"]
    assert dial(1).lost == (["refused"] if old == "refused" else [])
    world.advance(5.0)
    answer = metadata(dial())
    assert answer.cluster_id == "simulated-cluster-0001"
    assert len(answer.brokers) == 3
    assert not places & {b.address for b in cluster.brokers.values()}
    assert all(leader > 0 for leader in leaders(answer))
    assert min(epochs(answer)) > 0
    assert stored(cluster, 0) == [b"kept"]


@pytest.mark.parametrize("recycle", [False, True])
def test_a_different_cluster_answers_at_the_same_address(
    cluster: SimulatedCluster, world: World, dial: Dial, recycle: bool
) -> None:
    client = dial(1)
    produce(client, cluster, b"ours", 0)
    world.advance(0.1)
    foreign = cluster.replace_with_foreign(recycle_addresses=recycle)
    world.advance(1.0)
    assert client.lost == [None]
    answer = metadata(dial())
    assert answer.cluster_id == "foreign-cluster-0002"
    assert answer.topics[0].topic_id != cluster.topics["t"].id
    assert dial(1).connected is recycle
    assert foreign.records("t", 0) == []
    assert foreign.bootstrap_servers == cluster.bootstrap_servers


def test_acknowledged_records_survive_any_number_of_crashes(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    kept = []
    for i in range(30):
        leader = cluster.leader("t", 0)
        assert leader is not None
        client = dial(leader.id)
        produce(client, cluster, b"%d" % i, 0)
        world.advance(0.0002 * (i % 12))
        cluster.crash(leader.id)
        world.advance(3.0)
        if client.answers:
            answer = client.answers[0][1].responses[0].partition_responses[0]
            assert answer.error_code == 0
            kept.append((answer.base_offset, b"%d" % i))
        cluster.restart(leader.id)
        world.advance(1.0)
    rows = {row[0]: row[4] for row in cluster.records("t", 0)}
    assert 0 < len(kept) < 30  # some records were acknowledged, some not
    assert len(rows) > len(kept)  # some unacknowledged records are stored
    assert len(rows) < 30  # some unacknowledged records are lost
    assert [rows[offset] for offset, _ in kept] == [value for _, value in kept]


def test_a_batch_whose_leader_changes_during_replication_gets_an_error_but_is_stored(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    cluster.replication_delay = 1.0
    client = dial(1)
    produce(client, cluster, b"value", 0)
    world.advance(0.5)
    assert stored(cluster, 0) == []
    cluster.move_leader("t", 0, to=2)
    world.advance(0.1)
    answer = client.answers[0][1].responses[0].partition_responses[0]
    assert (answer.error_code, answer.current_leader.leader_id) == (6, 2)
    assert stored(cluster, 0) == [b"value"]


def test_without_running_brokers_no_partition_has_a_leader(
    cluster: SimulatedCluster, world: World, dial: Dial
) -> None:
    for i in cluster.brokers:
        cluster.crash(i)
    world.advance(10.0)
    cluster.restart(3)
    world.advance(0.01)  # the broker listens, but isn't registered yet
    assert set(leaders(metadata(dial(3)))) == {-1}
    world.advance(1.0)
    assert set(leaders(metadata(dial(3)))) == {3}


def test_metadata_responses_can_be_replaced_with_empty_ones_or_errors(
    cluster: SimulatedCluster, dial: Dial
) -> None:
    client = dial(1)
    cluster.answer_empty_brokers()
    assert metadata(client).brokers == []
    cluster.answer_empty_brokers(False)
    cluster.answer_129()
    assert metadata(client).error_code == 129
    assert metadata(client, 12).error_code == 0
    cluster.answer_129(False)
    assert len(metadata(client).brokers) == 3


def test_observers_are_notified_of_each_request(cluster: SimulatedCluster, dial: Dial) -> None:
    seen: list[tuple[int, str, int]] = []
    cluster.observers.append(lambda broker, client, r: seen.append((broker.id, client, r.version)))
    metadata(dial(2), 11)
    assert seen == [(2, "raw", 11)]
