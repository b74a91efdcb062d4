"""Check the arguments of `subscribe`: topics, a pattern, callbacks.

In: the arguments. Out: names, a pattern, functions; or an error that says what to pass instead.
Must not: know the subscription, or resolve a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from odradek.common.arguments import names, refusal, shown, some_function, text
from odradek.common.errors import ConfigurationError

METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
"""Method names of a listener, as in kafka-python and aiokafka; the last one is optional."""


def topics_to_subscribe(given: Any) -> list[str]:
    """Check topic names, and return them as a list; a str is one name."""
    found = names("topics", given)
    for name in found:
        if name.startswith("^"):  # librdkafka marks patterns among the names in this way
            pattern = name if name.endswith(("*", "+", "$")) else f"{name}.*"
            cure = f"pass pattern={pattern!r}, which must match the whole name of a topic"
            raise ConfigurationError(f"{shown(name)} isn't a topic name: {cure}")
    return found


def pattern_to_subscribe(given: Any) -> str | re.Pattern[str] | None:
    """Check the pattern, a text or a compiled regular expression, and return it."""
    if given is None:
        return None
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise refusal("pattern", "a regular expression for str", given.pattern)
        text("pattern", given.pattern)
        return given
    if not isinstance(given, str):
        raise refusal("pattern", "a regular expression (a str, or compiled)", given)
    return text("pattern", given)


def callbacks(given: Mapping[str, Any]) -> list[Callable[..., object] | None]:
    """Check the callbacks, and return them in the given order."""
    return [some_function(name, value) for name, value in given.items()]


def listener_methods(listener: Any) -> list[Callable[..., object] | None]:
    """Return the callbacks of a listener object; methods may be missing."""
    found = [getattr(listener, name, None) for name in METHODS]
    if isinstance(listener, type) or not any(callable(method) for method in found):
        cure = "pass a function as on_assigned=" if callable(listener) else ""
        raise refusal("listener", f"an object with {METHODS[0]}()", listener, cure)
    return [some_function(name, method) for name, method in zip(METHODS, found, strict=True)]
