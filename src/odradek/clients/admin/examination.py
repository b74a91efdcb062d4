"""Examine a cluster for `odradek doctor` beyond its addresses: permissions, and a group's lag.

In: names of topics, a group's id, a deadline. Out: one `Examination`; a part that couldn't be
examined contains its error, so that the other parts are still shown. Must not: join a group,
commit, create a topic, or change the client's metadata.

The permission to use a group is tested with a heartbeat of an unknown member: only a missing ACL
makes a broker answer it with an authorization error, for classic and KIP-848 groups alike.
DescribeGroups wouldn't show this for KIP-848 groups. The cluster's clock is that of its controller.
DescribeQuorum returns the time at which the controller last caught up with itself (KIP-836), which
is the present; no other response of Kafka contains a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.admin.admin_arguments import topic_names
from odradek.clients.admin.admin_call import AdminCall
from odradek.clients.admin.cluster_facts import (
    ClusterClock,
    cluster_clock,
    members,
    quotas_of_this_client,
)
from odradek.clients.admin.reachability import (
    ENOUGH_FAILURES,
    Reachability,
    describe_reachability,
)
from odradek.clients.admin.users import ClientQuotaEntity
from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.fetching.offsets import (
    BEGINNING,
    END,
    ListedOffset,
    ListOffsetsCall,
)
from odradek.clients.consumer.group.commit_arguments import group_id
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.clients.descriptions import describe_topics
from odradek.clients.producer.group_offsets import group_offsets
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import (
    GroupAuthorizationError,
    UnsupportedVersionError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

T = TypeVar("T")

NEEDED = (MetadataRequest, ProduceRequest, FetchRequest, ListOffsetsRequest)
"""Requests that every client needs."""
RETURN_BEFORE_S = 0.2
"""Seconds before the caller's deadline at which the results so far are returned."""
LEADERS_TIME = 3.0
"""Seconds to wait for leaders' log ends; a leader that doesn't answer delays no other."""
UNKNOWN_MEMBER_ID = "odradek-doctor"
"""A member id that no coordinator has assigned."""


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """A group as seen by a client that isn't a member of it."""

    group_id: str
    error: KafkaError | None = None
    """Reason why the group couldn't be examined, most often a missing ACL; None if it could."""
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The committed offsets by partition."""
    waiting: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Lag by partition: the number of offsets after the committed one, or in the whole log if no
    offset is committed."""
    state: str | None = None
    """State of a classic group, with Kafka's name; None if the coordinator doesn't report it."""
    members: int | None = None
    outside: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Start and end of the log, by partition, for partitions whose committed offset isn't in the
    log: records were deleted before they were read, or the topic was recreated."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The cluster, its topics and a group, as `odradek doctor` examines them."""

    reach: Reachability
    """Addresses, topics and permissions."""
    group: GroupStanding | None
    """The examined group; None if the call didn't name one."""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """APIs that clients need, and of which the broker and this client have no version in common, by
    address."""
    clock: ClusterClock | None = None
    """The controller's clock; None with brokers before Kafka 3.3, and without permission to read
    it."""
    quotas: Mapping[ClientQuotaEntity, Mapping[str, float]] | None = None
    """Quotas of this client; None under the same conditions as `clock`."""


def examine(
    engine: AdminEngine, names: Sequence[str] | None, group: str | None, deadline: float
) -> Flow[Examination]:
    """Examine everything concurrently; raises only if no broker returns metadata."""
    now = yield START
    until = deadline - min(RETURN_BEFORE_S, (deadline - now) / 2)
    yield from _first_contact(engine, until)
    # Permissions need a request for each topic, so they are omitted if all topics are examined.
    looks = describe_reachability(engine, names, until, rights=names is not None)
    reached = engine.start(looks)
    stands = None if group is None else engine.start(_group(engine, group, names or (), until))
    clock = engine.start(cluster_clock(engine, until))
    limits = engine.start(quotas_of_this_client(engine, until))
    others: list[Completion[Any]] = [clock, limits, *([] if stands is None else [stands])]
    try:
        while not reached.done:
            yield Wait((reached,))
        reach = reached.result()
        if all(a.error is not None for a in reach.brokers):
            for other in others:
                engine.cancel_now(other, KafkaTimeoutError("no broker answers"))
        for other in others:
            while not other.done:
                yield Wait((other,))
    finally:  # if the caller has stopped waiting, cancel the rest
        for each in (reached, *others):
            engine.cancel(each, KafkaTimeoutError("the caller no longer waits"))
    standing: GroupStanding | None = None
    if group is not None and stands is not None:
        if isinstance(stands.error, KafkaError):
            standing = GroupStanding(group, stands.error)
        else:
            standing = stands.result()
    return Examination(reach, standing, _lacking(engine), _known(clock), _known(limits))


def _known(answer: Completion[T | None]) -> T | None:
    return None if answer.error is not None else answer.result()


def _lacking(engine: ClientEngine) -> dict[str, tuple[str, ...]]:
    """Return the missing APIs by broker, according to its handshake; nothing is sent."""
    found: dict[str, tuple[str, ...]] = {}
    for connection in engine.network.connections.values():
        texts = []
        for request in NEEDED if connection.ready else ():
            try:
                engine.network.version_for(connection, request)
            except UnsupportedVersionError as error:
                texts.append(str(error))
        if texts:
            found[str(connection.address)] = tuple(texts)
    return found


def _first_contact(engine: ClientEngine, deadline: float) -> Flow[None]:
    """Wait for the first metadata, unless all bootstrap addresses fail."""
    now = yield START
    states = engine.network.states
    while engine.metadata.snapshot is None:
        hopeless = all(
            states.state(a).failures >= ENOUGH_FAILURES for a in engine.updater.bootstrap
        )
        if hopeless or now >= deadline:
            raise engine.timeout("metadata of the cluster", now)
        now = yield Wait((engine.metadata.changed, engine.network.changed), deadline)


def _group(
    engine: AdminEngine, group: str, topics: Sequence[str], deadline: float
) -> Flow[GroupStanding]:
    yield START
    coordinator = Coordinator(engine.brokers, CoordinatorKind.GROUP, group)
    yield from _check_right(coordinator, deadline)
    who = yield from members(engine, group, deadline)
    committed = yield from group_offsets(engine.brokers, group, deadline)
    since = {p: at.offset for p, at in committed.items()}
    there: list[TopicPartition] = []
    for name in topics:
        with suppress(KafkaError):  # `reach` reports a missing topic
            found = yield from describe_topics(engine.brokers, [name], deadline)
            there += [TopicPartition(name, p.partition) for p in found[name].partitions]
    begins = yield from _offsets(engine, dict.fromkeys([*since, *there], BEGINNING), deadline)
    ends = yield from _offsets(engine, dict.fromkeys(begins, END), deadline)
    waiting = {p: max(0, e - max(since.get(p, 0), begins[p])) for p, e in sorted(ends.items())}
    outside = {
        p: (begins[p], end)
        for p, end in sorted(ends.items())
        if p in since and not begins[p] <= since[p] <= end
    }
    state, count = (None, None) if who is None else who
    return GroupStanding(group, None, since, waiting, state, count, outside)


def _offsets(
    engine: ClientEngine, wanted: Mapping[TopicPartition, int], deadline: float
) -> Flow[dict[TopicPartition, int]]:
    """Return log starts or ends of those partitions whose leaders answer soon."""
    now = yield START
    found: dict[TopicPartition, int] = {}

    def take(partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
        if isinstance(result, ListedOffset):
            found[partition] = result.offset

    until = min(deadline, now + LEADERS_TIME)
    call = ListOffsetsCall(
        *(engine.brokers, engine.missing, wanted, take), isolation=0, deadline=until
    )
    with suppress(KafkaTimeoutError):
        yield from call.run()
    return found


def _check_right(coordinator: Coordinator, deadline: float) -> Flow[None]:
    """Raise if the heartbeat of an unknown member shows that the permission to join is missing."""
    group = coordinator.key
    body = HeartbeatRequest(group_id=group, generation_id=-1, member_id=UNKNOWN_MEMBER_ID)

    def check(answer: HeartbeatResponse) -> KafkaError | None:
        error = error_for(answer.error_code, f"group {group!r}") if answer.error_code else None
        if isinstance(error, GroupAuthorizationError):
            raise error.needing("READ", group, "group")
        return error if error is not None and error.retriable else None

    what = f"a response of the coordinator of group {group!r}"
    yield from coordinator.ask(what, lambda _: body, HeartbeatResponse, check, deadline)


def examination(topics: Sequence[str] | str | None, group: str | None) -> AdminCall[Examination]:
    """Examine the cluster, these topics and this group."""
    names = None if topics is None else topic_names("topics", topics)
    who = None if group is None else group_id(group)
    return AdminCall("responses of the cluster", lambda e, d: examine(e, names, who, d))
