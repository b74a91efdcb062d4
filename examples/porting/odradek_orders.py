"""Orders by Odradek: the same as `confluent_kafka_orders.py`.

python odradek_orders.py localhost:9092 orders
"""

import json
import sys
import uuid

from odradek import Consumer, Producer, RecordMetadata, TopicPartition


def write(servers: str, topic: str) -> int:
    acknowledged = 0
    errors: list[BaseException] = []

    def delivered(error: BaseException | None, _: RecordMetadata) -> None:
        nonlocal acknowledged
        if error is not None:
            errors.append(error)  # an exception raised here would only be logged
        else:
            acknowledged += 1

    # By default idempotent, with acks=all and Java's murmur2.
    with Producer({"bootstrap.servers": servers, "compression.type": "zstd"}) as producer:
        for number in range(300):
            key = f"customer-{number % 7}".encode()  # keys and values are bytes
            value = json.dumps({"order": number, "cents": number * 25}).encode()
            # While the buffer is full, send() blocks for at most max.block.ms; there is no poll().
            producer.send(topic, value, key, on_delivery=delivered)
        producer.flush()
    if errors:
        raise errors[0]
    return acknowledged


def read(servers: str, topic: str, group: str) -> tuple[int, int]:
    assigned = 0

    def on_assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        nonlocal assigned
        assigned = len(partitions)

    count = cents = 0
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic], on_assigned=on_assigned)
        for record in consumer.records(timeout=30.0):  # ends after 30 seconds without a record
            cents += json.loads(record.value or b"")["cents"]
            count += 1
            if count % 100 == 0:
                consumer.commit(record)
            if count == 300:
                break
    if count < 300:
        raise TimeoutError("no order in 30 s")
    return assigned, cents


if __name__ == "__main__":
    servers, topic = sys.argv[1:]
    written = write(servers, topic)
    assigned, cents = read(servers, topic, f"billing-{uuid.uuid4()}")
    print(json.dumps({"written": written, "assigned": assigned, "cents": cents}))
