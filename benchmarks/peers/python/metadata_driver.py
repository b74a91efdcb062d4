"""Time how long a library takes to decode and process one metadata response; see METHOD.md.

In: `LIBRARY --answer FILE`. Out: one JSON line: milliseconds of the first time in this process, of
later times (median; each with a new client), of the same response again, and memory.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from driver import Found, status

TIMES = {"odradek": 6, "kafka-python": 2}
TOPICS = 10_000
VERSION = 13


def odradek() -> Callable[[bytes], float]:
    """Return a function that decodes in the updater's steps and returns the longest step's time."""
    from odradek.common.backoff import ExponentialBackoff
    from odradek.metadata.metadata import Metadata
    from odradek.protocol.packed_metadata import PackedMetadataResponse

    metadata = Metadata(
        max_age=300.0,
        max_idle=300.0,
        retry=ExponentialBackoff(0.1, 1.0),
        rng=random.Random(1),
        clock=lambda: 0.0,
    )

    names = [f"orders-of-region-{n:05d}" for n in range(TOPICS)]
    metadata.want(names)  # as the client does before it sends the request

    def takes(data: bytes) -> float:
        steps = [time.process_time()]
        answer = PackedMetadataResponse.decode(data, VERSION)
        steps.append(time.process_time())
        while answer.unread is not None:
            answer.read_on()
            metadata.look_over(answer)
            steps.append(time.process_time())
        fresh = metadata.snapshot is None
        metadata.apply(answer, names, 0.0, partial=False, fresh=fresh, serial=0)
        steps.append(time.process_time())
        return max(b - a for a, b in pairwise(steps))

    return takes


def kafka_python() -> Callable[[bytes], float]:
    """Return a function that decodes a response and updates the client's cluster metadata."""
    from kafka.cluster import ClusterMetadata
    from kafka.protocol.metadata import MetadataResponse

    cluster: Any = ClusterMetadata(bootstrap_servers="localhost:9092")

    def takes(data: bytes) -> float:
        cluster.update_metadata(MetadataResponse.decode(data, version=VERSION))
        return 0.0

    return takes


def measure(path: str, times: int, fresh: Callable[[], Callable[[bytes], float]]) -> Found:
    """Time the response with a new client each time, and finally the same response once more."""
    answer = Path(path).read_bytes()
    fresh()  # not timed, because it loads the library
    before = status("VmRSS")
    took, longest = [], 0.0
    grown = 0
    for n in range(times):
        takes = fresh()
        begin = time.process_time(), time.perf_counter()
        longest = max(longest, takes(answer))
        took.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
        grown = grown if n else status("VmHWM") - before
    begin_again = time.perf_counter()
    longest = max(longest, takes(answer))
    return {
        "first_answer_ms": 1000 * took[0][1],
        "answer_ms": 1000 * statistics.median(wall for _, wall in took[1:]),
        "answer_cpu_ms": 1000 * statistics.median(cpu for cpu, _ in took[1:]),
        "same_answer_ms": 1000 * (time.perf_counter() - begin_again),
        **({"step_cpu_ms": 1000 * longest} if longest else {}),
        "rss_growth": grown,
    }


if __name__ == "__main__":
    library, _, file = sys.argv[1:]
    found = measure(file, TIMES[library], odradek if library == "odradek" else kafka_python)
    print(json.dumps({"library": library, "mode": "metadata", **found}))
