"""The plain reader of Odradek. Must not: set anything that the other readers don't set."""

from __future__ import annotations

from odradek import Consumer, KafkaError, TopicPartition
from odradek.cli.demo.versus.reader import Reporter


def read(bootstrap: str, topic: str, partitions: list[int], reporter: Reporter) -> None:
    """Read for ever."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": "demo-reader"})
    assigned = [TopicPartition(topic, partition) for partition in partitions]
    consumer.assign(assigned)
    consumer.seek_to_beginning(assigned)
    while True:
        try:
            for record in consumer.poll(1.0):
                reporter.got(record.value or b"")
        except KafkaError as error:
            reporter.failed(str(error))
