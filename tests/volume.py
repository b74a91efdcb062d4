"""Choose how much of a long search or a long table a run covers.

`make test` covers a part of each, which is enough to notice what a change breaks. With
ODRADEK_WHOLE=1 everything runs: in `make test-long`, `make fuzz-properties`, `make
fuzz-interruptions`, and where a search must find a mutation (`make broken-rules`, `make
broken-bounds`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import cycle, product
from typing import TypeVar
from zlib import crc32

A = TypeVar("A")
B = TypeVar("B")

VARIABLE = "ODRADEK_WHOLE"
WHOLE = bool(os.environ.get(VARIABLE))
PART = 1 if WHOLE else 24


def part(whole: int, least: int = 1) -> int:
    """Return how many of the cases to run; at least `least`."""
    return max(whole // PART, min(least, whole))


def examples(whole: int) -> int:
    """Return how many examples Hypothesis tries."""
    return whole if WHOLE else max(10, whole // 3)


def some(cases: Iterable[A], count: int) -> list[A]:
    """Return `count` of the cases, spread evenly; all of them in a whole run."""
    found = list(cases)
    if WHOLE or count >= len(found):
        return found
    return [found[n * len(found) // count] for n in range(count)]


def third(cases: Iterable[A], of: str, every: int = 3) -> list[A]:
    """Return each third case (or each `every`-th), others for another `of`; all in a whole run."""
    return list(cases) if WHOLE else list(cases)[crc32(of.encode()) % every :: every]


def pairs(longer: Iterable[A], shorter: Iterable[B]) -> list[tuple[A, B]]:
    """Return each of `longer` with one of `shorter` in turn; all pairs in a whole run."""
    firsts, seconds = list(longer), list(shorter)
    if WHOLE:
        return list(product(firsts, seconds))
    assert len(firsts) >= len(seconds), "each of both must be in a pair"
    return list(zip(firsts, cycle(seconds), strict=False))
