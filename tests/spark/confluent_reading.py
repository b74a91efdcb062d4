"""Read a topic with confluent-kafka's AvroDeserializer, in a process that has its packages.

Arguments: the brokers, the registry's URL, the topic, a file with the reader's schema, and the
Parquet file to write, with a row for each value that could be decoded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyarrow import parquet

BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}
"""By default confluent-kafka requests associations, which other registries don't have."""
TOGETHER = 10_000


def main(brokers: str, url: str, topic: str, schema: str, into: str) -> None:
    registry = SchemaRegistryClient({"url": url})
    value = AvroDeserializer(registry, Path(schema).read_text(), conf=BY_TOPIC)
    key = AvroDeserializer(registry, conf=BY_TOPIC)
    of_value = SerializationContext(topic, MessageField.VALUE)
    of_key = SerializationContext(topic, MessageField.KEY)
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "none"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    left = sum(
        consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in partitions
    )
    columns: dict[str, list[Any]] = {name: [] for name in ("partition", "offset", "key", "value")}
    while left:
        for record in consumer.consume(TOGETHER, 1.0):
            left -= 1
            try:
                found = value(record.value(), of_value)
            except Exception:  # noqa: S112 - it raises what it likes over bytes that are none
                continue
            columns["partition"].append(record.partition())
            columns["offset"].append(record.offset())
            columns["key"].append(key(record.key(), of_key))
            columns["value"].append(found)
    consumer.close()
    kind = [("note", pa.string()), ("at", pa.timestamp("us", "UTC")), ("id", pa.int64())]
    types = {"partition": pa.int32(), "offset": pa.int64(), "key": pa.string()}
    arrays = [pa.array(columns[name], kind) for name, kind in types.items()]
    arrays.append(pa.array(columns["value"], pa.struct(kind)))
    parquet.write_table(pa.table(arrays, [*types, "value"]), into)


if __name__ == "__main__":
    main(*sys.argv[1:])
