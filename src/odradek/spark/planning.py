"""What a batch reads: from offsets known to be there, to ranges, limits and findings of loss.

In: offsets of a checkpoint and what the cluster says now. Out: ranges of offsets and sentences
about what is wrong. Pure: no cluster, no clock, no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.common.types import TopicPartition
from odradek.spark.offsets import EARLIEST, LATEST, Positions, StreamOffset
from odradek.spark.options import OffsetSpec
from odradek.spark.problems import OptionError

NAMED = 10
"""How many partitions an error lists."""


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """The partitions to read as one look at the cluster showed them."""

    cluster: str
    topic_ids: Mapping[str, str]
    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...] = ()
    """Topics, or partitions of option assign, that aren't there."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition: `start` is read, `until` isn't."""

    tp: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """Count offsets, which may be more than records (compaction, transactions)."""
        return self.until - self.start


def proportional_ends(limit: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Share `limit` offsets out over partitions by their lag, as the JVM connector does.

    A share below one is rounded up to one, so that a small partition beside a large one isn't
    starved; hence the sum can pass the limit by as many offsets as there are small partitions.
    """
    sizes = {tp: max(0, end - begins.get(tp, end)) for tp, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    found = {}
    for tp, end in ends.items():
        share = max(1, limit * sizes[tp] // total) if sizes[tp] else 0
        found[tp] = begins[tp] + min(share, sizes[tp]) if sizes[tp] else end
    return found


def ranges(begins: Positions, ends: Positions) -> list[OffsetRange]:
    """Pair begins and ends; partitions with nothing to read are left out."""
    found = [OffsetRange(tp, begins[tp], end) for tp, end in ends.items() if begins[tp] < end]
    return sorted(found)


def batch_begins(start: StreamOffset | None, end: StreamOffset) -> dict[TopicPartition, int]:
    """Where a micro-batch starts: what its end says, else where the batch before it ended."""
    known = start.positions if start is not None else {}
    found = {}
    for tp in end.positions:
        begin = end.begins.get(tp, known.get(tp))
        if begin is None:
            raise OptionError(f"the checkpoint doesn't say where {tp} starts")
        found[tp] = begin
    return found


def recreated(start: StreamOffset, topic_ids: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Topics whose id isn't the checkpoint's: name → (then, now)."""
    return {
        topic: (then, topic_ids[topic])
        for topic, then in start.topic_ids.items()
        if topic in topic_ids and topic_ids[topic] != then
    }


@dataclass(frozen=True, slots=True)
class Losses:
    """How a checkpoint and the cluster disagree."""

    recreated: Mapping[str, tuple[str, str]]
    gone: tuple[TopicPartition, ...]
    shrunk: Mapping[TopicPartition, tuple[int, int]]

    def __bool__(self) -> bool:
        return bool(self.recreated or self.gone or self.shrunk)

    def sentences(self) -> list[str]:
        """Say each one with its topic, ids and offsets."""
        found = [
            f"topic {topic} was deleted and made anew: the checkpoint is of topic id {then}, the "
            f"cluster has topic id {now} (UNKNOWN_TOPIC_ID)"
            for topic, (then, now) in sorted(self.recreated.items())
        ]
        found += [f"{tp} is gone from the cluster (UNKNOWN_TOPIC_OR_PARTITION)" for tp in self.gone]
        found += [
            f"{tp}: the next offset to read is {then}, but the log now ends at {now} "
            "(OFFSET_OUT_OF_RANGE)"
            for tp, (then, now) in sorted(self.shrunk.items())
        ]
        return found


def find_losses(start: StreamOffset, topics: TopicsSnapshot, ends: Positions) -> Losses:
    """Compare where the query stands with what the cluster has now."""
    anew = recreated(start, topics.topic_ids)
    now = set(topics.partitions)
    gone = tuple(tp for tp in sorted(start.positions) if tp not in now)
    shrunk = {
        tp: (position, ends[tp])
        for tp, position in start.positions.items()
        if tp in ends and tp.topic not in anew and position > ends[tp]
    }
    return Losses(anew, gone, shrunk)


def check_names_all(spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> None:
    """Offsets given one by one must name exactly the partitions that are read."""
    if spec.bound is not None:
        return
    there = set(partitions)
    for differing, what in (
        (there - set(spec.offsets), "lacks"),
        (set(spec.offsets) - there, "names partitions that aren't read or don't exist:"),
    ):
        if differing:
            listed = ", ".join(str(tp) for tp in sorted(differing)[:NAMED])
            more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
            raise OptionError(
                f"option {spec.option} {what} {listed}{more}. It must name every partition that "
                "is read and no other; use -1 for latest, -2 for earliest."
            )


def resolve(
    spec: OffsetSpec,
    partitions: Iterable[TopicPartition],
    beginnings: Positions,
    ends: Positions,
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Turn an option into offsets, and say which ones the log doesn't hold.

    Those are moved to the nearest offset that is there: the caller decides whether that is allowed.
    """
    found: dict[TopicPartition, int] = {}
    outside: list[str] = []
    for tp in partitions:
        wanted = spec.bound if spec.bound is not None else spec.offsets[tp]
        if wanted == EARLIEST:
            found[tp] = beginnings[tp]
        elif wanted == LATEST:
            found[tp] = ends[tp]
        else:
            found[tp] = min(max(wanted, beginnings[tp]), ends[tp])
            if found[tp] != wanted:
                outside.append(
                    f"{tp}: option {spec.option} says {wanted}, but the log holds "
                    f"{beginnings[tp]} to {ends[tp]} (OFFSET_OUT_OF_RANGE)"
                )
    return found, outside


def needs(spec: OffsetSpec) -> tuple[bool, bool]:
    """Whether resolving the option takes the beginnings, and the ends, of partitions."""
    if spec.bound is not None:
        return spec.bound == EARLIEST, spec.bound == LATEST
    return True, True
