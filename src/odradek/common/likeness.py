"""Names that may be meant by one that isn't known.

In: a name, and those that are known. Out: the most similar of these.
"""

from __future__ import annotations

from collections.abc import Iterable


def similar(name: str, known: Iterable[str], count: int = 1, least: float = 0.6) -> list[str]:
    """At most `count` of `known`, the most similar first, from `least` on (1 is equal)."""
    from difflib import get_close_matches  # only here: most clients start without it

    return get_close_matches(name, list(known), n=count, cutoff=least)
