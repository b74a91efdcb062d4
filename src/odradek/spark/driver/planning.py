"""Plan a batch: from options and journalled offsets to ranges of offsets.

In: offsets of a checkpoint, the options' ends, and the cluster's current offsets. Out: ranges of
offsets, and errors in the options. Must not: access a cluster, a clock or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.bounds import OffsetSpec, time_in_words
from odradek.spark.driver.offsets import EARLIEST, LATEST, Positions, StreamOffset

NAMED = 10
"""Maximum number of partitions that an error message names."""


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """Partitions to read, as in one metadata response."""

    cluster: str
    topic_ids: Mapping[str, str]
    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...] = ()
    """Topics, or partitions of option assign, that don't exist."""


@dataclass(frozen=True, slots=True, order=True)
class KafkaOffsetRange:
    """Offsets of one partition from `start` (included) to `until` (excluded)."""

    tp: TopicPartition
    start: int
    until: int
    epoch: int = -1
    """Epoch of a leader whose log had all of these offsets; -1 if unknown."""

    @property
    def size(self) -> int:
        """Number of offsets; there may be fewer records (compaction, transactions)."""
        return self.until - self.start


def ranges(begins: Positions, ends: Positions, epochs: Positions) -> list[KafkaOffsetRange]:
    """Return a range for each partition with something to read, sorted by partition."""
    return [
        KafkaOffsetRange(tp, begins[tp], ends[tp], epochs.get(tp, -1))
        for tp in sorted(ends)
        if tp in begins and begins[tp] < ends[tp]
    ]


def batch_begins(start: StreamOffset | None, end: StreamOffset) -> dict[TopicPartition, int]:
    """Return a micro-batch's start by partition, from its own or the previous batch's end offset.

    With asynchronous progress tracking Spark doesn't journal the offsets of all batches, so a
    partition that was added in such a batch is missing.
    """
    known = start.positions if start is not None else {}
    found = {tp: known[tp] for tp in end.positions if tp in known} | dict(end.begins)
    if start is None and (unknown := sorted(end.positions.keys() - found)):
        raise OptionError(f"the checkpoint has no starting offset for {unknown[0]}")
    return found


def check_names_all(spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> None:
    """Raise `OptionError` unless offsets by partition name exactly the partitions that are read."""
    named = spec.named
    if named is None:
        return
    there = set(partitions)
    for differing, what in (
        (there - set(named), "lacks"),
        (set(named) - there, "names partitions that don't exist or aren't read:"),
    ):
        if differing:
            listed = ", ".join(str(tp) for tp in sorted(differing)[:NAMED])
            more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
            advice = "" if spec.times else " Use -1 for latest, -2 for earliest."
            raise OptionError(
                f"option {spec.option} {what} {listed}{more}. It must name exactly the partitions "
                f"that the query reads.{advice}"
            )


Ask = Callable[[], Positions]


def resolve(
    spec: OffsetSpec, partitions: Iterable[TopicPartition], beginnings: Ask, ends: Ask
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Resolve an option without timestamps to offsets; also describe offsets out of range.

    An offset out of range is replaced by the nearest existing one; the caller decides whether that
    is allowed.
    Log ends are only requested if they are needed.
    """
    if spec.bound is not None:
        known = beginnings() if spec.bound == EARLIEST else ends()
        return {tp: known[tp] for tp in partitions}, {}
    found: dict[TopicPartition, int] = {}
    outside: dict[TopicPartition, str] = {}
    least, most = beginnings(), ends()
    for tp in partitions:
        wanted = spec.offsets[tp]
        if wanted == EARLIEST:
            found[tp] = least[tp]
        elif wanted == LATEST:
            found[tp] = most[tp]
        else:
            found[tp] = min(max(wanted, least[tp]), most[tp])
            if found[tp] != wanted:
                outside[tp] = (
                    f"{tp}: option {spec.option} is {wanted}, but the log has offsets {least[tp]} "
                    f"to {most[tp]} (OFFSET_OUT_OF_RANGE)"
                )
    return found, outside


def resolve_times(
    spec: OffsetSpec,
    partitions: Iterable[TopicPartition],
    at_times: Mapping[TopicPartition, int | None],
    ends: Ask,
) -> dict[TopicPartition, int]:
    """Resolve an option with timestamps to offsets.

    `at_times`: the offset of each partition's timestamp, None if all of its records are older.
    """
    found: dict[TopicPartition, int] = {}
    for tp in partitions:
        offset = at_times[tp]
        if offset is None and not spec.else_latest:
            time = spec.time if spec.time is not None else spec.times[tp]
            raise OptionError(
                f"option {spec.option}: {tp} has no record at or after {time_in_words(time)}; to "
                "start at its end instead, set option startingOffsetsByTimestampStrategy to latest"
            )
        found[tp] = ends()[tp] if offset is None else offset
    return found
