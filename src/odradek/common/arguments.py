"""Check arguments of API calls once, and raise errors that say what to pass (R-IN-1).

In: the argument's name and the value that was passed. Out: the value in the only form that the
other packages accept (an int for a numpy integer, a list for an iterable, seconds as a number), or
an `ArgumentError` with the argument, the value and the expected type; a value of the right type but
out of range raises a `ConfigurationError`. Must not: know clients, or show the content of a record
or credential.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from operator import index
from typing import Any

from odradek.common.errors import ArgumentError, ConfigurationError

FOREVER = 1e8
"""Maximum timeout in seconds (three years), to which longer ones and infinity are reduced."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MOST_SHOWN = 60
"""Maximum number of characters of an argument's value in an error."""
MOST_TEXT = 32767
"""Maximum size of a text in bytes in Kafka's older requests, whose lengths have 16 bits."""
Headers = tuple[tuple[str, Any], ...]


def shown(value: object) -> str:
    """Return a value's short repr and type; only the type if the value may be long or private."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int) and abs(value) > 2**128:
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, int | float | str | bytes):
        text = repr(value)
        text = text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"
        return text if "(" in text else f"{text} ({kind})"
    return kind


def refusal(name: str, wanted: str, value: object, cure: str = "") -> ArgumentError:
    """Return the error for an argument of the wrong type."""
    return ArgumentError(f"{name} must be {wanted}, not {shown(value)}{cure and f': {cure}'}")


# Numbers


def is_bool(value: Any) -> bool:
    """Return whether a value is True or False, including numpy's, without importing numpy."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def whole_number(
    name: str, value: Any, low: int, high: int = INT64_MAX, cure: str = "", beyond: str = ""
) -> int:
    """Return a whole number within bounds; accept numpy integers, but not True or False.

    The error for another type contains `cure`, that for a number out of bounds `beyond`.
    """
    if type(value) is int and low <= value <= high:
        return value
    if is_bool(value):
        raise refusal(name, "a whole number", value, cure)
    try:
        number = index(value)
    except TypeError:
        raise refusal(name, "a whole number", value, cure) from None
    if not low <= number <= high:
        bounds = f"{low} or more" if number < low else f"at most {high}"
        more = f": {beyond}" if beyond else ""
        raise ConfigurationError(f"{name} must be {bounds}, not {shown(number)}{more}")
    return int(number)


def partition_number(name: str, value: Any) -> int:
    """Return a partition number; whether the partition exists isn't checked."""
    return whole_number(name, value, 0, INT32_MAX)


def timestamp(name: str, value: Any, low: int = 0) -> int:
    """Return a timestamp, which must be in milliseconds since the epoch."""
    return whole_number(name, value, low, cure="use int(seconds * 1000)")


def checked_timeout(timeout: Any, name: str = "timeout", unit: str = "seconds") -> float:
    """Return a finite timeout in seconds; raise for negative numbers and NaN."""
    if type(timeout) is not float and type(timeout) is not int:
        if (
            is_bool(timeout)
            or isinstance(timeout, str | bytes)
            or not hasattr(timeout, "__float__")
        ):
            timed = hasattr(timeout, "total_seconds")
            cure = "use .total_seconds()" if timed else ""
            raise refusal(name, f"a number of {unit}", timeout, cure)
        try:
            timeout = float(timeout)
        except (TypeError, ValueError, OverflowError):
            raise refusal(name, f"a number of {unit}", timeout) from None
    if not timeout >= 0:
        raise ConfigurationError(f"{name} must be 0 or more {unit}, not {shown(timeout)}")
    return float(timeout) if timeout < FOREVER else FOREVER


# Texts


def plain(value: str) -> str:
    """Convert a subclass of `str`, such as an enum member, to an exact `str`."""
    return str.__str__(value)


def text(name: str, value: Any, *, private: bool = False) -> str:
    """Return a text that UTF-8 can encode; the error never shows a `private` text."""
    if not isinstance(value, str):
        wanted = "a str"
        if private:
            raise ArgumentError(f"{name} must be {wanted}, not {type(value).__name__}")
        cure = "use .decode()" if isinstance(value, bytes) else ""
        raise refusal(name, wanted, value, cure)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"{name} contains lone surrogates, which can't be encoded as UTF-8"
        ) from None
    if size > MOST_TEXT:
        raise ConfigurationError(f"{name} has {size} bytes; at most {MOST_TEXT} are allowed")
    return value if type(value) is str else plain(value)


def topic_name(name: str, value: Any) -> str:
    """Return the name of one topic; brokers check which characters it has."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return plain(value)
    cure = "use .decode()" if isinstance(value, bytes | bytearray) else ""
    raise refusal(name, "a topic name (str)", value, cure)


def names(name: str, value: Any, what: str = "topics' names") -> list[str]:
    """Return several names; a str counts as one name, and isn't split into characters."""
    if isinstance(value, str):
        return [plain(value)]
    wanted = f"a list of {what}"
    if isinstance(value, re.Pattern):
        raise refusal(name, wanted, value, "pass a regular expression as pattern=")
    if isinstance(value, Mapping):
        raise refusal(name, wanted, value)
    found = iterable(name, value, wanted)
    for position, item in enumerate(found):
        if not isinstance(item, str):
            pattern = isinstance(item, re.Pattern)
            cure = "pass a regular expression as pattern=" if pattern else ""
            if isinstance(item, bytes):
                cure = "use .decode()"
            raise refusal(f"{name}[{position}]", f"one of {what} (str)", item, cure)
    return [plain(item) for item in found]


def choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """Return the value if it is one of the allowed texts."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(sorted(allowed))}, not {shown(value)}"
        )
    return plain(value)


def flag(name: str, value: Any) -> bool:
    """Return a bool; raise for other values, because "false" would count as true."""
    if not isinstance(value, bool):
        raise refusal(name, "True or False", value)
    return value


# Objects


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return the value if it is callable."""
    if not callable(value):
        raise refusal(name, "a function", value)
    return value  # type: ignore[no-any-return]


def some_function(name: str, value: Any) -> Callable[..., Any] | None:
    """Return the value if it is callable or None."""
    return None if value is None else function(name, value)


def mapping(name: str, value: Any, wanted: str) -> Mapping[Any, Any]:
    """Return the value if it is a dict or another mapping."""
    if not isinstance(value, Mapping):
        raise refusal(name, wanted, value)
    return value


def iterable(name: str, value: Any, wanted: str) -> list[Any]:
    """Return the items of an iterable; raise for a str, which would be split into characters."""
    if not is_list(value):
        raise refusal(name, wanted, value)
    return list(value)


def is_list(value: Any) -> bool:
    """Return whether a value can be iterated over item by item.

    A str, bytes or a consumer, whose iteration waits for records, doesn't count.
    """
    if isinstance(value, list | tuple):
        return True
    if isinstance(value, str | bytes | bytearray | memoryview) or hasattr(value, "poll"):
        return False
    try:
        iter(value)
    except TypeError:
        return False
    return True


# Records


def record_bytes(name: str, value: Any) -> None:
    """Raise unless a record's key or value is None, or bytes in any form."""
    if value is None or type(value) is bytes:
        return
    wanted = "bytes (or a bytearray, memoryview or None)"
    if isinstance(value, str):
        raise ArgumentError(f"{name} must be {wanted}, not {type(value).__name__}: use .encode()")
    if isinstance(value, dict | list | tuple):
        cure = "use json.dumps(…).encode()"
        raise ArgumentError(f"{name} must be {wanted}, not {type(value).__name__}: {cure}")
    try:
        view = memoryview(value)
    except (TypeError, BufferError, ValueError):
        raise ArgumentError(f"{name} must be {wanted}, not {type(value).__name__}") from None
    if not view.ndim or not hasattr(value, "__len__"):
        kind = type(value).__name__
        raise ArgumentError(f"{name} must be {wanted}, not {kind}: pass bytes")
    if not view.c_contiguous:
        raise ArgumentError(
            f"{name} is a non-contiguous {type(value).__name__}: pass bytes({name})"
        )


def record_headers(given: Any) -> Headers:
    """Return a record's headers from an iterable (read once) or a dict of names and bytes."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        given = given.items()
    wanted = "pairs of a str and bytes"
    pairs = given if type(given) is tuple else tuple(iterable("headers", given, wanted))
    found = []
    for position, pair in enumerate(pairs):
        name = f"headers[{position}]"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise refusal(name, "a pair of a str and bytes", pair)
        record_bytes(f"{name}[1]", pair[1])
        found.append((text(f"{name}[0]", pair[0]), pair[1]))
    return tuple(found)


# Arguments as in other clients


def deprecated_milliseconds(timeout_ms: Any) -> float:
    """Return the argument `timeout_ms` of `poll` in seconds, and warn at the caller's line."""
    seconds = checked_timeout(timeout_ms, "timeout_ms", "milliseconds") / 1000
    text = f"timeout_ms is deprecated and will be removed in 0.5: write poll(timeout={seconds})"
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").startswith("odradek."):  # noqa: SLF001
        level += 1
    warnings.warn(text, DeprecationWarning, stacklevel=level + 1)
    return seconds


IN_SECONDS = (
    "poll(%s) waits up to %s seconds, because timeouts are in seconds. To pass milliseconds, "
    "write poll(0.001 * ms). If you do mean seconds, write %s.0 to avoid this warning, which is "
    "logged once per consumer."
)


def looks_like_milliseconds(timeout: Any) -> bool:
    """Return whether a timeout of `poll` may be meant as milliseconds, as in other clients."""
    return type(timeout) is int and 100 <= timeout < FOREVER
