"""Admin calls about brokers, replicas, leaders, features and controllers, in virtual time."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.simulation.scene import Stage

from odradek import Admin, ConfigurationError, TopicPartition, UnknownTopicOrPartitionError
from odradek.admin import (
    FeatureUpdate,
    PartitionReassignment,
    RaftVoterEndpoint,
    TopicPartitionReplica,
)
from odradek.common.errors import KafkaTimeoutError
from odradek.errors import (
    BrokerIdNotRegisteredError,
    ControllerIdNotRegisteredError,
    DuplicateVoterError,
    InvalidReplicaAssignmentError,
    InvalidUpdateVersionError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    ReplicaNotAvailableError,
    VoterNotFoundError,
)

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
DIRECTORY = UUID(int=9)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def admin(stage: Stage) -> Admin:
    return stage.client(Admin, background=False)


def test_fenced_brokers_are_listed_only_if_requested(stage: Stage, admin: Admin) -> None:
    assert [b.fenced for b in admin.describe_cluster().brokers] == [None] * 3
    stage.cluster.stop(2)
    assert [b.id for b in admin.describe_cluster().brokers] == [1, 3]
    found = admin.describe_cluster(include_fenced_brokers=True)
    assert [(b.id, b.fenced) for b in found.brokers] == [(1, False), (2, True), (3, False)]


def test_feature_levels_are_described_and_updated(stage: Stage, admin: Admin) -> None:
    before = admin.describe_features()
    assert before.features["transaction.version"].level == 2
    assert before.features["group.version"].highest == 1
    update = {"transaction.version": FeatureUpdate(1, "SAFE_DOWNGRADE")}
    admin.update_features(update, validate_only=True)
    assert admin.describe_features() == before
    admin.update_features(update)
    after = admin.describe_features()
    assert after.features["transaction.version"].level == 1
    assert (after.epoch or 0) > (before.epoch or 0)
    with pytest.raises(InvalidUpdateVersionError, match="9"):
        admin.update_features({"group.version": FeatureUpdate(9)})
    with pytest.raises(ConfigurationError, match="SAFE_DOWNGRADE"):
        admin.update_features({"group.version": FeatureUpdate(1, "DOWN")})


def test_controllers_are_described_added_and_removed(stage: Stage, admin: Admin) -> None:
    found = admin.describe_metadata_quorum()
    assert found.leader_id == stage.cluster.controller_id
    assert [v.id for v in found.voters] == [1, 2, 3]
    assert found.nodes[2][0].port == stage.cluster.brokers[2].address.port
    endpoint = RaftVoterEndpoint("CONTROLLER", "host", 9093)
    admin.add_raft_voter(7, DIRECTORY, [endpoint])
    assert (7, str(DIRECTORY)) in {
        (v.id, v.directory_id) for v in admin.describe_metadata_quorum().voters
    }
    with pytest.raises(DuplicateVoterError, match="7"):
        admin.add_raft_voter(7, str(DIRECTORY), [endpoint])
    admin.remove_raft_voter(7, DIRECTORY)
    with pytest.raises(VoterNotFoundError, match="voter 7"):
        admin.remove_raft_voter(7, DIRECTORY)
    with pytest.raises(ConfigurationError, match="a UUID"):
        admin.remove_raft_voter(7, "seven")


def test_a_broker_can_be_unregistered(stage: Stage, admin: Admin) -> None:
    admin.unregister_broker(3)
    with pytest.raises(BrokerIdNotRegisteredError, match="broker 3"):
        admin.unregister_broker(3)
    with pytest.raises(ControllerIdNotRegisteredError, match="controller 9"):
        admin.unregister_controller(9)


def test_log_directories_are_described(stage: Stage, admin: Admin) -> None:
    stage.write(range(9))
    found = admin.describe_log_dirs()
    assert sorted(found) == [1, 2, 3]
    assert sorted(admin.describe_log_dirs([2])) == [2]
    first, second = found[2]
    assert found[2][first].error is None
    assert found[2][first].replicas[T0].size > 0
    assert not found[2][second].replicas
    assert (found[2][first].total_bytes or 0) > (found[2][first].usable_bytes or 0)
    at, elsewhere = TopicPartitionReplica("t", 0, 2), TopicPartitionReplica("t", 1, 3)
    admin.alter_replica_log_dirs({at: second, elsewhere: first})
    places = admin.describe_replica_log_dirs([at, elsewhere])
    assert [p.current for p in places.values()] == [second, first]
    with pytest.raises(LogDirNotFoundError, match="t-0 on broker 2") as refused:
        admin.alter_replica_log_dirs({at: "/nowhere", elsewhere: second})
    assert list(refused.value.results) == [elsewhere]


def test_describing_a_missing_replica_raises_an_error(admin: Admin, stage: Stage) -> None:
    stage.cluster.create_topic("one", replication_factor=1)
    holder = stage.cluster.topics["one"].partitions[0].replicas[0]
    other = TopicPartitionReplica("one", 0, holder % 3 + 1)
    assert admin.describe_replica_log_dirs([other])[other].current is None
    with pytest.raises(ReplicaNotAvailableError, match=f"one-0 on broker {other.broker}"):
        admin.alter_replica_log_dirs({other: next(iter(admin.describe_log_dirs([1])[1]))})


def test_replica_directories_are_returned_although_one_broker_fails(admin: Admin) -> None:
    here, nowhere = TopicPartitionReplica("t", 0, 2), TopicPartitionReplica("t", 0, 99)
    with pytest.raises(KafkaTimeoutError) as caught:
        admin.describe_replica_log_dirs([here, nowhere], timeout=3)
    assert list(caught.value.errors) == [nowhere]
    assert caught.value.results[here].current is not None


def test_replicas_are_reassigned_between_brokers(stage: Stage, admin: Admin) -> None:
    stage.cluster.create_topic("m", assignments={0: [1, 2]})
    at = TopicPartition("m", 0)
    admin.alter_partition_reassignments({at: [3, 2]})
    assert admin.list_partition_reassignments() == {
        at: PartitionReassignment((3, 2, 1), adding=(3,), removing=(1,))
    }
    assert admin.list_partition_reassignments([T0]) == {}
    stage.world.advance(1.0)
    assert admin.list_partition_reassignments([at]) == {}
    moved = admin.describe_topics("m")["m"].partitions[0]
    assert (moved.replicas, moved.leader) == ((3, 2), 3)
    with pytest.raises(InvalidReplicaAssignmentError, match="partition m-0") as refused:
        admin.alter_partition_reassignments({at: [9], T0: [1]})
    assert list(refused.value.results) == [T0]
    admin.alter_partition_reassignments({at: [1]})
    admin.alter_partition_reassignments({at: None})
    with pytest.raises(NoReassignmentInProgressError, match="m-0"):
        admin.alter_partition_reassignments({at: None})


def test_elect_leaders_returns_the_partitions_with_a_new_leader(stage: Stage, admin: Admin) -> None:
    assert admin.elect_leaders("PREFERRED", [T0, T1]) == []
    stage.cluster.move_leader("t", 1)
    stage.cluster.move_leader("t", 2)
    assert admin.elect_leaders("PREFERRED", [T0, T1]) == [T1]
    assert admin.elect_leaders("PREFERRED") == [T2]
    assert admin.elect_leaders("PREFERRED") == []
    preferred = stage.cluster.topics["t"].partitions[0].replicas[0]
    stage.cluster.stop(preferred)
    gone = TopicPartition("t", 7)
    with pytest.raises(PreferredLeaderNotAvailableError, match="partition t-0") as refused:
        admin.elect_leaders("PREFERRED", [T0, gone])
    assert isinstance(refused.value.errors[gone], UnknownTopicOrPartitionError)
    with pytest.raises(PreferredLeaderNotAvailableError, match="partition t-0"):
        admin.elect_leaders("PREFERRED")
    assert admin.elect_leaders("UNCLEAN", [T0]) == []
    with pytest.raises(ConfigurationError, match="PREFERRED, UNCLEAN"):
        admin.elect_leaders("CLEAN")
