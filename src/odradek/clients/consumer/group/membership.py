"""Define the interface between a membership and its group.

A membership (classic, or KIP-848) communicates with the coordinator: it joins, sends heartbeats,
receives its assignment, leaves. The group (`consumer_group`) is everything else: subscription,
assignment, committed offsets, and the caller's callbacks. In: each other's calls. Out: state. Must
not: have behaviour; these are the types that both sides share.

After a session has timed out by the client's clock, no records are returned until the coordinator
has answered. If partitions were dropped at once, hundreds of records would be read twice after a
cluster has moved; if records were returned, other members might process them as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from odradek.common.errors import KafkaError
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow, Signal

if TYPE_CHECKING:
    from odradek.clients.coordinator import Coordinator
    from odradek.common.config import Config


class MemberState(StrEnum):
    """The states of a membership, with Kafka's names; `member_states` has the transitions."""

    UNJOINED = "unjoined"
    """Not a member: hasn't joined yet, or has left."""
    PREPARING_REBALANCE = "preparing_rebalance"
    """Classic: partitions are being revoked, then JoinGroup is in flight."""
    COMPLETING_REBALANCE = "completing_rebalance"
    """Classic: joined, and waiting for the leader's assignment."""
    JOINING = "joining"
    """KIP-848: the first heartbeat is in flight."""
    RECONCILING = "reconciling"
    """KIP-848: the assignment has changed; partitions are revoked first."""
    ACKNOWLEDGING = "acknowledging"
    """KIP-848: the assigned partitions are owned; the coordinator isn't notified yet."""
    STABLE = "stable"
    FENCED = "fenced"
    """The coordinator no longer knows this member: its partitions are lost, and it joins again."""
    STALE = "stale"
    """`poll()` was overdue (max.poll.interval.ms): left, and joins again at the next call."""
    LEAVING = "leaving"
    FATAL = "fatal"
    """The group refused this consumer for good; `Group.failed` was called with the error."""


class PollOverdueError(KafkaError):
    """The application hasn't called `poll()` for `max.poll.interval.ms`."""


class Membership(Protocol):
    """One consumer's membership of its group; lives as long as a `subscribe` does."""

    @property
    def member_id(self) -> str:
        """The member id; empty without one."""

    @property
    def generation(self) -> int:
        """The classic group's generation, or the member's epoch; -1 while there is none."""

    @property
    def state(self) -> MemberState:
        """The member's state, by Kafka's name for it."""

    @property
    def unsettled_since(self) -> float | None:
        """Time since which the member hasn't been stable; None if it is, or isn't subscribed."""

    def start(self, now: float) -> None:
        """Start to join; the membership runs in the engine until `leave`."""

    def rejoin(self, reason: str, now: float) -> None:
        """Join again after a change of the topics or a pattern's matches, or on request.

        (The membership itself watches the numbers of partitions.)
        """

    def refused(self, error: BaseException | None, now: float) -> None:
        """Join again after a refused commit of the present generation.

        If the group doesn't know the member any more, its partitions are lost, not revoked.
        """

    def hold(self) -> None:
        """Prepare to leave: no rebalance is started or continued.

        Heartbeats continue until `leave`, while partitions are revoked.
        """

    def leave(self, deadline: float) -> Flow[None]:
        """Leave, at `close()` and `unsubscribe()`, after partitions were revoked.

        Static members remain in the group. Never raises; ends at the deadline at the latest.
        """


class Group(Protocol):
    """Methods that a membership calls, in the engine's step, under the engine's lock."""

    @property
    def group_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None:
        """`group.instance.id` (KIP-345)."""

    @property
    def by_epoch(self) -> bool:
        """Whether the group uses KIP-848."""

    @property
    def config(self) -> Config:
        """Options, with times in seconds."""

    @property
    def coordinator(self) -> Coordinator: ...
    @property
    def pattern(self) -> str | None:
        """The subscribed pattern (KIP-848: the broker resolves it); None for topics by name."""

    @property
    def polled_at(self) -> float:
        """Time when the caller was last inside `poll()`; the current time if it is now."""

    @property
    def poll_wanted(self) -> Signal:
        """Notified whenever the caller enters `poll()`."""

    @property
    def heartbeats(self) -> Sampled:
        """Return the samples to which a membership adds the durations of its heartbeats."""

    def topics(self) -> list[str]:
        """Return the subscribed topics, sorted; with a classic pattern those that match it now."""

    def list_again(self) -> None:
        """List topics again for a classic pattern; other matches cause a rejoin."""

    def owned(self) -> list[TopicPartition]:
        """Return the current assignment."""

    def revoke(self, partitions: Collection[TopicPartition]) -> Flow[float]:
        """Revoke partitions in the caller's next `poll()` (R-GR-1) and return the time.

        This commits the records that the caller received (with auto-commit), calls on_revoked, and
        drops the partitions. No record of them is returned afterwards. Without partitions it takes
        no time. An error of the commit or the callback is raised in the caller. Raises
        `PollOverdueError` if the caller doesn't poll within max.poll.interval.ms: then call `lose`.
        """

    def lose(self, partitions: Collection[TopicPartition], *, taken: bool = True) -> Flow[float]:
        """Drop partitions that may have other owners already, without a commit.

        `taken` is false for a static member's partitions, which others get only after its session.
        on_lost is called in the caller's next `poll()`, before it returns records. `lose` doesn't
        wait for the caller. Without partitions, it only ends the ownership of partitions that were
        revoked for a rebalance.
        """

    def assign(
        self,
        partitions: Collection[TopicPartition],
        ids: Mapping[TopicPartition, bytes] = ...,
    ) -> Flow[float]:
        """Add partitions to the owned ones, which aren't touched.

        `ids` are the ids of their topics, if the group assigns topics by id (KIP-848): no topic
        with another id is read, even if it has the same name.

        Doesn't wait: committed offsets are looked up and fetches started at once; on_assigned runs
        in the caller's next `poll()`, before their records are returned.
        """

    def assigned_nothing(self) -> None:
        """Note a join without partitions, which calls no callback (KIP-848)."""

    def unsettled(self, since: float) -> None:
        """Note that the membership isn't stable from now on."""

    def settled(self, now: float) -> None:
        """Note that the membership is stable."""

    def failed(self, error: KafkaError) -> None:
        """Let every `poll()` raise the error: the group refuses this consumer for good."""

    def complain(self, error: KafkaError) -> None:
        """Let the next `poll()` raise the error, once; the membership continues."""
