"""A topic of JSON as a Polars frame: the mean delay of each airline, written to another topic.

    KAFKA=localhost:9092 python delays.py

Records become Arrow columns and then a frame, without a Python object for each record. The topics
`polars-flights` and `polars-delays` must exist, unless the brokers create topics automatically.
"""

from __future__ import annotations

import os

import polars
import pyarrow

from odradek import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA", "localhost:9092")}
FLIGHT = polars.Struct({"airline": polars.String, "delay": polars.Int64})
FLIGHTS = [("AA", 12), ("UA", 0), ("AA", 4), ("DL", 33), ("UA", 7), ("DL", 1)]


def write_flights(producer: Producer) -> None:
    """Send a frame with the columns `key` and `value`, as `send_arrow` takes it."""
    frame = polars.DataFrame(FLIGHTS, schema=["key", "delay"], orient="row")
    value = polars.struct(polars.col("key").alias("airline"), "delay").struct.json_encode()
    producer.send_arrow("polars-flights", frame.select("key", value=value)).result(timeout=30)


def read_flights(consumer: Consumer) -> polars.DataFrame:
    """Return the present content of the topic, in all partitions."""
    partitions = consumer.partitions_for("polars-flights", timeout=30)
    begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    consumer.assign(begin, until=end)
    batches = consumer.batches(timeout=30, columns=["partition", "offset", "value"])
    frame = polars.DataFrame(pyarrow.Table.from_batches(batches))
    value = polars.col("value").cast(polars.String).str.json_decode(FLIGHT)
    return frame.with_columns(value).unnest("value")


def main() -> None:
    """Write flights, read and group them, write the delays."""
    with Producer(SERVERS) as producer, Consumer(SERVERS) as consumer:
        write_flights(producer)
        flights = read_flights(consumer)
        delays = (
            flights.group_by("airline")
            .agg(flights=polars.len(), mean=polars.col("delay").mean().round(1))
            .sort("airline")
        )
        for airline, count, mean in delays.iter_rows():
            print(f"{airline}: {count} flights, {mean} minutes late")
        values = delays.select(
            key="airline", value=polars.struct(polars.all()).struct.json_encode()
        )
        producer.send_arrow("polars-delays", values).result(timeout=30)
        print(f"written to polars-delays: {delays.height} records")


if __name__ == "__main__":
    main()
