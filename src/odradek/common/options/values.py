"""Read and check the values of options, from text or Python values.

In: an option's name and the user's value. Out: the value (times in seconds), or a
`ConfigurationError` that names the option. Must not: know which options exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar, cast

from odradek.common.arguments import is_bool
from odradek.common.errors import ConfigurationError
from odradek.common.types import Address, PartitionFunction

T = TypeVar("T")

PRODUCER, CONSUMER, ADMIN = "producer", "consumer", "admin"
ALL = frozenset((PRODUCER, CONSUMER, ADMIN))
OF_PRODUCERS, OF_CONSUMERS = frozenset((PRODUCER,)), frozenset((CONSUMER,))
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


def plain(value: Any) -> Any:
    """Return the value of an enum member, also within a list; return other values unchanged."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple) and any(isinstance(one, Enum) for one in value):
        return [plain(one) for one in value]
    return value


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | dict):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Parse(Generic[T]):
    """Reader of one option's values; a call takes the option's name and the given value."""

    __slots__ = ("kind", "read", "values", "write")

    def __init__(
        self,
        read: Callable[[str, Any], T],
        kind: str,
        values: str = "",
        write: Callable[[Any], str] = _written,
    ) -> None:
        self.read = read
        self.kind = kind
        """Kind of the values, as text: `integer`, `milliseconds`, `file` …"""
        self.values = values
        """The allowed values, as text; empty if the kind describes them."""
        self.write = write
        """Function that converts a value to a text from which `read` returns the value again."""

    def __call__(self, name: str, value: Any) -> T:
        return self.read(name, value)


def reads(
    kind: str, values: str = "", write: Callable[[Any], str] = _written
) -> Callable[[Callable[[str, Any], T]], Parse[T]]:
    """Return a decorator that turns a function into a `Parse` with a description of the values."""
    return lambda read: Parse(read, kind, values, write)


class Option(NamedTuple):
    """One option: Kafka's name, the reader of its values, and its description."""

    name: str
    parse: Parse[Any]
    default: Any = None
    importance: str = "low"
    """Importance: high, medium or low.

    As in Java if Java has the option, else as in librdkafka, else Odradek's own.
    """
    kip: str = ""
    clients: frozenset[str] = ALL
    java: str = ""
    """Default in Java's client (Kafka 4.4), if it is another one."""
    librdkafka: str = ""
    """Default in librdkafka (2.15), if it is another one."""
    doc: str = ""
    """Description: complete sentences that can be read on their own."""
    why: str = ""
    """Why the default differs from Java's."""

    def says(self, doc: str, why: str = "") -> Option:
        """Return a copy of the option with its description."""
        return self._replace(doc=doc, why=why)

    @property
    def default_text(self) -> str | None:
        """Return the default as text for a settings file; None if there is no default."""
        return None if self.default is None else self.parse.write(self.default)


def integer(minimum: int, maximum: int = LONG_MAX) -> Parse[int]:
    """Return a reader of integers within bounds."""

    @reads("integer", _span(minimum, maximum))
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
            if is_bool(value) or (number != value and not isinstance(value, str)):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}") from None
        if not minimum <= number <= maximum:
            raise ConfigurationError(f"{name} must be {minimum} to {maximum}, not {number}")
        return number

    return parse


def _span(minimum: float, maximum: float) -> str:
    return f"{minimum} or more" if maximum == LONG_MAX else f"{minimum} to {maximum}"


def _as_milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


def milliseconds(minimum: int = 0, maximum: int = LONG_MAX) -> Parse[float]:
    """Return a reader of milliseconds; the value is stored in seconds.

    For durations that are sent to brokers, `maximum` is `INT_MAX`, as requests have 32-bit fields;
    a larger value would only fail long after the option was read.
    """
    whole = integer(minimum, maximum)

    @reads("milliseconds", whole.values, _as_milliseconds)
    def parse(name: str, value: Any) -> float:
        return whole(name, value) / 1000.0

    return parse


SHORTEST_IDLE = 100
"""Minimum idle time in milliseconds.

With less, connections are closed between authentication and the first request, or between two
requests of one operation, and no record is ever delivered.
"""


@reads("milliseconds", f"{SHORTEST_IDLE} or more; 0 or -1 for never", _as_milliseconds)
def idle_time(name: str, value: Any) -> float:
    """Read the milliseconds after which an idle connection is closed; infinite for never.

    Returns seconds.
    """
    number = integer(-1)(name, value)
    if number <= 0:
        return math.inf
    if number < SHORTEST_IDLE:
        raise ConfigurationError(
            f"{name} must be {SHORTEST_IDLE} or more, or 0 (or -1) for never, not {number}: "
            "connections would be closed before they are used"
        )
    return number / 1000.0


@reads("boolean", "true, false")
def boolean(name: str, value: Any) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} must be true or false, not {value!r}")
    return text == "true"


@reads("text")
def text(name: str, value: Any) -> str:
    """Read a text, which must be a str that isn't empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} must be a non-empty str, not {value!r}")
    return value.strip()


LONGEST_NAME = 32_767
"""Maximum length in bytes of a name in a request's header."""


@reads("text", f"at most {LONGEST_NAME} bytes")
def sent_name(name: str, value: Any) -> str:
    """Read a name, such as `client.id`, that is sent to brokers."""
    found = text(name, value)
    try:
        size = len(found.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"{name} can't be sent to a broker: {value!r} contains a lone surrogate, as in "
            "command line arguments and file names that aren't UTF-8"
        ) from None
    if size > LONGEST_NAME:
        raise ConfigurationError(
            f"{name} must have at most {LONGEST_NAME} bytes, but has {size}: {found[:40]!r}…"
        )
    return found


def optional(parse: Parse[T]) -> Parse[T | None]:
    """Return a reader that also accepts None."""

    @reads(parse.kind, parse.values, parse.write)
    def read(name: str, value: Any) -> T | None:
        return None if value is None else parse(name, value)

    return read


def unset(
    name: str, parse: Parse[Any], importance: str = "low", kip: str = "", **facts: Any
) -> Option:
    """Return an option without a default."""
    return Option(name, optional(parse), None, importance, kip, **facts)


def owned(clients: frozenset[str], *options: Option) -> tuple[Option, ...]:
    """Return copies of the options, restricted to these kinds of clients."""
    return tuple(option._replace(clients=clients) for option in options)


def choice(*allowed: str) -> Parse[str]:
    """Return a reader of one of the allowed words."""

    @reads("word", ", ".join(allowed))
    def parse(name: str, value: Any) -> str:
        text = str(value).strip().lower()
        if text not in allowed:
            raise ConfigurationError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return text

    return parse


_OF_IPV6 = frozenset("0123456789abcdefABCDEF:.[]")
_SEPARATORS = frozenset(",;| \t\n")
"""Characters that users may write between addresses."""


def parse_address(name: str, text: str) -> Address:
    """Read `host:port`, `[v6]:port` or `PROTOCOL://host:port`."""
    rest = text.rsplit("://", 1)[-1]
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if "@" in rest:  # don't show it: it may contain a password
        raise ConfigurationError(
            f"{name}: an address must be host:port, without a user and @; set the user with "
            "sasl.username and sasl.password"
        )
    separators = _SEPARATORS.intersection(rest)
    there = colon and host and port.isdecimal() and 0 < int(port) < 65536 and "/" not in host
    if there and not separators and (":" not in host or _whole_ipv6(host)):
        return Address(host, int(port))
    example = ", for example localhost:9092"
    if separators:
        example = ": separate addresses with commas, as in a:9092,b:9092"
    elif rest.count(":") > 1 and set(rest) <= _OF_IPV6:
        example = ": write an IPv6 address in brackets, and a port: [::1]:9092"
    raise ConfigurationError(f"{name}: {text!r} isn't host:port{example}")


def _whole_ipv6(host: str) -> bool:
    """Return whether a text with colons can be a complete IPv6 address.

    It isn't complete if its last group was taken for a port, as in `fe80::1` without a port.
    """
    digits = host.partition("%")[0]
    groups = 7 if "." in digits else 8
    whole = "::" in digits or digits.count(":") == groups - 1
    return whole and not digits.removesuffix("::").endswith(":")


@reads("addresses", "host:port, separated by commas, or a list")
def addresses(name: str, value: Any) -> tuple[Address, ...]:
    """Read addresses, given as a list or separated by commas; drop duplicates."""
    parts = value.split(",") if isinstance(value, str) else value or ()
    raw = isinstance(parts, bytes | bytearray | memoryview)
    parts = () if raw else list(parts)
    if raw or any(isinstance(part, bytes) for part in parts):
        raise ConfigurationError(
            f"{name} must be a str or a list of them, not bytes: use .decode()"
        )
    found = [parse_address(name, str(p).strip()) for p in parts if str(p).strip()]
    if not found:
        raise ConfigurationError(f"{name} must name at least one broker, as host:port")
    return tuple(dict.fromkeys(found))


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def check_schemes(servers: Any, protocol: str) -> None:
    """Reject addresses (`SSL://host:port`) with a protocol other than `security.protocol`.

    The prefix `kafka://` and names of listeners are accepted.
    """
    parts = servers.split(",") if isinstance(servers, str) else servers
    for part in parts if isinstance(parts, list | tuple) else ():
        scheme, found, _ = str(part).strip().partition("://")
        if found and scheme.upper() in PROTOCOLS and scheme.upper() != protocol:
            raise ConfigurationError(
                f"bootstrap.servers has an address with {scheme}://, but security.protocol is "
                f"{protocol}: set security.protocol={scheme.upper()}, or remove {scheme}://"
            )
        if found and scheme.lower() in ("http", "https"):
            raise ConfigurationError(
                f"bootstrap.servers has an address with {scheme}://: use the host:port of a broker"
            )


@reads("word", "all, 1, 0", lambda acks: "all" if acks == -1 else str(acks))
def acks(name: str, value: Any) -> int:
    """Read `acks`: `all` (-1), 1 or 0."""
    text = str(value).strip().lower()
    if isinstance(value, bool) or text not in ("all", "-1", "0", "1"):
        raise ConfigurationError(f"{name} must be all, 1 or 0, not {value!r}")
    return -1 if text == "all" else int(text)


@reads("integer", "1 to 9; -1 for the default")
def gzip_level(name: str, value: Any) -> int:
    """Read a gzip level; -1 is gzip's default level."""
    level = integer(-1, 9)(name, value)
    if not level:
        raise ConfigurationError(f"{name} must be 1 to 9, or -1 for the default, not 0")
    return level


BY_DURATION = "by_duration:"


PARTITIONERS = (
    "default",
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
)


@reads("word or function", ", ".join(PARTITIONERS))
def partitioner(name: str, value: Any) -> str | PartitionFunction:
    """Read a partitioner: its name, or a function of the user."""
    if callable(value):
        return cast(PartitionFunction, value)
    text = str(value).strip().lower()
    if text not in PARTITIONERS:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(PARTITIONERS)} or a function, not {value!r}"
        )
    return text


@reads("word", f"latest, earliest, none, {BY_DURATION} with an ISO 8601 duration")
def reset(name: str, value: Any) -> str:
    """Read `auto.offset.reset`, which may be `by_duration:P7D` or similar (KIP-1106)."""
    text = str(value).strip()
    if text.lower().startswith(BY_DURATION):
        from odradek.common.options.durations import parse_duration

        duration = text[len(BY_DURATION) :].upper()
        parse_duration(name, duration)
        return BY_DURATION + duration
    if text.lower() not in ("latest", "earliest", "none"):
        raise ConfigurationError(
            f"{name} must be latest, earliest, none or {BY_DURATION}DURATION (ISO 8601, "
            f"for example {BY_DURATION}P7D), not {value!r}"
        )
    return text.lower()


def lookback(reset: str) -> float | None:
    """Return the seconds of `auto.offset.reset` by duration; None for other values."""
    if not reset.startswith(BY_DURATION):
        return None
    from odradek.common.options.durations import parse_duration

    return parse_duration("auto.offset.reset", reset.removeprefix(BY_DURATION))
