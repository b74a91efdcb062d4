"""Convert groups to output: tables for users, plain data for `--json`.

In: snapshots of groups. Out: tables, dicts. Must not: access a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.cli.frame.results import ResultTable, counted
from odradek.cli.groups.lag import LagSum
from odradek.cli.groups.lookup import GroupSnapshot
from odradek.clients.admin.group_offsets import ShareGroupOffset
from odradek.clients.admin.groups import GroupDescription, GroupMember
from odradek.common.types import TopicPartition


def headline(d: GroupDescription) -> str:
    """Describe a group in a sentence."""
    how = f", assignor {d.assignor}" if d.assignor else ""
    where = "" if d.coordinator is None else f", coordinator {d.coordinator}"
    members = counted(len(d.members), "member")
    return f"Group {d.group_id}: {d.type}, {d.state}, {members}{how}{where}."


def described(seen: GroupSnapshot) -> ResultTable:
    """Return a table of a group's partitions, with offsets and members."""
    group = seen.group.group_id
    heads: tuple[str, ...]
    if seen.shared:
        heads = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG")
        offsets = sorted(seen.shared.items())
        return ResultTable(heads, [(group, *at, _start(o), o.lag) for at, o in offsets])
    heads = (
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    rows: list[tuple[Any, ...]] = []
    for row in seen.rows:
        m = row.member
        who = (None, None, None) if m is None else (m.member_id, m.host, m.client_id)
        read = (row.leader_epoch, row.committed, row.end, row.lag)
        rows.append((group, *row.partition, *read, *who))
    return ResultTable(heads, rows, f"Group {group} has no committed offsets.")


def members(groups: Iterable[GroupDescription]) -> ResultTable:
    """Return a table of members with their assigned partitions."""
    heads = (
        *("GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "EPOCH", "#PARTITIONS"),
        *("ASSIGNMENT", "TARGET-ASSIGNMENT"),
    )
    rows = [
        (
            *(d.group_id, m.member_id, m.instance_id, m.host, m.client_id, m.epoch),
            len(m.assignment) or len(m.active_tasks),
            _assigned(m),
            None if m.target_assignment is None else partitions_by_topic(m.target_assignment),
        )
        for d in groups
        for m in d.members
    ]
    return ResultTable(heads, rows, "No members found.")


def _assigned(m: GroupMember) -> str:
    tasks = ",".join(f"{task.subtopology}_{task.partition}" for task in m.active_tasks)
    return partitions_by_topic(m.assignment) or tasks


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as Kafka's tool does: `flights:0,1;weather:2`."""
    found: dict[str, list[int]] = {}
    for at in sorted(partitions):
        found.setdefault(at.topic, []).append(at.partition)
    return ";".join(f"{topic}:{','.join(map(str, ns))}" for topic, ns in found.items())


def lags(looks: Iterable[GroupSnapshot]) -> ResultTable:
    """Return a table of groups' lag, with a row for each partition."""
    heads = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "ERROR")
    rows: list[tuple[Any, ...]] = []
    for seen in looks:
        group = seen.group.group_id
        rows += [
            (group, *row.partition, row.committed, row.end, row.lag, row.error) for row in seen.rows
        ]
        rows += [
            (group, *at, _start(o), None, o.lag, _why(o)) for at, o in sorted(seen.shared.items())
        ]
    if not any(row[-1] for row in rows):
        return ResultTable(heads[:-1], [row[:-1] for row in rows])
    return ResultTable(heads, rows)


def sums(looks: Iterable[GroupSnapshot], empty: str = "") -> ResultTable:
    """Return a table with the total lag of each group."""
    heads = ("GROUP", "STATE", "MEMBERS", "PARTITIONS", "LAG-UNKNOWN", "TOTAL-LAG", "MOST-BEHIND")
    return ResultTable(heads, [_sum(seen) for seen in looks], empty)


def _sum(seen: GroupSnapshot) -> tuple[Any, ...]:
    d = seen.group
    if seen.shared:
        known = {at: o.lag for at, o in seen.shared.items() if o.lag is not None}
        count, most = len(seen.shared), max(known, key=lambda at: known[at], default=None)
        behind = most if most is not None and known[most] else None
        left = sum(known.values()) if known or not count else None
        return d.group_id, d.state, len(d.members), count, count - len(known), left, behind
    found = LagSum.of(seen.rows)
    behind = found.most.partition if found.most is not None and found.most.lag else None
    left = found.lag if found.unknown < found.partitions or not found.partitions else None
    counts = (len(d.members), found.partitions, found.unknown, left)
    return d.group_id, d.state, *counts, behind


def _start(offset: ShareGroupOffset) -> int | None:
    return offset.start_offset if offset.error is None else None


def _why(offset: ShareGroupOffset) -> str | None:
    error = offset.error
    return None if error is None else f"{type(error).__name__}: {error}"


# JSON


def facts(d: GroupDescription) -> dict[str, Any]:
    """Return a group as plain data, without its offsets."""
    return {
        "type": d.type,
        "state": d.state,
        "protocol_type": d.protocol_type,
        "assignor": d.assignor,
        "epoch": d.epoch,
        "coordinator": d.coordinator,
        "members": d.members,
    }


def read(seen: GroupSnapshot) -> dict[str, Any]:
    """Return a group's offsets and lag as plain data.

    `lag` is the sum of the known lags, or None if none is known. `lag_unknown` is the number of
    partitions without a known lag.
    """
    partitions: list[dict[str, Any]] = []
    for at, o in sorted(seen.shared.items()):
        told = {"start_offset": _start(o), "lag": o.lag, "error": _why(o)}
        partitions.append({**at._asdict(), **told})
    for row in seen.rows:
        who = None if row.member is None else row.member.member_id
        offsets = {"offset": row.committed, "leader_epoch": row.leader_epoch, "end": row.end}
        told = {"lag": row.lag, "member_id": who, "error": row.error}
        partitions.append({**row.partition._asdict(), **offsets, **told})
    lags = [p["lag"] for p in partitions if p["lag"] is not None]
    known = sum(lags) if lags or not partitions else None
    unknown = len(partitions) - len(lags)
    return {"lag": known, "lag_unknown": unknown, "partitions": partitions}
