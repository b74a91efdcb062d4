"""Admin calls about groups and their committed offsets, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.spoilt_answers import spoil_answers

from odradek import (
    Admin,
    ConfigurationError,
    KafkaError,
    OffsetAndMetadata,
    UnknownTopicOrPartitionError,
)
from odradek.admin import GroupListing, StreamsTask
from odradek.common.errors.kafka import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationError,
)
from odradek.common.types import TopicPartition
from odradek.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from odradek.protocol.messages import describe_share_group_offsets as sl
from odradek.protocol.messages import streams_group_describe as s
from odradek.simulation.brokers.broker_handlers import BY_KEY

P0, P1 = PARTITIONS[:2]


def admin_of(scene: Scene) -> Admin:
    return scene.client(Admin, background=False)


@PROTOCOLS
def test_a_group_is_described_with_its_members(protocol: str) -> None:
    scene = Scene(protocol)
    first, second = scene.subscribed("a"), scene.subscribed("b", group_instance_id="static")
    for _ in range(6):
        first.poll(1.0)
        second.poll(1.0)
    admin = admin_of(scene)
    found = admin.describe_consumer_groups("g")["g"]
    assert (found.type, found.state) == (protocol.capitalize(), "Stable")
    assert found.protocol_type == "consumer"
    assert found.coordinator in scene.cluster.brokers
    assigned = {m.instance_id: set(m.assignment) for m in found.members}
    assert assigned == {None: set(first.assignment()), "static": set(second.assignment())}
    assert all(m.subscribed_topics == ("t",) for m in found.members)
    if protocol == "consumer":
        assert found.epoch is not None
        assert all(m.target_assignment == m.assignment for m in found.members)
        with pytest.raises(GroupIdNotFoundError):
            admin.describe_classic_groups("g")
    else:
        assert admin.describe_classic_groups(["g"]) == {"g": found}
    with pytest.raises(
        GroupIdNotFoundError, match=r"GROUP_ID_NOT_FOUND \(69\): Group gone not found"
    ) as missing:
        admin.describe_consumer_groups(["gone", "g"])
    assert missing.value.results == {"g": found}


@PROTOCOLS
def test_groups_are_listed_from_all_brokers(protocol: str) -> None:
    scene, kind = Scene(protocol), protocol.capitalize()
    admin = admin_of(scene)
    assert admin.list_groups() == []
    for name in "uvwxyz":
        admin.alter_group_offsets(name, {P0: 1})
    scene.subscribed("a").poll(3.0)
    admin.alter_share_group_offsets("shared", {P0: 1})
    assert [g.group_id for g in admin.list_groups()] == ["g", "shared", *"uvwxyz"]
    assert admin.list_groups(states=["Stable"]) == [GroupListing("g", "consumer", "Stable", kind)]
    shares = [GroupListing("shared", "share", "Empty", "Share")]
    assert admin.list_groups(types=["Share"]) == shares
    assert admin.list_groups(protocol_types=["share"]) == shares
    with pytest.raises(ConfigurationError, match="Stable"):
        admin.list_groups(states=["stable"])


@PROTOCOLS
def test_committed_offsets_are_listed_changed_and_deleted(protocol: str) -> None:
    scene = Scene(protocol)
    admin = admin_of(scene)
    noted = OffsetAndMetadata(7, "note", 0)
    admin.alter_group_offsets("g", {P0: noted, P1: 3})
    admin.alter_group_offsets("h", {P0: 1})
    assert admin.list_group_offsets(["g", "h"]) == {
        "g": {P0: noted, P1: OffsetAndMetadata(3)},
        "h": {P0: OffsetAndMetadata(1)},
    }
    assert admin.list_group_offsets({"g": [P1, PARTITIONS[3]], "h": None}) == {
        "g": {P1: OffsetAndMetadata(3)},
        "h": {P0: OffsetAndMetadata(1)},
    }
    with pytest.raises(UnknownTopicOrPartitionError, match="partition gone-0") as refused:
        admin.alter_group_offsets("g", {TopicPartition("gone", 0): 1, P0: 2})
    assert list(refused.value.results) == [P0]
    admin.delete_group_offsets("g", [P0])
    assert admin.list_group_offsets("g") == {"g": {P1: OffsetAndMetadata(3)}}
    scene.subscribed("a").poll(3.0)
    with pytest.raises(GroupSubscribedToTopicError, match="partition t-1"):
        admin.delete_group_offsets("g", [P1])
    with pytest.raises(UnknownMemberIdError, match="partition t-0"):
        admin.alter_group_offsets("g", {P0: 1})


@PROTOCOLS
def test_only_empty_groups_are_deleted(protocol: str) -> None:
    scene = Scene(protocol)
    member = scene.subscribed("a")
    member.poll(3.0)
    admin = admin_of(scene)
    admin.alter_group_offsets("h", {P0: 1})
    with pytest.raises(NonEmptyGroupError, match="group g") as refused:
        admin.delete_groups(["g", "h", "gone"])
    assert list(refused.value.results) == ["h"]
    assert isinstance(refused.value.errors["gone"], GroupIdNotFoundError)
    member.close()
    admin.delete_groups("g")
    assert admin.list_groups() == []
    assert admin.list_group_offsets("g") == {"g": {}}
    # The new coordinator loads the same state from its log.
    for name in ("g", "h"):
        scene.cluster.move_leader("__consumer_offsets", scene.cluster.groups.index(name))
    assert admin.list_groups() == []


def test_remove_group_members_removes_static_members_by_name_or_all() -> None:
    scene = Scene("classic")
    members = [scene.subscribed(n, group_instance_id=n) for n in "abc"]
    for _ in range(8):
        for member in members:
            member.poll(0.5)
    admin = admin_of(scene)
    assert {m.instance_id for m in admin.describe_consumer_groups("g")["g"].members} == {*"abc"}
    with pytest.raises(UnknownMemberIdError, match="member nobody") as refused:
        admin.remove_group_members("g", ["nobody", "b"], reason="a test")
    assert list(refused.value.results) == ["b"]
    admin.remove_group_members("g")
    assert admin.describe_consumer_groups("g")["g"].members == ()
    admin.remove_group_members("g")


def test_offsets_of_share_groups_are_listed_changed_and_deleted() -> None:
    scene = Scene()
    admin = admin_of(scene)
    admin.alter_share_group_offsets("s", {P0: 3, P1: 4})
    found = admin.list_share_group_offsets("s")["s"]
    assert {p: o.start_offset for p, o in found.items()} == {P0: 3, P1: 4}
    only = admin.list_share_group_offsets({"s": [P1, PARTITIONS[3]]})["s"]
    assert {p: o.start_offset for p, o in only.items()} == {P1: 4}
    described = admin.describe_share_groups("s")["s"]
    assert (described.type, described.state, described.members) == ("Share", "Empty", ())
    with pytest.raises(UnknownTopicOrPartitionError, match="topic gone") as refused:
        admin.delete_share_group_offsets("s", ["gone", "t"])
    assert list(refused.value.results) == ["t"]
    assert admin.list_share_group_offsets("s") == {"s": {}}
    with pytest.raises(GroupIdNotFoundError, match="share group none"):
        admin.list_share_group_offsets(["none", "s"])
    admin.delete_groups("s")
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_share_groups("s")
    with pytest.raises(GroupIdNotFoundError, match="Streams group s"):
        admin.describe_streams_groups("s")


def test_an_error_of_a_share_group_partition_keeps_the_offsets_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition with a retriable error is requested again."""
    codes = [GroupAuthorizationError.code, CoordinatorLoadInProgressError.code]

    def answer(broker: Any, request: Any, version: int, reply: Any) -> Any:
        bad = sl.DescribeShareGroupOffsetsResponsePartition(1, -1, 0, error_code=codes.pop())
        good = sl.DescribeShareGroupOffsetsResponsePartition(0, 3, 0)
        topics = [sl.DescribeShareGroupOffsetsResponseTopic("t", partitions=[good, bad])]
        return sl.DescribeShareGroupOffsetsResponse(
            groups=[sl.DescribeShareGroupOffsetsResponseGroup("s", topics)]
        )

    monkeypatch.setitem(BY_KEY, sl.DescribeShareGroupOffsetsRequest.API_KEY, answer)
    found = admin_of(Scene()).list_share_group_offsets("s")["s"]
    assert codes == []
    assert (found[P0].start_offset, found[P0].error) == (3, None)
    assert isinstance(found[P1].error, GroupAuthorizationError)


def test_a_retriable_error_of_a_share_group_partition_is_reported_at_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the timeout contains the offsets of the other partitions."""
    scene = Scene()
    admin = admin_of(scene)
    admin.alter_share_group_offsets("s", {P0: 3, P1: 4})

    def refuse(answer: Any) -> None:
        for part in (p for g in answer.groups for t in g.topics for p in t.partitions):
            if part.partition_index == P1.partition and scene.world.now < until:
                part.start_offset, part.error_code = -1, CoordinatorLoadInProgressError.code

    spoil_answers(monkeypatch, sl.DescribeShareGroupOffsetsRequest.API_KEY, refuse)
    until = scene.world.now + 60.0
    found = admin.list_share_group_offsets("s", timeout=2.0)["s"]
    assert (found[P0].start_offset, found[P0].error) == (3, None)
    assert isinstance(found[P1].error, CoordinatorLoadInProgressError)
    until = scene.world.now + 1.0
    found = admin.list_share_group_offsets("s", timeout=10.0)["s"]
    assert {p: o.start_offset for p, o in found.items()} == {P0: 3, P1: 4}
    assert scene.world.now < until + 2.0


def test_consumer_group_offset_calls_are_refused_for_share_groups() -> None:
    """As in Kafka: commits and deletions are refused, and a fetch finds no offsets."""
    scene = Scene()
    admin = admin_of(scene)
    admin.alter_share_group_offsets("s", {P0: 3})
    with pytest.raises(GroupIdNotFoundError, match="[Gg]roup s"):
        admin.alter_group_offsets("s", {P0: 1})
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("s", [P0])
    with pytest.raises(GroupIdNotFoundError), scene.member("a", group_id="s") as alone:
        alone.assign([P0])
        alone.commit({P0: 2})
    producer = scene.transactional()
    producer.begin_transaction()
    with pytest.raises(GroupIdNotFoundError):
        producer.send_offsets_to_transaction({P0: OffsetAndMetadata(2)}, "s")
    producer.close(0.0)
    assert admin.list_group_offsets("s") == {"s": {}}
    assert {p: o.start_offset for p, o in admin.list_share_group_offsets("s")["s"].items()} == {
        P0: 3
    }
    admin.alter_group_offsets("c", {P0: 1})
    with pytest.raises(GroupIdNotFoundError):
        admin.alter_share_group_offsets("c", {P0: 3})
    assert [g.type for g in admin.list_groups()] == ["Classic", "Share"]


def test_describing_groups_falls_back_or_names_the_api_that_brokers_lack() -> None:
    scene = Scene()
    for key in (69, 77):  # keys of ConsumerGroupDescribe, ShareGroupDescribe
        scene.cluster.versions.pop(key)
    admin = admin_of(scene)
    admin.alter_group_offsets("g", {P0: 1})
    assert admin.describe_consumer_groups("g")["g"].type == "Classic"
    with pytest.raises(KafkaError, match="ShareGroupDescribe"):
        admin.describe_share_groups("g", timeout=5)


def test_descriptions_of_streams_groups_contain_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object) -> s.StreamsGroupDescribeResponse:
        tasks = s.Assignment([s.TaskIds("0", [1, 2])], [s.TaskIds("1", [0])])
        member = s.Member("m", 4, "i", None, "app", "/h", assignment=tasks)
        topology = s.Topology(1, [s.Subtopology("0"), s.Subtopology("1")])
        group = s.DescribedGroup(0, None, "streams", "Stable", 7, 6, topology, [member])
        return s.StreamsGroupDescribeResponse(groups=[group])

    monkeypatch.setitem(BY_KEY, s.StreamsGroupDescribeRequest.API_KEY, answer)
    found = admin_of(Scene()).describe_streams_groups("streams")["streams"]
    assert (found.type, found.state, found.epoch, found.assignment_epoch) == (
        *("Streams", "Stable"),
        *(7, 6),
    )
    assert found.subtopologies == ("0", "1")
    (member,) = found.members
    assert (member.instance_id, member.epoch) == ("i", 4)
    assert member.active_tasks == (StreamsTask("0", 1), StreamsTask("0", 2))
    assert member.standby_tasks == (StreamsTask("1", 0),)
