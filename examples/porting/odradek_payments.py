"""Payments by Odradek: the same as `aiokafka_payments.py`, without an event loop.

python odradek_payments.py localhost:9092 payments receipts
"""

import json
import sys
import uuid

from odradek import Consumer, Producer, TopicPartition

PAYMENTS = 120


def write(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        futures = [
            producer.send(topic, json.dumps({"cents": number}).encode())
            for number in range(PAYMENTS)
        ]
        for future in futures:
            future.result(timeout=30)


def process(servers: str, source: str, target: str, group: str) -> None:
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = Producer(bootstrap_servers=servers, transactional_id=f"{group}-writer")
    with consumer, producer:
        consumer.subscribe([source])
        producer.init_transactions()
        done = 0
        while done < PAYMENTS:
            records = consumer.poll(timeout=1.0, max_records=30)
            if not records:
                continue
            with producer.transaction():
                offsets = {}
                for record in records:
                    receipt = {"paid": json.loads(record.value or b"")["cents"]}
                    producer.send(target, json.dumps(receipt).encode())
                    offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
                # They are sent with generation and member id: a removed member can't commit.
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            done += len(records)


def read(servers: str, topic: str) -> tuple[int, int]:
    config = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    with Consumer(config) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        found = [json.loads(r.value or b"")["paid"] for r in consumer.records(timeout=3.0)]
    return len(found), sum(found)


def main(servers: str, source: str, target: str) -> None:
    write(servers, source)
    process(servers, source, target, f"cashier-{uuid.uuid4()}")
    count, cents = read(servers, target)
    print(json.dumps({"receipts": count, "cents": cents}))


if __name__ == "__main__":
    main(*sys.argv[1:])
