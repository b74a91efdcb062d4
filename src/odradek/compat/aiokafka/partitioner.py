"""aiokafka's way to choose a record's partition.

In: a key, the numbers of all partitions, those with a leader. Out: one of them. Must not: know the
producer; `producer.producer` asks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek.record.key_hash import murmur2 as _signed


class DefaultPartitioner:
    """By the hash of the key, as Java's; without a key any partition that has a leader.

    A producer that has one leaves the choice to `odradek.AsyncProducer`, which hashes keys alike
    and stays at a partition for a batch without (KIP-480, KIP-794).
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """One of `all_partitions`, which are in order."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


def murmur2(data: bytes) -> int:
    """The hash of a key, 32 bits without a sign."""
    return _signed(data) & 0xFFFFFFFF
