"""Send lines with a producer, and record which were acknowledged, which weren't and why.

In: lines, a producer. Out: a `ProducedLines`. Must not: retry by itself (the producer does, for
`delivery.timeout.ms`), nor read or write anything.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from odradek.api.producer import Producer
from odradek.cli.console.lines import LineError, ParsedLine
from odradek.cli.console.waiting import PROGRESS, in_words, patiently, say
from odradek.cli.frame.results import counted
from odradek.common.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from odradek.runtime.hosts.record_future import RecordFuture

INTERRUPTED_FLUSH = 10.0
"""Seconds to wait after Ctrl-C for lines in flight; a second Ctrl-C ends the wait."""
SLACK = 1.0
"""Seconds to wait beyond the delivery timeout, so that the batches' errors are reported."""
LOST_KEPT = 100
"""Maximum number of ranges of lost lines in the result; other lines are only counted."""


@dataclass(slots=True)
class Lost:
    """Range of consecutive lines that failed with the same error."""

    first: int
    last: int
    error: str


@dataclass(slots=True)
class Written:
    """The acknowledged records of one partition."""

    records: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducedLines:
    """The outcome of all lines."""

    lines: int = 0
    acknowledged: int = 0
    stopped: str | None = None
    """Why reading stopped before the end of the input."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended the command."""
    lost_lines: int = 0
    lost: list[Lost] = field(default_factory=list)
    partitions: dict[int, Written] = field(default_factory=dict)

    def lose(self, line: int, error: str) -> None:
        """Record a line that wasn't acknowledged."""
        self.lost_lines += 1
        last = self.lost[-1] if self.lost else None
        if last is not None and last.error == error and last.last == line - 1:
            last.last = line
        elif len(self.lost) < LOST_KEPT:
            self.lost.append(Lost(line, line, error))

    def keep(self, partition: int, offset: int) -> None:
        """Record a line that was acknowledged; offset -1 means that it is unknown."""
        self.acknowledged += 1
        found = self.partitions.get(partition)
        if found is None:
            self.partitions[partition] = Written(1, offset, offset)
            return
        found.records += 1
        found.last_offset = max(found.last_offset, offset)
        if found.first_offset < 0:
            found.first_offset = offset

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "lines": self.lines,
            "acknowledged": self.acknowledged,
            "stopped": self.stopped,
            "lost_lines": self.lost_lines,
            "lost": [asdict(one) for one in self.lost],
            "partitions": {str(n): asdict(one) for n, one in sorted(self.partitions.items())},
        }

    def describe(self) -> Iterator[str]:
        """Yield messages for the user; none if every line was acknowledged."""
        if self.stopped is not None:
            yield self.stopped
        if self.lost_lines:
            yield (
                f"{self.lost_lines} of {counted(self.lines, 'line')} "
                f"{'was' if self.lost_lines == 1 else 'were'} not acknowledged:"
            )
        for one in self.lost:
            lines = f" {one.first}" if one.first == one.last else f"s {one.first}-{one.last}"
            yield f"  line{lines}: {one.error}"
        left = self.lost_lines - sum(o.last - o.first + 1 for o in self.lost)
        if left:
            yield f"  … and {counted(left, 'more line')}"


class LineProducer:
    """Sends lines and counts their outcomes."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        parse: Callable[[bytes], ParsedLine],
        *,
        sync: bool = False,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._parse = parse
        self._sync = sync
        self._tell = tell
        self._pending: deque[tuple[int, RecordFuture]] = deque()
        self.result = ProducedLines()

    def feed(
        self, lines: Iterable[bytes], *, max_block: float, first_contact: float = math.inf
    ) -> None:
        """Send every line; stop early, with a reason, if an error would also affect later lines."""
        for line in lines:
            if self.result.lines == 0 and not self._topic_is_there(max_block, first_contact):
                return
            if not self._send(line.removesuffix(b"\n").removesuffix(b"\r")):
                return

    def _topic_is_there(self, max_block: float, first_contact: float) -> bool:
        """Wait for the topic's metadata before the first line, with progress messages."""
        try:
            patiently(
                lambda seconds: self._producer.partitions_for(self._topic, seconds),
                max_block,
                self._tell,
                f"metadata of topic {self._topic}",
                first_contact,
            )
        except KafkaError as error:
            self.result.lines = 1
            self._stop_at(1, in_words(error))
            return False
        return True

    def _stop_at(self, number: int, error: str) -> None:
        self.result.stopped = f"Stopped reading at line {number}, which couldn't be sent."
        self.result.lose(number, error)

    def _send(self, line: bytes) -> bool:
        result = self.result
        result.lines += 1
        number = result.lines
        try:
            record = self._parse(line)
        except LineError as error:
            self._stop_at(number, str(error))
            return False
        try:
            future = self._producer.send(self._topic, record.value, record.key, record.headers)
        except RecordTooLargeError as error:
            result.lose(number, in_words(error))
            return True
        except KafkaError as error:
            self._stop_at(number, in_words(error))
            return False
        self._pending.append((number, future))
        if self._sync:
            with suppress(KafkaTimeoutError):  # `_settle` handles the line's outcome
                future.exception()
        while self._pending and self._pending[0][1].done():
            self._settle(*self._pending.popleft())
        return True

    def _settle(self, number: int, future: RecordFuture) -> None:
        try:
            found = future.result(0)
        except KafkaError as error:
            self.result.lose(number, in_words(error))
        else:
            self.result.keep(found.partition, found.offset)

    def finish(self, timeout: float) -> None:
        """Wait for the outcomes of all sent lines, at most `timeout` seconds."""
        left = timeout
        while self._pending:
            now = min(left, PROGRESS)
            with suppress(KafkaError):  # each line's outcome contains the error
                self._producer.flush(now)
            while self._pending and self._pending[0][1].done():
                self._settle(*self._pending.popleft())
            left -= now
            if left <= 0:
                return
            if self._pending:
                count = len(self._pending)
                self._tell(
                    f"still waiting for {counted(count, 'line')} to be acknowledged "
                    f"({left:.0f} s left)"
                )

    def give_up(self) -> None:
        """Count lines without an outcome as lost."""
        while self._pending:
            number, future = self._pending.popleft()
            if future.done():
                self._settle(number, future)
            else:
                self.result.lose(number, "not acknowledged before the command ended")


def run(
    lines: LineProducer,
    given: Iterable[bytes],
    *,
    max_block: float,
    delivery: float,
    first_contact: float = math.inf,
) -> ProducedLines:
    """Send all lines and wait for their outcomes; Ctrl-C shortens the wait."""
    result = lines.result
    try:
        try:
            lines.feed(given, max_block=max_block, first_contact=first_contact)
            lines.finish(delivery + SLACK)
        except KeyboardInterrupt:
            result.interrupted = True
            result.stopped = f"interrupted after {counted(result.lines, 'line')}"
            lines.finish(INTERRUPTED_FLUSH)
    except KeyboardInterrupt:
        result.stopped = f"interrupted twice after {counted(result.lines, 'line')}"
    finally:
        lines.give_up()
    return result
