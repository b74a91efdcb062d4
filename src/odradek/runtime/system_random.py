"""Return unpredictable random bytes, for nonces.

In: the number of bytes. Out: random bytes of the operating system. Must not: be used for jitter,
for which each client has a random generator.
"""

from __future__ import annotations

import os


def random_bytes(count: int) -> bytes:
    """Return `count` random bytes."""
    return os.urandom(count)
