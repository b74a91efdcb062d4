"""A consumer as a member of its group: who it is now, and what its caller has to be told.

In: the membership of each `subscribe`, the group's refusals. Out: the identity for commits, errors
for the next poll. Must not: join or leave by itself.
"""

from __future__ import annotations

from odradek.clients.consumer.group.membership import Membership, MemberState
from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.options.group import NEW
from odradek.network.flow import Completion, Signal


class ThisMember:
    """One consumer in its group; between two subscriptions it has no membership."""

    def __init__(self, group_id: str, config: Config, readable: Signal) -> None:
        """`readable` is notified when there is an error for the caller."""
        self.group_id = group_id
        self.instance_id: str | None = config["group.instance.id"]
        self.by_epoch: bool = config["group.protocol"] == NEW
        """KIP-848."""
        self.membership: Membership | None = None
        self.error: KafkaError | None = None
        """Why the group refuses this consumer for good."""
        self.trouble: KafkaError | None = None
        """An error that the next poll raises, once."""
        self._readable = readable
        self._leaving: Completion[None] | None = None
        """The last `leave`; an interrupted `unsubscribe()` doesn't see its end."""

    @property
    def is_member(self) -> bool:
        """The group knows this consumer."""
        return self.membership is not None and self.membership.generation >= 0

    @property
    def leaving(self) -> Completion[None] | None:
        """The end of the goodbye in progress, whether or not a caller waits for it."""
        return None if self._leaving is None or self._leaving.done else self._leaving

    def identity(self) -> GroupIdentity:
        """Return who commits now."""
        membership = self.membership
        if membership is None:
            return GroupIdentity()
        return GroupIdentity(
            membership.member_id,
            membership.generation,
            self.instance_id,
            self.by_epoch,
            joining=membership.state is MemberState.PREPARING_REBALANCE,
        )

    def joins(self, membership: Membership) -> None:
        """Begin another membership."""
        self.membership = membership

    def leaves(self, end: Completion[None]) -> None:
        """Note the goodbye in progress."""
        self._leaving = end

    def has_left(self) -> None:
        """Note that the group was left: no poll could raise its refusal any more."""
        self.membership = self.error = None

    def complain(self, error: KafkaError) -> None:
        """Let the next poll raise this, once."""
        self.trouble = error
        self._readable.notify()

    def refuse(self, error: KafkaError) -> None:
        """Let every poll raise this from now on, until `forgive`."""
        self.error = error
        self._readable.notify()

    def forgive(self) -> None:
        """Forget the group's refusal: the caller subscribes once more."""
        self.error = None

    def raise_pending(self) -> None:
        """Raise the error that waits for the caller, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
