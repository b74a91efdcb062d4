"""Check topic names in options; an error names the option and the correction.

In: the text of an option. Out: names. Must not: access a cluster: whether a topic exists is checked
elsewhere. A name that is invalid on every broker would otherwise be looked up until a timeout.
"""

from __future__ import annotations

import logging

from odradek.common.topic_names import RULE, is_topic_name
from odradek.spark.checkpoint_errors import OptionError

logger = logging.getLogger("odradek.spark")

_QUOTES = ("'", '"', "`")


def checked_name(option: str, name: str) -> str:
    """Return a valid topic name; otherwise raise `OptionError` with a correction."""
    if is_topic_name(name):
        return name
    raise OptionError(f"option {option}: {name!r:.120} is not a valid topic name: {_cure(name)}")


def listed_names(option: str, text: str) -> tuple[str, ...]:
    """Read names separated by commas; return them sorted without duplicates. Raises `OptionError`.

    Empty names are ignored, as in the JVM connector, with a line in the log.
    """
    names = [name.strip() for name in text.split(",")]
    found = tuple(sorted({checked_name(option, name) for name in names if name}))
    if not found:
        raise OptionError(f"option {option} names no topic: list topic names, separated by commas")
    if "" in names:
        logger.warning(
            "option %s has an empty name next to a comma, which is ignored: check whether a topic "
            "is missing in %r",
            option,
            text[:120],
        )
    return found


def check_pattern(option: str, pattern: str) -> None:
    """Reject a pattern in quotes, which matches no name."""
    if len(pattern) > 1 and pattern[0] in _QUOTES and pattern[-1] == pattern[0]:
        raise OptionError(
            f"option {option}: {pattern!r:.120} matches no topic: leave out the quotes"
        )


def _cure(name: str) -> str:
    if name.startswith(("[", "{")):
        return "write names as plain text, separated by commas (JSON is for option assign)"
    if name.startswith(_QUOTES) or name.endswith(_QUOTES):
        return "leave out the quotes"
    if any(c.isspace() or c in ";|" for c in name):
        return "separate names by commas"
    if any(c in name for c in "*?+()[]^$\\"):
        return "use option subscribePattern for regular expressions"
    return RULE
