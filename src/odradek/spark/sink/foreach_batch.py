"""`write_batch`: what a query's `foreachBatch` calls to write a micro-batch exactly once.

In: the frame and the number that Spark hands to such a function; the sink's options. Out: a batch
write whose identity is the query's and the batch's, so that a batch that comes again is known.
Must not import pyspark when imported, or write with an identity that a replay wouldn't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.spark.checkpoint_errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(frame: DataFrame, batch_id: int, options: Mapping[str, Any]) -> None:
    """Write a micro-batch to Kafka exactly once, even if Spark repeats the batch.

    Call it from the function that you pass to `foreachBatch`, for what a streaming write can't do:
    output mode update, several topics for one batch, or transformations of the whole batch.

        query = frame.writeStream.foreachBatch(
            lambda frame, batch_id: write_batch(frame, batch_id, options)
        ).start()

    `frame`: the batch, with the sink's columns (value, key, headers, topic, partition).
    `batch_id`: the number that Spark passes to the function.
    `options`: the sink's options, as for `writeStream`; `delivery` defaults to exactly_once. If the
    function writes more than once, set a different `sinkName` for each write.

    Spark supplies the query's id. If it can't (Spark Connect), options must contain a `jobId` that
    stays the same as long as the checkpoint does. Raises `OptionError` without one, `TypeError` if
    `batch_id` isn't an int, and the errors of the batch write.
    """
    if isinstance(batch_id, bool) or not isinstance(batch_id, int):
        raise TypeError(
            f"write_batch(frame, batch_id, options): batch_id must be an int, not {batch_id!r:.80}"
        )
    given = {name.lower(): value for name, value in options.items()}
    writer = frame.write.format("odradek").options(**options).mode("append")
    if str(given.get("delivery", "exactly_once")).strip().lower() == "exactly_once":
        writer = writer.options(
            delivery="exactly_once", jobId=given.get("jobid") or _query_of(frame), batchId=batch_id
        )
    writer.save()


def _query_of(frame: DataFrame) -> str:
    """Return the id of the streaming query of this batch, a local property of Spark's thread."""
    from odradek.spark.sink.sink_messages import QUERY_ID

    context = getattr(frame.sparkSession, "_sc", None)
    query: str | None = None if context is None else context.getLocalProperty(QUERY_ID)
    if not query:
        raise OptionError(
            "write_batch: Spark doesn't provide the id of this batch's query (it does so within "
            "foreachBatch, but not with Spark Connect or PYSPARK_PIN_THREAD=false). Set option "
            "jobId to a name that stays the same when this query is restarted and that no other "
            "query uses, or set delivery=at_least_once."
        )
    return query
