"""Write a consumer's records to an output until a limit, a timeout or a closed output.

In: a consumer with its assignment. Out: bytes for `write`, and the number of records. Must not:
open or close anything, or retry; `poll()` retries by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from odradek.api.consumer import Consumer
from odradek.cli.console.decoding import FormatError
from odradek.cli.console.offset_positions import (
    WORDS,
    LogPlace,
    PlaceKind,
    check_reached,
    offsets_at,
)
from odradek.cli.console.waiting import patiently, say
from odradek.cli.frame.results import counted
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.types import TopicPartition

TURN = 0.5
"""Timeout of a poll in seconds; after each poll, the loop checks whether the output was closed."""
AT_ONCE = 500
"""Maximum number of records of one poll."""


class CutOffError(Exception):
    """The reader of the output has closed its end before everything was written."""


class RecordOutput(Protocol):
    """Output for formatted records."""

    def write(self, data: bytes) -> None:
        """Write all bytes.

        Raises `BrokenPipeError` if the reader has closed its end, and another `OSError` if writing
        fails.
        """

    def gone(self) -> bool:
        """Return whether the reader is known to have closed its end."""


class LineFormatter(Protocol):
    """Formats a record as a line."""

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the line, including its line break. Raises `FormatError`."""


Tell = Callable[[str], None]
Offsets = dict[TopicPartition, int]


def assign(
    consumer: Consumer,
    partitions: list[TopicPartition],
    start: LogPlace | None,
    until: LogPlace | None = None,
    *,
    patience: float,
    tell: Tell = say,
) -> Offsets | None:
    """Assign partitions to the consumer, from a start (None: `auto.offset.reset` decides).

    With an end and no start, reading begins at the beginning. Returns the end offsets (exclusive)
    of the partitions that contain records to read; None without an end.
    """
    lazily = start is None or start.kind in (PlaceKind.BEGINNING, PlaceKind.END)
    if until is None and lazily:
        consumer.assign(partitions)
        if start is not None:
            to = start.kind is PlaceKind.BEGINNING
            (consumer.seek_to_beginning if to else consumer.seek_to_end)(partitions)
        return None
    place = start or WORDS["beginning"]
    # Look up the ends first: records that arrive during the next lookup aren't read.
    ends = None
    if until is not None:
        ends = offsets_at(consumer, partitions, until, patience=patience, tell=tell)
    starts = offsets_at(consumer, partitions, place, patience=patience, tell=tell)
    if ends is not None:
        beyond = {tp: starts[tp] for tp, end in ends.items() if starts[tp] >= end}
        check_reached(consumer, place, beyond, patience=patience, tell=tell)
        ends = {tp: end for tp, end in ends.items() if starts[tp] < end}
        starts = {tp: starts[tp] for tp in ends}
    consumer.assign(starts, until=ends)
    return ends


def subscribe(
    consumer: Consumer,
    topic: str | None,
    pattern: str | None = None,
    *,
    patience: float,
    first_contact: float = math.inf,
    tell: Tell = say,
) -> None:
    """Subscribe the consumer to a topic, or to all topics that match a pattern."""
    if topic is not None:
        there(consumer, topic, None, patience=patience, first_contact=first_contact, tell=tell)
        consumer.subscribe([topic])
    else:
        patiently(consumer.cluster_id, patience, tell, "the cluster", first_contact)
        consumer.subscribe(pattern=pattern)


def there(
    consumer: Consumer,
    topic: str,
    partition: int | None,
    *,
    patience: float,
    first_contact: float = math.inf,
    tell: Tell = say,
) -> list[TopicPartition]:
    """Return a topic's partitions, or only the requested one; raises if it doesn't exist.

    `first_contact`: seconds to wait for a first broker.
    """
    partitions = patiently(
        lambda seconds: consumer.partitions_for(topic, seconds),
        patience, tell, f"metadata of topic {topic}", first_contact,
    )  # fmt: skip
    if partition is None:
        return partitions
    wanted = TopicPartition(topic, partition)
    if wanted not in partitions:
        last = partitions[-1].partition
        raise ConfigurationError(f"topic {topic} has partitions 0 to {last}, not {partition}")
    return [wanted]


def fitting(
    consumer: Consumer,
    pattern: str,
    *,
    patience: float,
    first_contact: float = math.inf,
    tell: Tell = say,
) -> list[TopicPartition]:
    """Return the partitions of all topics whose whole name matches a pattern."""
    what = "the list of topics"
    names = patiently(consumer.list_topics, patience, tell, what, first_contact)
    chosen = [name for name in names if re.fullmatch(pattern, name)]
    if not chosen:
        raise ConfigurationError(f"none of {len(names)} topics matches {pattern}")
    found = patiently(
        lambda seconds: consumer.describe(chosen, seconds),
        patience, tell, f"metadata of {counted(len(chosen), 'topic')}",
    )  # fmt: skip
    return [
        TopicPartition(name, one.partition) for name in chosen for one in found[name].partitions
    ]


class Records:
    """Writes the records that a consumer reads."""

    def __init__(
        self,
        consumer: Consumer,
        formatter: LineFormatter,
        output: RecordOutput,
        clock: Callable[[], float],
        *,
        skip_on_error: bool = False,
        tell: Tell = say,
    ) -> None:
        self._consumer = consumer
        self._format = formatter.line
        self._output = output
        self._clock = clock
        self._skip = skip_on_error
        self._tell = tell
        self.count = 0
        """Number of records that were written or skipped."""
        self.cut_off = False
        """Whether the output's reader has closed its end."""

    def run(
        self,
        *,
        most: int | None,
        idle: float | None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Write records until `most`, until none arrive for `idle` seconds, or up to all `ends`.

        If the last batch isn't written completely, this raises `CutOffError` (the reader closed its
        end) or the output's error; if that leaves the consumer's `with` block, the batch isn't
        committed.
        """
        heard = self._clock()
        while (most is None or self.count < most) and not self._all_read(ends):
            turn = TURN
            if idle is not None:
                turn = min(TURN, max(0.0, heard + idle - self._clock()))
            limit = AT_ONCE if most is None else min(AT_ONCE, most - self.count)
            records = self._consumer.poll(turn, limit)
            if records:
                self._write(records)
                heard = self._clock()
            elif idle is not None and self._clock() >= heard + idle:
                return
            elif self._output.gone():
                self.cut_off = True
                return

    def _all_read(self, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Return whether all positions have reached the ends; positions also skip gaps."""
        position = self._consumer.position
        return ends is not None and all(position(tp) >= end for tp, end in ends.items())

    def _write(self, records: list[ConsumerRecord]) -> None:
        lines: list[bytes] = []
        failure: KafkaError | None = None
        for record in records:
            self.count += 1
            try:
                lines.append(self._format(record))
            except FormatError as error:
                place = f"{record.topic}-{record.partition} offset {record.offset}"
                if not self._skip:
                    failure = KafkaError(f"the record at {place} can't be printed: {error}")
                    break
                self._tell(f"skipped the record at {place}: {error}")
            except KafkaError as error:  # such as an unreachable registry
                failure = error
                break
        try:
            self._output.write(b"".join(lines))
        except OSError as error:
            self.count -= len(lines)
            self.cut_off = isinstance(error, BrokenPipeError)
            if self.cut_off:
                raise CutOffError from None
            raise
        if failure is not None:
            raise failure
