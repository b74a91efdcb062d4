"""SQL over a topic: DuckDB reads it batch by batch, and the result goes to another topic.

    KAFKA=localhost:9092 python flights.py

The query pulls Arrow batches from Kafka as it needs them, so a topic that is larger than the memory
can be grouped. The topics `duckdb-flights` and `duckdb-delays` must exist, unless the brokers
create topics automatically.
"""

from __future__ import annotations

import itertools
import os

import duckdb
import pyarrow

from odradek import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA", "localhost:9092")}
QUERY = """
    select value->>'airline' as airline, count(*) as flights,
           round(avg((value->>'delay')::int), 1) as mean
    from (select decode(value)::json as value from topic)
    group by airline order by airline
"""


def write_flights(producer: Producer, database: duckdb.DuckDBPyConnection) -> None:
    """Send a DuckDB relation, which has an Arrow interface, without converting it."""
    made = database.sql("""
        select airline as key, json_object('airline', airline, 'delay', delay)::varchar as value
        from (values ('AA', 12), ('UA', 0), ('AA', 4), ('DL', 33), ('UA', 7), ('DL', 1))
             as flight(airline, delay)
    """)
    producer.send_arrow("duckdb-flights", made).result(timeout=30)


def reader(consumer: Consumer) -> pyarrow.RecordBatchReader:
    """Return the present content of the topic as a stream of batches."""
    partitions = consumer.partitions_for("duckdb-flights", timeout=30)
    begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    consumer.assign(begin, until=end)
    batches = consumer.batches(timeout=30, columns=["partition", "offset", "value"])
    first = next(batches)  # all batches have the same schema
    return pyarrow.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


def main() -> None:
    """Write flights, read and group them by SQL, write the delays."""
    with (
        Producer(SERVERS) as producer,
        Consumer(SERVERS) as consumer,
        duckdb.connect() as database,
    ):
        write_flights(producer, database)
        topic = reader(consumer)  # the query refers to this variable
        delays = database.sql(QUERY).to_arrow_table()
        topic.close()
        for row in delays.to_pylist():
            print(f"{row['airline']}: {row['flights']} flights, {row['mean']} minutes late")
        answer = database.sql(
            "select airline as key, to_json(delays)::varchar as value from delays order by key"
        )
        producer.send_arrow("duckdb-delays", answer).result(timeout=30)
        print(f"written to duckdb-delays: {delays.num_rows} records")


if __name__ == "__main__":
    main()
