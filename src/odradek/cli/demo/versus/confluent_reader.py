"""The plain reader of confluent-kafka, by assignment and with its defaults."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from odradek.cli.demo.versus.reader import Reporter


def read(bootstrap: str, topic: str, partitions: list[int], reporter: Reporter) -> None:
    """Read for ever."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "odradek-demo",  # it insists on one
            "error_cb": lambda error: reporter.failed(str(error)),
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            reporter.failed(str(message.error()))
        else:
            reporter.got(message.value() or b"")
