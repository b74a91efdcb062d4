"""Payments by aiokafka: read, work, write, in transactions.

    python aiokafka_payments.py localhost:9092 payments receipts

Writes 120 payments, turns each into a receipt exactly once (receipts and the group's offsets are
committed together, thirty at a time), and prints how many receipts a reader of committed records
finds.
"""

import asyncio
import json
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

PAYMENTS = 120


async def write(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(PAYMENTS):
            await producer.send_and_wait(topic, json.dumps({"cents": number}).encode())


async def process(servers: str, source: str, target: str, group: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{group}-writer")
    await consumer.start()
    await producer.start()
    done = 0
    while done < PAYMENTS:
        found = await consumer.getmany(timeout_ms=1000, max_records=30)
        async with producer.transaction():
            offsets = {}
            for partition, records in found.items():
                for record in records:
                    receipt = {"paid": json.loads(record.value)["cents"]}
                    await producer.send(target, json.dumps(receipt).encode())
                    done += 1
                offsets[TopicPartition(*partition)] = records[-1].offset + 1
            if offsets:
                await producer.send_offsets_to_transaction(offsets, group)
    await producer.stop()
    await consumer.stop()


async def read(servers: str, topic: str) -> tuple[int, int]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    count = cents = 0
    while found := await consumer.getmany(timeout_ms=3000):
        for record in (r for records in found.values() for r in records):
            count += 1
            cents += json.loads(record.value)["paid"]
    await consumer.stop()
    return count, cents


async def main(servers: str, source: str, target: str) -> None:
    await write(servers, source)
    await process(servers, source, target, f"cashier-{uuid.uuid4()}")
    count, cents = await read(servers, target)
    print(json.dumps({"receipts": count, "cents": cents}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
