"""Three questions of `odradek doctor`: the cluster's clock, quotas, and who is in a group.

In: an engine, a deadline. Out: what the cluster says, or None where it doesn't know the question or
refuses it: no finding depends on one of these alone. Must not: be asked where nobody answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.clients.coordinator import Coordinator
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import error_for
from odradek.network.flow import START, Flow
from odradek.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

QUORUM = "__cluster_metadata"
MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """What the controller's clock said, and when that was here."""

    seconds: float
    """Since the epoch, by the controller."""
    at: float
    """The engine's time in the middle between question and answer."""
    tolerance: float
    """Seconds that the question and its answer took: so much may be wrong."""


@dataclass(frozen=True, slots=True)
class QuotaStanding:
    """A quota that holds for this client."""

    entity: Mapping[str, str | None]
    """For whom it is set: `user`, `client-id`; None is whoever has none of their own."""
    limits: Mapping[str, float]
    """Kafka's names: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage` …"""


def cluster_clock(engine: ClientEngine, deadline: float) -> Flow[ClusterClock | None]:
    """The controller says when it was last up to date with itself, which is now (KIP-836)."""
    asked = yield START
    part = DescribeQuorumRequestPartitionData(0)
    body = DescribeQuorumRequest([DescribeQuorumRequestTopicData(QUORUM, [part])])
    call = AnyBrokerCall(engine, "clock of the controller", deadline)

    def sent(_: float) -> DescribeQuorumRequest:
        nonlocal asked
        asked = engine.now
        return body

    def check(answer: DescribeQuorumResponse, _: object) -> KafkaError | None:
        return error_for(answer.error_code) if answer.error_code else None

    try:
        answer = yield from call.ask(sent, DescribeQuorumResponse, check)
    except KafkaError:
        return None
    now = engine.now
    for topic in answer.topics:
        for found in topic.partitions:
            for voter in found.current_voters:
                if voter.replica_id == found.leader_id and voter.last_caught_up_timestamp > 0:
                    seconds = voter.last_caught_up_timestamp / MILLISECONDS
                    return ClusterClock(seconds, (asked + now) / 2, now - asked)
    return None


def quotas(engine: ClientEngine, deadline: float) -> Flow[tuple[QuotaStanding, ...] | None]:
    """Those of this client's user and `client.id`, and of all who have none of their own."""
    yield START
    call = AnyBrokerCall(engine, "quotas", deadline)

    def check(answer: DescribeClientQuotasResponse, _: object) -> KafkaError | None:
        return error_for(answer.error_code, answer.error_message) if answer.error_code else None

    try:
        answer = yield from call.ask(
            lambda _: DescribeClientQuotasRequest(), DescribeClientQuotasResponse, check
        )
    except KafkaError:
        return None
    mine = {"user": engine.network.user, "client-id": engine.network.client_id}
    found = []
    for entry in answer.entries or ():
        entity = {part.entity_type: part.entity_name for part in entry.entity}
        if all(name in (None, mine.get(kind)) for kind, name in entity.items()) and (
            entity.keys() <= mine.keys()
        ):
            found.append(QuotaStanding(entity, {limit.key: limit.value for limit in entry.values}))
    return tuple(found)


def members(
    engine: ClientEngine, coordinator: Coordinator, deadline: float
) -> Flow[tuple[str, int] | None]:
    """A classic group's state, in Kafka's words, and how many members it has."""
    yield START
    group = coordinator.key
    body = DescribeGroupsRequest([group])

    def check(answer: DescribeGroupsResponse) -> KafkaError | None:
        code = next((one.error_code for one in answer.groups if one.error_code), 0)
        return error_for(code, f"group {group!r}") if code else None

    what = f"description of group {group!r}"
    try:
        answer = yield from coordinator.ask(
            what, lambda _: body, DescribeGroupsResponse, check, deadline
        )
    except KafkaError:
        return None
    for one in answer.groups:
        if one.group_state not in ("", "Dead"):  # else of another kind, or there is none
            return one.group_state, len(one.members)
    return None
