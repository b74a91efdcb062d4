"""Values on the command line: Kafka's keywords, numbers, names in a sentence.

In: arguments as they were typed. Out: Kafka's spelling, numbers, texts. Must not: depend on a
command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from odradek.cli.console.properties import refuse

MOST_NAMED = 5
"""Maximum number of names in a sentence."""
MOST_INT32, MOST_INT64 = 2**31 - 1, 2**63 - 1
"""Limits of partition numbers and broker ids (32 bits), and of offsets (64 bits)."""


def whole_number(text: str, most: int = MOST_INT64) -> int | None:
    """Parse a non-negative number in ASCII digits; None for other texts, and above `most`.

    The length is checked first, because Python raises for thousands of digits.
    """
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    found = int(text.lstrip("0") or "0")
    return found if found <= most else None


def one_word(flag: str, given: str, words: Sequence[str]) -> str:
    """Return a keyword in Kafka's spelling, ignoring case, dashes and underscores."""
    meant, known = _bare(given), {_bare(word): word for word in words}
    if meant not in known:
        close = difflib.get_close_matches(meant, known, n=1)
        hint = f"did you mean {known[close[0]]}?" if close else f"use one of {', '.join(words)}"
        refuse(f"{flag}: unknown value {given!r}; {hint}")
    return known[meant]


def _bare(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence: the first five, and only the number of the others."""
    every = list(names)
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return f"{', '.join(every[:MOST_NAMED])}{more}"
