"""Words of the command line: one of several that Kafka has, numbers, names in a sentence.

In: what was typed. Out: Kafka's spelling, numbers, texts. Must not: know a command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from odradek.cli.console.properties import refuse

MOST_NAMED = 5
"""Names in one sentence."""
MOST_INT32, MOST_INT64 = 2**31 - 1, 2**63 - 1
"""Kafka has numbers of partitions and brokers in 32 bits, offsets in 64."""


def whole_number(text: str, most: int = MOST_INT64) -> int | None:
    """Return a number from 0 on in plain digits; None for any other text, and above `most`.

    The length is checked first: Python raises for thousands of digits.
    """
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    found = int(text.lstrip("0") or "0")
    return found if found <= most else None


def one_word(flag: str, given: str, words: Sequence[str]) -> str:
    """One of Kafka's words, however its case, dashes and underscores are; else a wrong use."""
    meant, known = _bare(given), {_bare(word): word for word in words}
    if meant not in known:
        close = difflib.get_close_matches(meant, known, n=1)
        hint = f"did you mean {known[close[0]]}?" if close else f"use one of {', '.join(words)}"
        refuse(f"{flag}: unknown value {given!r}; {hint}")
    return known[meant]


def _bare(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, and from the sixth on how many more."""
    every = list(names)
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return f"{', '.join(every[:MOST_NAMED])}{more}"
