"""Search a classic group for subscribed partitions that no member owns.

In: the group, as its coordinator describes it (DescribeGroups; READ on a group implies DESCRIBE).
Out: one of those partitions, or None. A static member that joins with a known instance id gets its
last assignment back without a rebalance (KIP-345). Partitions have no owner then if the member
hadn't yet revoked some, now subscribes to more topics, or topics have grown. Must not: rebalance.
"""

from __future__ import annotations

from odradek.clients.consumer.group.embedded_protocol import decode_assignment, decode_subscription
from odradek.clients.consumer.group.membership import Group
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import error_for
from odradek.common.types import TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.flow import START, Flow
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

STABLE = "Stable"


def find_unowned(group: Group, metadata: Metadata, deadline: float) -> Flow[TopicPartition | None]:
    """Return a subscribed partition that no member is assigned, or None.

    Only topics in this consumer's metadata are searched. If the group isn't stable, return None:
    its rebalance assigns all partitions. Raises an error if the group can't be described.
    """
    yield START

    def check(answer: DescribeGroupsResponse) -> KafkaError | None:
        code = answer.groups[0].error_code if answer.groups else 0
        return error_for(code) if code else None

    answer = yield from group.coordinator.ask(
        f"members of group {group.group_id!r}",
        lambda _: DescribeGroupsRequest([group.group_id]),
        DescribeGroupsResponse,
        check,
        deadline,
    )
    described = answer.groups[0] if answer.groups else None
    if described is None or described.group_state != STABLE:
        return None
    topics: set[str] = set()
    owned: set[TopicPartition] = set()
    for m in described.members:
        who = m.group_instance_id, m.member_id
        topics.update(decode_subscription(m.member_metadata, *who).topics)
        owned.update(decode_assignment(m.member_assignment).partitions)
    snapshot = metadata.snapshot
    for topic in sorted(topics):
        found = snapshot.topic(topic) if snapshot is not None else None
        for number in range(len(found.partitions) if found is not None else 0):
            if TopicPartition(topic, number) not in owned:
                return TopicPartition(topic, number)
    return None
