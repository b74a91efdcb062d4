"""List, describe and delete groups of all kinds, and remove members.

In: arguments of a call. Out: `AdminCall`s. Each group is managed by its coordinator; the list of
all groups is merged from the lists of all brokers. Must not: be a member of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.admin.admin_arguments import keys
from odradek.clients.admin.admin_call import AdminCall, by_coordinator_of_each, merged
from odradek.clients.admin.api_versions import list_brokers
from odradek.clients.batched_calls import ApiCall, ItemResult, ItemResults, call_brokers
from odradek.clients.consumer.group.embedded_protocol import (
    decode_assignment,
    decode_subscription,
)
from odradek.clients.coordinator import CoordinatorKind
from odradek.clients.descriptions import authorized_operations
from odradek.common.arguments import choice, flag, text
from odradek.common.errors import MalformedMessageError
from odradek.common.errors.kafka import (
    GroupIdNotFoundError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from odradek.common.notebooks.display import Shown
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.messages import consumer_group_describe as c
from odradek.protocol.messages import delete_groups as x
from odradek.protocol.messages import describe_groups as d
from odradek.protocol.messages import leave_group as lg
from odradek.protocol.messages import list_groups as ls
from odradek.protocol.messages import share_group_describe as sh
from odradek.protocol.messages import streams_group_describe as st

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

T = TypeVar("T")

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
TYPES = (CLASSIC, CONSUMER, SHARE, STREAMS)
CONSUMER_PROTOCOL = "consumer"
DEAD = "Dead"
STATES = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", DEAD, "Empty", "Assigning"),
    *("Reconciling", "NotReady"),
)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group. `type`: Classic, Consumer, Share or Streams.

    `type` and `state` use Kafka's names; they are empty if the broker doesn't report them.
    """

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class StreamsTask:
    """One task of a Streams application."""

    subtopology: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group; fields that its type of group doesn't have are None or empty.

    `assignment` is the current, `target_assignment` the intended assignment (KIP-848). Members of a
    Streams group have tasks instead: `active_tasks`, `standby_tasks`, `warmup_tasks`.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack: str | None = None
    epoch: int | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    classic: bool | None = None
    """Whether the member uses the classic protocol in a group of the consumer protocol (KIP-848);
    None if unknown."""
    active_tasks: tuple[StreamsTask, ...] = ()
    standby_tasks: tuple[StreamsTask, ...] = ()
    warmup_tasks: tuple[StreamsTask, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription(Shown):
    """One group with its members. `type` and `state` use Kafka's names: Consumer, Stable, ….

    `assignor` is the assignor's name; for classic groups of other kinds (Connect), the protocol's.
    `epoch` and `assignment_epoch` are None for classic groups. `authorized_operations`: the
    operations that this client may do; None if they weren't requested.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[str] | None = None
    subtopologies: tuple[str, ...] = ()
    """Ids of a Streams group's subtopologies."""
    coordinator: int | None = None
    """The broker that coordinates the group."""


# Listing


def listing(
    states: Sequence[str], types: Sequence[str], protocol_types: Sequence[str] | None
) -> AdminCall[list[GroupListing]]:
    """List all groups, from all brokers that coordinate some."""
    in_states = [choice("states", s, STATES) for s in keys("states", states, "groups' states")]
    of_types = [choice("types", t, TYPES) for t in keys("types", types, "groups' types")]
    protocols = None
    if protocol_types is not None:
        protocols = frozenset(keys("protocol_types", protocol_types, "protocols' types"))

    def read(answer: ls.ListGroupsResponse) -> Iterator[ItemResult[None, list[GroupListing]]]:
        groups = [
            GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type.capitalize())
            for g in answer.groups
            if protocols is None or g.protocol_type in protocols
        ]
        yield None, 0, None, groups

    question: ApiCall[None, ls.ListGroupsResponse, list[GroupListing]] = ApiCall(
        "the list of groups",
        "",
        lambda *_: ls.ListGroupsRequest(in_states, of_types),
        ls.ListGroupsResponse,
        read,
        right="DESCRIBE",
    )
    return of_coordinators(CoordinatorKind.GROUP, question, lambda g: g.group_id)


def of_coordinators(
    kind: CoordinatorKind, question: ApiCall[None, Any, list[T]], key: Callable[[T], str]
) -> AdminCall[list[T]]:
    """List the items that each broker coordinates, by key and without duplicates.

    Two brokers may list a key whose coordinator changes at this moment. The next call for a key
    goes to the broker that listed it.
    """

    def flow(engine: AdminEngine, deadline: float) -> Flow[list[T]]:
        outcome = yield from outcome_of_brokers(question).flow(engine, deadline)
        for broker, those in outcome.results.items():
            for one in those:
                engine.coordinators.found(kind, key(one), broker)
        found = {key(one): one for those in outcome.settled().values() for one in those}
        return [found[name] for name in sorted(found)]

    return AdminCall(question.what, flow)


def of_all_brokers(
    question: ApiCall[None, Any, Any], brokers: Iterable[int] | None = None
) -> AdminCall[dict[int, Any]]:
    """Send the request to `brokers`, or to all brokers; return the results by broker id."""
    return outcome_of_brokers(question, brokers).then(lambda outcome: outcome.settled())


def outcome_of_brokers(
    question: ApiCall[None, Any, Any], brokers: Iterable[int] | None = None
) -> AdminCall[ItemResults[int, Any]]:
    """Send the request to `brokers`, or to all brokers; return errors instead of raising them."""

    def flow(engine: AdminEngine, deadline: float) -> Flow[ItemResults[int, Any]]:
        ids = brokers
        if ids is None:
            ids = [b.id for b in (yield from list_brokers(engine, deadline))]
        outcomes = yield from call_brokers(
            engine.brokers, lambda _: question, dict.fromkeys(ids, (None,)), deadline
        )
        found: ItemResults[int, Any] = ItemResults()
        for broker, outcome in outcomes.items():
            if None in outcome.errors:
                found.errors[broker] = outcome.errors[None]
            else:
                found.results[broker] = outcome.results[None]
        return found

    return AdminCall(question.what, flow)


# Describing


def describe_classic(
    groups: Sequence[str] | str, authorized_operations: bool
) -> AdminCall[dict[str, GroupDescription]]:
    """Describe classic groups, including those of Connect."""
    return _described(_classic(flag("authorized_operations", authorized_operations)), groups)


def describe_consumer(
    groups: Sequence[str] | str, authorized_operations: bool
) -> AdminCall[dict[str, GroupDescription]]:
    """Describe consumer groups of the new protocol (KIP-848) and the classic one.

    A group that its coordinator doesn't know in the new protocol is requested as a classic group.
    """
    ids, operations = _ids(groups), flag("authorized_operations", authorized_operations)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, GroupDescription]]:
        found = yield from engine.coordinators.by_broker(
            CoordinatorKind.GROUP,
            _consumer(operations),
            ids,
            deadline,
            otherwise=_classic(operations),
            absent=(GroupIdNotFoundError, UnsupportedVersionError),
        )
        return _led(found).settled()

    return AdminCall("the description of groups", flow)


def describe_share(
    groups: Sequence[str] | str, authorized_operations: bool
) -> AdminCall[dict[str, GroupDescription]]:
    """Describe share groups (KIP-932)."""
    operations = flag("authorized_operations", authorized_operations)

    def read(answer: sh.ShareGroupDescribeResponse) -> Iterator[ItemResult[str, GroupDescription]]:
        for g in answer.groups:
            members = tuple(
                GroupMember(
                    m.member_id,
                    m.client_id,
                    m.client_host,
                    rack=m.rack_id,
                    epoch=m.member_epoch,
                    subscribed_topics=tuple(m.subscribed_topic_names),
                    assignment=_assigned(m.assignment.topic_partitions),
                )
                for m in g.members
            )
            yield g.group_id, g.error_code, g.error_message, _of_epochs(g, SHARE, members)

    question: ApiCall[str, sh.ShareGroupDescribeResponse, GroupDescription] = ApiCall(
        "the description of groups",
        "share group",
        lambda left, _: sh.ShareGroupDescribeRequest(left, operations),
        sh.ShareGroupDescribeResponse,
        read,
        right="DESCRIBE",
        hurried=True,
    )
    return _described(question, groups)


def describe_streams(
    groups: Sequence[str] | str, authorized_operations: bool
) -> AdminCall[dict[str, GroupDescription]]:
    """Describe Streams groups (KIP-1071)."""
    operations = flag("authorized_operations", authorized_operations)

    def read(
        answer: st.StreamsGroupDescribeResponse,
    ) -> Iterator[ItemResult[str, GroupDescription]]:
        for g in answer.groups:
            members = tuple(_streams_member(m) for m in g.members)
            topology = g.topology.subtopologies if g.topology is not None else None
            yield (
                g.group_id,
                g.error_code,
                g.error_message,
                _of_epochs(g, STREAMS, members, tuple(s.subtopology_id for s in topology or ())),
            )

    question: ApiCall[str, st.StreamsGroupDescribeResponse, GroupDescription] = ApiCall(
        "the description of groups",
        "Streams group",
        lambda left, _: st.StreamsGroupDescribeRequest(left, operations),
        st.StreamsGroupDescribeResponse,
        read,
        right="DESCRIBE",
        hurried=True,
    )
    return _described(question, groups)


def _described(
    question: ApiCall[str, Any, GroupDescription], groups: Sequence[str] | str
) -> AdminCall[dict[str, GroupDescription]]:
    ids = _ids(groups)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, GroupDescription]]:
        found = yield from engine.coordinators.by_broker(
            CoordinatorKind.GROUP, question, ids, deadline
        )
        return _led(found).settled()

    return AdminCall(question.what, flow)


def _led(outcome: ItemResults[str, GroupDescription]) -> ItemResults[str, GroupDescription]:
    """Add to each description the id of the broker that sent it, the group's coordinator."""
    led = {g: replace(d, coordinator=outcome.led[g]) for g, d in outcome.results.items()}
    return ItemResults(led, outcome.errors, outcome.moved, outcome.unsettled, outcome.led)


def _ids(groups: Any) -> list[str]:
    return keys("groups", groups, "groups' ids")


def _classic(operations: bool) -> ApiCall[str, d.DescribeGroupsResponse, GroupDescription]:
    def read(answer: d.DescribeGroupsResponse) -> Iterator[ItemResult[str, GroupDescription]]:
        for g in answer.groups:
            # Before version 6, a group that doesn't exist is described with the state Dead.
            missing = g.group_state == DEAD and not g.error_code
            code = GroupIdNotFoundError.code if missing else g.error_code
            yield g.group_id, code, g.error_message, _classic_group(g)

    return ApiCall(
        "the description of groups",
        "group",
        lambda left, _: d.DescribeGroupsRequest(left, operations),
        d.DescribeGroupsResponse,
        read,
        right="DESCRIBE",
        hurried=True,
    )


def _classic_group(g: d.DescribedGroup) -> GroupDescription:
    consumers = g.protocol_type in (CONSUMER_PROTOCOL, "")
    return GroupDescription(
        g.group_id,
        CLASSIC,
        g.group_state,
        g.protocol_type,
        g.protocol_data,
        tuple(
            GroupMember(
                m.member_id,
                m.client_id,
                m.client_host,
                m.group_instance_id,
                subscribed_topics=_read_of(_subscribed, m.member_metadata) if consumers else (),
                assignment=_read_of(_owned, m.member_assignment) if consumers else (),
            )
            for m in g.members
        ),
        authorized_operations=authorized_operations(g.authorized_operations),
    )


def _subscribed(data: bytes) -> tuple[str, ...]:
    return tuple(decode_subscription(data).topics)


def _owned(data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(sorted(decode_assignment(data).partitions))


def _read_of(read: Callable[[bytes], tuple[Any, ...]], data: Any) -> tuple[Any, ...]:
    """Decode the data of a member; return None if its format isn't a consumer's."""
    try:
        return read(bytes(data)) if len(data) else ()
    except MalformedMessageError:
        return ()


def _consumer(
    operations: bool,
) -> ApiCall[str, c.ConsumerGroupDescribeResponse, GroupDescription]:
    def read(
        answer: c.ConsumerGroupDescribeResponse,
    ) -> Iterator[ItemResult[str, GroupDescription]]:
        for g in answer.groups:
            members = tuple(
                GroupMember(
                    m.member_id,
                    m.client_id,
                    m.client_host,
                    m.instance_id,
                    m.rack_id,
                    m.member_epoch,
                    tuple(m.subscribed_topic_names),
                    m.subscribed_topic_regex or None,
                    _assigned(m.assignment.topic_partitions),
                    _assigned(m.target_assignment.topic_partitions),
                    None if m.member_type < 0 else m.member_type == 0,
                )
                for m in g.members
            )
            yield g.group_id, g.error_code, g.error_message, _of_epochs(g, CONSUMER, members)

    return ApiCall(
        "the description of groups",
        "group",
        lambda left, _: c.ConsumerGroupDescribeRequest(left, operations),
        c.ConsumerGroupDescribeResponse,
        read,
        right="DESCRIBE",
        hurried=True,
    )


def _of_epochs(
    g: Any, kind: str, members: tuple[GroupMember, ...], subtopologies: tuple[str, ...] = ()
) -> GroupDescription:
    return GroupDescription(
        g.group_id,
        kind,
        g.group_state,
        kind.lower(),
        g.assignor_name or "",
        members,
        g.group_epoch,
        g.assignment_epoch,
        authorized_operations(g.authorized_operations),
        subtopologies,
    )


def _assigned(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(t.topic_name, p) for t in topics for p in t.partitions))


def _streams_member(m: st.Member) -> GroupMember:
    return GroupMember(
        m.member_id,
        m.client_id,
        m.client_host,
        m.instance_id,
        m.rack_id,
        m.member_epoch,
        classic=m.is_classic,
        active_tasks=_tasks(m.assignment.active_tasks),
        standby_tasks=_tasks(m.assignment.standby_tasks),
        warmup_tasks=_tasks(m.assignment.warmup_tasks),
    )


def _tasks(tasks: Iterable[st.TaskIds]) -> tuple[StreamsTask, ...]:
    return tuple(StreamsTask(t.subtopology_id, p) for t in tasks for p in t.partitions)


# Deleting


def delete(groups: Sequence[str] | str) -> AdminCall[dict[str, None]]:
    """Delete groups of any kind without members, with their committed offsets (KIP-229)."""
    question: ApiCall[str, x.DeleteGroupsResponse, None] = ApiCall(
        "the deletion of groups",
        "group",
        lambda left, _: x.DeleteGroupsRequest(left),
        x.DeleteGroupsResponse,
        lambda answer: [(g.group_id, g.error_code, g.error_message, None) for g in answer.results],
        right="DELETE",
        already=(GroupIdNotFoundError,),
        changes=True,
    )
    items = {group: (group,) for group in _ids(groups)}
    return by_coordinator_of_each(CoordinatorKind.GROUP, lambda _: question, items, question.what)


def remove_members(
    group: str, instance_ids: Sequence[str] | str | None, reason: str | None
) -> AdminCall[dict[str, None]]:
    """Remove static members from a group, or all members if None (KIP-345)."""
    group = text("group", group)
    static = None if instance_ids is None else keys("instance_ids", instance_ids, "instance ids")
    why = "removed by an admin client" + ("" if reason is None else f": {text('reason', reason)}")

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, None]]:
        if static is not None:
            members = {i: lg.MemberIdentity("", i, why) for i in static}
        else:
            described = yield from describe_consumer(group, False).flow(engine, deadline)
            members = {
                m.instance_id or m.member_id: (
                    lg.MemberIdentity("", m.instance_id, why)
                    if m.instance_id is not None
                    else lg.MemberIdentity(m.member_id, None, why)
                )
                for m in described[group].members
            }
        if not members:
            return {}
        leaving, everyone = _leaving(group, members), {group: [*members]}
        asked = yield from engine.coordinators.by_key(
            CoordinatorKind.GROUP, lambda _: leaving, everyone, deadline
        )
        return merged(asked.values())

    return AdminCall(f"the removal of members of group {group}", flow)


def _leaving(
    group: str, members: dict[str, lg.MemberIdentity]
) -> ApiCall[str, lg.LeaveGroupResponse, None]:
    return ApiCall(
        f"the removal of members of group {group}",
        "member",
        lambda left, _: lg.LeaveGroupRequest(group, members=[members[m] for m in left]),
        lg.LeaveGroupResponse,
        lambda answer: [
            (m.group_instance_id or m.member_id, m.error_code, None, None) for m in answer.members
        ],
        already=(UnknownMemberIdError,),
        changes=True,
    )
