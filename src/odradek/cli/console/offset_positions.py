"""Positions in a log as users write them: a number, a time, or one of Kafka's words.

In: the text of `--offset` or `--until`. Out: a `LogPlace`, and by `offsets_at` an offset for each
partition. Must not: seek; the caller does. Kafka's words are earliest and latest; kcat's are
beginning, end, stored, `-10` and `s@1700000000000`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from odradek.api.consumer import Consumer
from odradek.cli.console.properties import refuse
from odradek.cli.console.waiting import patiently
from odradek.cli.frame.argument_values import whole_number
from odradek.cli.frame.results import counted
from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common.types import TopicPartition


class PlaceKind(Enum):
    """Kinds of positions."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Position: `number` is an offset, a number of offsets before the end, or ms since 1970."""

    kind: PlaceKind
    number: int = 0


WORDS = {
    "beginning": LogPlace(PlaceKind.BEGINNING),
    "earliest": LogPlace(PlaceKind.BEGINNING),
    "end": LogPlace(PlaceKind.END),
    "latest": LogPlace(PlaceKind.END),
    "stored": LogPlace(PlaceKind.STORED),
}


def log_place(text: str, flag: str) -> LogPlace:
    """Parse a position. A time without a zone is in UTC, as in Kafka's tools."""
    word = text.strip().lower()
    if word in WORDS:
        return WORDS[word]
    milliseconds = word.removeprefix("s").removeprefix("@") if "@" in word[:2] else None
    found = None
    if (number := whole_number(word)) is not None:
        found = LogPlace(PlaceKind.OFFSET, number)
    elif word.startswith("-") and (number := whole_number(word[1:])) is not None:
        found = LogPlace(PlaceKind.BEFORE_END, number)
    elif milliseconds is not None and (number := whole_number(milliseconds)) is not None:
        found = LogPlace(PlaceKind.TIME, number)
    elif milliseconds is None:
        found = _iso(text.strip())
    if found is None:
        refuse(
            f"{flag} must be an offset, -N for N before the end, beginning (earliest), end "
            "(latest), stored, or a time such as 2026-02-28T12:00 or @MILLISECONDS, not "
            f"{text!r}"
        )
    return found


def _iso(text: str) -> LogPlace | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    milliseconds = int(at.timestamp() * 1000)
    return LogPlace(PlaceKind.TIME, milliseconds) if milliseconds >= 0 else None


def end_place(text: str, flag: str) -> LogPlace:
    """Parse the position at which reading ends; a time must not be in the future."""
    found = log_place(text, flag)
    if found.kind is PlaceKind.TIME and found.number > time.time() * 1000:
        refuse(f"{flag}: {text} is in the future; the end must be known when the command starts")
    return found


def check_reached(
    consumer: Consumer,
    place: LogPlace,
    starts: Mapping[TopicPartition, int],
    *,
    patience: float,
    tell: Callable[[str], None],
) -> None:
    """Raise `NoSuchOffsetError` for an offset after the log's end.

    Otherwise a command with an end would finish without an error and without a record.
    """
    if place.kind is not PlaceKind.OFFSET or not starts:
        return
    ends = offsets_at(consumer, list(starts), WORDS["end"], patience=patience, tell=tell)
    for tp, start in starts.items():
        if start > ends[tp]:
            first = offsets_at(consumer, [tp], WORDS["beginning"], patience=patience, tell=tell)
            raise NoSuchOffsetError(tp, start, first[tp], ends[tp])


def offsets_at(
    consumer: Consumer,
    partitions: Collection[TopicPartition],
    place: LogPlace,
    *,
    patience: float,
    tell: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition; for a time, of its first record.

    If no record is that new, the log's end is returned; without a committed offset, or with fewer
    records before the end, the log's beginning.
    """

    def asked(what: str) -> dict[TopicPartition, int]:
        call = consumer.end_offsets if what == "end" else consumer.beginning_offsets
        text = f"the {what} of {counted(len(partitions), 'partition')}"
        return patiently(lambda seconds: call(partitions, seconds), patience, tell, text)

    if place.kind is PlaceKind.OFFSET:
        return dict.fromkeys(partitions, place.number)
    if place.kind is PlaceKind.BEGINNING:
        return asked("beginning")
    if place.kind is PlaceKind.END:
        return asked("end")
    if place.kind is PlaceKind.BEFORE_END:
        least = asked("beginning")
        return {tp: max(least[tp], end - place.number) for tp, end in asked("end").items()}
    if place.kind is PlaceKind.TIME:
        times = dict.fromkeys(partitions, place.number)
        since = patiently(
            lambda seconds: consumer.offsets_for_times(times, seconds),
            patience, tell, "the offsets of a time",
        )  # fmt: skip
        ends = asked("end") if None in since.values() else {}
        return {tp: ends[tp] if one is None else one.offset for tp, one in since.items()}
    stored = patiently(
        lambda seconds: consumer.committed(partitions, seconds),
        patience, tell, "the committed offsets of the group",
    )  # fmt: skip
    first = asked("beginning") if None in stored.values() else {}
    return {tp: first[tp] if one is None else one.offset for tp, one in stored.items()}
