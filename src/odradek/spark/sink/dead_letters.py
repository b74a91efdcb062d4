"""Records that can't be decoded, on their way to a topic of their own (option deadLetterTopic).

In: batches as they were fetched, and which rows can't be decoded and why. Out: these records as
they were, with headers that say so: those of Kafka Connect's dead-letter queues (KIP-298), whose
values are texts. All are acknowledged when `send` returns. Must not: go on when one isn't written,
or write a record that can be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.clients.workers.dead_letters import STAGES, failure_headers
from odradek.common.types import TopicPartition
from odradek.spark.sink.sink_problems import SinkWriteError
from odradek.spark.sink.sink_sending import Patience, meet

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.producer import Producer

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
"""What a dead letter is made of."""
OPTION = "option deadLetterTopic"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a record can't be decoded."""

    field: str
    """key or value."""
    why: str


class DeadLetters:
    """Writes the bad records of one task."""

    def __init__(
        self,
        producer: Producer,
        patience: Patience,
        topic: str,
        query: str,
        task: int,
        first_contact: float | None = None,
    ) -> None:
        """`query` is the client's id, and `task` the number of Spark's partition, for headers."""
        self._producer, self._patience, self._topic = producer, patience, topic
        self._query, self._task, self._first_contact = query, task, first_contact
        self._met = False

    def send(self, tp: TopicPartition, batch: pa.RecordBatch, bad: Mapping[int, Misfit]) -> None:
        """Write the bad rows of a batch, which has `COLUMNS`, and wait until they are there.

        Raises `SinkWriteError`, and what `meet` does.
        """
        if not self._met:
            meet(self._producer, self._patience, self._topic, OPTION, self._first_contact)
            self._met = True
        sent = [(row, self._sent(tp, batch, row, misfit)) for row, misfit in sorted(bad.items())]
        self._patience.wait(self._producer.flush, f"acknowledgement of {len(sent)} dead letters")
        for row, outcome in sent:
            error = outcome(0)
            if error is not None:
                offset = batch.column("offset")[row].as_py()
                raise SinkWriteError(
                    f"the record of {tp} at offset {offset}, which can't be decoded, wasn't "
                    f"written to topic {self._topic!r} ({OPTION}): {error}"
                ) from error

    def _sent(
        self, tp: TopicPartition, batch: pa.RecordBatch, row: int, misfit: Misfit
    ) -> Callable[[float], BaseException | None]:
        import pyarrow as pa

        cells = {name: batch.column(name)[row] for name in COLUMNS}
        offset = cells["offset"].as_py()
        headers: list[tuple[str, Any]] = [
            (one["key"], one["value"]) for one in cells["headers"].as_py() or ()
        ]
        task = (self._query, str(self._task))
        why = ("odradek.spark", "odradek.ValueDecodeError", misfit.why)
        headers += failure_headers(tp, offset, task, STAGES[misfit.field], why)
        time = cells["timestamp"]
        micros = time.cast(pa.int64()).as_py() if time.is_valid else None
        future = self._producer.send(
            self._topic,
            cells["value"].as_py(),
            cells["key"].as_py(),
            headers,
            timestamp_ms=None if micros is None or micros < 0 else micros // 1000,
        )
        return future.exception
