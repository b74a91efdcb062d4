"""The plain reader of kafka-python, by assignment and with its defaults."""

from __future__ import annotations

import time

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from odradek.cli.demo.versus.reader import Reporter


def read(bootstrap: str, topic: str, partitions: list[int], reporter: Reporter) -> None:
    """Read for ever."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, n) for n in partitions])
    while True:
        try:
            for record in consumer:
                reporter.got(record.value or b"")
        except KafkaError as error:
            reporter.failed(str(error))
            time.sleep(0.1)  # it may raise the same again at once
