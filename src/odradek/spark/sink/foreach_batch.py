"""`write_batch`: what a query's `foreachBatch` calls to write a micro-batch exactly once.

In: the frame and the number that Spark hands to such a function; the sink's options. Out: a batch
write whose identity is the query's and the batch's, so that a batch that comes again is known.
Must not import pyspark when imported, or write with an identity that a replay wouldn't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.spark.problems import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(frame: DataFrame, batch_id: int, options: Mapping[str, Any]) -> None:
    """Write one micro-batch's rows to Kafka, each of them once, also where the batch comes again.

    Its first two parameters are those that Spark gives to the function of `foreachBatch`, in their
    order, so it is that function: `.foreachBatch(lambda frame, batch_id: write_batch(frame,
    batch_id, options))`; or a line in one of your own, after what it makes of the frame. It is for
    what a streaming write can't do: output mode update, several topics for one batch.

    `frame`: columns as the sink takes them (value, key, headers, topic, partition). `options`: the
    sink's, as for `writeStream`; `delivery` is exactly_once unless they say otherwise. A function
    that writes more than once gives each write a `sinkName` of its own.

    The query's id comes from Spark. Where Spark doesn't tell it (Spark Connect) options need a
    `jobId`, which must stay the same as long as the checkpoint does. Raises `OptionError` without
    one, and what the batch write raises.
    """
    if isinstance(batch_id, bool) or not isinstance(batch_id, int):
        raise TypeError(
            f"write_batch(frame, batch_id, options) needs the batch's number, not {batch_id!r:.80}"
        )
    given = {name.lower(): value for name, value in options.items()}
    writer = frame.write.format("odradek").options(**options).mode("append")
    if str(given.get("delivery", "exactly_once")).strip().lower() == "exactly_once":
        writer = writer.options(
            delivery="exactly_once", jobId=given.get("jobid") or _query_of(frame), batchId=batch_id
        )
    writer.save()


def _query_of(frame: DataFrame) -> str:
    """The id of the streaming query whose batch this is: a local property of Spark's thread."""
    from odradek.spark.sink.sink_messages import QUERY_ID

    context = getattr(frame.sparkSession, "_sc", None)
    query: str | None = None if context is None else context.getLocalProperty(QUERY_ID)
    if not query:
        raise OptionError(
            "write_batch: Spark doesn't say here which query this batch is of (it does within "
            "foreachBatch, but not with Spark Connect or PYSPARK_PIN_THREAD=false). Give option "
            "jobId a name that stays the same when this query is run again and that no other "
            "query has, or delivery=at_least_once."
        )
    return query
