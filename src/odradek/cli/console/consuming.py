"""Records of a consumer into an output, until there were enough, none came, or nobody reads on.

In: a consumer with its assignment. Out: bytes to `write`, and how many records there were.
Must not: open or close anything, nor retry; `poll()` goes on trying by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.api.consumer import Consumer
from odradek.cli.console.formatting import (
    FormatError,
    RecordFormatter,
    json_for_terminal,
    json_line,
)
from odradek.cli.console.properties import refuse
from odradek.cli.console.waiting import patiently, say
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.types import TopicPartition

TURN = 0.5
"""Seconds of one poll: how soon the loss of the output is noticed while no record comes."""
AT_ONCE = 500
"""Records of one poll."""


class CutOffError(Exception):
    """Nobody reads the output any more, and not all of it was written."""


class RecordOutput(Protocol):
    """Where records go."""

    def write(self, data: bytes) -> None:
        """Write, down to the reader. Raises `BrokenPipeError` when nobody reads any more, and
        another `OSError` where it can't be written.
        """

    def gone(self) -> bool:
        """Whether nobody reads any more, as far as that shows without writing."""


def start_offset(text: str | None) -> int | str | None:
    """Read `--offset`: a number, "earliest", "latest", or None."""
    if text is None:
        return None
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if not word.isdecimal():
        refuse(f"--offset must be earliest, latest or a number from 0 on, not {text!r}")
    return int(word)


def assign(
    consumer: Consumer,
    topic: str,
    partition: int | None,
    offset: int | str | None,
    *,
    patience: float,
    tell: Callable[[str], None] = say,
) -> None:
    """Have the consumer read a topic, or one of its partitions, from a place on."""
    partitions = there(consumer, topic, patience=patience, tell=tell)
    if partition is not None:
        wanted = TopicPartition(topic, partition)
        if wanted not in partitions:
            last = partitions[-1].partition
            raise ConfigurationError(f"topic {topic} has partitions 0 to {last}, not {partition}")
        partitions = [wanted]
    consumer.assign(partitions)
    if isinstance(offset, int):
        for each in partitions:
            consumer.seek(each, offset)
    elif offset == "earliest":
        consumer.seek_to_beginning(partitions)
    elif offset == "latest":
        consumer.seek_to_end(partitions)


def subscribe(
    consumer: Consumer, topic: str, *, patience: float, tell: Callable[[str], None] = say
) -> None:
    """Have the consumer read what its group gives it of a topic that is there."""
    there(consumer, topic, patience=patience, tell=tell)
    consumer.subscribe([topic])


def there(
    consumer: Consumer, topic: str, *, patience: float, tell: Callable[[str], None]
) -> list[TopicPartition]:
    """The partitions of a topic; the error for one that isn't there names others like it."""
    return patiently(
        lambda seconds: consumer.partitions_for(topic, seconds),
        patience,
        tell,
        f"metadata of topic {topic}",
    )


class Records:
    """Writes what a consumer reads."""

    def __init__(
        self,
        consumer: Consumer,
        formatter: RecordFormatter | None,
        output: RecordOutput,
        clock: Callable[[], float],
        *,
        skip_on_error: bool = False,
        escaped: bool = False,
        tell: Callable[[str], None] = say,
    ) -> None:
        """Without a formatter records are written as JSON; `escaped`: for a terminal."""
        self._consumer = consumer
        of_json = json_for_terminal if escaped else json_line
        self._format = formatter.line if formatter is not None else of_json
        self._output = output
        self._clock = clock
        self._skip = skip_on_error
        self._tell = tell
        self.count = 0
        """Records that were taken from the consumer, and written unless they were left out."""
        self.cut_off = False
        """Nobody reads the output any more."""

    def run(self, *, most: int | None, idle: float | None) -> None:
        """Go on until `most` records, or until none came for `idle` seconds.

        Raises where what was taken last isn't all written: `CutOffError` when nobody reads any
        more, or what the output raised. Who leaves its consumer by that commits nothing of it.
        """
        heard = self._clock()
        while most is None or self.count < most:
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
                    failure = KafkaError(f"{place} can't be written: {error}")
                    break
                self._tell(f"left out {place}: {error}")
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
