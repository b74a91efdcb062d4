"""The plain reader of kafka-python, by assignment and with its defaults."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError


def read(
    bootstrap: str,
    topic: str,
    partitions: list[int],
    got: Callable[[bytes], None],
    failed: Callable[[str], None],
) -> None:
    """Read for ever."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, n) for n in partitions])
    while True:
        try:
            for record in consumer:
                got(record.value or b"")
        except KafkaError as error:
            failed(str(error))
            time.sleep(0.1)  # it may raise the same again at once
