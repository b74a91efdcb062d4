"""Create a consumer's group from its parts.

In: the client's brokers, the subscription. Out: a `ConsumerGroup`. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.clients.any_broker import Brokers
from odradek.clients.consumer.group.announced_ownership import AnnouncedOwnership
from odradek.clients.consumer.group.committed_offsets import CommittedOffsets
from odradek.clients.consumer.group.consumer_group import ConsumerGroup
from odradek.clients.consumer.group.group_commits import GroupCommits
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.membership import Group, Membership
from odradek.clients.consumer.group.pending_callbacks import PendingCallbacks
from odradek.clients.consumer.group.topic_watch import TopicWatch
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.config import Config
from odradek.common.types import Lock

if TYPE_CHECKING:
    from odradek.clients.traces import Traces


def wired(
    brokers: Brokers,
    config: Config,
    subscription: SubscriptionState,
    traces: Callable[[], Traces | None],
    lock: Lock,
) -> ConsumerGroup:
    """Return the group of a consumer with a `group.id`."""
    engine, metadata = brokers.engine, brokers.metadata
    member = ThisMember(config["group.id"], config, subscription.readable)
    coordinator = Coordinator(brokers, CoordinatorKind.GROUP, member.group_id)
    callbacks = PendingCallbacks(lock)
    ownership = AnnouncedOwnership(subscription)
    stored = CommittedOffsets(
        engine, metadata, coordinator, identity=member.identity, timeout=brokers.timeout
    )
    commits = GroupCommits(
        *(engine, config, subscription, member, ownership, callbacks, stored, traces),
        rng=brokers.rng,
    )
    return ConsumerGroup(
        engine,
        config,
        metadata,
        subscription,
        lock,
        member=member,
        coordinator=coordinator,
        callbacks=callbacks,
        ownership=ownership,
        commits=commits,
        watch=TopicWatch(brokers, config, subscription, member),
        new_membership=_memberships(brokers, subscription, by_epoch=member.by_epoch),
    )


def _memberships(
    brokers: Brokers, subscription: SubscriptionState, *, by_epoch: bool
) -> Callable[[Group], Membership]:
    """Import one kind of membership, and return its constructor.

    Importing it later, in `subscribe()`, could raise an ImportError in the middle of a change
    (R-TI-2).
    """
    engine, metadata, rng = brokers.engine, brokers.metadata, brokers.rng
    if by_epoch:
        from odradek.clients.consumer.group.consumer_membership import ConsumerMembership
        from odradek.clients.consumer.group.topic_names import TopicNames

        return lambda group: ConsumerMembership(group, engine, metadata, rng, TopicNames(brokers))
    from odradek.clients.consumer.group.classic_membership import ClassicMembership

    return lambda group: ClassicMembership(group, engine, metadata, rng, subscription)
