"""Parse where a query starts and ends, before any cluster is accessed.

In: the options `starting…` and `ending…`. Out: an `OffsetSpec` for each end, with the JVM
connector's precedence: one time for all partitions, a time for each partition, offsets. Must not:
access a cluster; `planning` resolves the specs to offsets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.offsets import EARLIEST, LATEST, Positions, is_own, positions_from_json
from odradek.spark.options.option_values import choice, integer_option, json_object

logger = logging.getLogger("odradek.spark")

ERROR = "error"
STRATEGY = "startingOffsetsByTimestampStrategy"
WORDS = {"earliest": EARLIEST, "latest": LATEST}
SECONDS_PERHAPS = 100_000_000_000
"""Milliseconds of a time in March 1973: smaller values are probably seconds."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One end of a query: an offset or a time for all partitions, or one per partition."""

    option: str
    bound: int | None = None
    """LATEST or EARLIEST for all; None if another field applies."""
    offsets: Positions = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    """LATEST or EARLIEST for whole topics; `offsets` has the partitions of other topics."""
    time: int | None = None
    """Milliseconds since the epoch, for all partitions."""
    times: Positions = field(default_factory=dict)
    else_latest: bool = True
    """Whether the log end is used for a partition without a record at or after the time."""

    @property
    def named(self) -> Positions | None:
        """Offsets or times by partition; None if the option applies to all partitions."""
        if self.bound is not None or self.time is not None:
            return None
        return self.times or self.offsets

    def over(self, partitions: Iterable[TopicPartition]) -> OffsetSpec:
        """Return a copy with offsets by partition instead of by topic.

        Raises `OptionError` for a topic without any of these partitions.
        """
        if not self.topics:
            return self
        integer_option = {tp: self.topics[tp.topic] for tp in partitions if tp.topic in self.topics}
        if unread := sorted(self.topics.keys() - {tp.topic for tp in integer_option}):
            raise OptionError(
                f"option {self.option} names topics that the query doesn't read: "
                f"{', '.join(unread[:10])}"
            )
        return replace(self, offsets={**self.offsets, **integer_option}, topics={})


def starting_spec(plain: Mapping[str, str], default: str) -> OffsetSpec:
    """Parse the options that define where a query starts."""
    strict = choice(plain, STRATEGY, ERROR, "latest") == ERROR
    return _spec(plain, "starting", default, EARLIEST, else_latest=not strict)


def ending_spec(plain: Mapping[str, str]) -> OffsetSpec:
    """Parse the options that define where a batch query ends."""
    return _spec(plain, "ending", "latest", LATEST, else_latest=True)


def _spec(
    plain: Mapping[str, str], end: str, default: str, least: int, *, else_latest: bool
) -> OffsetSpec:
    names = [f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"]
    given = [name for name in names if name.lower() in plain]
    for name in given[1:]:
        logger.warning("option %s has no effect: option %s takes precedence", name, given[0])
    if given and given[0] == names[0]:
        time = integer_option(names[0], plain[names[0].lower()], least=0)
        _warn_of_seconds(names[0], time)
        return OffsetSpec(names[0], time=time, else_latest=else_latest)
    if given and given[0] == names[1]:
        document = json_object(names[1], plain[names[1].lower()])
        times = positions_from_json(document, f"option {names[1]}", what="a timestamp in ms")
        if not times:
            raise OptionError(f"option {names[1]} names no partition")
        _warn_of_seconds(names[1], min(times.values()))
        return OffsetSpec(names[1], times=times, else_latest=else_latest)
    return _offsets(names[2], plain.get(names[2].lower(), default), least)


def _offsets(name: str, given: str, least: int) -> OffsetSpec:
    text = given.strip("\0 \t\r\n")
    if text.lower() in WORDS:
        return OffsetSpec(name, WORDS[text.lower()])
    if text.startswith("v1"):
        text = _of_journal(name, text)
    if not text.startswith("{"):
        raise OptionError(f"option {name} must be earliest, latest or JSON, not {text!r:.80}")
    document = json_object(name, text)
    if is_own(document) and document["v"] not in WORDS.values():
        document = document.get("o") or {}  # the text was copied from an Odradek checkpoint
    topics = {topic: b for topic, said in document.items() if (b := _bound(said)) is not None}
    nested = {topic: _in_numbers(said) for topic, said in document.items() if topic not in topics}
    offsets = positions_from_json(nested, f"option {name}", least=EARLIEST)
    for place, offset in (*sorted(topics.items()), *sorted(offsets.items())):
        if least == LATEST and offset == EARLIEST:
            raise OptionError(f"option {name}: {place} can't end at earliest (-2)")
    return OffsetSpec(name, None, offsets, topics)


def _bound(said: Any) -> int | None:
    """Return EARLIEST or LATEST for the word (any case) or number; None for any other value."""
    if isinstance(said, str):
        return WORDS.get(said.strip().lower())
    return said if type(said) is int and said in WORDS.values() else None


def _in_numbers(said: Any) -> Any:
    if not isinstance(said, dict):
        return said
    return {p: o if (bound := _bound(o)) is None else bound for p, o in said.items()}


def _warn_of_seconds(name: str, time: int) -> None:
    if 0 < time < SECONDS_PERHAPS:
        logger.warning(
            "option %s is in milliseconds, and its value may be in seconds: it means %s",
            name,
            time_in_words(time),
        )


def time_in_words(time_ms: int) -> str:
    """Return a time as milliseconds and as a date, so that a wrong unit is noticed."""
    try:
        found = EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms (beyond the year 9999)"
    return f"{time_ms} ms ({found.isoformat(timespec='milliseconds').replace('+00:00', 'Z')})"


def _of_journal(name: str, text: str) -> str:
    """Return the line with offsets from the text of a checkpoint file: offsets/N or sources/0/0."""
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    found = [line for line in lines if line.startswith("{") and not _is_batch_metadata(line)]
    if len(found) != 1:
        raise OptionError(
            f"option {name} contains a checkpoint file with {len(found)} sources: copy only the "
            "line of the source to read"
        )
    return found[0]


def _is_batch_metadata(line: str) -> bool:
    try:
        return "batchWatermarkMs" in json.loads(line)
    except ValueError:
        return False


def check_batch_bounds(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Check starting and ending offsets by the JVM connector's rules for batch queries."""
    if LATEST in (starting.bound, *starting.topics.values(), *starting.offsets.values()):
        raise OptionError("option startingOffsets of a batch query can't be latest (-1)")
    if ending.bound == EARLIEST:
        raise OptionError("option endingOffsets can't be earliest")
    for starts, ends in ((starting.offsets, ending.offsets), (starting.times, ending.times)):
        if not starts or not ends:
            continue
        integer_option = starting.topics.keys() | ending.topics.keys()
        differing = sorted(tp for tp in set(starts) ^ set(ends) if tp.topic not in integer_option)
        if differing:
            raise OptionError(
                f"options {starting.option} and {ending.option} must name the same partitions; "
                f"only one of them names {', '.join(map(str, differing[:10]))}"
            )
        for tp, start in sorted(starts.items()):
            if 0 <= ends.get(tp, LATEST) < start:
                raise OptionError(
                    f"{tp}: {starting.option} {start} is after {ending.option} {ends[tp]}"
                )
