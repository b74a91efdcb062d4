"""Hold the committed offsets of one group, and the offsets in transactions that are still open.

In: offsets whose log entries are replicated. Out: the offsets that OffsetFetch returns. The group's
shard writes and replays the entries. Must not know members or connections.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset as the client sent it."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: bytes = field(default=NO_ID, compare=False)
    """The topic's id if the offset was committed by id. Kafka 4.4 stores the id and compares it
    only when offsets are fetched by id. A commit may be written after its topic was deleted, for
    example in a transaction that is being verified: then the id keeps it from being returned for a
    new topic of that name."""

    at: float = field(default=0.0, compare=False)
    """Time of the commit in seconds."""

    def belongs_to(self, topic_id: bytes) -> bool:
        """Return whether the offset is returned for a topic with this id."""
        return NO_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


class StoredGroupOffsets:
    """Committed offsets of one group, by partition."""

    def __init__(self) -> None:
        self.stable: dict[TopicPartition, Committed] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}

    def commit(self, partition: TopicPartition, committed: Committed) -> None:
        """Set a partition's committed offset."""
        self.stable[partition] = committed

    def forget(self, partition: TopicPartition) -> None:
        """Delete a partition's committed offset."""
        self.stable.pop(partition, None)

    def forget_topic(self, topic: str) -> None:
        """Delete a topic's committed offsets, including offsets in open transactions."""
        for offsets in (self.stable, *self._pending.values()):
            for partition in [p for p in offsets if p.topic == topic]:
                del offsets[partition]

    def pend(self, producer_id: int, partition: TopicPartition, committed: Committed) -> None:
        """Store an offset that takes effect if the producer's transaction is committed."""
        self._pending.setdefault(producer_id, {})[partition] = committed

    def waiting(self, producer_id: int) -> dict[TopicPartition, Committed]:
        """Return the offsets in a producer's open transaction."""
        return self._pending.get(producer_id, {})

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a transaction that has ended."""
        pending = self._pending.pop(producer_id, {})
        if commit:
            self.stable.update(pending)

    @property
    def pending(self) -> int:
        """Number of offsets in open transactions."""
        return sum(len(offsets) for offsets in self._pending.values())

    def expired(
        self, before: float, empty_since: float, subscribed: Container[str]
    ) -> list[TopicPartition]:
        """Return the partitions of topics without subscribers whose committed offsets have expired.

        Commits up to the time `before` are too old. `empty_since` is set for a classic group
        without members, in which no offset's age is counted from before that time (KIP-211).
        """
        return [
            p
            for p, committed in self.stable.items()
            if max(committed.at, empty_since) <= before
            and p.topic not in subscribed
            and not self.unstable(p)
        ]

    def unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction may still change a partition's offset."""
        return any(partition in pending for pending in self._pending.values())

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield all partitions with an offset, committed or in an open transaction."""
        yield from self.stable
        for pending in self._pending.values():
            yield from (p for p in pending if p not in self.stable)
