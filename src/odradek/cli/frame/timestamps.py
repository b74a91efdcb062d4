"""Parse times that users write, and format times for output.

In: ISO 8601 texts, as for Kafka's `--to-datetime`, or milliseconds. Out: milliseconds since the
epoch. Times without a zone are in UTC, as in Kafka's tools. Must not: read a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import whole_number

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def parse_moment(flag: str, text: str) -> int:
    """Return a time in milliseconds since the epoch; raise a usage error for other texts."""
    number = whole_number(text)
    if number is not None:
        return number
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        refuse(
            f"{flag}: {text!r} is not a time; examples: 2026-03-01T12:30:00 (UTC), "
            "2026-03-01T12:30:00.250Z, 2026-03-01T12:30:00+02:00"
        )
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    ms = (found - EPOCH) // MILLISECOND
    if ms < 0:
        refuse(f"{flag}: {text!r} is before 1970")
    return ms


def shown_moment(ms: int | None) -> str:
    """Format a time in UTC; "-" for None, and a number for a time out of the calendar's range."""
    if ms is None or ms < 0:
        return "-"
    try:
        found = EPOCH + ms * MILLISECOND
    except OverflowError:
        return str(ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
