"""Calls of an admin client about groups of all kinds and about offsets.

In: names, numbers and frozen values. Out: frozen values, errors that say what they are about.
Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.api.admin_calls import AdminCalls
from odradek.clients.admin.families import group_offsets
from odradek.clients.admin.families import groups as group_calls
from odradek.clients.admin.families import offsets as offset_calls

if TYPE_CHECKING:
    from odradek.clients.admin.group_offsets import ShareGroupOffset
    from odradek.clients.admin.groups import GroupDescription, GroupListing
    from odradek.clients.admin.offsets import OffsetListing, OffsetSpec
    from odradek.clients.consumer.records import OffsetAndMetadata
    from odradek.common.types import TopicPartition


class GroupAdmin(AdminCalls):
    """Base of `Admin`: calls about groups and offsets; not made directly."""

    # Groups

    def list_groups(
        self,
        timeout: float | None = None,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        protocol_types: Sequence[str] | None = None,
    ) -> list[GroupListing]:
        """All groups that this client may see, sorted, of all kinds unless some are named.

        `states`: Stable, Empty, PreparingRebalance … `types`: Classic, Consumer, Share, Streams
        (KIP-518, KIP-848). `protocol_types`: "consumer" for groups of consumers, which Connect's
        and Schema Registry's aren't.
        """
        return self._ask(group_calls.listing(states, types, protocol_types), timeout)

    def describe_consumer_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Groups of consumers with their members, in the new protocol (KIP-848) or the classic one.

        Raises `GroupIdNotFoundError` for one that isn't there.
        """
        call = group_calls.describe_consumer(groups, authorized_operations)
        return self._ask(call, timeout)

    def describe_classic_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Groups of the classic protocol with their members, those of Connect too (KIP-1043).

        Raises `GroupIdNotFoundError` for one that isn't there.
        """
        return self._ask(group_calls.describe_classic(groups, authorized_operations), timeout)

    def describe_share_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Share groups with their members (KIP-932).

        Raises `GroupIdNotFoundError`; `UnsupportedVersionError` from brokers before 4.1.
        """
        return self._ask(group_calls.describe_share(groups, authorized_operations), timeout)

    def describe_streams_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Groups of Streams applications in their own protocol, with their tasks (KIP-1071).

        Raises `GroupIdNotFoundError`; `UnsupportedVersionError` from brokers before 4.1.
        """
        call = group_calls.describe_streams(groups, authorized_operations)
        return self._ask(call, timeout)

    def delete_groups(self, groups: Sequence[str] | str, timeout: float | None = None) -> None:
        """Delete groups of any kind with all they have committed (KIP-229).

        Raises `NonEmptyGroupError` for one with members, `GroupIdNotFoundError`.
        """
        self._ask(group_calls.delete(groups), timeout)

    def remove_group_members(
        self,
        group: str,
        instance_ids: Sequence[str] | str | None = None,
        timeout: float | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Take static members out of a group, by `group.instance.id`; without any, all members.

        `reason` stands in the broker's log. Raises `UnknownMemberIdError`. (KIP-345, KIP-800)
        """
        self._ask(group_calls.remove_members(group, instance_ids, reason), timeout)

    # What groups have committed

    def list_group_offsets(
        self,
        groups: Sequence[str] | str | Mapping[str, Sequence[TopicPartition] | None],
        timeout: float | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed, by group and partition; a dict names partitions by group.

        Partitions without an offset are left out. `require_stable` waits for transactions that are
        about to commit some (KIP-447).
        """
        return self._ask(group_offsets.listing(groups, require_stable), timeout)

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        timeout: float | None = None,
    ) -> None:
        """Set what a group has committed, while it has no members; a group without any is made.

        Raises `UnknownMemberIdError` while it has some: stop them first. (KIP-396)
        """
        self._ask(group_offsets.alter(group, offsets), timeout)

    def delete_group_offsets(
        self, group: str, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> None:
        """Delete what a group has committed for partitions (KIP-496).

        Raises `GroupSubscribedToTopicError` while a member subscribes to their topic.
        """
        self._ask(group_offsets.delete(group, partitions), timeout)

    def list_share_group_offsets(
        self,
        groups: Sequence[str] | str | Mapping[str, Sequence[TopicPartition] | None],
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, ShareGroupOffset]]:
        """Where share groups begin, by group and partition; a dict names partitions by group.

        Partitions without an offset are left out. (KIP-932)
        """
        return self._ask(group_offsets.list_share(groups), timeout)

    def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Set where a share group begins. Raises `NonEmptyGroupError` while it has members."""
        self._ask(group_offsets.alter_share(group, offsets), timeout)

    def delete_share_group_offsets(
        self, group: str, topics: Sequence[str] | str, timeout: float | None = None
    ) -> None:
        """Delete where a share group begins in these topics.

        Raises `NonEmptyGroupError` while it has members.
        """
        self._ask(group_offsets.delete_share(group, topics), timeout)

    # Offsets of partitions

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        timeout: float | None = None,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetListing]:
        """Offsets by a word or a time: EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL,
        LATEST_TIERED, EARLIEST_PENDING_UPLOAD, or milliseconds since the epoch.

        LATEST is the offset of the next record; with "read_committed" the one at which readers of
        committed records stop. Raises `UnknownTopicOrPartitionError`, and
        `UnsupportedVersionError` for a word that the leader is too old for.
        """
        return self._ask(offset_calls.listing(specs, isolation_level), timeout)
