"""Read with Odradek's consumer, with a deadline.

In: a consumer with its partitions. Out: records, or an error with the consumer's explain().
"""

from __future__ import annotations

import time

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import ConsumerRecord


def read(
    consumer: Consumer, count: int = 1, timeout: float = 30.0, most: int | None = None
) -> list[ConsumerRecord]:
    """Poll, `most` records at a time, until there are `count` or more."""
    found: list[ConsumerRecord] = []
    end = time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records\n{consumer.explain()}"
        found += consumer.poll(0.5, most)
    return found
