"""The committed offsets of one simulated group, and those that wait for a transaction's end.

In: offsets whose entries are replicated. Out: what OffsetFetch sees. The group's shard writes and
replays them. Must not: know members or connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.common.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset as it was sent."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


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

    def pend(self, producer_id: int, partition: TopicPartition, committed: Committed) -> None:
        """An offset will be committed if the producer's transaction is."""
        self._pending.setdefault(producer_id, {})[partition] = committed

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction has ended."""
        pending = self._pending.pop(producer_id, {})
        if commit:
            self.stable.update(pending)

    @property
    def pending(self) -> int:
        """How many offsets wait for a transaction's end."""
        return sum(len(offsets) for offsets in self._pending.values())

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether a transaction that is open may still change a partition's offset."""
        return any(partition in pending for pending in self._pending.values())

    def partitions(self) -> Iterator[TopicPartition]:
        """All that have an offset, or may get one."""
        yield from self.stable
        for pending in self._pending.values():
            yield from (p for p in pending if p not in self.stable)
