"""Define how an application uses its consumer: how long it polls and works, how it commits.

In: a mapping of a schedule file, or random values. Out: `ApplicationBehaviour`. Must not act.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

COMMIT_TIMEOUT = 3.0
SHORT_COMMIT_TIMEOUTS = (0.5, 3.0)
"""Timeouts in seconds of commits by an application whose client also commits by itself."""
BY_HAND = ("positions", "record", "offsets", "async", "any")


@dataclass(frozen=True, slots=True)
class ApplicationBehaviour:
    """Behaviour of one application that uses a consumer. Times are in seconds."""

    poll: float = 1.0
    work: float = 0.1
    """Maximum time between two polls or, for a processor, within a transaction."""
    most: int = 10
    """Maximum number of records per poll."""
    commits: bool = False
    """Whether the application commits after each poll; otherwise the client commits."""
    besides: float = 0.0
    """Share of polls after which an application commits although its client commits by itself."""
    pattern: str | None = None
    raises: bool = False
    """Whether some of the application's callbacks fail."""
    regrets: float = 0.0
    """Share of transactions that a processor aborts although no error occurred."""
    holds: float = 0.0
    """For an application that commits held records: maximum time to process a part of a poll."""
    by: str = "positions"
    """How the application commits each part of a poll's records: `commit()`, by record, by offsets,
    without waiting, or any of the last three."""
    retries: float = 0.0
    """Share of parts after which the application seeks back to process the records again."""
    pauses: bool = False
    """Whether the application pauses partitions while it processes their records."""
    keeps: bool = False
    """Whether the application processes and commits the records of a poll only after the next poll,
    which may announce a rebalance."""
    parts: int = 1
    """Number of calls that send offsets for one transaction, each with later offsets."""


def complaint(plain: Mapping[str, Any]) -> str | None:
    """Return an error text for a client's behaviour in a schedule file; None if it is valid."""
    known = [item.name for item in fields(ApplicationBehaviour)]
    defaults = ApplicationBehaviour()
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
