"""Return unpredictable random bytes, for nonces.

In: nothing. Out: bytes of the operating system. Must not: be used for jitter; clients have a
generator of their own for that.
"""

from __future__ import annotations

import os


def random_bytes(count: int) -> bytes:
    """So many bytes."""
    return os.urandom(count)
