"""The records of the benchmarks: flights as JSON text, as the demo sends them, made from a seed.

In: a number of records. Out: keys and values. Text of this kind shrinks to about a third, which
random bytes (incompressible) and repeated ones (too compressible) don't.
"""

from __future__ import annotations

import json
import random

_CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL", "AS", "9E", "F9", "YV")
_ORIGINS = ("JFK", "LGA", "EWR")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def records(count: int, seed: int = 2013) -> list[tuple[bytes, bytes]]:
    """Keys (tail numbers) and values (JSON, some 200 bytes)."""
    rng = random.Random(seed)
    tails = [f"N{rng.randrange(1000, 99999)}{rng.choice(_LETTERS)}" for _ in range(4000)]
    destinations = ["".join(rng.choices(_LETTERS, k=3)) for _ in range(105)]
    found = []
    for _ in range(count):
        tail = rng.choice(tails)
        scheduled = rng.randrange(500, 2359)
        delay = round(rng.gauss(12, 40))
        row = {
            "year": 2013,
            "month": rng.randrange(1, 13),
            "day": rng.randrange(1, 29),
            "sched_dep_time": scheduled,
            "dep_delay": delay if rng.random() > 0.02 else None,
            "arr_delay": delay + round(rng.gauss(-5, 15)),
            "carrier": rng.choice(_CARRIERS),
            "flight": rng.randrange(1, 8500),
            "tailnum": tail,
            "origin": rng.choice(_ORIGINS),
            "dest": rng.choice(destinations),
            "distance": rng.randrange(80, 4983),
        }
        found.append((tail.encode(), json.dumps(row).encode()))
    return found
