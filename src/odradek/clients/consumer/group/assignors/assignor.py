"""Define assignors, which divide the partitions of a group's topics among its members.

In the classic protocol one member, the group's leader, runs the assignor. In: the subscription that
each member sent when it joined, and the number of partitions of each topic. Out: each member's
partitions. Must not: know requests or the engine. The same input must produce the same output in
every member.
"""

from __future__ import annotations

from codecs import utf_16_be_encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias

from odradek.common.types import TopicPartition

Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""Each member's partitions, by member id."""
PartitionRacks: TypeAlias = Mapping[TopicPartition, AbstractSet[str]]
"""The racks of the brokers that have a replica of a partition (KIP-881)."""

NO_GENERATION = -1


class RebalanceProtocol(IntEnum):
    """Whether a member revokes its partitions before it joins again.

    The numbers are Kafka's. An assignor with COOPERATIVE also supports EAGER: a group whose members
    list assignors of both kinds revokes eagerly, as in a rolling upgrade (KIP-429).
    """

    EAGER = 0
    """A member revokes all partitions before it joins again."""
    COOPERATIVE = 1
    """A member keeps its partitions, and revokes those that the new assignment lacks."""


EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription that one member sent to the group's leader."""

    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that the member still owns; empty unless the rebalance is cooperative."""
    generation: int = NO_GENERATION
    """Generation in which the member was assigned the partitions that it owns."""
    rack: str | None = None
    """The member's `client.rack`."""
    instance_id: str | None = None
    """The member's `group.instance.id`, if it is a static member."""
    user_data: bytes | None = None
    """User data of the member's assignor, in that assignor's format."""


class Assignor(Protocol):
    """Interface of a user-defined object in `partition.assignment.strategy`.

    Every member of a group needs an assignor of the same `name`. Two attributes are optional:
    `user_data(last, generation) -> bytes | None` is called before each join with the partitions
    that the member was assigned last and their generation, and the leader finds its result as
    `MemberSubscription.user_data`; `partition_racks`, a `PartitionRacks`, is set before each
    `assign` (KIP-881).
    """

    @property
    def name(self) -> str:
        """The name of the assignor, the same in all members of the group."""

    @property
    def protocol(self) -> RebalanceProtocol:
        """EAGER, or COOPERATIVE if `assign` never moves partitions that others still own."""

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return each member's partitions; `topics` has the partition counts of existing topics."""


def java_order(text: str) -> bytes:
    """Return a sort key for strings as Java orders them: by UTF-16 units, not by code points."""
    return utf_16_be_encode(text, "surrogatepass")[0]  # `str.encode` would import a codec module


def in_member_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return member ids in the order in which assignors serve them.

    Static members come first, by instance id, which survives a restart; a member id doesn't
    (KIP-345).
    """

    def key(member: str) -> tuple[bool, bytes]:
        instance = members[member].instance_id
        return instance is None, java_order(member if instance is None else instance)

    return sorted(members, key=key)


def racks_matter(member_racks: AbstractSet[str], racks: PartitionRacks) -> bool:
    """Return whether racks can bring any member nearer to its replicas (KIP-881).

    They can't if no member shares a rack with a replica, or if every partition is in all racks.
    """
    everywhere = frozenset[str]().union(*racks.values())
    if not member_racks & everywhere:
        return False
    return any(found != everywhere for found in racks.values())
