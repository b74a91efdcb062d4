"""Test how a group leader runs an assignor, and which results of custom assignors it rejects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.clients.consumer.group.assignors import (
    COOPERATIVE,
    EAGER,
    AssignorError,
    MemberSubscription,
    RebalanceProtocol,
    assign_group,
    find,
    rebalance_protocol,
    user_data,
)
from odradek.common.errors import ConfigurationError
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Broker, Cluster, Topic
from odradek.metadata.partitions import Partition
from odradek.metadata.topic_map import TopicMap

BROKERS = {n: Broker(n, Address("h", n), rack) for n, rack in ((1, "a"), (2, "b"))}
ORDERS = Topic(
    "orders", bytes(15) + b"1", tuple(Partition(n, 1, 0, replicas=(2 - n,)) for n in range(2))
)
CLUSTER = Cluster("c", BROKERS, topics=TopicMap({"orders": ORDERS}))
MEMBERS = {
    "m1": MemberSubscription(("orders", "gone"), rack="a"),
    "m2": MemberSubscription(("orders",), rack="b"),
}


class UsersAssignor:
    """A custom assignor that returns or raises `given`."""

    def __init__(self, given: Any, name: str = "mine") -> None:
        self.given = given
        self.name = name
        self.protocol: RebalanceProtocol = COOPERATIVE
        self.topics: Mapping[str, int] = {}

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        self.topics = topics
        if isinstance(self.given, Exception):
            raise self.given
        found: Mapping[str, Sequence[TopicPartition]] = self.given
        return found

    def user_data(self, last: Sequence[TopicPartition], generation: int) -> Any:
        return self.given if last else f"{generation}".encode()


def test_the_range_assignor_prefers_partitions_with_a_replica_in_the_members_rack() -> None:
    (assignor,) = find(["range"])
    # Without racks, m1 would get partition 0 and m2 partition 1.
    assert assign_group(assignor, MEMBERS, CLUSTER) == {
        "m1": [TopicPartition("orders", 1)],
        "m2": [TopicPartition("orders", 0)],
    }


def test_a_custom_assignor_gets_the_partition_counts_of_existing_topics_only() -> None:
    mine = UsersAssignor({"m2": [("orders", 0), TopicPartition("orders", 1)]})
    (assignor,) = find([mine])
    assert assign_group(assignor, MEMBERS, CLUSTER) == {
        "m1": [],
        "m2": [TopicPartition("orders", 0), TopicPartition("orders", 1)],
    }
    assert mine.topics == {"orders": 2}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (ZeroDivisionError("oh"), "'mine' raised ZeroDivisionError: oh"),
        ({"m3": []}, "'m3', which isn't a member"),
        ({"m1": [("orders", 2)]}, "orders-2, which doesn't exist"),
        ({"m1": [("gone", 0)]}, "gone-0, which doesn't exist"),
        ({"m1": [("orders", 0)], "m2": [("orders", 0)]}, "orders-0 to both 'm1' and 'm2'"),
    ],
)
def test_an_invalid_assignment_of_a_custom_assignor_is_rejected(given: Any, text: str) -> None:
    with pytest.raises(AssignorError, match=text):
        assign_group(UsersAssignor(given), MEMBERS, CLUSTER)


def test_an_assignment_of_a_topic_that_the_member_does_not_subscribe_to_is_rejected() -> None:
    members = MEMBERS | {"m3": MemberSubscription(("gone",))}
    with pytest.raises(AssignorError, match="doesn't subscribe"):
        assign_group(UsersAssignor({"m3": [("orders", 0)]}), members, CLUSTER)


def test_the_rebalance_protocol_is_one_that_all_assignors_support() -> None:
    assert rebalance_protocol(find([UsersAssignor({})])) == COOPERATIVE
    assert rebalance_protocol(find([UsersAssignor({}), "range"])) == EAGER


def test_user_data_comes_from_the_assignor_and_must_be_bytes() -> None:
    last = [TopicPartition("orders", 0)]
    assert user_data(find(["roundrobin"])[0], last, 3) is None
    assert user_data(UsersAssignor(None), [], 3) == b"3"
    assert user_data(UsersAssignor(b"x"), last, 3) == b"x"
    with pytest.raises(AssignorError, match="returned str, not bytes"):
        user_data(UsersAssignor("x"), last, 3)


def test_unknown_incomplete_and_duplicate_assignors_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="unknown assignor 'rang': use one of range"):
        find(["rang"])
    with pytest.raises(ConfigurationError, match="lacks name, protocol"):
        find([str])  # type: ignore[list-item]  # a likely mistake
    with pytest.raises(ConfigurationError, match="'mine' twice"):
        find([UsersAssignor({}), "range", UsersAssignor({})])
