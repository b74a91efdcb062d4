"""Records and commits of a mixed group, and the faults that they show.

In: written records, the reports of members, committed offsets. Out: partitions that aren't read to
their ends or don't have one owner, and texts of faults. Must not: know clusters or processes.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

OURS = ("ours", "asyncio")
MOST_TOLD = 10
"""The largest number of records of a group that are reported one by one as read again."""
LEADER = re.compile(r"Assignment received from leader (\S+)-[0-9a-f-]{36} for group (\S+) ")
"""In a broker's log: the instance id or client id of a leader, and its group."""


class Member:
    """One consumer from its start to its end, and its reports."""

    def __init__(self, name: str, client: str, static: str, topics: list[str]) -> None:
        self.name, self.client, self.static, self.topics = name, client, static, topics
        self.owned: set[str] = set()
        self.gone: set[str] = set()
        """Partitions that the member has owned and given back or lost."""
        self.disorderly_at: float | None = None
        """Time of the first fault: from then on, records may be read again."""
        self.closing = self.ended = False
        self.held = threading.Event()
        self.held.set()
        self.trouble = ""

    @property
    def ours(self) -> bool:
        """Whether the member is a consumer of Odradek."""
        return self.client in OURS

    def subscribes(self, topic: str) -> bool:
        """Whether the member subscribes to the topic; patterns match all topics of the group."""
        return topic in self.topics or self.topics[0].startswith("^")

    def may_go_back(self, partition: str) -> bool:
        """Return whether the member may read and commit from an offset that is no longer committed.

        kafka-python 3.0.12 stores the lookup of committed offsets by the set of partitions. If the
        lookup isn't awaited to its end, because of a rebalance, its result is used when the member
        is assigned the same partitions the next time.
        """
        return self.client == "kafka-python" and partition in self.gone

    def disorderly(self, at: float) -> None:
        """Note the time of a fault: the member's uncommitted records may be read again."""
        if self.disorderly_at is None:
            self.disorderly_at = at

    def heard(self, kind: str, at: float, said: Mapping[str, Any]) -> None:
        """Process a report of the member's program, except reports of records."""
        if kind == "assigned":
            self.owned.update(said["partitions"])
        elif kind in ("revoked", "lost"):
            self.owned.difference_update(said["partitions"])
            self.gone.update(said["partitions"])
        elif kind == "held":
            self.held.set()
        elif kind == "ended":
            self.ended = True
            self.owned.clear()
            self.held.set()
        if kind in ("lost", "holds", "refused", "error"):
            self.disorderly(at)
        if kind in ("refused", "error"):
            self.trouble = said["error"]

    def __str__(self) -> str:
        return f"{self.name} ({self.client}{', static' if self.static else ''})"


class Ledger:
    """Records of one group's topics: written, read and committed."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.ends: dict[str, int] = {}
        """The number of records written to each partition."""
        self.unread: dict[str, set[int]] = defaultdict(set)
        """Offsets of each partition that no member has read."""
        self.reads: dict[tuple[str, int], list[tuple[float, Member, bool]]] = defaultdict(list)
        """Reads by partition and offset, in the order of reports: time, member, and whether the
        member may have returned to an outdated offset."""
        self._committed: dict[str, int] = {}

    def create(self, topic: str, numbers: Iterable[int]) -> None:
        """Add partitions to a topic."""
        self.ends |= {f"{topic}-{n}": 0 for n in numbers}

    def topics(self) -> list[str]:
        """Return the topics that exist."""
        return sorted({p.rpartition("-")[0] for p in self.ends})

    def write(self, partition: str) -> int:
        """Note a record before it is written, and return its offset."""
        offset = self.ends[partition]
        self.unread[partition].add(offset)
        self.ends[partition] += 1
        return offset

    def read(self, member: Member, at: float, partition: str, offset: int) -> None:
        """Note a record that a member has read."""
        self.reads[partition, offset].append((at, member, member.may_go_back(partition)))
        self.unread[partition].discard(offset)

    def left(self, members: Sequence[Member]) -> dict[str, str]:
        """Return the partitions with unread records, without an owner, or with several owners.

        Partitions of topics that no member subscribes to may have neither readers nor owners.
        """
        read = {t for t in self.topics() if any(m.subscribes(t) for m in members)}
        found = {}
        for partition, end in self.ends.items():
            if partition.rpartition("-")[0] not in read:
                continue
            unread = len(self.unread[partition])
            owners = [str(m) for m in members if partition in m.owned]
            if unread or len(owners) != 1:
                found[partition] = f"{unread} of {end} unread, owners {owners}"
        return found

    def again(self) -> Iterator[tuple[Member, str, bool]]:
        """Yield the first reader and a description of each record that was read again.

        The third value is whether one of the other reads was by a member with outdated offsets.
        """
        for (partition, offset), reads in list(self.reads.items()):
            (first_at, first, _), *others = sorted(reads, key=lambda read: read[0])
            back = False
            for at, member, outdated in others:
                back = back or outdated
                text = f"{partition}:{offset} was read by {first} at {first_at:.3f}"
                yield first, f"{text}, and again by {member} at {at:.3f}", back

    def read_again(self) -> list[str]:
        """Return faults: records of members of Odradek without a fault that were read again."""
        found = [
            text
            for first, text, back in self.again()
            if first.ours and first.disorderly_at is None and not back
        ]
        more = [f"{len(found)} records were read again in all"] if len(found) > MOST_TOLD else []
        return [f"{self.group}: {text}" for text in (*found[:MOST_TOLD], *more)]

    def committed(self, partition: str, now: int, *, final: bool = False) -> list[str]:
        """Return faults of a committed offset: it moved back, or is beyond the partition's end.

        With `final`, after all members have closed in order, it must be equal to the end.
        """
        before, end = self._committed.get(partition, 0), self.ends[partition]
        self._committed[partition] = now
        reads = self.reads.get((partition, end - 1), [])
        _, last, back = max(reads, key=lambda read: read[0]) if reads else (0.0, None, False)
        found = []
        if now < before and not back:
            found.append(f"the committed offset moved back from {before} to {now}; last: {last}")
        if now > end:
            found.append(f"{now} was committed, beyond the end {end}")
        orderly = last is not None and last.ours and last.disorderly_at is None
        if final and orderly and now != end and not self.unread[partition]:
            found.append(f"{last} closed in order, but {now} of {end} is committed")
        return [f"{self.group}, {partition}: {text}" for text in found]


def last_leader(log: str, group: str, members: Iterable[Member]) -> Member | None:
    """Return the member in the place of a classic group's last leader, by the broker's log."""
    found = [who for who, led in LEADER.findall(log) if led == group]
    return next((m for m in members if found and found[-1] in (m.static, m.name)), None)


def known_to_group(
    partitions: Iterable[str], members: Sequence[Member], present: Collection[str] | None
) -> set[str]:
    """Return the partitions to which a member subscribes that is in its group, or has to be.

    A consumer of another client may have dropped out: then its group doesn't know its topics.
    `present` contains the names of the group's members; None if they aren't known.
    """
    here = [m for m in members if m.ours or present is None or m.name in present]
    return {p for p in partitions if any(m.subscribes(p.rpartition("-")[0]) for m in here)}


def at_fault(
    leader: Member | None,
    unread: Collection[str],
    assigned: Mapping[str, Collection[str]],
    members: Iterable[Member] = (),
) -> bool:
    """Return whether unread partitions may be a fault of Odradek.

    They aren't if another client leads the group and has assigned them to no member, or if the
    broker (no member leads) has assigned them to a member of another client, which doesn't read
    them: Kafka 4.4 once kept a topic for a static member of Java that no longer subscribed to it.
    """
    if leader is None:
        others = {m.name for m in members if not m.ours}
        held = {p for name, own in assigned.items() if name in others for p in own}
        return bool({*unread} - held)
    theirs = not leader.ours and not {*unread} & {p for own in assigned.values() for p in own}
    return bool(unread) and not theirs
