"""Describe a pattern that no topic matches (R-IN-6).

In: the pattern, the names of all topics. Out: words for the log, `health()` and `explain()`, with
a similar pattern that matches. Must not: list topics, or decide when to warn.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress

from odradek.common.config import Config
from odradek.common.printable import command


def unmatched(pattern: re.Pattern[str], names: Collection[str]) -> str | None:
    """Return that no name matches, with a similar pattern that does; None if one matches."""
    if any(map(pattern.fullmatch, names)):
        return None
    text = pattern.pattern
    for other in (f"{text}.*", f"(?i){text}", f"(?i){text}.*", f".*{text}.*"):
        with suppress(re.error):
            found = next(filter(re.compile(other, pattern.flags).fullmatch, names), None)
            if found is not None:
                meant = f" (did you mean {other!r}, which matches {found}?)"
                return f"no topic matches pattern {text!r}{meant}"
    return f"no topic matches pattern {text!r}"


def pattern_cure(config: Config) -> str:
    """Return what a pattern has to match, and the command that lists the topics."""
    return (
        "A pattern must match the whole name of a topic, and the client's user needs READ on it. "
        f"List the topics with: {command('topics list', config['bootstrap.servers'])}"
    )
