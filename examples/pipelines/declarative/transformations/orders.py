"""Read a topic into a table, aggregate the table, and write large orders to another topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

KAFKA = {"kafka.bootstrap.servers": os.environ["KAFKA"]}


def source() -> DataFrame:
    spark = SparkSession.active()
    reader = spark.readStream.format("odradek").options(**KAFKA)
    return reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()


@dp.table
def orders() -> DataFrame:
    order = f.from_json(f.col("value").cast("string"), "id BIGINT, customer STRING, cents BIGINT")
    parsed = source().withColumn("order", order)
    return parsed.select("order.*", "partition", "offset", "timestamp")


@dp.materialized_view
def per_customer() -> DataFrame:
    table = SparkSession.active().read.table("orders")
    return table.groupBy("customer").agg(
        f.count("*").alias("orders"), f.sum("cents").alias("cents")
    )


dp.create_sink(
    "large_orders", "odradek", {**KAFKA, "topic": "sdp-orders", "delivery": "exactly_once"}
)


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    cents = f.get_json_object(f.col("value").cast("string"), "$.cents").cast("bigint")
    return source().where(cents >= 1000).select("key", "value")
