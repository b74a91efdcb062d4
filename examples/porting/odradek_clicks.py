"""Clicks by Odradek: the same as `kafka_python_clicks.py`.

python odradek_clicks.py localhost:9092 clicks
"""

import json
import sys
import uuid
from collections import Counter

from odradek import Consumer, Producer


def write(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        futures = [
            producer.send(
                topic,
                key=f"user-{n % 11}".encode(),  # no serializers: keys and values are bytes
                value=json.dumps({"page": f"/{n % 5}"}).encode(),
            )
            for n in range(500)
        ]
        for future in futures:
            future.result(timeout=30)


def count(servers: str, topic: str, group: str, limit: int) -> Counter[str]:
    pages: Counter[str] = Counter()
    with Consumer(
        bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])  # the constructor takes no topics
        for record in consumer.records(timeout=5.0):  # instead of consumer_timeout_ms
            pages[json.loads(record.value or b"")["page"]] += 1
            if pages.total() == limit:
                break
    return pages  # close() has committed the records that the loop processed


if __name__ == "__main__":
    servers, topic = sys.argv[1:]
    write(servers, topic)
    group = f"counter-{uuid.uuid4()}"
    pages = count(servers, topic, group, 200) + count(servers, topic, group, 300)
    print(json.dumps(dict(sorted(pages.items()))))
