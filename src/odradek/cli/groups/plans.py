"""Plan new offsets of a group: the modes of Kafka's `--reset-offsets`, as pure functions.

In: a mode, partitions, committed offsets, offsets that were looked up. Out: a `Plan`: new offsets,
warnings, and errors of partitions without an offset. An offset outside of the log is replaced by
the nearer end of the log with a warning, as in Kafka's tool. Must not: access a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import whole_number
from odradek.cli.frame.timestamps import parse_moment
from odradek.clients.admin.offsets import OffsetSpec
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.common.options.durations import parse_duration
from odradek.common.types import TopicPartition

EARLIEST, LATEST = "EARLIEST", "LATEST"
Found = Mapping[OffsetSpec, Mapping[TopicPartition, int | None]]
"""Offsets by lookup (keyword or time) and partition; None if there is no such record."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Mode of choosing new offsets.

    `flag` is the name of its flag without dashes; `number` is an offset (to-offset), a number of
    records (shift-by) or milliseconds since the epoch.
    """

    flag: str
    number: int = 0

    @property
    def questions(self) -> tuple[OffsetSpec, ...]:
        """Return the offsets to look up."""
        return {
            "to-earliest": (EARLIEST,),
            "to-latest": (LATEST,),
            "to-current": (LATEST,),
            "to-datetime": (self.number, LATEST),
            "by-duration": (self.number, LATEST),
        }.get(self.flag, (EARLIEST, LATEST))


@dataclass(slots=True)
class Plan:
    """New offsets of one group; must not be executed if it has errors."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: dict[Any, KafkaError] = field(default_factory=dict)
    """Errors by partition, or by topic if all of its partitions failed."""


def parse_mode(given: Mapping[str, object], now: float) -> Mode:
    """Return the only mode among flags and their values; `now` is in seconds since the epoch.

    Flags that aren't set are None or False. Raises a usage error.
    """
    chosen = {f: v for f, v in given.items() if v is not None and v is not False}
    names = ", ".join(f"--{flag}" for flag in given)
    if len(chosen) != 1:
        refuse(
            f"choose the new offset by one of {names}" if not chosen else f"use only one of {names}"
        )
    ((flag, value),) = chosen.items()
    if flag == "to-datetime":
        return Mode(flag, parse_moment("--to-datetime", str(value)))
    if flag == "by-duration":
        try:
            seconds = parse_duration("--by-duration", str(value))
        except ConfigurationError as error:
            refuse(str(error))
        return Mode(flag, max(0, int((now - seconds) * 1000)))
    return Mode(flag, value if isinstance(value, int) and value is not True else 0)


def plan(
    mode: Mode,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    found: Found,
    wanted: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    """Return the new offset of each partition; `wanted` contains the offsets of a file."""
    made = Plan()
    for at in partitions:
        match mode.flag:
            case "to-earliest":
                made.offsets[at] = _there(found, EARLIEST, at)
            case "to-latest":
                made.offsets[at] = _there(found, LATEST, at)
            case "to-current":
                known = committed.get(at)
                made.offsets[at] = _there(found, LATEST, at) if known is None else known
            case "to-datetime" | "by-duration":
                _at_time(made, mode.number, at, found)
            case "shift-by" if at not in committed:
                made.errors[at] = IllegalStateError(f"{at} has no committed offset to shift")
            case "shift-by":
                _within(made, committed[at] + mode.number, at, found)
            case "to-offset":
                _within(made, mode.number, at, found)
            case _:
                _within(made, (wanted or {})[at], at, found)
    return made


def _there(found: Found, spec: OffsetSpec, at: TopicPartition) -> int:
    """Return the offset of a log's beginning or end, a lookup that always has a result."""
    return found[spec][at] or 0


def _at_time(made: Plan, ms: int, at: TopicPartition, found: Found) -> None:
    offset = found[ms][at]
    if offset is None:
        made.warnings.append(f"{at} has no record at or after that time: the latest offset is used")
        offset = _there(found, LATEST, at)
    made.offsets[at] = offset


def _within(made: Plan, offset: int, at: TopicPartition, found: Found) -> None:
    first, end = _there(found, EARLIEST, at), _there(found, LATEST, at)
    if offset > end:
        made.warnings.append(f"{at}: {offset} is above the latest offset, so {end} is used")
    elif offset < first:
        made.warnings.append(f"{at}: {offset} is below the earliest offset, so {first} is used")
    made.offsets[at] = max(first, min(offset, end))


# Files in the format of Kafka's tool


def written(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return CSV lines of topic, partition and offset, as Kafka's `--from-file` reads them.

    With several groups, the first column is the group.
    """
    several = len(plans) != 1
    return "".join(
        f"{_quoted(group) + ',' if several else ''}{_quoted(at.topic)},{at.partition},{offset}\n"
        for group, offsets in plans.items()
        for at, offset in offsets.items()
    )


def _quoted(text: str) -> str:
    # Group ids may contain any character; topic names need no quotes.
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if set(text) & set(',"\r\n ') else text


def read(text: str, groups: Collection[str], name: str) -> dict[str, dict[TopicPartition, int]]:
    """Parse the CSV lines of a `--from-file`; raise a usage error for invalid lines."""
    import csv
    import io

    found: dict[str, dict[TopicPartition, int]] = {}
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        refuse(f"{name}: line {reader.line_num}: {error}")
    if not rows:
        refuse(f"{name} is empty")
    for number, row in rows:
        values = [*groups, *row] if len(row) == 3 and len(groups) == 1 else row
        numbers = [n for text in values[2:] if (n := whole_number(text.strip())) is not None]
        if len(values) != 4 or len(numbers) != 2:
            columns = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else ""
            columns += " or " * bool(columns) + "GROUP,TOPIC,PARTITION,OFFSET"
            refuse(f"{name}: line {number} must be {columns}")
        group, topic = values[0], values[1].strip()
        found.setdefault(group, {})[TopicPartition(topic, numbers[0])] = numbers[1]
    for group in groups:
        if group not in found:
            refuse(f"{name} has no line for group {group!r}")
    return {group: found[group] for group in groups}
