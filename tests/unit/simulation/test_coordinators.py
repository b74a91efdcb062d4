from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.common.errors import kafka as errors
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation import SimulatedBroker, SimulatedCluster, World
from odradek.simulation.coordinators.group_coordinator import GroupShard
from odradek.simulation.coordinators.shards import (
    CoordinatorTopic,
    Leadership,
    java_hash,
    partition_for,
)

TOPIC = "__consumer_offsets"
KIND = 7
"""A coordinator key type that Kafka doesn't define."""


class Notes:
    """A coordinator's state of one partition: the last value of each key."""

    def __init__(self, leadership: Leadership[Notes]) -> None:
        self.leadership = leadership
        self.kept: dict[Any, Any] = {}
        self.is_loaded = False
        self.is_stopped = False

    def replay(self, key: Any, value: Any) -> None:
        self.kept[key] = value

    def loaded(self) -> None:
        self.is_loaded = True

    def stopped(self) -> None:
        self.is_stopped = True

    @staticmethod
    def fold(entries: Any) -> dict[Any, Any]:
        return dict(entries)


class Setting:
    """Three brokers with one internal topic, and a raw client that is connected to broker 1."""

    def __init__(self) -> None:
        self.world = World(3)
        self.cluster = SimulatedCluster(self.world, 3)
        self.topic = CoordinatorTopic(self.cluster, TOPIC, Notes)
        self.cluster.coordinators[KIND] = self.topic
        self.client = RawClient(self.world)
        self.client.dial(self.cluster.brokers[1].address.host)

    def find(self, key: str, version: int = 6) -> Any:
        """Send FindCoordinator to broker 1 and return the part of the response about one key."""
        request = FindCoordinatorRequest(key_type=KIND)
        if version < 4:
            request.key = key
            return self.client.ask(request, version)
        request.coordinator_keys = [key]
        return self.client.ask(request, version).coordinators[0]

    def there(self, key: str = "g") -> int:
        """Wait until a key has a coordinator, and return its broker id."""
        self.find(key)
        self.world.advance(0.1)
        found = self.find(key)
        assert found.error_code == 0
        return int(found.node_id)

    def leader(self, key: str = "g") -> SimulatedBroker:
        found = self.cluster.leader(TOPIC, self.topic.index(key))
        assert found is not None
        return found

    def shard(self, broker: int, key: str = "g") -> Notes:
        return self.topic.shard(self.cluster.brokers[broker], key)


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_string_hashes_equal_those_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("\U0001f600") == (31 * 0xD83D + 0xDE00)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22


@pytest.mark.parametrize("version", range(4, 7))
def test_the_internal_topic_is_created_at_the_first_lookup(setting: Setting, version: int) -> None:
    assert setting.find("g", version).error_code == errors.CoordinatorNotAvailableError.code
    setting.world.advance(0.1)
    found = setting.find("g", version)
    leader = setting.leader()
    assert setting.topic.index("g") == partition_for("g", 50)
    assert (found.key, found.node_id, found.error_code) == ("g", leader.id, 0)
    assert (found.host, found.port) == (leader.address.host, leader.address.port)
    metadata = setting.client.ask(MetadataRequest(topics=None), 13)
    assert {t.name: t.is_internal for t in metadata.topics} == {TOPIC: True}


def test_old_request_versions_find_a_coordinator_and_unknown_key_types_are_rejected(
    setting: Setting,
) -> None:
    node = setting.there()
    assert setting.find("g", 3).node_id == node
    assert setting.client.ask(FindCoordinatorRequest("g", KIND - 1), 3).error_code == 42


def test_find_coordinator_version_0_finds_only_group_coordinators(setting: Setting) -> None:
    setting.cluster.coordinators[0] = setting.cluster.coordinators.pop(KIND)
    assert setting.client.ask(FindCoordinatorRequest("g"), 0).error_code == 15
    setting.world.advance(0.1)
    assert setting.client.ask(FindCoordinatorRequest("g"), 0).error_code == 0


def test_only_the_coordinator_of_a_key_accepts_requests_for_the_key(setting: Setting) -> None:
    node = setting.there()
    assert setting.shard(node).kept == {}
    for other in {1, 2, 3} - {node}:
        with pytest.raises(errors.NotCoordinatorError):
            setting.shard(other)


def test_entries_in_the_coordinators_log_survive_a_failover(setting: Setting) -> None:
    node = setting.there()
    settled: list[bool] = []
    old = setting.shard(node)
    old.leadership.write([(("a",), 1), (("b",), 2)], settled.append)
    assert settled == []
    setting.world.advance(0.01)
    old.leadership.write([(("b",), None)], settled.append)
    setting.world.advance(0.01)
    assert settled == [True, True]
    setting.cluster.crash(node)
    setting.world.advance(setting.cluster.session_timeout + 0.001)
    heir = setting.leader()
    assert heir.id != node
    assert old.is_stopped
    with pytest.raises(errors.CoordinatorLoadInProgressError):
        setting.shard(heir.id)
    setting.world.advance(0.1)
    assert setting.shard(heir.id).kept == {("a",): 1, ("b",): None}
    assert setting.shard(heir.id).is_loaded
    with pytest.raises(errors.NotCoordinatorError):
        setting.shard(node)


def test_entries_not_yet_replicated_may_be_lost_or_kept_at_a_crash() -> None:
    kept = set()
    for attempt in range(12):
        setting = Setting()
        key = f"g{attempt}"
        node = setting.there(key)
        settled: list[bool] = []
        setting.shard(node, key).leadership.write([(("a",), 1)], settled.append)
        setting.cluster.crash(node)
        assert settled == [False]
        setting.world.advance(3)
        kept.add(setting.shard(setting.leader(key).id, key).kept.get(("a",)))
    assert kept == {None, 1}


def test_moving_a_coordinator_stops_the_old_one_and_its_timers_at_once(setting: Setting) -> None:
    node = setting.there()
    old = setting.shard(node)
    fired: list[float] = []
    old.leadership.after(0.5, lambda: fired.append(setting.world.now))
    setting.cluster.move_leader(TOPIC, setting.topic.index("g"))
    assert old.is_stopped
    assert not old.leadership.held
    setting.world.advance(1.0)
    assert fired == []
    assert [s.kept for s in setting.topic.shards() if s.leadership.epoch == 1] == [{}]


def test_timers_of_a_paused_coordinator_fire_after_it_resumes(setting: Setting) -> None:
    node = setting.there()
    fired: list[float] = []
    shard = setting.shard(node)
    begun = setting.world.now
    shard.leadership.after(0.5, lambda: fired.append(setting.world.now - begun))
    shard.leadership.after(0.5, lambda: fired.append(-1.0)).cancel()
    setting.cluster.pause(node)
    setting.world.advance(1.0)
    assert fired == []
    setting.cluster.resume(node)
    setting.world.advance(1.0)
    assert fired == [pytest.approx(1.0, abs=0.06)]


def test_without_a_running_replica_there_is_no_coordinator(setting: Setting) -> None:
    setting.there()
    for i in (2, 3):
        setting.cluster.crash(i)
    setting.world.advance(3)
    keys = [f"g{i}" for i in range(30)]
    assert {setting.find(k).node_id for k in keys} == {1}
    setting.cluster.topics[TOPIC].partitions[setting.topic.index("g")].replicas[:] = [2, 3]
    setting.cluster.brokers[1].registered = False
    assert setting.find("g").error_code == errors.CoordinatorNotAvailableError.code


def test_a_broker_with_stale_metadata_names_the_old_coordinator(setting: Setting) -> None:
    node = setting.there()
    setting.cluster.stale_metadata(1)
    setting.cluster.move_leader(TOPIC, setting.topic.index("g"))
    assert setting.find("g").node_id == node
    setting.cluster.stale_metadata(1, on=False)
    assert setting.find("g").node_id != node


def test_entries_survive_a_compaction_of_the_coordinators_log_and_a_failover(
    setting: Setting,
) -> None:
    node = setting.there()
    leadership = setting.shard(node).leadership
    for n in range(20):
        leadership.write([((f"key {n % 3}",), n)], lambda _: None)
        setting.world.advance(0.01)
    setting.topic.compact(most=20)
    assert len(leadership.partition.log.batches) == 20
    setting.topic.compact(most=10)
    assert len(leadership.partition.log.batches) == 1
    assert len(setting.topic.entries) == 1
    setting.cluster.move_leader(TOPIC, partition_for("g", 50))
    setting.world.advance(1.0)
    again = setting.shard(setting.there())
    assert again.kept == {("key 0",): 18, ("key 1",): 19, ("key 2",): 17}


def test_compaction_merges_the_offsets_of_committed_transactions() -> None:
    entries = [
        (("offset", "g", "t", 0), 1),
        (("pending", "g", "t", 0, 1000), 2),
        (("pending", "g", "t", 1, 1001), 3),
        (("end", 1000), True),
        (("pending", "g", "t", 0, 1000), 4),
        (("end", 1001), False),
    ]
    assert GroupShard.fold(entries) == {
        ("offset", "g", "t", 0): 2,
        ("pending", "g", "t", 0, 1000): 4,
    }
