"""How an application uses its consumer: how long it polls and works, who commits.

In: a mapping of a schedule file, or a generator's draw. Out: `Habits`. Must not: do anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

COMMIT_TIMEOUT = 3.0
HASTY = (0.5, 3.0)
"""Timeouts of commits besides those of the client."""
BY_HAND = ("positions", "record", "offsets", "async", "any")


@dataclass(frozen=True, slots=True)
class Habits:
    """Of one application. Seconds."""

    poll: float = 1.0
    work: float = 0.1
    """Between two polls; of a writer, within a transaction."""
    most: int = 10
    """Records of one poll."""
    commits: bool = False
    """It commits by itself after each poll; else the client does."""
    besides: float = 0.0
    """Of one whose client commits: the share of polls after which the application commits, too."""
    pattern: str | None = None
    raises: bool = False
    """Some of its callbacks fail."""
    regrets: float = 0.0
    """The share of its transactions that it aborts, of one that writes what it makes of records."""
    holds: float = 0.0
    """Of one that commits: the most seconds for which it works on a part of what it was handed."""
    by: str = "positions"
    """How it commits what it holds: `commit()`, by record, by offsets, without waiting, or each
    time another of the last three ways."""
    retries: float = 0.0
    """The share of parts after which it seeks back to be handed them again."""
    pauses: bool = False
    """It pauses partitions while it works on their records, and resumes them."""
    parts: int = 1
    """Calls that send the offsets of one transaction, each further than the one before."""


def complaint(plain: Mapping[str, Any]) -> str | None:
    """What is wrong with habits as a file has them."""
    known = [item.name for item in fields(Habits)]
    defaults = Habits()
    for name, value in plain.items():
        if name not in known:
            return f"no {name!r} among {', '.join(known)}"
        default = getattr(defaults, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        sound = {
            bool: isinstance(value, bool),
            int: number and value >= 1 and value == int(value),
            float: number,
            str: value in BY_HAND,
            type(None): value is None or isinstance(value, str),
        }[type(default)]
        if not sound:
            return f"{name} can't be {value!r}"
    return None
