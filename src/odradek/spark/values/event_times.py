"""Check for timestamps that Spark's column can't hold: 64-bit microseconds end in 294246.

In: a batch as the client decoded it, where only such a timestamp is null. Out: nothing, or an error
that names the record and its timestamp. Must not: decide how the query continues: option
outOfRangeTimestamps does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import KafkaError
from odradek.spark.checkpoint_errors import TimestampRangeError
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.consumer import Consumer
    from odradek.common.types import TopicPartition

LOOK_S = 10.0
"""Timeout in seconds for reading the record again, to report its timestamp."""


def check_times(
    batch: pa.RecordBatch, tp: TopicPartition, consumer: Consumer, clock: Clock
) -> None:
    """Raise `TimestampRangeError` for the first null timestamp, which Spark's type can't hold.

    The batch must have the columns timestamp and offset. The consumer can't be used afterwards.
    """
    if not batch.column("timestamp").null_count:
        return
    import pyarrow.compute as pc

    row = pc.index(pc.is_null(batch.column("timestamp")), True).as_py()
    offset = batch.column("offset")[row].as_py()
    written = _written(tp, offset, consumer, clock)
    raise TimestampRangeError(
        f"{tp}: the record at offset {offset} has {written}, which Spark's column timestamp can't "
        "represent (microseconds in 64 bits, up to the year 294246); the producer's clock or unit "
        "was probably wrong. To read such timestamps as null, set option outOfRangeTimestamps to "
        "null; or read with a schema without the column timestamp."
    )


def _written(tp: TopicPartition, offset: int, consumer: Consumer, clock: Clock) -> str:
    """Return the timestamp in the log, which the columns no longer contain."""
    until = clock.now() + LOOK_S
    try:
        consumer.assign([tp], until={tp: offset + 1})
        consumer.seek(tp, offset)
        while (left := until - clock.now()) > 0.0:
            for record in consumer.poll(timeout=left, max_records=1):
                return f"the timestamp {record.timestamp_ms} ms"
    except KafkaError:
        pass  # `TimestampRangeError` is then raised without the timestamp
    return "a timestamp"
