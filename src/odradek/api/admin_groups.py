"""Calls of an admin client for groups of all kinds and for offsets.

In: names, numbers and frozen values. Out: frozen values, errors that name their item. Must not:
decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.api.admin_calls import AdminCalls
from odradek.clients.admin.lazy_imports import group_offsets
from odradek.clients.admin.lazy_imports import groups as group_calls
from odradek.clients.admin.lazy_imports import offsets as offset_calls

if TYPE_CHECKING:
    from odradek.clients.admin.group_offsets import ShareGroupOffset
    from odradek.clients.admin.groups import GroupDescription, GroupListing
    from odradek.clients.admin.offsets import OffsetListing, OffsetSpec
    from odradek.clients.consumer.records import OffsetAndMetadata
    from odradek.common.types import TopicPartition


class GroupAdmin(AdminCalls):
    """Base class of `Admin`: groups and offsets; not instantiated directly."""

    # Groups

    def list_groups(
        self,
        timeout: float | None = None,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        protocol_types: Sequence[str] | None = None,
    ) -> list[GroupListing]:
        """Return all groups that this client may see, sorted, or those that match the filters.

        `states`: Stable, Empty, PreparingRebalance …
        `types`: Classic, Consumer, Share, Streams (KIP-518, KIP-848).
        `protocol_types`: "consumer" for consumer groups, without those of Connect and Schema
        Registry.
        """
        return self._ask(group_calls.listing(states, types, protocol_types), timeout)

    def describe_consumer_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Return descriptions of consumer groups with their members, of both protocols (KIP-848).

        Raises `GroupIdNotFoundError` for a group that doesn't exist.
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
        """Return descriptions of classic groups with their members, Connect's included (KIP-1043).

        Raises `GroupIdNotFoundError` for a group that doesn't exist.
        """
        return self._ask(group_calls.describe_classic(groups, authorized_operations), timeout)

    def describe_share_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Return descriptions of share groups with their members (KIP-932).

        Raises `GroupIdNotFoundError`, and `UnsupportedVersionError` with brokers before 4.1.
        """
        return self._ask(group_calls.describe_share(groups, authorized_operations), timeout)

    def describe_streams_groups(
        self,
        groups: Sequence[str] | str,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """Return descriptions of Streams groups with their members and tasks (KIP-1071).

        Raises `GroupIdNotFoundError`, and `UnsupportedVersionError` with brokers before 4.1.
        """
        call = group_calls.describe_streams(groups, authorized_operations)
        return self._ask(call, timeout)

    def delete_groups(self, groups: Sequence[str] | str, timeout: float | None = None) -> None:
        """Delete groups of any kind with their committed offsets (KIP-229).

        Raises `NonEmptyGroupError` for a group with members, and `GroupIdNotFoundError`.
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
        """Remove static members from a group, by `group.instance.id`, or all members (KIP-345).

        `reason` appears in the broker's log (KIP-800). Raises `UnknownMemberIdError`.
        """
        self._ask(group_calls.remove_members(group, instance_ids, reason), timeout)

    # Committed offsets

    def list_group_offsets(
        self,
        groups: Sequence[str] | str | Mapping[str, Sequence[TopicPartition] | None],
        timeout: float | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return committed offsets by group and partition; a dict selects partitions by group.

        Partitions without a committed offset are omitted. `require_stable` waits for open
        transactions that have sent offsets to the group (KIP-447).
        """
        return self._ask(group_offsets.listing(groups, require_stable), timeout)

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        timeout: float | None = None,
    ) -> None:
        """Set the committed offsets of a group without members, which may be new (KIP-396).

        Raises `UnknownMemberIdError` if the group has members: stop them first.
        """
        self._ask(group_offsets.alter(group, offsets), timeout)

    def delete_group_offsets(
        self, group: str, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> None:
        """Delete the committed offsets of a group for these partitions (KIP-496).

        Raises `GroupSubscribedToTopicError` while a member subscribes to their topic.
        """
        self._ask(group_offsets.delete(group, partitions), timeout)

    def list_share_group_offsets(
        self,
        groups: Sequence[str] | str | Mapping[str, Sequence[TopicPartition] | None],
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, ShareGroupOffset]]:
        """Return start offsets of share groups (KIP-932) by group and partition.

        A dict selects partitions by group. Partitions without an offset are omitted.
        """
        return self._ask(group_offsets.list_share(groups), timeout)

    def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Set the start offsets of a share group. Raises `NonEmptyGroupError` if it has members."""
        self._ask(group_offsets.alter_share(group, offsets), timeout)

    def delete_share_group_offsets(
        self, group: str, topics: Sequence[str] | str, timeout: float | None = None
    ) -> None:
        """Delete the start offsets of a share group in these topics.

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
        """Return offsets by a keyword or by a time in milliseconds since the epoch.

        The keywords are EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED and
        EARLIEST_PENDING_UPLOAD. LATEST is the offset of the next record; with "read_committed" it
        is the last stable offset. Raises `UnknownTopicOrPartitionError`, and
        `UnsupportedVersionError` for a keyword that the leader doesn't support.
        """
        return self._ask(offset_calls.listing(specs, isolation_level), timeout)
