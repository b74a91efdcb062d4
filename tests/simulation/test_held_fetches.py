"""Other requests don't wait for a fetch that a broker holds because it has no records."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.sasl_scene import Scene as SaslScene
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.common.errors import CredentialsRefusedError
from odradek.common.types import TopicPartition
from odradek.network.connection import SECONDARY_IDLE_S
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers.broker_faults import release
from odradek.simulation.world.environment import Verdict

WAIT = 10.0
"""fetch.max.wait.ms of these consumers in seconds: the time for which brokers hold a fetch.
"""
SOON = 0.05
TPS = [TopicPartition("t", number) for number in range(3)]


class Scene(Stage):
    """One broker, thirty numbers in three partitions, and a reader at the end of some of them."""

    def __init__(self, partitions: int = 3, **config: object) -> None:
        super().__init__(brokers=1)
        self.write(range(30))
        self.reader: Consumer = self.consumer(fetch_max_wait_ms=int(WAIT * 1000), **config)
        self.reader.assign(TPS[:partitions])
        self.read(self.reader, 10 * partitions)
        self.world.advance(1.0)  # now the broker holds a fetch at the ends of the logs

    @property
    def fetches(self) -> int:
        return self.cluster.brokers[1].requests["Fetch"]

    @property
    def purposes(self) -> list[str]:
        """Return the purpose of each connection of the reader."""
        network = self.reader._engine.network
        return sorted(purpose for _, purpose in network.connections)

    def soon(self, count: int) -> list[int]:
        """Return the numbers that arrive within a moment."""
        begin = self.world.now
        found: list[int] = []
        while len(found) < count:
            found += [int(r.value or b"") for r in self.reader.poll(SOON)]
            assert self.world.now - begin < SOON, found
        return sorted(found)


def test_records_after_a_seek_are_fetched_on_a_second_connection() -> None:
    scene = Scene()
    for number in (0, 1, 0):
        scene.reader.seek(TPS[number], 7)
        assert scene.soon(3) == [21 + number, 24 + number, 27 + number]
    assert scene.purposes == ["aside", "data"], "one more connection, for all of them"
    assert scene.reader.poll(SOON) == []
    before = scene.fetches
    scene.world.advance(WAIT / 2)
    assert scene.fetches == before, "what has nothing isn't asked for again and again"


def test_a_seek_to_the_beginning_does_not_wait_for_the_held_fetch() -> None:
    scene = Scene()
    scene.reader.seek_to_beginning(TPS[2:])
    assert scene.soon(10) == list(range(2, 30, 3))


def test_a_resumed_partition_is_fetched_immediately() -> None:
    scene = Scene()
    scene.reader.pause(TPS[:1])
    scene.reader.seek(TPS[0], 0)
    scene.world.advance(WAIT)  # no fetch in flight contains the partition now
    scene.reader.resume(TPS[:1])
    assert scene.soon(10) == list(range(0, 30, 3))


def test_newly_assigned_partitions_are_fetched_immediately() -> None:
    scene = Scene(partitions=1)
    scene.reader.assign(TPS)
    assert len(scene.soon(20)) == 20


def test_a_partition_with_a_new_leader_is_fetched_immediately() -> None:
    """No second connection is needed: simulated brokers answer held fetches when leaders move."""
    stage = Stage(brokers=2, partitions=2)
    stage.write(range(10))
    reader = stage.consumer(fetch_max_wait_ms=int(WAIT * 1000))
    reader.assign(TPS[:2])
    stage.read(reader, 10)
    reader.pause(TPS[:1])
    stage.write(range(10, 20))
    stage.read(reader, 5)
    stage.world.advance(1.0)
    stage.cluster.move_leader("t", 0)
    reader.resume(TPS[:1])
    begin = stage.world.now
    assert stage.read(reader, 5) == [10, 12, 14, 16, 18]
    assert stage.world.now - begin < SOON


def test_new_records_of_a_partition_without_records_arrive_immediately() -> None:
    """A partition whose response on the second connection is empty is in the next held fetch."""
    scene = Scene()
    scene.reader.seek(TPS[0], 10)
    assert scene.reader.poll(SOON) == []
    begin = scene.world.now
    scene.write(range(30, 33))
    assert scene.read(scene.reader, 3) == [30, 31, 32]
    assert scene.world.now - begin < 1.0, "the others' records end the held fetch"


@pytest.mark.parametrize("call", ["end_offsets", "beginning_offsets", "offsets_for_times"])
def test_a_request_for_offsets_does_not_wait_for_the_held_fetch(call: str) -> None:
    scene = Scene()
    begin = scene.world.now
    if call == "offsets_for_times":
        assert scene.reader.offsets_for_times(dict.fromkeys(TPS, 0))[TPS[0]] is not None
    else:
        found = getattr(scene.reader, call)(TPS)
        assert found == dict.fromkeys(TPS, 10 if call == "end_offsets" else 0)
    assert scene.world.now - begin < SOON


def test_a_reader_without_seeks_has_one_connection() -> None:
    stage = Stage(brokers=1)
    stage.write(range(3_000), batch_size=1_000)
    reader = stage.consumer(max_partition_fetch_bytes=1_000, fetch_max_bytes=4_000)
    reader.assign(TPS)
    assert stage.read(reader, 3_000, most=7) == list(range(3_000))
    assert stage.cluster.brokers[1].requests["Fetch"] > 10
    stage.world.advance(2.0)
    assert [purpose for _, purpose in reader._engine.network.connections] == ["data"]


def test_responses_of_a_wrong_cluster_on_a_second_connection_are_not_used() -> None:
    """R-RB-5: requests with topic names aren't sent to a wrong cluster."""
    scene = Scene()
    other = SimulatedCluster(scene.world, 1, "foreign-0001", name="foreign", bootstrap_name=None)
    other.create_topic("t", 3)
    release(other, 1, "3.9")
    scene.world.divert(scene.cluster.brokers[1].address, other.brokers[1])
    assert scene.reader.end_offsets(TPS, 30.0) == dict.fromkeys(TPS, 10)
    scene.reader.seek(TPS[1], 5)
    assert scene.read(scene.reader, 5) == [16, 19, 22, 25, 28]
    assert set(other.brokers[1].requests) <= {"ApiVersions", "DescribeCluster", "Metadata"}


def test_an_error_on_a_second_connection_to_another_broker_has_no_effect() -> None:
    """Before KIP-1242 brokers don't report that another broker was meant."""
    stage = Stage(brokers=2, partitions=2)
    for number in stage.cluster.brokers:
        release(stage.cluster, number, "3.9")
    stage.write(range(20))
    reader = stage.consumer(fetch_max_wait_ms=int(WAIT * 1000))
    reader.assign(TPS[:2])
    stage.read(reader, 20)
    stage.world.advance(1.0)
    first, second = (stage.cluster.leader("t", number) for number in range(2))
    assert first is not None
    assert second is not None
    asked = first.requests["Metadata"] + second.requests["Metadata"]
    stage.world.divert(first.address, second)
    begin = stage.world.now
    assert reader.end_offsets(TPS[:2], 2 * WAIT) == dict.fromkeys(TPS[:2], 10)
    reader.seek(TPS[0], 5)
    assert stage.read(reader, 5) == [10, 12, 14, 16, 18]
    assert stage.world.now - begin < 2 * WAIT
    assert first.requests["Metadata"] + second.requests["Metadata"] == asked, "nothing is wrong"


@pytest.mark.parametrize("latency", [0.05, 0.2])
def test_requests_on_a_slow_second_connection_do_not_wait_for_the_fetch(latency: float) -> None:
    """The broker is distant, or the machine is busy."""
    scene = Scene()
    scene.world.change_link(latency=latency)
    begin = scene.world.now
    assert scene.reader.end_offsets(TPS, 30.0) == dict.fromkeys(TPS, 10)
    assert scene.world.now - begin < 10 * latency


def test_a_request_does_not_wait_longer_for_a_slow_second_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request waits no longer than it would have waited on the first connection."""
    slow = 1000 * int(3 * WAIT)
    scene = Scene(
        socket_connection_setup_timeout_ms=slow, socket_connection_setup_timeout_max_ms=slow
    )
    broker = scene.cluster.brokers[1]
    accept = broker.accept

    def held(peer: Any) -> Any:
        peer.hold(True)
        return accept(peer)

    monkeypatch.setattr(broker, "accept", held)
    begin = scene.world.now
    assert scene.reader.end_offsets(TPS, 30.0) == dict.fromkeys(TPS, 10)
    assert scene.world.now - begin < WAIT


def test_requests_on_a_silent_second_connection_are_sent_again_on_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer's other requests are answered in time."""
    scene, peers = Scene(), list[Any]()
    broker = scene.cluster.brokers[1]
    accept = broker.accept

    def noted(peer: Any) -> Any:
        peers.append(peer)
        return accept(peer)

    monkeypatch.setattr(broker, "accept", noted)
    scene.reader.seek(TPS[0], 9)
    assert scene.soon(1) == [27]
    (aside,) = peers
    aside.hold(True)
    scene.reader.seek(TPS[1], 9)
    scene.write(range(30, 33))
    begin = scene.world.now
    assert scene.read(scene.reader, 4) == [28, 30, 31, 32]
    assert scene.world.now - begin < 4.0, "the suspicion time, not request.timeout.ms"
    assert scene.reader.end_offsets(TPS, 30.0) == dict.fromkeys(TPS, 11)
    assert scene.world.now - begin < 3.0 + WAIT
    assert scene.reader.explain().outage is None


def test_a_partition_without_records_joins_the_next_fetch_of_the_others() -> None:
    """Seek repeatedly in another partition whose responses are slow."""
    stage = Stage(brokers=1, partitions=2)
    stage.write(range(2_000), size=1_000)
    reader = stage.consumer()
    reader.assign(TPS[:2])
    count = 0
    while count < 2_000:
        count += len(reader.poll(1.0, 5_000))
    stage.world.change_link("consumer", bandwidth=1e6)
    stage.world.advance(1.0)
    reader.seek(TPS[0], 1_000)  # beyond the end of the partition
    reader.poll(0.07)
    reader.seek(TPS[1], 0)
    producer = stage.producer()
    began, came = stage.world.now, False
    written = producer.send("t", b"7", partition=0)
    while not came and stage.world.now < began + 10.0:
        for record in reader.poll(0.05, 5_000):
            came = came or record.partition == 0
            if record.partition == 1 and record.offset == 999:
                reader.seek(TPS[1], 0)
    assert written.done()
    assert came
    assert stage.world.now - began < 2.0


def test_a_partition_without_space_in_a_response_is_requested_again() -> None:
    stage = Stage(brokers=1)
    stage.write(range(600), size=1_000)
    reader = stage.consumer(
        fetch_max_wait_ms=int(WAIT * 1000),
        fetch_max_bytes=100_000,
        max_partition_fetch_bytes=60_000,
    )
    reader.assign(TPS)
    count = 0
    while count < 600:
        count += len(reader.poll(1.0))
    reader.poll(SOON)
    stage.world.advance(1.0)
    for partition in TPS:
        reader.seek(partition, 0)
    begin = stage.world.now
    while count < 1_200:
        count += len(reader.poll(SOON))
        assert stage.world.now - begin < 1.0


@pytest.mark.parametrize("verdict", Verdict)
def test_a_failed_second_connection_does_not_count_as_an_outage(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(default_api_timeout_ms=30_000)
    broker = scene.cluster.brokers[1]
    dials, asked = len(scene.world.dials), broker.requests["Metadata"]
    monkeypatch.setattr(broker, "accept", lambda _: verdict)
    end = scene.world.now + 60.0
    while scene.world.now < end:
        scene.reader.seek(TPS[0], 9)
        assert scene.read(scene.reader, 1) == [27]
        assert scene.reader.end_offsets(TPS[:1]) == {TPS[0]: 10}
    assert len(scene.world.dials) - dials <= 8, "fewer and fewer"
    assert broker.requests["Metadata"] == asked
    picture = scene.reader.explain()
    assert picture.outage is None
    assert "It works" in picture.diagnosis
    assert scene.reader.health().ok


def test_a_second_connection_with_refused_credentials_is_retried_rarely() -> None:
    scene = SaslScene()
    scene.write(range(30))
    reader = scene.consumer()
    reader.assign(TPS)
    scene.read(reader, 30)
    scene.world.advance(1.0)
    scene.sasl.users["alice"] = "another"  # existing connections continue
    for number in range(40):
        reader.seek(TPS[number % 3], 9)
        assert len(scene.read(reader, 1)) == 1
        scene.world.advance(0.3)
    assert scene.sasl.refused == 1


def test_refused_credentials_are_reported_although_a_second_connection_is_open() -> None:
    """R-CS-4: an open connection without requests doesn't count as a healthy one."""
    scene = SaslScene()
    scene.write(range(30))
    reader = scene.consumer(fetch_max_wait_ms=int(WAIT * 1000))
    reader.assign(TPS)
    scene.read(reader, 30)
    scene.world.advance(1.0)
    for partition in TPS:
        reader.seek(partition, 9)
    assert len(scene.read(reader, 3)) == 3
    scene.sasl.users["alice"] = "another"
    network = reader._engine.network
    data = [c for (_, purpose), c in network.connections.items() if purpose == "data"]
    assert len(network.connections) > len(data)
    for connection in data:
        network.disconnected(connection.id, ConnectionResetError("reset"))
    begin = scene.world.now
    with pytest.raises(CredentialsRefusedError):
        while True:
            reader.poll(0.5)
            assert scene.world.now - begin < 5.0


def test_a_second_connection_is_closed_soon() -> None:
    scene = Scene()
    scene.reader.seek(TPS[0], 7)
    scene.soon(3)
    assert scene.purposes == ["aside", "data"]
    scene.world.advance(2 * SECONDARY_IDLE_S)
    assert scene.purposes == ["data"]
    scene.reader.seek(TPS[0], 7)
    assert scene.soon(3) == [21, 24, 27]


def test_a_commit_does_not_wait_for_the_lookup_of_its_coordinator() -> None:
    stage = Stage(brokers=1)
    stage.write(range(30))
    reader = stage.consumer(
        group_id="g", enable_auto_commit=False, fetch_max_wait_ms=int(WAIT * 1000)
    )
    reader.assign(dict.fromkeys(TPS, 0))  # with given offsets, no committed offsets are requested
    stage.read(reader, 30)
    stage.world.advance(1.0)
    begin = stage.world.now
    reader.commit(timeout=5.0)
    assert stage.world.now - begin < 0.5, "the group's topic is created meanwhile"
    assert reader.committed(TPS)[TPS[0]] is not None
