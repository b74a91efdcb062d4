"""Compare a checkpoint with a cluster: recreated topics, missing partitions, truncated logs.

In: offsets of a checkpoint, and the cluster's current topics and offsets. Out: differences, as
sentences. Must not: access a cluster. The driver checks again before it accepts a loss, and decides
whether the query fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from odradek.common.outage import number
from odradek.common.types import TopicPartition
from odradek.spark.driver.offsets import Positions, StreamOffset
from odradek.spark.driver.planning import TopicsSnapshot


@dataclass(frozen=True, slots=True)
class Losses:
    """Differences between a checkpoint and the cluster that mean lost records."""

    recreated: Mapping[str, tuple[str, str]]
    gone: tuple[TopicPartition, ...]
    shrunk: Mapping[TopicPartition, tuple[int, int]]
    unasked: tuple[TopicPartition, ...] = ()
    """Partitions that the options no longer include, whether they exist or not."""
    cut: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """By partition whose log was truncated below the position: the position, and the first offset
    that differs."""

    older: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Former and current leader epochs that show a recreated topic, if there are no topic ids.

    The current epoch is lower, or it is equal although the log has become shorter: within an epoch
    no log is truncated.
    """

    def __bool__(self) -> bool:
        return self.doubtful or bool(self.cut)

    @property
    def doubtful(self) -> bool:
        """Whether a loss may have been reported by an outdated broker.

        `cut` isn't doubtful: only leaders of a newer epoch than the position's report it.
        """
        return bool(self.recreated or self.gone or self.shrunk or self.unasked or self.older)

    def doubtful_among(self, positions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions whose loss another broker has to confirm."""
        anew = {tp for tp in positions if tp.topic in self.recreated}
        return {*anew, *self.gone, *self.shrunk, *self.older}

    def sentences(self) -> list[str]:
        """Return a sentence for each difference, with topic, ids and offsets."""
        found = [
            f"topic {topic} was deleted and recreated: the checkpoint has topic id {then}, the "
            f"cluster has topic id {now} (UNKNOWN_TOPIC_ID)"
            for topic, (then, now) in sorted(self.recreated.items())
        ]
        found += [deleted(tp) for tp in self.gone]
        found += [
            f"{tp} is in the checkpoint, but the options subscribe or assign no longer include it"
            for tp in self.unasked
        ]
        found += [
            f"{tp}: the next offset to read is {then}, but the log now ends at {now} "
            "(OFFSET_OUT_OF_RANGE)"
            for tp, (then, now) in sorted(self.shrunk.items())
        ]
        found += [with_lower_epoch(tp, *epochs) for tp, epochs in sorted(self.older.items())]
        found += [lost_in_election(tp, now, then) for tp, (then, now) in sorted(self.cut.items())]
        return found


def deleted(tp: TopicPartition) -> str:
    """Return a sentence about a partition that was deleted."""
    return f"{tp} no longer exists (UNKNOWN_TOPIC_OR_PARTITION)"


def lost_in_election(tp: TopicPartition, begin: int, until: int) -> str:
    """Return a sentence about offsets that an unclean leader election removed from a log."""
    return (
        f"{tp}: the records at offsets {begin} to {until - 1} ({number(until - begin, 'offset')}) "
        "were lost in an unclean leader election; the log now has other records there, or none "
        "(OFFSET_OUT_OF_RANGE)"
    )


def with_lower_epoch(tp: TopicPartition, then: int, now: int) -> str:
    """Return a sentence about a recreated partition, whose leader epochs started over."""
    if now == then:
        return (
            f"{tp}: the log is shorter than before under the same leader epoch {now}: the topic "
            "was deleted and recreated (UNKNOWN_TOPIC_ID)"
        )
    return (
        f"{tp}: the leader epoch is now {now}, below epoch {then} of the query's offset: the topic "
        "was deleted and recreated (UNKNOWN_TOPIC_ID)"
    )


NOTHING_LOST = Losses({}, (), {})


def find_losses(
    start: StreamOffset,
    topics: TopicsSnapshot,
    ends: Positions,
    asked: Callable[[TopicPartition], bool],
    diverged: Positions = MappingProxyType({}),
    epochs: Positions = MappingProxyType({}),
) -> Losses:
    """Compare the query's offsets with the cluster's topics and log ends.

    `diverged`: first offset at which a log differs from the log that the query has read.
    `epochs`: the current leader epochs.
    """
    older: dict[TopicPartition, tuple[int, int]] = {}
    if start.cluster not in (None, topics.cluster):
        # The options allow another cluster (a mirror), whose topics have other ids.
        anew: dict[str, tuple[str, str]] = {}
    else:
        older = {
            tp: (then, epochs[tp])
            for tp, then in start.epochs.items()
            if 0 <= epochs.get(tp, -1) < then
            or (
                epochs.get(tp) == then
                and start.positions[tp] > ends.get(tp, math.inf)
                and not topics.topic_ids
            )
        }
        anew = {
            topic: (then, topics.topic_ids[topic])
            for topic, then in start.topic_ids.items()
            if topics.topic_ids.get(topic, then) != then
        }
    older = {tp: found for tp, found in older.items() if tp.topic not in anew}
    now = set(topics.partitions)
    absent = [tp for tp in sorted(start.positions) if tp not in now]
    gone = tuple(tp for tp in absent if asked(tp))
    unasked = tuple(tp for tp in absent if not asked(tp))
    shrunk = {
        tp: (position, ends[tp])
        for tp, position in start.positions.items()
        if tp in ends and position > ends[tp]
        if not (tp.topic in anew or tp in diverged or tp in older)
    }
    cut = {tp: (start.positions[tp], offset) for tp, offset in diverged.items()}
    return Losses(anew, gone, shrunk, unasked, cut, older)


def headless(joined: Positions, anew: Iterable[str]) -> list[str]:
    """Return a warning message for each new partition whose log doesn't start at offset 0."""
    named = set(anew)
    return [
        f"{tp} is new to the query, but its log starts at offset {begin} instead of 0 "
        "(OFFSET_OUT_OF_RANGE)"
        for tp, begin in sorted(joined.items())
        if begin > 0 and tp.topic not in named
    ]
