"""Hold a consumer's identity as a member of its group, and errors for its caller.

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
    """A consumer as a member of its group; without a subscription, it has no membership."""

    def __init__(self, group_id: str, config: Config, readable: Signal) -> None:
        """Set `readable`, which is notified when there is an error for the caller."""
        self.group_id = group_id
        self.instance_id: str | None = config["group.instance.id"]
        self.by_epoch: bool = config["group.protocol"] == NEW
        """Whether the group uses KIP-848, with member epochs."""
        self.membership: Membership | None = None
        self.error: KafkaError | None = None
        """Error with which the group refuses this consumer for good."""
        self.trouble: KafkaError | None = None
        """Error that the next poll raises, once."""
        self._readable = readable
        self._leaving: Completion[None] | None = None
        """Completion of the last `leave`, for which an interrupted `unsubscribe()` doesn't wait."""

    @property
    def is_member(self) -> bool:
        """Whether the group knows this consumer."""
        return self.membership is not None and self.membership.generation >= 0

    @property
    def leaving(self) -> Completion[None] | None:
        """Completion of the leave in progress, whether or not a caller waits for it."""
        return None if self._leaving is None or self._leaving.done else self._leaving

    def identity(self) -> GroupIdentity:
        """Return the identity of the member that commits now."""
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
        """Set the next membership."""
        self.membership = membership

    def leaves(self, end: Completion[None]) -> None:
        """Note the leave in progress."""
        self._leaving = end

    def has_left(self) -> None:
        """Note that the group was left, and forget its error: no poll would raise it any more."""
        self.membership = self.error = None

    def complain(self, error: KafkaError) -> None:
        """Let the next poll raise this error, once."""
        self.trouble = error
        self._readable.notify()

    def refuse(self, error: KafkaError) -> None:
        """Let every poll raise this error from now on, until `forgive`."""
        self.error = error
        self._readable.notify()

    def forgive(self) -> None:
        """Forget the group's refusal, because the caller subscribes again."""
        self.error = None

    def raise_pending(self) -> None:
        """Raise the error that waits for the caller, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
