"""What is timed, for each client: the same records, guarantees and codec; speeds in records/s.

In: bootstrap servers, a topic, records. Out: records per second, from a first record to the
acknowledgement or the reading of the last one; or milliseconds from nothing to the first. Each
function checks that all records are there: a fast wrong answer isn't a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

import odradek

Rows = Sequence[tuple[bytes, bytes]]
Topic = Callable[[], str]
_TIMEOUT = 120.0
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)


def librdkafka_version() -> str:
    """Of the library in the wheel."""
    return str(confluent_kafka.libversion()[0])


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """Make a topic that nobody has written to."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


# Produce


def odradek_produce(servers: str, topic: Topic, rows: Rows, codec: str) -> float:
    """Send one by one, wait for all."""
    name = topic()
    config = {"bootstrap.servers": servers, "linger.ms": 5, "compression.type": codec}
    with odradek.Producer(config) as producer:
        send = producer.send
        send(name, b"first").result(timeout=_TIMEOUT)
        begin = time.perf_counter()
        for key, value in rows:
            send(name, value, key)
        producer.flush(timeout=_TIMEOUT)
        seconds = time.perf_counter() - begin
    check_written(servers, name, len(rows) + 1)
    return len(rows) / seconds


def confluent_produce(servers: str, topic: Topic, rows: Rows, codec: str) -> float:
    """The same with librdkafka; a full queue is waited for, as its users do."""
    name = topic()
    producer = _confluent_producer(servers, codec)
    produce, poll = producer.produce, producer.poll
    produce(name, b"first")
    producer.flush(_TIMEOUT)
    begin = time.perf_counter()
    for key, value in rows:
        while True:
            try:
                produce(name, value, key)
                break
            except BufferError:
                poll(0.01)
        poll(0)
    producer.flush(_TIMEOUT)
    seconds = time.perf_counter() - begin
    check_written(servers, name, len(rows) + 1)
    return len(rows) / seconds


def _confluent_producer(servers: str, codec: str) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "compression.type": codec,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
    )


def check_written(servers: str, topic: str, count: int) -> None:
    """All records are in the log, by the offsets at its end."""
    with odradek.Consumer({"bootstrap.servers": servers}) as consumer:
        ends = consumer.end_offsets(consumer.partitions_for(topic, timeout=10), timeout=10)
    if sum(ends.values()) != count:
        raise RuntimeError(f"{sum(ends.values())} records of {count} in {topic}")


def odradek_first_sent(servers: str, topic: Topic) -> float:
    """Milliseconds until a new producer's first record is acknowledged."""
    name = topic()
    begin = time.perf_counter()
    with odradek.Producer({"bootstrap.servers": servers}) as producer:
        producer.send(name, b"first").result(timeout=_TIMEOUT)
        return 1000 * (time.perf_counter() - begin)


def confluent_first_sent(servers: str, topic: Topic) -> float:
    """The same with librdkafka."""
    name = topic()
    begin = time.perf_counter()
    producer = _confluent_producer(servers, "none")
    producer.produce(name, b"first")
    if producer.flush(_TIMEOUT):
        raise RuntimeError("confluent-kafka: the first record didn't arrive")
    return 1000 * (time.perf_counter() - begin)


# Consume


def odradek_first_read(servers: str, topic: str, partitions: int) -> float:
    """Milliseconds until a new consumer's first record is there."""
    begin = time.perf_counter()
    with _odradek_reader(servers, topic, partitions):
        return 1000 * (time.perf_counter() - begin)


def confluent_first_read(servers: str, topic: str, partitions: int) -> float:
    """The same with librdkafka."""
    begin = time.perf_counter()
    consumer = _confluent_reader(servers, topic, partitions)
    milliseconds = 1000 * (time.perf_counter() - begin)
    consumer.close()
    return milliseconds


def odradek_records(servers: str, topic: str, partitions: int, count: int) -> float:
    """`poll`: one object for each record."""
    with _odradek_reader(servers, topic, partitions) as consumer:
        begin = time.perf_counter()
        seen = 1
        while seen < count and (found := consumer.poll(timeout=_TIMEOUT, max_records=10_000)):
            for record in found:
                record.key, record.value, record.offset  # noqa: B018 - reading is the point
            seen += len(found)
        return _speed(seen, count, begin)


def odradek_arrow(servers: str, topic: str, partitions: int, count: int) -> float:
    """`poll_arrow`, put together to one table."""
    with _odradek_reader(servers, topic, partitions) as consumer:
        begin = time.perf_counter()
        batches: list[pa.RecordBatch] = []
        seen = 1
        while seen < count and (batch := consumer.poll_arrow(timeout=_TIMEOUT)) is not None:
            batches.append(batch)
            seen += batch.num_rows
        table = pa.Table.from_batches(batches)
        return _speed(1 + table.num_rows, count, begin)


def _odradek_reader(servers: str, topic: str, partitions: int) -> odradek.Consumer:
    consumer = odradek.Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"})
    consumer.assign([odradek.TopicPartition(topic, p) for p in range(partitions)])
    if len(consumer.poll(timeout=_TIMEOUT, max_records=1)) != 1:
        raise RuntimeError("odradek: no first record")
    return consumer


def confluent_records(servers: str, topic: str, partitions: int, count: int) -> float:
    """`consume` in thousands, then key and value of each message, as a program reads them."""
    consumer = _confluent_reader(servers, topic, partitions)
    begin = time.perf_counter()
    seen = 1
    while seen < count:
        # It waits until it has as many as it was asked for, so never for more than there are.
        for message in consumer.consume(min(10_000, count - seen), timeout=1.0):
            _check(message)
            message.key(), message.value(), message.offset()
            seen += 1
    speed = _speed(seen, count, begin)
    consumer.close()
    return speed


def confluent_arrow(servers: str, topic: str, partitions: int, count: int) -> float:
    """Messages to the same columns by way of Python lists, which is what its users have to do."""
    consumer = _confluent_reader(servers, topic, partitions)
    begin = time.perf_counter()
    batches: list[pa.RecordBatch] = []
    seen = 1
    while seen < count:
        messages: list[Any] = consumer.consume(min(10_000, count - seen), timeout=1.0)
        if not messages:
            continue
        columns: list[list[Any]] = [[] for _ in _SCHEMA]
        for m in messages:
            _check(m)
            kind, at = m.timestamp()
            row = (m.key(), m.value(), m.topic(), m.partition(), m.offset(), at * 1000, kind - 1)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        seen += len(messages)
    table = pa.Table.from_batches(batches)
    speed = _speed(1 + table.num_rows, count, begin)
    consumer.close()
    return speed


def _confluent_reader(servers: str, topic: str, partitions: int) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, p, beginning) for p in range(partitions)]
    )
    (message,) = consumer.consume(1, timeout=_TIMEOUT)
    _check(message)
    return consumer


def _check(message: Any) -> None:
    if message.error() is not None:
        raise RuntimeError(f"confluent-kafka: {message.error()}")


def _speed(seen: int, count: int, begin: float) -> float:
    seconds = time.perf_counter() - begin
    if seen != count:
        raise RuntimeError(f"{seen} records of {count}")
    return count / seconds
