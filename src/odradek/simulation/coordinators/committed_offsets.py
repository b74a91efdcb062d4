"""The committed offsets of one simulated group, and those that wait for a transaction's end.

In: offsets whose entries are replicated. Out: what OffsetFetch sees. The group's shard writes and
replays them. Must not: know members or connections.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset as it was sent."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: bytes = field(default=NO_ID, compare=False)
    """The topic's id where it was committed by id. Kafka 4.4 keeps it and compares it only when
    offsets are fetched by id: a request that is written after its topic was deleted, as one in a
    transaction that was being verified, leaves an offset that isn't returned for the next topic."""

    at: float = field(default=0.0, compare=False)
    """Time of the commit."""

    def belongs_to(self, topic_id: bytes) -> bool:
        """Return whether it is returned to who asks for a topic with this id."""
        return NO_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


class StoredGroupOffsets:
    """What one group has committed."""

    def __init__(self) -> None:
        self.stable: dict[TopicPartition, Committed] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}

    def commit(self, partition: TopicPartition, committed: Committed) -> None:
        """An offset is committed."""
        self.stable[partition] = committed

    def forget(self, partition: TopicPartition) -> None:
        """An offset is deleted."""
        self.stable.pop(partition, None)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a topic, with those that wait for a transaction's end."""
        for offsets in (self.stable, *self._pending.values()):
            for partition in [p for p in offsets if p.topic == topic]:
                del offsets[partition]

    def pend(self, producer_id: int, partition: TopicPartition, committed: Committed) -> None:
        """An offset will be committed if the producer's transaction is."""
        self._pending.setdefault(producer_id, {})[partition] = committed

    def waiting(self, producer_id: int) -> dict[TopicPartition, Committed]:
        """Return the offsets that wait for the end of a producer's transaction."""
        return self._pending.get(producer_id, {})

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction has ended."""
        pending = self._pending.pop(producer_id, {})
        if commit:
            self.stable.update(pending)

    @property
    def pending(self) -> int:
        """How many offsets wait for a transaction's end."""
        return sum(len(offsets) for offsets in self._pending.values())

    def expired(
        self, before: float, empty_since: float, subscribed: Container[str]
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets are too old, by topics that members subscribe to.

        `before`: the time up to which commits are too old. `empty_since`: a classic group without
        members ages all of its offsets from then on (KIP-211).
        """
        return [
            p
            for p, committed in self.stable.items()
            if max(committed.at, empty_since) <= before
            and p.topic not in subscribed
            and not self.unstable(p)
        ]

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether a transaction that is open may still change a partition's offset."""
        return any(partition in pending for pending in self._pending.values())

    def partitions(self) -> Iterator[TopicPartition]:
        """All that have an offset, or may get one."""
        yield from self.stable
        for pending in self._pending.values():
            yield from (p for p in pending if p not in self.stable)
