"""Generate the records of the benchmarks: events of a web shop as JSON text, from a seed.

In: the size of a value. Out: a file with a pool of records, which the drivers of all languages
read: for each record the lengths of key and value, each in 4 bytes big-endian, then key and value.
Keys have 16 bytes. Such text compresses to about a third, unlike random bytes (incompressible) and
repeated bytes (too compressible).
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

SEED = 2026
POOL_BYTES = 12_000_000
"""Bytes of all values in a pool: larger than CPU caches, small compared to a client's memory."""
_EVENTS = ("click", "view", "cart", "buy", "hide", "search", "login", "share")
_CITIES = ("berlin", "london", "madrid", "oslo", "paris", "lisbon", "dublin", "gdansk", "wien")
_AGENTS = ("Firefox/145", "Chrome/142", "Safari/26", "Edge/142", "curl/8.17", "Opera/124")
_WORDS = (
    "red", "green", "blue", "small", "large", "cotton", "wool", "linen", "shirt", "coat", "shoe",
    "boot", "lamp", "chair", "table", "desk", "book", "pen", "paper", "cup", "plate", "knife",
    "bag", "belt", "hat", "glove", "scarf", "ring", "watch", "phone", "cable",
)  # fmt: skip


def _value(number: int, size: int, rng: random.Random) -> bytes:
    """Return one event as JSON of exactly `size` bytes, padded with more fields."""
    text = (
        f'{{"id":{number},"ev":"{rng.choice(_EVENTS)}","city":"{rng.choice(_CITIES)}",'
        f'"page":"/p/{rng.randrange(5000)}","ms":{rng.randrange(2000)},'
        f'"amt":{rng.randrange(300)}.{rng.randrange(100):02d}'
    )
    field = 0
    while len(text) + 40 < size:
        field += 1
        words = " ".join(rng.choices(_WORDS, k=3))
        text += f',"f{field}":"{words}","u{field}":"{rng.getrandbits(32):08x}"'
    text += f',"ua":"{rng.choice(_AGENTS)} '
    while len(text) < size:
        text += rng.choice(_WORDS) + " "
    return (text[: size - 2] + '"}').encode()


def write_pool(path: Path, value_size: int) -> int:
    """Write the pool for values of this size; return the number of records."""
    rng = random.Random(SEED)
    count = POOL_BYTES // value_size
    with path.open("wb") as file:
        for n in range(count):
            key = f"user-{rng.randrange(1_000_000):011d}".encode()
            value = _value(10_000_000 + 97 * n, value_size, rng)
            file.write(struct.pack(">II", len(key), len(value)) + key + value)
    return count


def metadata_answer(topics: int = 10_000, partitions: int = 50, brokers: int = 12) -> bytes:
    """Return a metadata response of version 13, as from the brokers of a healthy cluster."""
    found = []
    for t in range(topics):
        rows = []
        for p in range(partitions):
            replicas = [(t + p + n) % brokers for n in range(3)]
            rows.append(MetadataResponsePartition(0, p, replicas[0], 5 + p % 3, replicas, replicas))
        topic_id = (t + 1).to_bytes(16, "little")
        found.append(MetadataResponseTopic(0, f"orders-of-region-{t:05d}", topic_id, False, rows))
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(n, f"broker-{n}", 9092) for n in range(brokers)],
        cluster_id="cluster",
        controller_id=3,
        topics=found,
    )
    return b"".join(answer.encode(13))
