"""Configuration: each option stands here once, with its type, default, check, text and KIP.

In: a dict with Kafka's names, or keywords with underscores. Out: a checked `Config` whose times
are float seconds. Must not: read files, resolve names or look at the environment.
Unknown names are errors with a suggestion; what a later release will bring says so.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from odradek.common.backoff import ExponentialBackoff
from odradek.common.durations import parse_duration
from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.types import Address, PartitionFunction

logger = logging.getLogger("odradek")

PRODUCER, CONSUMER, ADMIN = "producer", "consumer", "admin"
ALL = frozenset((PRODUCER, CONSUMER, ADMIN))
_P, _C = frozenset((PRODUCER,)), frozenset((CONSUMER,))
INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Option:
    """One option: Kafka's name, how its text is read, and what it means."""

    name: str
    parse: Callable[[str, Any], Any]
    default: Any
    doc: str
    clients: frozenset[str] = ALL
    kip: str = ""


def _integer(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        try:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}") from None
        if not minimum <= number <= maximum:
            raise ConfigurationError(f"{name} must be {minimum} to {maximum}, not {number}")
        return number

    return parse


def _milliseconds(minimum: int = 0) -> Callable[[str, Any], float]:
    whole = _integer(minimum)

    def parse(name: str, value: Any) -> float:
        return whole(name, value) / 1000.0

    return parse


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} must be true or false, not {value!r}")
    return text == "true"


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} must be a text that isn't empty, not {value!r}")
    return value.strip()


def _optional(parse: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else parse(name, value)


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        text = str(value).strip().lower()
        if text not in allowed:
            raise ConfigurationError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return text

    return parse


def parse_address(name: str, text: str) -> Address:
    """Read `host:port`, `[v6]:port` or `PROTOCOL://host:port`."""
    rest = text.rsplit("://", 1)[-1]
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{name}: {text!r} isn't host:port")
    return Address(host, int(port))


def _addresses(name: str, value: Any) -> tuple[Address, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value or ())
    found = [parse_address(name, str(p).strip()) for p in parts if str(p).strip()]
    if not found:
        raise ConfigurationError(f"{name} names no broker: give at least one host:port")
    return tuple(dict.fromkeys(found))


def _acks(name: str, value: Any) -> int:
    text = str(value).strip().lower()
    if text in ("all", "-1"):
        return -1
    if text in ("0", "1"):
        raise UnsupportedFeatureError(
            f"{name}={text}: this release writes with acks=all only (and idempotent)."
        )
    raise ConfigurationError(f"{name} must be all, not {value!r}")


def _only(*, value: Any, later: str) -> Callable[[str, Any], Any]:
    """An option of Kafka's of which only one value is there yet: say so instead of ignoring it."""

    def parse(name: str, given: Any) -> Any:
        if str(given).strip().lower() != str(value).lower():
            raise UnsupportedFeatureError(
                f"{name}={given}: {later} aren't in this release yet; only {value} is."
            )
        return value

    return parse


def _gzip_level(name: str, value: Any) -> int:
    level = _integer(-1, 9)(name, value)
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


def _partitioner(name: str, value: Any) -> str | PartitionFunction:
    if callable(value):
        return cast(PartitionFunction, value)
    text = str(value).strip().lower()
    if text not in PARTITIONERS:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(PARTITIONERS)} or a function, not {value!r}"
        )
    return text


def _reset(name: str, value: Any) -> str:
    text = str(value).strip()
    if text.lower().startswith(BY_DURATION):
        duration = text[len(BY_DURATION) :].upper()
        parse_duration(name, duration)
        return BY_DURATION + duration
    if text.lower() not in ("latest", "earliest", "none"):
        raise ConfigurationError(
            f"{name} must be latest, earliest, none or {BY_DURATION} and an ISO 8601 duration, "
            f"as in {BY_DURATION}P7D, not {value!r}"
        )
    return text.lower()


def lookback(reset: str) -> float | None:
    """Seconds of an `auto.offset.reset` by duration; None for the others."""
    if not reset.startswith(BY_DURATION):
        return None
    return parse_duration("auto.offset.reset", reset.removeprefix(BY_DURATION))


OPTIONS: dict[str, Option] = {
    o.name: o
    for o in (
        Option("bootstrap.servers", _addresses, None, "Where to start: host:port, with commas."),
        Option("client.id", _text, "odradek", "Name that brokers' logs and quotas use."),
        Option(
            "reconnect.backoff.ms",
            _milliseconds(),
            0.05,
            "First wait before an address that failed is dialled again.",
            kip="KIP-144",
        ),
        Option(
            "reconnect.backoff.max.ms",
            _milliseconds(),
            1.0,
            "Longest such wait; equals reconnect.backoff.ms where only that one is set.",
            kip="KIP-144",
        ),
        Option("retry.backoff.ms", _milliseconds(), 0.1, "First wait of a retry.", kip="KIP-580"),
        Option("retry.backoff.max.ms", _milliseconds(), 1.0, "Longest such wait.", kip="KIP-580"),
        Option(
            "socket.connection.setup.timeout.ms",
            _milliseconds(),
            10.0,
            "Time for TCP, TLS and ApiVersions of one dial; grows with each failure.",
            kip="KIP-601",
        ),
        Option(
            "socket.connection.setup.timeout.max.ms",
            _milliseconds(),
            30.0,
            "Longest such time.",
            kip="KIP-601",
        ),
        Option("connections.max.idle.ms", _milliseconds(), 540.0, "When idle ones are closed."),
        Option("request.timeout.ms", _milliseconds(1), 30.0, "Longest wait for one answer."),
        Option("default.api.timeout.ms", _milliseconds(), 60.0, "A call's time if none is given."),
        Option("metadata.max.age.ms", _milliseconds(), 300.0, "Refresh at least this often."),
        Option(
            "metadata.recovery.strategy",
            _choice("rebootstrap", "none"),
            "rebootstrap",
            "What to do when no known broker can be reached.",
            kip="KIP-899",
        ),
        Option(
            "metadata.recovery.rebootstrap.trigger.ms",
            _milliseconds(),
            300.0,
            "Rebootstrap when a due refresh hasn't succeeded for this long.",
            kip="KIP-1102",
        ),
        Option(
            "metadata.unavailable.timeout.ms",
            _optional(_milliseconds()),
            None,
            "With strategy none: poll() raises after this long without a broker (60 s).",
        ),
        Option(
            "cluster.id.expected",
            _optional(_text),
            None,
            "Fail unless the cluster has this id, also at the first contact.",
            kip="KIP-899",
        ),
        Option("client.dns.lookup", _choice("use_all_dns_ips"), "use_all_dns_ips", "Kafka's."),
        Option("events.dir", _optional(_text), None, "Append events as JSON lines there."),
        Option(
            "security.protocol",
            _only(value="PLAINTEXT", later="TLS and SASL"),
            "PLAINTEXT",
            "How to speak to brokers.",
        ),
        Option("acks", _acks, -1, "Always all.", _P),
        Option(
            "enable.idempotence",
            _only(value="true", later="producers without idempotence"),
            "true",
            "Always on.",
            _P,
        ),
        Option("linger.ms", _milliseconds(), 0.005, "Wait this long for a fuller batch.", _P),
        Option("batch.size", _integer(1, INT_MAX), 131072, "Bytes of a batch, at most.", _P),
        Option("buffer.memory", _integer(1024), 33554432, "Bytes that wait, at most.", _P),
        Option("max.block.ms", _milliseconds(), 60.0, "How long send() may wait for room.", _P),
        Option("max.request.size", _integer(1, INT_MAX), 1048576, "Bytes of one record, max.", _P),
        Option(
            "max.in.flight.requests.per.connection",
            _integer(1, 5),
            5,
            "Unanswered Produce requests per broker.",
            _P,
        ),
        Option("delivery.timeout.ms", _milliseconds(1), 120.0, "From send() to the outcome.", _P),
        Option("retries", _integer(0, INT_MAX), INT_MAX, "How often a batch is sent again.", _P),
        Option(
            "compression.type",
            _choice("none", "gzip", "snappy", "lz4", "zstd"),
            "none",
            "none, gzip, snappy, lz4 or zstd.",
            _P,
        ),
        Option(
            "compression.gzip.level",
            _gzip_level,
            -1,
            "1 (fast) to 9 (small); -1 is the default, a fast one.",
            _P,
            "KIP-390",
        ),
        Option(
            "compression.lz4.level",
            _integer(1, 17),
            9,
            "9 is the fast compressor; all others, 1 to 17, are LZ4 HC.",
            _P,
            "KIP-390",
        ),
        Option(
            "compression.zstd.level",
            _integer(-(1 << 17), 22),
            3,
            "-131072 (fast) to 22 (small).",
            _P,
            "KIP-390",
        ),
        Option(
            "partitioner",
            _partitioner,
            "default",
            "default (as Java: murmur2 of the key), librdkafka's random, consistent (CRC32), "
            "murmur2 or fnv1a; a function of topic, key, value and number of partitions. With "
            "_random behind a name, records without a key are spread, a batch at a time.",
            _P,
            "KIP-480",
        ),
        Option(
            "partitioner.ignore.keys",
            _boolean,
            False,
            "Spread records with keys as well; with partitioner=default only.",
            _P,
            "KIP-794",
        ),
        Option(
            "auto.offset.reset",
            _reset,
            "latest",
            "latest, earliest, none, or by_duration:P7D: the first record so young, else the end.",
            _C,
            "KIP-1106",
        ),
        Option(
            "client.rack",
            _optional(_text),
            None,
            "Where this client is; with a replica.selector.class of the brokers' that knows racks, "
            "partitions are read from a replica there.",
            _C,
            "KIP-392",
        ),
        Option("fetch.min.bytes", _integer(0, INT_MAX), 1, "Let brokers wait for so much.", _C),
        Option("fetch.max.wait.ms", _milliseconds(), 0.5, "… but not longer.", _C),
        Option("fetch.max.bytes", _integer(1, INT_MAX), 52428800, "Bytes of one fetch.", _C),
        Option("max.partition.fetch.bytes", _integer(1, INT_MAX), 8388608, "… per partition.", _C),
        Option("max.poll.records", _integer(1, INT_MAX), 500, "Records of one poll().", _C),
        Option(
            "isolation.level",
            _choice("read_uncommitted", "read_committed"),
            "read_uncommitted",
            "Whether records of open and aborted transactions are hidden.",
            _C,
        ),
    )
}

_LATER = {
    "group.id": "consumer groups",
    "group.instance.id": "consumer groups",
    "group.protocol": "consumer groups",
    "enable.auto.commit": "consumer groups",
    "auto.commit.interval.ms": "consumer groups",
    "partition.assignment.strategy": "consumer groups",
    "session.timeout.ms": "consumer groups",
    "heartbeat.interval.ms": "consumer groups",
    "max.poll.interval.ms": "consumer groups",
    "transactional.id": "transactions",
    "transaction.timeout.ms": "transactions",
}


class Config:
    """A checked configuration of one client; `config["linger.ms"]` is in seconds."""

    __slots__ = ("_values", "client", "given")

    def __init__(
        self, client: str, given: Mapping[str, Any] | None = None, **keywords: Any
    ) -> None:
        self.client = client
        merged: dict[str, Any] = {}
        for key, value in [*(given or {}).items(), *keywords.items()]:
            name = str(key).replace("_", ".")
            if name in merged:
                raise ConfigurationError(f"{name} is given twice")
            merged[name] = value
        self.given = frozenset(merged)
        self._values = {o.name: o.default for o in OPTIONS.values() if client in o.clients}
        for name, value in merged.items():
            self._values[name] = self._check(name, value)
        if self._values["bootstrap.servers"] is None:
            raise ConfigurationError("bootstrap.servers is missing: give at least one host:port")
        self._settle()

    def _check(self, name: str, value: Any) -> Any:
        option = OPTIONS.get(name)
        if option is not None and self.client in option.clients:
            return option.parse(name, value)
        if option is not None:
            owners = " and ".join(sorted(option.clients))
            raise ConfigurationError(f"{name} is an option of the {owners}, not the {self.client}")
        if name in _LATER:
            raise UnsupportedFeatureError(f"{name}: {_LATER[name]} aren't in this release yet")
        if name.startswith(("sasl.", "ssl.")):
            raise UnsupportedFeatureError(f"{name}: TLS and SASL aren't in this release yet")
        close = difflib.get_close_matches(name, self._values, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"there is no option {name!r} for a {self.client}{hint}")

    def _settle(self) -> None:
        values = self._values
        if "reconnect.backoff.ms" in self.given and "reconnect.backoff.max.ms" not in self.given:
            # KIP-144: whoever sets only the base keeps a constant wait (R-CS-1, by presence).
            values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
        for base in ("retry.backoff", "socket.connection.setup.timeout"):
            low, high = values[f"{base}.ms"], values[f"{base}.max.ms"]
            if low > high:  # R-BO-2
                logger.warning(
                    "%s.ms (%d) is above %s.max.ms (%d): a constant %d ms is used",
                    *(base, low * 1000, base, high * 1000, high * 1000),
                )
        if self.client == CONSUMER and values["fetch.max.wait.ms"] >= values["request.timeout.ms"]:
            raise ConfigurationError("fetch.max.wait.ms must be below request.timeout.ms")
        if self.client == PRODUCER:
            least = values["linger.ms"] + values["request.timeout.ms"]
            if values["delivery.timeout.ms"] < least:
                if "delivery.timeout.ms" in self.given and "request.timeout.ms" in self.given:
                    raise ConfigurationError(
                        "delivery.timeout.ms must be at least linger.ms + request.timeout.ms"
                    )
                values["request.timeout.ms"] = max(
                    0.001, values["delivery.timeout.ms"] - values["linger.ms"]
                )
            if values["max.request.size"] > values["buffer.memory"]:
                raise ConfigurationError("max.request.size can't be above buffer.memory")
            by_key = values["partitioner"] not in ("default", "random")
            if by_key and values["partitioner.ignore.keys"]:
                raise ConfigurationError(
                    "partitioner.ignore.keys=true contradicts "
                    f"partitioner={values['partitioner']}: leave one of the two out"
                )
        if values["metadata.unavailable.timeout.ms"] is None:
            strategy = values["metadata.recovery.strategy"]
            values["metadata.unavailable.timeout.ms"] = 60.0 if strategy == "none" else None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def backoff(self, name: str) -> ExponentialBackoff:
        """The pair `name.ms`, `name.max.ms` as a calculator, e.g. for `retry.backoff`."""
        return ExponentialBackoff(self._values[f"{name}.ms"], self._values[f"{name}.max.ms"])
