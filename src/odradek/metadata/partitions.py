"""Define a topic's partitions in a snapshot of the cluster.

In: a topic of a metadata response. Out: `Partition` objects. For a large response, each is created
on its first use and then kept, because of 500,000 partitions a client uses a few. Must not: decide
which response is accepted, as `cluster` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from odradek.protocol.messages.metadata import MetadataResponsePartition
from odradek.protocol.packed_metadata import PackedPartitions


class Partition(NamedTuple):
    """A partition's state; `leader` is -1 if there is none, `error` a Kafka error code."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: int = 0


def term(partition: Partition) -> int:
    """Return the leader epoch; without one, a negative number derived from the leader's id."""
    return partition.leader_epoch if partition.leader_epoch >= 0 else -2 - partition.leader


def made_of(p: MetadataResponsePartition) -> Partition:
    """Create a `Partition` from its part of a metadata response."""
    return Partition(
        p.partition_index,
        p.leader_id if p.error_code == 0 or p.leader_id >= 0 else -1,
        p.leader_epoch,
        tuple(p.replica_nodes),
        tuple(p.isr_nodes),
        tuple(p.offline_replicas),
        p.error_code,
    )


class Partitions(Sequence[Partition]):
    """A topic's partitions, by their order in a response; equal to a tuple of these partitions."""

    __slots__ = ("_count", "made", "packed")

    def __init__(self, packed: PackedPartitions) -> None:
        self.packed = packed
        self._count = len(packed)
        self.made: list[Partition | None] | None = None
        """Partitions by position; None for those that weren't used yet."""

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Partition: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Partition, ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        """Return one partition, or a tuple of partitions for a slice."""
        if isinstance(at, slice):
            return tuple(self[n] for n in range(len(self.packed))[at])
        made = self.made
        if made is None:
            made = self.made = [None] * len(self.packed)
        found = made[at]
        if found is None:
            found = made[at] = made_of(self.packed[at])
        return found

    def __iter__(self) -> Iterator[Partition]:
        return (self[n] for n in range(len(self.packed)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Partitions):
            return self.packed == other.packed
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class SeenEpochs:
    """The last seen leader epochs of a topic; each of its partitions has an epoch."""

    __slots__ = ("packed", "topic_id")

    def __init__(self, topic_id: bytes, packed: PackedPartitions) -> None:
        self.topic_id = topic_id
        self.packed = packed

    def by_partition(self) -> dict[int, tuple[bytes, int]]:
        """Return the topic id and leader epoch of each partition."""
        return {n: (self.topic_id, epoch) for n, epoch in enumerate(self.packed.epochs())}


def no_epoch_is_lower(
    seen: SeenEpochs | dict[int, tuple[bytes, int]], topic_id: bytes, new: PackedPartitions
) -> bool:
    """Return whether all seen partitions are in a response, none with a lower leader epoch.

    False may also mean that partitions must be compared one by one (`numbered` is false).
    """
    if not new.numbered:
        return False
    if isinstance(seen, SeenEpochs):
        return seen.topic_id == topic_id and new.compare(seen.packed)[0]
    epochs = new.epochs()
    return all(
        known_id == topic_id and 0 <= n < len(epochs) and epochs[n] >= epoch
        for n, (known_id, epoch) in seen.items()
    )


def brings_news(old: Sequence[Partition], new: Sequence[Partition]) -> bool:
    """Return whether a partition is new, has a higher epoch or (without epochs) another leader."""
    if len(old) != len(new):
        return True
    if isinstance(old, Partitions) and isinstance(new, Partitions):
        if old.packed.numbered and new.packed.numbered:
            return new.packed.compare(old.packed)[1]
    elif isinstance(new, Partitions) and new.packed.numbered:  # creates no Partition objects
        pairs = zip(old, new.packed.epochs(), strict=True)
        return any(p.partition != n or epoch > p.leader_epoch for n, (p, epoch) in enumerate(pairs))
    for p, q in zip(old, new, strict=True):
        if q.leader_epoch > p.leader_epoch or q.partition != p.partition:
            return True
        if q.leader_epoch < 0 and q.leader != p.leader:
            return True
    return False
