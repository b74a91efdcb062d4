"""Test the table of a group's lag: each partition's member, lag, and rate of change."""

from __future__ import annotations

from odradek.cli.groups.lag import LagSum, Pace, lag_rows, pace, wanted_partitions
from odradek.cli.groups.lookup import GroupSnapshot
from odradek.cli.groups.rendering import read, sums
from odradek.cli.groups.watching import left
from odradek.clients.admin.group_offsets import ShareGroupOffset
from odradek.clients.admin.groups import GroupDescription, GroupMember
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition as At

A, B, C = At("a", 0), At("a", 1), At("c", 0)
READER = GroupMember("m-1", "client", "/10.0.0.1", assignment=(A, C))
GROUP = GroupDescription("g", "Consumer", "Stable", "consumer", "uniform", (READER,))
COMMITTED = {A: OffsetAndMetadata(10, "", 4), B: OffsetAndMetadata(3)}


def test_the_lag_table_has_a_row_for_each_committed_or_assigned_partition() -> None:
    assert wanted_partitions(COMMITTED, GROUP) == {A, B, C}
    rows = lag_rows(COMMITTED, GROUP, {A: 15, C: 9}, {B: "gone"})
    assert [(r.partition, r.committed, r.leader_epoch, r.end, r.lag, r.error) for r in rows] == [
        (A, 10, 4, 15, 5, None),
        (B, 3, None, None, None, "gone"),
        (C, None, None, 9, None, None),
    ]
    assert [r.member for r in rows] == [READER, None, READER]
    found = LagSum.of(rows)
    assert (found.lag, found.partitions, found.unknown) == (5, 3, 2)
    assert found.most is rows[0]
    assert LagSum.of([]) == LagSum(0, 0, 0, None)


def test_an_unknown_lag_is_not_printed_as_0() -> None:
    none = GroupSnapshot(GROUP, lag_rows(COMMITTED, GROUP, {}, {A: "refused"}))
    some = GroupSnapshot(GROUP, lag_rows(COMMITTED, GROUP, {A: 15}, {}))
    for look, lag, unknown in ((none, None, 3), (some, 5, 2), (GroupSnapshot(GROUP), 0, 0)):
        found = read(look)
        assert (found["lag"], found["lag_unknown"]) == (lag, unknown)
        (row,) = sums([look]).rows
        assert row[4:6] == (unknown, lag)
    shared = {A: ShareGroupOffset(3), B: ShareGroupOffset(4, lag=2)}
    assert read(GroupSnapshot(GROUP, (), shared))["lag"] == 2
    (row,) = sums([GroupSnapshot(GROUP, (), {A: ShareGroupOffset(3)})]).rows
    assert row[4:6] == (1, None)


def test_the_rate_of_change_uses_only_partitions_that_both_snapshots_contain() -> None:
    before = lag_rows(COMMITTED, None, {A: 15, B: 3}, {})
    now = lag_rows({A: OffsetAndMetadata(14), B: OffsetAndMetadata(3)}, GROUP, {A: 17, C: 1}, {})
    assert pace(before, now, 2.0) == Pace(2.0, 1.0)
    assert pace(before, now, 0.0) is None
    assert pace([], now, 2.0) is None


def test_the_time_until_the_lag_is_zero_is_estimated() -> None:
    assert left(0, Pace(0.0, 0.0)) == "nothing"
    assert left(10, Pace(1.0, 1.0)) is None
    assert left(150, Pace(3.0, 1.0)) == "1 min 15 s"
    assert left(7300, Pace(1.0, 0.0)) == "2 h 1 min"
