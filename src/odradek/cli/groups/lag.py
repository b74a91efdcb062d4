"""Compute groups' lag from responses: one row for each partition.

In: committed offsets, members, log end offsets. Out: rows, sums, and their rate of change. Must
not: access a cluster, read a clock, or produce output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.clients.admin.groups import GroupDescription, GroupMember
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition

Committed = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class LagRow:
    """Partition of a group.

    `committed` and `lag` are None without a committed offset; `end` and `lag` are None if the log
    end is unavailable, for the reason in `error`. `member` reads the partition.
    """

    partition: TopicPartition
    committed: int | None
    leader_epoch: int | None
    end: int | None
    member: GroupMember | None = None
    error: str | None = None

    @property
    def lag(self) -> int | None:
        """Difference of log end and committed offset, as in Kafka's tool."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


@dataclass(frozen=True, slots=True)
class LagSum:
    """Lag of all partitions of a group. `unknown`: number of partitions without a known lag."""

    lag: int
    partitions: int
    unknown: int
    most: LagRow | None

    @classmethod
    def of(cls, rows: Iterable[LagRow]) -> LagSum:
        """Return the sum of a group's rows."""
        every = list(rows)
        known = [row for row in every if row.lag is not None]
        most = max(known, key=lambda row: row.lag or 0, default=None)
        return cls(sum(row.lag or 0 for row in known), len(every), len(every) - len(known), most)


def wanted_partitions(committed: Committed, group: GroupDescription | None) -> set[TopicPartition]:
    """Return a group's partitions: those with a committed offset or assigned to a member."""
    members = group.members if group is not None else ()
    return {*committed, *(at for member in members for at in member.assignment)}


def lag_rows(
    committed: Committed,
    group: GroupDescription | None,
    ends: Mapping[TopicPartition, int | None],
    errors: Mapping[TopicPartition, str],
) -> list[LagRow]:
    """Return the rows of a group, by topic and partition."""
    members = group.members if group is not None else ()
    readers = {at: member for member in members for at in member.assignment}
    rows = []
    for at in sorted(wanted_partitions(committed, group)):
        known = committed.get(at)
        epoch = known.leader_epoch if known is not None and known.leader_epoch >= 0 else None
        offset = None if known is None else known.offset
        end, error = ends.get(at), errors.get(at)
        rows.append(LagRow(at, offset, epoch, end, readers.get(at), error))
    return rows


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates between two measurements, in records per second: read by the group, and written."""

    read: float
    written: float


def pace(before: Iterable[LagRow], now: Iterable[LagRow], seconds: float) -> Pace | None:
    """Return the rates between two measurements, for partitions in both; None without any."""
    earlier = {row.partition: row for row in before}
    read = written = 0
    counted = False
    for row in now:
        old = earlier.get(row.partition)
        if old is None or None in (old.committed, old.end, row.committed, row.end):
            continue
        counted = True
        read += (row.committed or 0) - (old.committed or 0)
        written += (row.end or 0) - (old.end or 0)
    return Pace(read / seconds, written / seconds) if counted and seconds > 0 else None
