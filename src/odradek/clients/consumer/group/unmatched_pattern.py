"""Describe a pattern that no topic matches (R-IN-6).

In: the pattern, the names of all topics. Out: a text for the log, `health()` and `explain()`, with
a similar pattern that matches. Must not: list topics, or decide when to warn.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek.common.config import Config
from odradek.common.printable import command

SPECIAL = frozenset(".^$*+?{}[]\\|()")


def unmatched(pattern: str, names: Collection[str]) -> str:
    """Return a text which says that no topic matches the pattern.

    If the pattern is plain text, a similar pattern that matches is suggested. No regular
    expression is evaluated for that: a slow one would block the whole program.
    """
    text = pattern.removeprefix("^").removesuffix(".*").removesuffix("$")
    if text and SPECIAL.isdisjoint(text):
        tried = (
            (f"{text}.*", lambda n: n.startswith(text)),
            (f"(?i){text}.*", lambda n: n.lower().startswith(text.lower())),
            (f".*{text}.*", lambda n: text in n),
        )
        for other, matches in tried:
            found = next(filter(matches, names), None)
            if found is not None:
                meant = f" (did you mean {other!r}, which matches {found}?)"
                return f"no topic matches pattern {pattern!r}{meant}"
    return f"no topic matches pattern {pattern!r}"


def pattern_cure(config: Config) -> str:
    """Return a text on the names that a pattern must match, with a command that lists topics."""
    return (
        "A pattern must match the whole name of a topic, and the client's user needs READ on it. "
        f"List the topics with: {command('topics list', config['bootstrap.servers'])}"
    )
