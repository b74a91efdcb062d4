"""Write records that can't be decoded to a separate topic (option deadLetterTopic).

In: fetched batches, the rows that can't be decoded, and why. Out: these records unchanged, with
headers that describe the error: those of Kafka Connect's dead-letter queues (KIP-298), whose values
are texts. A record that is too large for the topic is written without its large parts. All are
acknowledged when `send` returns. Must not: continue if a record isn't written, or write a record
that can be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.clients.workers.dead_letters import STAGES, TOO_LARGE, failure_headers, smaller
from odradek.common.types import TopicPartition
from odradek.spark.sink.sink_errors import SinkWriteError
from odradek.spark.sink.sink_sending import Patience, meet

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.producer import Producer

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
"""Columns that a dead letter is built from."""
OPTION = "option deadLetterTopic"


@dataclass(frozen=True, slots=True)
class Misfit:
    """The field of a record that can't be decoded, and the reason."""

    field: str
    """The part of the record that can't be decoded: key or value."""
    why: str


class DeadLetters:
    """Writes the bad records of one task to the dead letter topic."""

    def __init__(
        self,
        producer: Producer,
        patience: Patience,
        topic: str,
        query: str,
        task: int,
        first_contact: float | None = None,
    ) -> None:
        """Take `query` (the client's id) and `task` (number of Spark's partition) for headers."""
        self._producer, self._patience, self._topic = producer, patience, topic
        self._query, self._task, self._first_contact = query, task, first_contact
        self._met = False

    def send(self, tp: TopicPartition, batch: pa.RecordBatch, bad: Mapping[int, Misfit]) -> None:
        """Write the bad rows of a batch and wait until they are acknowledged.

        The batch has the columns `COLUMNS`. Raises `SinkWriteError`, and what `meet` raises.
        """
        if not self._met:
            meet(self._producer, self._patience, self._topic, OPTION, self._first_contact)
            self._met = True
        left = [_Letter(row, self._letter(tp, batch, row, bad[row])) for row in sorted(bad)]
        while left:
            sent = [(letter, self._sent(letter.made)) for letter in left]
            self._patience.wait(
                self._producer.flush,
                f"the acknowledgement of {len(sent)} dead letter{'' if len(sent) == 1 else 's'}",
            )
            left = []
            for letter, outcome in sent:
                error = outcome(0)
                if isinstance(error, TOO_LARGE) and letter.cut(batch):
                    left.append(letter)
                elif error is not None:
                    offset = batch.column("offset")[letter.row].as_py()
                    raise SinkWriteError(
                        f"the record of {tp} at offset {offset} can't be decoded, and it could "
                        f"not be written to the dead letter topic {self._topic!r} ({OPTION}): "
                        f"{error}"
                    ) from error

    def _letter(
        self, tp: TopicPartition, batch: pa.RecordBatch, row: int, misfit: Misfit
    ) -> dict[str, Any]:
        """Return the arguments of `send`: the unchanged record with headers about the error."""
        import pyarrow as pa

        fields = _fields(batch, row)
        time = batch.column("timestamp")[row]
        micros = time.cast(pa.int64()).as_py() if time.is_valid else None
        why = ("odradek.spark", "odradek.ValueDecodeError", misfit.why)
        headers = failure_headers(
            *(tp, batch.column("offset")[row].as_py(), (self._query, str(self._task))),
            *(STAGES[misfit.field], why),
        )
        return {
            "topic": self._topic,
            "value": fields.value,
            "key": fields.key,
            "headers": [*fields.headers, *headers],
            "timestamp_ms": None if micros is None or micros < 0 else micros // 1000,
        }

    def _sent(self, letter: dict[str, Any]) -> Callable[[float], BaseException | None]:
        try:
            return self._producer.send(**letter).exception
        except TOO_LARGE as error:
            told = error
        return lambda _: told


@dataclass(slots=True)
class _Letter:
    """One dead letter; `cut` removes fields from it while it is too large."""

    row: int
    made: dict[str, Any]
    lacking: tuple[str, ...] = ()

    def cut(self, batch: pa.RecordBatch) -> bool:
        """Remove the largest field; return False if none is left."""
        found = smaller(self.made, _fields(batch, self.row), self.lacking)
        if found is not None:
            self.made, self.lacking = found
        return found is not None


class _Fields(NamedTuple):
    """The fields of an undecodable record, as its dead letter contains them."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def _fields(batch: pa.RecordBatch, row: int) -> _Fields:
    cells = {name: batch.column(name)[row].as_py() for name in ("key", "value", "headers")}
    headers = [(one["key"], one["value"]) for one in cells["headers"] or ()]
    return _Fields(cells["key"], cells["value"], headers)
