"""aiokafka's default partitioner.

In: a key, the numbers of all partitions and of those with a leader. Out: the number of the chosen
partition. Must not: depend on the producer, which calls it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek.record.key_hash import murmur2 as _signed


class DefaultPartitioner:
    """Chooses a partition by the key's hash, as Java does; without a key, any that has a leader.

    A producer with this partitioner leaves the choice to `odradek.AsyncProducer`, which hashes keys
    in the same way and sends records without a key to one partition for a whole batch (KIP-480,
    KIP-794).
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return one of `all_partitions`, which are sorted."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


def murmur2(data: bytes) -> int:
    """Return the hash of a key as an unsigned 32-bit number."""
    return _signed(data) & 0xFFFFFFFF
