"""Read and write with confluent-kafka (librdkafka), a client of another project.

In: bootstrap servers, a topic. Out: records as plain values. Must not: import Odradek's clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

Headers = tuple[tuple[str, bytes | None], ...]
Servers = str | Mapping[str, str]
"""Bootstrap servers alone, or with a secured cluster's settings (`librdkafka_config()`)."""


@dataclass(frozen=True, slots=True)
class Row:
    """Record in the form of both clients; the log sets the last three fields, not the writer."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = field(default=-1, compare=False)
    offset: int = field(default=-1, compare=False)


def settings(servers: Servers, **more: Any) -> dict[str, Any]:
    """Return the configuration that all of these clients share."""
    return {
        **({"bootstrap.servers": servers} if isinstance(servers, str) else servers),
        "log_level": 0,  # librdkafka would log each broker that a test stops
        "broker.address.family": "v4",
        **more,
    }


def place_topic(
    servers: Servers, topic: str, replicas: list[list[int]], config: dict[str, str] | None = None
) -> None:
    """Create a topic whose partition n has its replicas on the brokers `replicas[n]`.

    Returns when the leaders know that they lead the partitions: an earlier produce may fail.
    """
    made = NewTopic(topic, len(replicas), replica_assignment=replicas, config=config or {})
    admin = AdminClient(settings(servers))  # its calls end when the client is garbage collected
    admin.create_topics([made])[topic].result(30)
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = {TopicPartition(topic, n): latest for n in range(len(replicas))}
    deadline = time.monotonic() + 30
    while True:
        asked = admin.list_offsets(ends)
        try:
            for answer in asked.values():
                answer.result(30)
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def read_all(
    servers: Servers, topic: str, partitions: int, timeout: float = 60.0, *, whole: bool = True
) -> dict[int, list[Row]]:
    """Return every committed record of a topic, by partition, in the order of the log.

    Wait for the markers of transactions: a broker writes them after it has acknowledged the commit.
    Without `whole`, stop at the last stable offset, as a transaction may stay open.
    """
    consumer = Consumer(
        settings(
            servers,
            **{"group.id": "reader", "enable.partition.eof": True, "enable.auto.commit": False},
        )
    )
    found: dict[int, list[Row]] = {p: [] for p in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in found])
        open_ones = set(found)
        deadline = time.monotonic() + timeout
        while open_ones:
            messages: list[Any] = consumer.consume(1000, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    place = TopicPartition(topic, message.partition())
                    _, end = consumer.get_watermark_offsets(place, cached=True)
                    if message.offset() >= end or not whole:
                        open_ones.discard(message.partition())
                    continue
                assert error is None, str(error)
                found[message.partition()].append(_row(message))
            assert time.monotonic() < deadline, f"no end of partitions {open_ones}"
    finally:
        consumer.close()
    return found


def _row(message: Any) -> Row:
    kind, timestamp = message.timestamp()
    assert kind == 1, "not the writer's timestamp"
    headers = tuple((name, content) for name, content in message.headers() or ())
    return Row(
        message.key(), message.value(), headers, timestamp, message.partition(), message.offset()
    )


def write_all(
    servers: Servers, topic: str, rows: Iterable[Row], partitions: Sequence[int] = (), **more: Any
) -> None:
    """Write records; record n goes to `partitions[n % len]`, or to librdkafka's choice."""
    # Idempotent, because otherwise a batch that a new leader rejects is written after the next one.
    producer = Producer(settings(servers, **{"enable.idempotence": True}, **more))
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for n, row in enumerate(rows):
        where: dict[str, Any] = {}
        if partitions:
            where["partition"] = partitions[n % len(partitions)]
        if row.timestamp_ms is not None:
            where["timestamp"] = row.timestamp_ms
        if row.headers:
            where["headers"] = list(row.headers)
        producer.produce(topic, row.value, row.key, on_delivery=delivered, **where)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not failures, failures[0]
