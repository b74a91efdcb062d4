"""Compute tables from clients' events (R-EV-1): load on brokers, overloads, outages, recoveries.

In: the JSON lines that `events.dir`, `events.topic` and `odradek simulate fleet --events` write, as
a DataFrame with one column. Out: DataFrames. Events of real and simulated fleets are processed in
the same way, and so are those of one client or of a million: every step is a window or a group by
client or broker. Must not: access a cluster, or depend on where the lines come from.

A client is (host, pid, client). An outage belongs to a client and a broker: it lasts from the first
failed connection attempt, or broken connection, to the first response of that address that proves
it works. A recovery belongs to a client: it lasts from the first failure of any broker to the first
record or acknowledgement after it. An unfinished outage or recovery has no end: a client may never
need that broker again, which `last_failure` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

LINE = (
    "time double, host string, pid long, client string, kind string, address string, "
    "error string, failure boolean, failures int, backoff double, seconds double, "
    "purpose string, why string, topic string, partition int, count long"
)
"""Fields of a line that the tables need; each kind of event has some of them."""
CLIENT = ("host", "pid", "client")
TROUBLE = ("dial_failed", "disconnected")
PROOF = ("proved",)
BACK = ("first_ack", "first_record")
DATED = (-62_135_596_800.0, 253_402_300_799.0)
"""First and last second of the years 1 to 9999, in seconds since the epoch."""
STORM = 10
"""Minimum number of connection attempts to a broker in one second for this second to count as part
of a storm."""


def from_folder(spark: SparkSession, folder: str) -> DataFrame:
    """Read events from a folder of `*.jsonl` files (`events.dir`, `simulate fleet --events`)."""
    lines = spark.read.option("pathGlobFilter", "*.jsonl").text(folder)
    return parsed(lines.withColumnRenamed("value", "line"))


def from_topic(spark: SparkSession, topic: str, options: Mapping[str, str]) -> DataFrame:
    """Read events from a topic (`events.topic`), with the options of `format("odradek")`."""
    from pyspark.sql import functions as f

    given = {"startingOffsets": "earliest", **options, "subscribe": topic}
    records = spark.read.format("odradek").options(**given).schema("value binary").load()
    return parsed(records.select(f.col("value").cast("string").alias("line")))


def parsed(lines: DataFrame) -> DataFrame:
    """Parse JSON lines into event columns; drop lines that aren't dated client events."""
    from pyspark.sql import functions as f

    events = lines.select(f.from_json("line", LINE).alias("event")).select("event.*")
    dated = f.col("time").between(*DATED)  # excludes NaN, which Spark sorts last
    return events.where(dated & f.expr("client is not null and kind is not null"))


def tables(events: DataFrame, storm: int = STORM) -> dict[str, DataFrame]:
    """Compute all tables; return them by name."""
    load = load_table(events)
    return {
        "load": load,
        "storms": storm_table(load, storm),
        "outages": outage_table(events),
        "recoveries": recovery_table(events),
    }


def load_table(events: DataFrame) -> DataFrame:
    """Count connection attempts, failures, metadata requests and clients per broker and second."""
    from pyspark.sql import functions as f

    counted = events.where(
        "address is not null and kind in ('dial', 'dial_failed', 'metadata_request')"
    )
    second = f.floor("time").alias("second")
    return counted.groupBy("address", second).agg(
        f.count_if(f.col("kind") == "dial").alias("dials"),
        f.count_if(f.col("kind") == "dial_failed").alias("failed"),
        f.count_if(f.col("kind") == "metadata_request").alias("metadata_requests"),
        f.count_distinct(*CLIENT).alias("clients"),
    )


def storm_table(load: DataFrame, least: int = STORM) -> DataFrame:
    """Return a row for each period in which every second has at least `least` attempts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    stormy = load.where(f.col("dials") >= least)
    order = Window.partitionBy("address").orderBy("second")
    run = f.col("second") - f.row_number().over(order)  # `run` is the same for consecutive seconds
    grouped = stormy.withColumn("run", run).groupBy("address", "run")
    return grouped.agg(
        f.min("second").alias("began"),
        (f.max("second") + 1).alias("ended"),
        f.sum("dials").alias("dials"),
        f.max("dials").alias("most_dials_per_s"),
        f.max("clients").alias("most_clients"),
        f.sum("metadata_requests").alias("metadata_requests"),
    ).drop("run")


def outage_table(events: DataFrame) -> DataFrame:
    """Return a row for each period in which a client couldn't use a broker."""
    return _disturbances(events.where("address is not null"), (*CLIENT, "address"), PROOF)


def recovery_table(events: DataFrame) -> DataFrame:
    """Return a row for each period in which a client couldn't work, with its attempts."""
    return _disturbances(events, CLIENT, BACK)


def course_table(events: DataFrame, stretches: int = 600) -> DataFrame:
    """Summarize the whole fleet over time, in at most `stretches` intervals of equal length.

    Columns: `second` (when the interval begins), `dials`, `failed` and `metadata_requests` (largest
    number in one second, of all brokers together), `busiest` (largest number of connection attempts
    to one broker in one second), `held_up` (clients that couldn't work at some time of the
    interval) and `cut_off` (pairs of a client and a broker that it couldn't use). An interval
    without events has zeros.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    span = events.agg(f.floor(f.min("time")), f.floor(f.max("time"))).head()
    if span is None or span[0] is None:
        first, last = 0, -1
    else:
        first, last = int(span[0]), int(span[1])
    step = max(1, -(-(last - first + 1) // stretches))

    def stretch(second: Column) -> Column:
        return f.lit(first) + f.floor((second - first) / step) * step

    each = (
        load_table(events)
        .groupBy("second")
        .agg(
            f.sum("dials").alias("dials"),
            f.sum("failed").alias("failed"),
            f.sum("metadata_requests").alias("metadata_requests"),
            f.max("dials").alias("busiest"),
        )
    )
    counted = ("dials", "failed", "metadata_requests", "busiest")
    load = each.groupBy(stretch(f.col("second")).alias("second")).agg(
        *(f.max(name).alias(name) for name in counted)
    )
    stretches_of = events.sparkSession.range(first, last + 1, step).toDF("second")
    found = stretches_of.join(load, "second", "left")
    for name, table in (("held_up", recovery_table(events)), ("cut_off", outage_table(events))):
        changes = table.select(stretch(f.col("began")).alias("second"), f.lit(1).alias("n")).union(
            table.where("ended is not null").select(stretch(f.col("ended")) + step, f.lit(-1))
        )
        found = found.join(changes.groupBy("second").agg(f.sum("n").alias(name)), "second", "left")
    found = found.na.fill(0)
    so_far = Window.orderBy("second").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ever = (f.sum(name).over(so_far).alias(name) for name in ("held_up", "cut_off"))
    return found.select("second", *counted, *ever).orderBy("second")


def _disturbances(events: DataFrame, keys: tuple[str, ...], good: tuple[str, ...]) -> DataFrame:
    """Return a row for each period from a failure to the next event in `good`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(*keys).orderBy("time", _rank(), "kind")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    troubled = f.when(_trouble(), True).when(f.col("kind").isin(*good), False)
    begins = _trouble() & ~f.coalesce(
        f.last("troubled", ignorenulls=True).over(before), f.lit(False)
    )
    numbered = events.withColumn("troubled", troubled).withColumn("begins", begins)
    numbered = numbered.withColumn("nth", f.sum(f.col("begins").cast("int")).over(so_far))
    whole = Window.partitionBy(*keys, "nth")
    ended = f.min(f.when(~f.col("troubled"), f.col("time"))).over(whole)
    during = numbered.where("nth > 0").withColumn("ended", ended)
    during = during.where("ended is null or time <= ended")
    found = during.groupBy(*keys, "nth").agg(
        f.min("time").alias("began"),
        f.first("ended").alias("ended"),
        f.count_if(f.col("kind") == "dial").alias("dials"),
        f.count_if(_trouble()).alias("failures"),
        f.count_if(f.col("kind") == "metadata_request").alias("metadata_requests"),
        f.count_if(f.col("kind") == "rebootstrap").alias("rebootstraps"),
        f.max(f.when(_trouble(), f.col("time"))).alias("last_failure"),
        f.min_by("error", f.when(_trouble(), f.col("time"))).alias("first_error"),
    )
    seconds = (f.col("ended") - f.col("began")).alias("seconds")
    return found.select(*keys, "began", "ended", seconds, *found.columns[len(keys) + 3 :])


def _trouble() -> Column:
    """Return whether an event is a failed connection attempt or an unexpected disconnect."""
    from pyspark.sql import functions as f

    kind = f.col("kind")
    orderly = (kind == "disconnected") & (f.col("failure") == f.lit(False))
    return kind.isin(*TROUBLE) & ~f.coalesce(orderly, f.lit(False))


def _rank() -> Column:
    """Return the sort key for events with equal times: failures come before other events."""
    from pyspark.sql import functions as f

    return f.when(f.col("kind").isin(*TROUBLE), 0).otherwise(1)
