"""Clicks by kafka-python: serializers, a group that commits automatically, a loop over records.

    python kafka_python_clicks.py localhost:9092 clicks

Writes 500 clicks, counts them by page in two runs of one group, so that the second one resumes
where the first one ended, and prints the counts as a line of JSON.
"""

import json
import sys
import uuid
from collections import Counter

from kafka import KafkaConsumer, KafkaProducer


def write(servers: str, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
        linger_ms=5,
    )
    futures = [
        producer.send(topic, key=f"user-{n % 11}", value={"page": f"/{n % 5}"}) for n in range(500)
    ]
    for future in futures:
        future.get(timeout=30)
    producer.close()


def count(servers: str, topic: str, group: str, limit: int) -> Counter[str]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
        consumer_timeout_ms=5000,
    )
    pages: Counter[str] = Counter()
    for record in consumer:
        pages[record.value["page"]] += 1
        if pages.total() == limit:
            break
    consumer.close()  # commits
    return pages


if __name__ == "__main__":
    servers, topic = sys.argv[1:]
    write(servers, topic)
    group = f"counter-{uuid.uuid4()}"
    pages = count(servers, topic, group, 200) + count(servers, topic, group, 300)
    print(json.dumps(dict(sorted(pages.items()))))
