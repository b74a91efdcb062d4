"""Orders by confluent-kafka: a callback per record written, a group that commits by hand.

    python confluent_kafka_orders.py localhost:9092 orders

Writes 300 orders, reads them as a member of a group, commits after each hundred, and prints what
it saw as a line of JSON.
"""

import json
import sys
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer


def write(servers: str, topic: str) -> int:
    acknowledged = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
        }
    )
    for number in range(300):
        key, value = f"customer-{number % 7}", json.dumps({"order": number, "cents": number * 25})
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:  # the queue is full: let some messages go
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return acknowledged


def read(servers: str, topic: str, group: str) -> tuple[int, int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    assigned = 0

    def on_assign(_: Consumer, partitions: list[Any]) -> None:
        nonlocal assigned
        assigned = len(partitions)

    consumer.subscribe([topic], on_assign=on_assign)
    count = cents = 0
    while count < 300:
        message = consumer.poll(30.0)
        if message is None:
            raise TimeoutError("no order in 30 s")
        if message.error():
            raise KafkaException(message.error())
        cents += json.loads(message.value() or b"")["cents"]
        count += 1
        if count % 100 == 0:
            consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return assigned, cents


if __name__ == "__main__":
    servers, topic = sys.argv[1:]
    written = write(servers, topic)
    assigned, cents = read(servers, topic, f"billing-{uuid.uuid4()}")
    print(json.dumps({"written": written, "assigned": assigned, "cents": cents}))
