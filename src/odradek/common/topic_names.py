"""What brokers take for a topic's name, and the rule in words.

In: a text. Out: whether a topic can have it as its name. Must not ask a cluster: whether there is
such a topic is another question.
"""

from __future__ import annotations

import string

LONGEST_NAME = 249
RULE = "it has 1 to 249 letters (a to z), digits, dots, dashes and underscores"
_ALLOWED = frozenset(string.ascii_letters + string.digits + "._-")


def is_name(name: str) -> bool:
    """Whether brokers can have a topic of this name."""
    return 0 < len(name) <= LONGEST_NAME and name not in (".", "..") and _ALLOWED.issuperset(name)


def named(name: str) -> str:
    """The topic in an error of a broker, with the rule where it is the name that is wrong."""
    return f"topic {name}" if is_name(name) else f"topic {name}: {unfit(name)}"


def unfit(name: str) -> str:
    """Why there can be no topic of this name."""
    return f"{name!r:.120} can't be a topic's name: {RULE}"
