"""Fetch all committed offsets of a group without being a member (OffsetFetch).

In: a group's id. Out: its offsets by partition, of all topics, once the transactions that have sent
offsets to it have ended (KIP-447). A program that commits offsets with its transactions finds out
here how far it got. Must not: commit anything.
"""

from __future__ import annotations

from odradek.clients.any_broker import Brokers
from odradek.clients.consumer.group.offset_lookup import (
    BATCHED_FROM,
    STABLE_FROM,
    OffsetFetchByName,
)
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.errors import KafkaError, UnsupportedFeatureError
from odradek.common.errors.kafka import error_for
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

GroupOffsets = dict[TopicPartition, OffsetAndMetadata]


def group_offsets(
    brokers: Brokers,
    group_id: str,
    deadline: float,
    *,
    at: Coordinator | None = None,
    stable: bool = True,
) -> Flow[GroupOffsets]:
    """Return the group's committed offsets; raise at the deadline.

    Raises `UnsupportedFeatureError` if brokers can't wait for open transactions (before 2.5): their
    response may be outdated. `at` is the coordinator if it is known. If `stable` is false, open
    transactions aren't waited for.
    """
    coordinator = at or Coordinator(brokers, CoordinatorKind.GROUP, group_id)
    found: GroupOffsets = {}

    def body(_: float) -> OffsetFetchRequest:
        version = coordinator.version(OffsetFetchByName)
        if version is not None and version < STABLE_FROM:
            raise UnsupportedFeatureError(
                f"the broker's OffsetFetch can't wait for open transactions (version {version}); "
                "Kafka 2.5 or newer is needed"
            )
        if version is not None and version < BATCHED_FROM:
            return OffsetFetchByName(group_id, None, require_stable=stable)
        groups = [OffsetFetchRequestGroup(group_id, topics=None)]
        return OffsetFetchByName(groups=groups, require_stable=stable)

    def check(answer: OffsetFetchResponse) -> KafkaError | None:
        found.clear()
        return _read(answer, group_id, found)

    what = f"committed offsets of group {group_id!r}"
    yield from coordinator.ask(what, body, OffsetFetchResponse, check, deadline)
    return found


def _read(answer: OffsetFetchResponse, group_id: str, found: GroupOffsets) -> KafkaError | None:
    """Collect the offsets of a response; return its error, if there is one."""
    what = f"OffsetFetch of group {group_id!r}"
    code = answer.error_code or next((g.error_code for g in answer.groups if g.error_code), 0)
    if code:
        return error_for(code, what).needing("DESCRIBE", group_id, "group")
    parts = [(t.name, p) for t in answer.topics for p in t.partitions]
    for group in answer.groups:
        parts += [(t.name, p) for t in group.topics for p in t.partitions]  # type: ignore[misc]
    for name, p in parts:
        tp = TopicPartition(name, p.partition_index)
        if p.error_code:
            return error_for(p.error_code, f"{what}: {tp}").needing("DESCRIBE", name, "topic")
        if p.committed_offset >= 0:
            found[tp] = OffsetAndMetadata(
                p.committed_offset, p.metadata or "", p.committed_leader_epoch
            )
    return None
