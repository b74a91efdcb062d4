"""Read the texts of options: numbers, times, sizes, booleans, JSON.

In: the option's name and its text from Spark. Out: a value. Must not: know the purpose of an
option, or receive a `kafka.*` setting (its value may be a secret).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from odradek.spark.checkpoint_errors import OptionError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_TIME = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)
_UNITS = {"us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Spark's units of time."""
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)(?:i?b)?", re.ASCII)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def boolean(texts: Mapping[str, str], name: str) -> bool:
    """Read true or false in upper or lower case, as Scala does."""
    text = texts[name.lower()].strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {text!r}")
    return text == "true"


def choice(plain: Mapping[str, str], name: str, *allowed: str) -> str:
    """Read one of the allowed words, ignoring case; the first one is the default."""
    text = plain.get(name.lower(), allowed[0]).strip().lower()
    if text not in allowed:
        raise OptionError(f"option {name} must be {' or '.join(allowed)}, not {text!r}")
    return text


def integer_option(name: str, text: str, most: int = LONG_MAX, least: int = 1) -> int:
    """Read a whole number of at least `least` and at most `most`."""
    value = text.strip()
    number = int(value) if value.isascii() and value.isdecimal() else None
    if number is None or not least <= number <= most:
        above = f"above {least - 1}" if least else "of 0 or more"
        if number is not None and number > most:
            above = f"of {most} at most"
        raise OptionError(f"option {name} must be a whole number {above}, not {text!r}")
    return number


def whole_or_none(
    plain: Mapping[str, str], name: str, most: int = LONG_MAX, least: int = 1
) -> int | None:
    """Read a whole number; None if the option isn't set."""
    text = plain.get(name.lower())
    return None if text is None else integer_option(name, text, most, least)


def seconds(name: str, text: str, unit: str) -> float:
    """Read a duration as Spark writes it (90s, 15m, 1h, 500ms); `unit` applies without a suffix."""
    match = _TIME.fullmatch(text.strip().lower())
    factor = None if match is None else _UNITS.get(match[2] or unit)
    if match is None or factor is None or int(match[1]) == 0:
        raise OptionError(f"option {name} must be a time like 90s, 5m or 1h, not {text!r}")
    return int(match[1]) * factor


def byte_size(name: str, text: str) -> int:
    """Read a size as Spark writes it (512k, 64m, 1g; bytes without a suffix)."""
    match = _SIZE.fullmatch(text.strip().lower())
    found = 0 if match is None else int(match[1]) << _SHIFTS[match[2] or ""]
    if not 0 < found <= LONG_MAX:
        raise OptionError(f"option {name} must be a size like 512k, 64m or 1g, not {text!r}")
    return found


def json_object(name: str, text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: _without_repeats(name, pairs))
    except ValueError as error:
        raise OptionError(f"option {name} isn't JSON: {error}: {text!r:.80}") from None
    if not isinstance(document, dict):
        raise OptionError(f"option {name} must be a JSON object, not {text!r:.80}")
    return document


def _without_repeats(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise for a repeated key, of which only the last value would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise OptionError(f"option {name} names {repeated!r} twice")
    return found
