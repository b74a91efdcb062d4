"""Send a record each second and read it back, and report outages, while you stop brokers.

    KAFKA=localhost:9092 python clock.py

`TICKS` is the number of records; without it the program runs until it is stopped.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time

from odradek import Admin, Consumer, NewTopic, Producer
from odradek.errors import TopicAlreadyExistsError

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA", "localhost:9092")}
TICKS = os.environ.get("TICKS")


def make_topic() -> None:
    """Create a topic with three replicas, two of which must be in sync: one broker may be down."""
    with Admin(SERVERS) as admin:
        copies = min(3, len(admin.describe_cluster(timeout=120).brokers))
        least = {"min.insync.replicas": str(min(2, copies))}
        try:
            admin.create_topics([NewTopic("clock", 3, copies, configs=least)], timeout=60)
        except TopicAlreadyExistsError:
            print("the topic clock is there already", flush=True)


def main() -> None:
    """Tick until Docker sends SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    make_topic()
    with Producer(SERVERS) as producer, Consumer(SERVERS) as consumer:
        partitions = consumer.partitions_for("clock", timeout=60)
        consumer.assign(consumer.end_offsets(partitions, timeout=60))
        for tick in itertools.count() if TICKS is None else range(int(TICKS)):
            next_tick = time.monotonic() + 1.0
            producer.send("clock", b"tick %d" % tick)
            records = consumer.poll(timeout=1.0)
            read = ", ".join((record.value or b"").decode() for record in records)
            print(read or consumer.health().reason or "nothing yet", flush=True)
            if TICKS is None:
                time.sleep(max(0.0, next_tick - time.monotonic()))


if __name__ == "__main__":
    main()
