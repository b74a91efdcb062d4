"""Explain a group consumer: the state of its membership.

In: the engine's group, read from any thread. Out: a frozen dataclass and its line of text. Must
not: change anything, or wait.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.group.poll_overdue import why_overdue
from odradek.common.outage import number
from odradek.network.connection_state import worded

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.consumer.subscription_state import SubscriptionState
    from odradek.metadata.metadata import Metadata


SUSPENDED = (
    "no heartbeat was answered within session.timeout.ms: poll() returns no records until one is, "
    "because other members may own the partitions by now"
)
LONG = 5.0
"""Seconds of joining after which a diagnosis mentions it."""


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """A consumer's state in its group, as part of `explain()`. Times are in seconds."""

    group_id: str
    group_instance_id: str | None
    protocol: str
    """`classic` or `consumer` (KIP-848)."""
    state: str | None
    """The member's state with Kafka's name; None for a consumer that only commits (`assign`)."""
    unsettled_for: float | None
    """Seconds since the member was last stable; None while it is stable, and without membership."""
    member_id: str
    generation: int
    """The generation, or the member's epoch; -1 without membership."""
    coordinator: int | None
    """Id of the coordinator's broker; None while it is unknown."""
    subscription: tuple[str, ...]
    pattern: str | None
    missing: tuple[str, ...]
    """Subscribed topics that don't exist, or that this client may not see."""
    assigned: int
    """Number of assigned partitions."""
    suspended: bool
    """Whether no heartbeat was answered within session.timeout.ms; poll() then returns no records
    until a heartbeat is answered."""
    callback_due: bool
    """Whether a rebalance callback will run in the next poll()."""
    awaited: tuple[tuple[str, float, str], ...]
    """Partitions that aren't read because their committed offset is unavailable: partition,
    seconds, and reason."""
    last_poll: float | None
    """Seconds since the last poll(); None during a poll() and before the first one."""
    error: str | None
    """Reason why the group refuses this consumer, else None."""
    waits_for: str | None = None
    """Why this consumer has had no assignment for five seconds, else None."""
    overdue: str | None = None
    """Consequence for the member if poll() wasn't called for max.poll.interval.ms, else None."""

    unmatched: str | None = None
    """Text about the pattern if no topic has matched it for five seconds, else None."""

    def __str__(self) -> str:
        who = f"group {self.group_id} ({self.protocol}"
        who += f", instance {self.group_instance_id})" if self.group_instance_id else ")"
        where = "not found yet" if self.coordinator is None else f"broker {self.coordinator}"
        if self.state is None:
            parts = [f"{who}: not a member, only commits offsets", f"coordinator: {where}"]
            return "; ".join([*parts, *self._awaited_words()])
        what = f"pattern {self.pattern!r}" if self.pattern else _some(self.subscription)
        state = worded(self.state)
        if self.unsettled_for is not None:
            state += f" (not stable for {self.unsettled_for:.1f} s)"
        parts = [f"{who}: {state}", f"{number(self.assigned, 'partition')} of {what}"]
        if self.generation >= 0:
            parts[0] += f", generation {self.generation}, member {self.member_id}"
        parts.append(f"coordinator: {where}")
        if self.waits_for:
            parts.append(f"no partitions yet: {self.waits_for}")
        if self.missing:
            parts.append(f"topics not found: {_some(self.missing)}")
        if self.unmatched:
            parts.append(self.unmatched)
        if self.suspended:
            parts.append(SUSPENDED)
        if self.callback_due:
            parts.append("a rebalance callback will run in the next poll()")
        parts += self._awaited_words()
        if self.last_poll is not None:
            parts.append(f"last poll() {self.last_poll:.1f} s ago")
        if self.error:
            parts.append(self.error)
        return "; ".join(parts)

    def trouble(self, told: Collection[str] = ()) -> str:
        """Return the group's reason why no records come, as a sentence; empty if it has none.

        Topics in `told` are left out.
        """
        missing = tuple(name for name in self.missing if name not in told)
        if self.error:
            return f" But the group refuses this consumer: {self.error.rstrip('.')}."
        if self.overdue:
            return f" But {self.overdue}."
        if self.suspended:
            return f" But {SUSPENDED}."
        if self.assigned == 0 and (self.unsettled_for or 0.0) >= LONG:
            why = f" {self.waits_for}." if self.waits_for else ""
            return (
                f" But the group has assigned it no partitions for {self.unsettled_for:.1f} s "
                f"({worded(self.state or '')}).{why}"
            )
        if self.assigned == 0 and missing:
            return f" But it subscribes to topics that were not found: {_some(missing)}."
        if self.unmatched:
            return f" But {self.unmatched}."
        if self.awaited:
            waits = "partition waits" if len(self.awaited) == 1 else "partitions wait"
            return f" But {len(self.awaited)} {waits} for a committed offset."
        return ""

    def _awaited_words(self) -> list[str]:
        words = [
            f"not reading {partition}: its committed offset has been unavailable for "
            f"{seconds:.1f} s ({why})"
            for partition, seconds, why in self.awaited[:5]
        ]
        if len(self.awaited) > 5:
            words.append(f"nor {number(len(self.awaited) - 5, 'more partition')}")
        return words


def explain_group(
    group: ConsumerGroup, subscription: SubscriptionState, metadata: Metadata, now: float
) -> GroupExplanation:
    """Return the explanation of a group consumer."""
    membership, who = group.membership, group.identity()
    since = None if membership is None else membership.unsettled_since
    waits = group.waits_for(now)
    stale = membership is not None and membership.state is MemberState.STALE
    return GroupExplanation(
        group_id=group.group_id,
        group_instance_id=group.instance_id,
        protocol=group.config["group.protocol"],
        state=None if membership is None else membership.state.value,
        unsettled_for=None if since is None else max(0.0, now - since),
        member_id=who.member_id,
        generation=who.generation,
        coordinator=group.coordinator.broker,
        subscription=tuple(group.topics()),
        pattern=group.pattern,
        missing=_missing(group, metadata),
        assigned=len(group.owned()),
        suspended=subscription.suspended,
        callback_due=bool(group.callbacks),
        awaited=_awaited(group, subscription, now),
        last_poll=group.last_poll(now),
        waits_for=None if waits is None else waits[1],
        unmatched=None if group.unmatched is None else group.unmatched[1],
        overdue=why_overdue(group.config) if stale else None,
        error=None if group.error is None else f"{type(group.error).__name__}: {group.error}",
    )


def _awaited(
    group: ConsumerGroup, subscription: SubscriptionState, now: float
) -> tuple[tuple[str, float, str], ...]:
    here = subscription.partitions
    found = []
    for partition, waits in list(group.commits.awaited.items()):
        state = here.get(partition)
        if state is not None and state.position is None:
            why = f"{type(waits.why).__name__}: {waits.why}"
            found.append((str(partition), max(0.0, now - waits.since), why))
    return tuple(found)


def _missing(group: ConsumerGroup, metadata: Metadata) -> tuple[str, ...]:
    """Return the topics that brokers don't know; topics that weren't requested yet are left out."""
    here = () if metadata.snapshot is None else metadata.snapshot.topics
    return tuple(t for t in group.topics() if t in metadata.topic_errors and t not in here)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
