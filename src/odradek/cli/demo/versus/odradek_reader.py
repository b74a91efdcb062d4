"""The plain reader of Odradek. Must not: set anything that the other readers don't set."""

from __future__ import annotations

from collections.abc import Callable

from odradek import Consumer, KafkaError, TopicPartition


def read(
    bootstrap: str,
    topic: str,
    partitions: list[int],
    got: Callable[[bytes], None],
    failed: Callable[[str], None],
) -> None:
    """Read for ever."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": "demo-reader"})
    assigned = [TopicPartition(topic, partition) for partition in partitions]
    consumer.assign(assigned)
    consumer.seek_to_beginning(assigned)
    while True:
        try:
            for record in consumer.poll(1.0):
                got(record.value or b"")
        except KafkaError as error:
            failed(str(error))
