"""Copy large orders from one topic to another with Spark, exactly once, until it is stopped.

    KAFKA=localhost:9092 CHECKPOINT=/tmp/orders spark-submit copy_orders.py

All settings come from the environment, which manifests.yaml fills from its ConfigMap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def large_orders(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> DataFrame:
    """Return orders of 100 cents and more; values that aren't numbers are left out."""
    stream = spark.readStream.format("odradek").options(**kafka)
    rows = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    return rows.select("key", "value").where("TRY_CAST(CAST(value AS STRING) AS BIGINT) >= 100")


def write(
    orders: DataFrame, kafka: Mapping[str, str], topic: str, checkpoint: str, **trigger: bool
) -> StreamingQuery:
    """Start the copying query; after a restart it resumes from the checkpoint."""
    sink = orders.writeStream.format("odradek").options(**kafka)
    sink = sink.option("topic", topic).option("delivery", "exactly_once")
    if trigger:
        sink = sink.trigger(**trigger)
    return sink.option("checkpointLocation", checkpoint).start()


def main() -> None:
    """Run until Kubernetes ends the pod; the next pod resumes from the checkpoint."""
    kafka = {"kafka.bootstrap.servers": os.environ["KAFKA"]}
    spark = SparkSession.builder.appName("large-orders").getOrCreate()
    orders = large_orders(spark, kafka, os.environ.get("FROM", "orders"))
    query = write(orders, kafka, os.environ.get("TO", "large-orders"), os.environ["CHECKPOINT"])
    query.awaitTermination()


if __name__ == "__main__":
    main()
