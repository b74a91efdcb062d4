"""Implement `sticky` and `cooperative-sticky`: balanced assignments with the fewest moves.

In: each member's last assignment, as the member reports it: `sticky` sends it as user data, in
Java's layout, because its members own nothing when they join; `cooperative-sticky` has it as
`owned`. Out: numbers of partitions as equal as subscriptions allow. `cooperative-sticky` leaves out
partitions that another member still owns: that member revokes them, all members join again, and
they are assigned then. With racks (KIP-881), balance still comes first, then replicas in the
members' racks, then few moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class with a function's name

from odradek.clients.consumer.group.assignors.assignor import (
    COOPERATIVE,
    EAGER,
    NO_GENERATION,
    Assignments,
    MemberSubscription,
    PartitionRacks,
    java_order,
)
from odradek.clients.consumer.group.assignors.sticky_racks import nearness, share_alike_near
from odradek.clients.consumer.group.assignors.sticky_shares import share_alike, share_unlike
from odradek.clients.consumer.group.partition_bytes import read_partitions, write_partitions
from odradek.common.types import TopicPartition
from odradek.protocol.primitives import WireError, as_bytes_view

_int32 = Struct(">i")

Claim = tuple[Sequence[TopicPartition], int]
"""The last assignment that a member reports, and its generation."""


class StickyAssignor:
    """Kafka's assignor `sticky`, which moves as few partitions as possible."""

    name = "sticky"
    protocol = EAGER

    def __init__(self) -> None:
        self.partition_racks: PartitionRacks = {}

    def user_data(self, last: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Return the last assignment and its generation, as Java's StickyAssignor encodes them."""
        if generation < 0:
            return None
        out = bytearray()
        write_partitions(out, sorted(last))
        return bytes(out + _int32.pack(generation))

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Assignments:
        """Balance, starting from the assignments that members report."""
        claims = {m: _claim_in_user_data(s.user_data) for m, s in members.items()}
        return _share(members, topics, claims, self.partition_racks)


class CooperativeStickyAssignor:
    """Kafka's assignor `cooperative-sticky` (KIP-429): moved partitions are revoked first."""

    name = "cooperative-sticky"
    protocol = COOPERATIVE

    def __init__(self) -> None:
        self.partition_racks: PartitionRacks = {}
        self._aim: tuple[object, Assignments] | None = None
        """Target of the last assignment, and the members and topics for which it was computed."""

    def user_data(self, last: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Return the generation, for leaders that don't know it as a field (before KIP-792)."""
        return _int32.pack(generation)

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Assignments:
        """Balance the partitions, but leave out those that their owners must revoke first."""
        claims = {m: (s.owned, _generation(s)) for m, s in members.items()}
        group = (
            {m: (frozenset(s.topics), s.rack) for m, s in members.items()},
            dict(topics),
            self.partition_racks,
        )
        assignments = self._aimed_at(group, members)
        if assignments is None:
            assignments = _share(members, topics, claims, self.partition_racks)
        self._aim = group, assignments
        claimed: dict[TopicPartition, dict[str, int]] = {}
        for member, (owned, generation) in claims.items():
            for partition in owned:
                claimed.setdefault(partition, {})[member] = generation
        return {
            member: [p for p in given if p not in claimed or _is_free(claimed[p], member)]
            for member, given in assignments.items()
        }

    def _aimed_at(
        self, group: object, members: Mapping[str, MemberSubscription]
    ) -> Assignments | None:
        """Return the last rebalance's target, if the group is the same and moves towards it.

        If the target were computed again from the ownership between two rebalances, it could
        differ each time, and the group would never become stable.
        """
        if self._aim is None or self._aim[0] != group:
            return None
        aim = self._aim[1]
        arriving = all(set(aim[m]).issuperset(s.owned) for m, s in members.items())
        return aim if arriving else None


def _is_free(claims: Mapping[str, int], member: str) -> bool:
    """Return whether no other member owns a partition that this member is about to be assigned.

    A claim from an older generation is outdated. Of two equal claims either may be right, so both
    members revoke the partition.
    """
    own = claims.get(member, -math.inf)
    return all(generation < own for other, generation in claims.items() if other != member)


def _generation(subscription: MemberSubscription) -> int:
    if subscription.generation >= 0:
        return subscription.generation
    data = subscription.user_data
    if data is None or len(data) < _int32.size:
        return NO_GENERATION
    (generation,) = _int32.unpack_from(data)
    return max(NO_GENERATION, int(generation))


def _claim_in_user_data(data: bytes | None) -> Claim:
    """Read the last assignment of a `sticky` member; its oldest layout has no generation."""
    if not data:
        return (), NO_GENERATION
    view = as_bytes_view(data)
    try:
        partitions, pos = read_partitions(view, 0)
    except (WireError, StructError, IndexError, UnicodeDecodeError):
        return (), NO_GENERATION  # data of another assignor: ignored
    if len(view) - pos < _int32.size:
        return partitions, NO_GENERATION
    return partitions, max(NO_GENERATION, _int32.unpack_from(view, pos)[0])


def _share(
    members: Mapping[str, MemberSubscription],
    topics: Mapping[str, int],
    claims: Mapping[str, Claim],
    partition_racks: PartitionRacks,
) -> Assignments:
    order = sorted(members, key=java_order)
    # Ignore topics without partitions when subscriptions are compared.
    subscribed = {m: frozenset(t for t in members[m].topics if topics.get(t)) for m in order}
    kept = _valid(order, subscribed, topics, claims)
    read = {t: topics[t] for t in frozenset[str]().union(*subscribed.values())}
    racks = nearness(members, read, partition_racks)
    if len(set(subscribed.values())) <= 1:
        wanted = next(iter(subscribed.values()), frozenset())
        counts = {t: topics[t] for t in wanted}
        if racks is not None:
            return share_alike_near(order, counts, kept, racks)
        return share_alike(order, counts, kept)
    return share_unlike(order, subscribed, topics, kept, racks)


def _valid(
    order: Sequence[str],
    subscribed: Mapping[str, frozenset[str]],
    topics: Mapping[str, int],
    claims: Mapping[str, Claim],
) -> Assignments:
    """Return the valid claims by member.

    Of two claims to a partition, that of the newer generation is valid; of equal ones, neither.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in order:
        partitions, generation = claims[member]
        for partition in dict.fromkeys(partitions):
            if partition.topic not in subscribed[member]:
                continue
            if not 0 <= partition.partition < topics[partition.topic]:
                continue
            before, _ = best.get(partition, (NO_GENERATION - 1, None))
            if generation > before:
                best[partition] = (generation, member)
            elif generation == before:
                best[partition] = (generation, None)
    kept: Assignments = {member: [] for member in order}
    for partition, (_, owner) in best.items():
        if owner is not None:
            kept[owner].append(partition)
    return kept
