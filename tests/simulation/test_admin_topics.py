"""Admin calls about topics, their configuration and offsets, in virtual time (R-RT-4)."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.simulation.scene import Stage

from odradek import (
    Admin,
    ConfigurationError,
    NewTopic,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from odradek.admin import AlterConfigOp, ConfigResource, NewPartitions
from odradek.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from odradek.simulation.brokers.injected_errors import Injection

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def admin(stage: Stage) -> Admin:
    return stage.client(Admin, background=False)


def test_results_of_other_topics_are_kept_if_one_topic_fails(stage: Stage, admin: Admin) -> None:
    with pytest.raises(TopicAlreadyExistsError, match=r"\(36\): Topic 't' already exists") as made:
        admin.create_topics([NewTopic("new", 2, 1), NewTopic("t"), NewTopic("also", 1, 1)])
    assert list(made.value.results) == ["new", "also"]
    assert len(made.value.results["new"].partitions) == 2
    assert list(made.value.errors) == ["t"]
    assert made.value.__notes__ == [
        (
            "1 of 3 items failed: this error's `errors` has the error of each, its `results` the "
            "result of each other item."
        )
    ]
    with pytest.raises(UnknownTopicOrPartitionError, match="topic gone") as described:
        admin.describe_topics(["gone", "t", "lost"])
    assert list(described.value.errors) == ["gone", "lost"]
    assert described.value.results["t"].name == "t"
    with pytest.raises(UnknownTopicOrPartitionError) as deleted:
        admin.delete_topics(["new", "gone"])
    assert list(deleted.value.results) == ["new"]
    assert admin.list_topics() == ["also", "t"]


def test_topics_are_described_and_deleted_by_id(stage: Stage, admin: Admin) -> None:
    topic_id = UUID(admin.describe_topics("t")["t"].topic_id or "")
    nobody = UUID(int=7)
    assert admin.describe_topics(topic_id) == admin.describe_topics(["t"])
    with pytest.raises(UnknownTopicIdError, match=str(nobody)):
        admin.describe_topics([nobody, topic_id])
    with pytest.raises(UnknownTopicIdError) as deleted:
        admin.delete_topics([topic_id, nobody])
    assert list(deleted.value.results) == [topic_id]
    assert admin.list_topics() == []


def test_a_topic_is_created_on_the_given_brokers(stage: Stage, admin: Admin) -> None:
    made = admin.create_topics([NewTopic("n", replica_assignment={0: [3, 1], 1: [2]})])["n"]
    assert [p.replicas for p in made.partitions] == [(3, 1), (2,)]
    with pytest.raises(ConfigurationError, match="replica_assignment already"):
        admin.create_topics([NewTopic("m", 2, replica_assignment={0: [1]})])


def test_partitions_are_added_to_a_topic(stage: Stage, admin: Admin) -> None:
    admin.create_partitions({"t": 5}, validate_only=True)
    assert len(stage.cluster.topics["t"].partitions) == 3
    admin.create_partitions({"t": 4})
    admin.create_partitions({"t": NewPartitions(5, [[3, 1]])})
    found = admin.describe_topics("t")["t"]
    assert len(found.partitions) == 5
    assert found.partitions[4].replicas == (3, 1)
    with pytest.raises(InvalidPartitionsError, match="topic t.*5 partitions") as refused:
        admin.create_partitions({"t": 2, "gone": 3})
    assert isinstance(refused.value.errors["gone"], UnknownTopicOrPartitionError)
    with pytest.raises(InvalidReplicaAssignmentError):
        admin.create_partitions({"t": NewPartitions(7, [[1]])})


def test_records_are_deleted_by_each_leader(stage: Stage, admin: Admin) -> None:
    stage.write(range(30))
    assert admin.delete_records({T0: 4, T1: -1}) == {T0: 4, T1: 10}
    with pytest.raises(OffsetOutOfRangeError, match="partition t-2") as refused:
        admin.delete_records({T2: 11, T0: 5, TopicPartition("t", 9): 1})
    assert refused.value.results == {T0: 5}
    missing = refused.value.errors[TopicPartition("t", 9)]
    assert isinstance(missing, UnknownTopicOrPartitionError)
    assert "topic t has 3 partitions" in str(missing)
    assert stage.cluster.log("t", 0).start_offset == 5


# Configuration

TOPIC = ConfigResource("TOPIC", "t")


def test_topic_options_are_changed_individually(stage: Stage, admin: Admin) -> None:
    before = admin.describe_configs([TOPIC])[TOPIC]
    assert before["retention.ms"].default
    assert before["retention.ms"].type == "LONG"
    admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", "1000")]})
    admin.incremental_alter_configs({TOPIC: [AlterConfigOp("cleanup.policy", "compact", "APPEND")]})
    changes = {TOPIC: [AlterConfigOp("retention.ms", "5")]}
    admin.incremental_alter_configs(changes, validate_only=True)
    found = admin.describe_configs(
        [TOPIC], names=["retention.ms", "cleanup.policy"], include_synonyms=True
    )[TOPIC]
    assert {name: entry.value for name, entry in found.items()} == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "1000",
    }
    assert found["retention.ms"].source == "DYNAMIC_TOPIC_CONFIG"
    assert [s.value for s in found["retention.ms"].synonyms] == ["1000", "604800000"]
    admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", operation="DELETE")]})
    assert admin.describe_configs([TOPIC])[TOPIC]["retention.ms"] == before["retention.ms"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("nosuch", "1", "Unknown topic config name: nosuch"),
        ("retention.ms", "soon", "Invalid value soon .* Not a number of type LONG"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("preallocate", "maybe", "either true or false"),
    ],
)
def test_an_unknown_option_is_refused_when_a_topic_is_created(
    stage: Stage, admin: Admin, name: str, value: str, says: str
) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        admin.incremental_alter_configs({TOPIC: [AlterConfigOp(name, value)]})
    with pytest.raises(InvalidConfigError, match=says):
        admin.create_topics([NewTopic("new", configs={name: value})])
    assert "new" not in stage.cluster.topics
    admin.create_topics([NewTopic("new", configs={"min.cleanable.dirty.ratio": "0.5"})])


def test_the_configuration_of_a_broker_is_requested_from_that_broker(
    stage: Stage, admin: Admin
) -> None:
    third, default = ConfigResource("BROKER", "3"), ConfigResource("BROKER", "")
    logger = ConfigResource("BROKER_LOGGER", "2")
    admin.incremental_alter_configs(
        {
            default: [AlterConfigOp("num.io.threads", "9")],
            third: [AlterConfigOp("num.io.threads", "12")],
            logger: [AlterConfigOp("root", "DEBUG")],
        }
    )
    found = admin.describe_configs([third, ConfigResource("BROKER", "1"), logger, TOPIC])
    assert found[third]["num.io.threads"].value == "12"
    assert found[third]["num.io.threads"].source == "DYNAMIC_BROKER_CONFIG"
    assert found[ConfigResource("BROKER", "1")]["num.io.threads"].value == "9"
    assert found[logger]["root"].value == "DEBUG"
    assert list(found[TOPIC])
    assert stage.cluster.brokers[2].requests["DescribeConfigs"] >= 1
    assert stage.cluster.brokers[3].requests["IncrementalAlterConfigs"] >= 1


def test_describing_the_configuration_of_a_missing_broker_names_the_broker(
    stage: Stage, admin: Admin
) -> None:
    gone = ConfigResource("BROKER", "9")
    begin = stage.world.now
    with pytest.raises(Exception, match="of broker 9") as late:
        admin.describe_configs([gone, TOPIC], timeout=3)
    assert stage.world.now - begin <= 3.1
    assert list(late.value.results) == [TOPIC]  # type: ignore[attr-defined]  # a KafkaError
    assert "(its brokers: 1, 2, 3)" in late.value.__notes__[0]


@pytest.mark.parametrize(
    ("resource", "change", "problem"),
    [
        (TOPIC, AlterConfigOp("no.such", "1"), "no.such"),
        (TOPIC, AlterConfigOp("retention.ms", "long"), "Not a number"),
        (TOPIC, AlterConfigOp("retention.ms", "1", "APPEND"), "no list"),
    ],
)
def test_the_error_of_a_refused_change_contains_the_brokers_reason(
    admin: Admin, resource: ConfigResource, change: AlterConfigOp, problem: str
) -> None:
    with pytest.raises(InvalidConfigError, match=problem) as refused:
        admin.incremental_alter_configs({resource: [change]})
    assert "TOPIC t" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (AlterConfigOp("a", "1", "PUT"), "APPEND, DELETE, SET, SUBTRACT"),
        (AlterConfigOp("a", "1", "DELETE"), "None for a DELETE"),
        (AlterConfigOp("a"), "str or a number"),
    ],
)
def test_invalid_changes_of_topic_options_are_refused(
    admin: Admin, change: AlterConfigOp, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        admin.incremental_alter_configs({TOPIC: [change]})


def test_resources_with_options_are_listed(stage: Stage, admin: Admin) -> None:
    metrics = ConfigResource("CLIENT_METRICS", "latency")
    admin.incremental_alter_configs({metrics: [AlterConfigOp("interval.ms", "1000")]})
    assert admin.list_config_resources(["CLIENT_METRICS"]) == [metrics]
    assert set(admin.list_config_resources()) >= {metrics, TOPIC, ConfigResource("BROKER", "2")}
    with pytest.raises(ConfigurationError, match="types must be one of"):
        admin.list_config_resources(["TABLE"])
    stage.cluster.versions[ListConfigResourcesRequest.API_KEY] = (0, 0)  # brokers before 4.1
    stage.disconnect()
    assert admin.list_config_resources(["CLIENT_METRICS"]) == [metrics]
    for types in (None, ["TOPIC"], ["TOPIC", "CLIENT_METRICS"]):
        with pytest.raises(UnsupportedVersionError) as refused:
            admin.list_config_resources(types)
        assert "only list client metrics" in refused.value.__notes__[0]


# Offsets


def test_offsets_are_listed_by_keyword_or_timestamp(stage: Stage, admin: Admin) -> None:
    stage.write(range(6))
    stage.world.advance(10)
    later = int(stage.world.wall_clock() * 1000)
    stage.write(range(6, 9))
    found = admin.list_offsets({T0: "LATEST", T1: "EARLIEST", T2: later})
    assert [(o.offset, o.timestamp_ms) for o in found.values()][:2] == [(3, None), (0, None)]
    assert found[T2].offset == 2
    assert (found[T2].timestamp_ms or 0) >= later
    assert admin.list_offsets({T0: "MAX_TIMESTAMP"})[T0].offset == 2
    assert admin.list_offsets({T0: later * 2})[T0].offset is None
    with pytest.raises(UnknownTopicOrPartitionError, match="topic gone") as refused:
        admin.list_offsets({TopicPartition("gone", 0): "LATEST", T0: "LATEST"})
    assert refused.value.results[T0].offset == 3
    with pytest.raises(ConfigurationError, match="EARLIEST"):
        admin.list_offsets({T0: "latest"})


def test_each_leader_gets_one_request(stage: Stage, admin: Admin) -> None:
    stage.cluster.create_topic("wide", partitions=100)
    admin.list_topics()
    found = admin.list_offsets({TopicPartition("wide", p): "LATEST" for p in range(100)})
    assert len(found) == 100
    asked = [b.requests["ListOffsets"] for b in stage.cluster.brokers.values()]
    assert asked == [1, 1, 1]


def test_a_new_topic_is_found_although_a_broker_does_not_know_it_yet(
    stage: Stage, admin: Admin
) -> None:
    """A broker's UNKNOWN_TOPIC_OR_PARTITION is retried for a while."""
    admin.create_topics([NewTopic("new", 3, 1)])
    unheard = Injection("Metadata", UnknownTopicOrPartitionError.code, 3)
    for broker in stage.cluster.brokers.values():
        broker.injections.append(unheard)
    assert len(admin.list_offsets({TopicPartition("new", p): "LATEST" for p in range(3)})) == 3
    assert unheard.left == 0
