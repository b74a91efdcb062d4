"""Parse ISO 8601 durations as `java.time.Duration.parse` does.

In: a text such as `P7D` or `PT1H30M`. Out: seconds. Must not: know the purpose of a duration.
Weeks, months and years aren't accepted, because Java doesn't accept them, so that Kafka's tools
would refuse the configuration.
"""

from __future__ import annotations

import re

from odradek.common.errors import ConfigurationError

_ISO = (
    r"([-+]?)P(?:([-+]?[0-9]{1,19})D)?"
    r"(T(?:([-+]?[0-9]{1,19})H)?(?:([-+]?[0-9]{1,19})M)?(?:([-+]?[0-9]{1,19})(?:[.,]([0-9]{0,9}))?S)?)?"
)
"""Regular expression, compiled on first use, because that takes two milliseconds."""
_LONGEST = 2**63 - 1
"""Maximum number of seconds of a Java duration."""


def parse_duration(name: str, text: str) -> float:
    """Return a non-negative ISO 8601 duration in seconds; errors name the option `name`."""
    found = re.fullmatch(_ISO, text, re.ASCII | re.IGNORECASE)
    groups: tuple[str | None, ...] = found.groups() if found is not None else ()
    if not any(groups[i] for i in (1, 3, 4, 5) if groups) or (groups[2] or "").upper() == "T":
        raise ConfigurationError(
            f"{name}: {text!r} isn't a duration of days, hours, minutes and seconds such as P7D, "
            "PT1H30M or P1DT0.5S (weeks, months and years aren't supported)"
        )
    sign, days, _, hours, minutes, seconds, fraction = groups
    whole = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    whole += int(seconds or 0)
    part = int((fraction or "").ljust(9, "0")) / 1e9
    total = whole + (-part if (seconds or "").startswith("-") else part)
    total = -total if sign == "-" else total
    if total < 0:
        raise ConfigurationError(f"{name}: the duration {text!r} is negative")
    if abs(whole) > _LONGEST:
        raise ConfigurationError(f"{name}: the duration {text!r} is too long")
    return total
