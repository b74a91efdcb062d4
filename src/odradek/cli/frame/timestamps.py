"""Moments of time as people write them, and as they are shown to them.

In: ISO 8601 texts, as Kafka's `--to-datetime` takes them, or milliseconds. Out: milliseconds since
the epoch. Without a zone UTC is meant, as in Kafka's tools, wherever the command runs. Must not:
read a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import whole_number

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def parse_moment(flag: str, text: str) -> int:
    """Milliseconds since the epoch; ends as a wrong use does where the text is no moment."""
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
    """Return a time in UTC; a dash for none, a number for one out of the calendar's range."""
    if ms is None or ms < 0:
        return "-"
    try:
        found = EPOCH + ms * MILLISECOND
    except OverflowError:
        return str(ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
