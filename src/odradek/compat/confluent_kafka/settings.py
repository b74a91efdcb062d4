"""confluent-kafka's configuration, translated to Odradek's and to features of this package.

In: a dict with librdkafka's names, including callbacks. Out: `Given`: settings for the Odradek
client, and the callbacks, limits and modes that this package implements. Unsupported settings are
rejected by name (`KafkaException` with `_INVALID_ARG`); settings without effect on this kind of
client are ignored, and a WARNING names the important ones. Must not: repeat checks of Odradek's
configuration.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.common.errors import ConfigurationError
from odradek.common.options.group import AnyName
from odradek.common.options.ignored_settings import has_effect, report
from odradek.common.options.migration_hints import CURES
from odradek.common.options.option_aliases import ALIASES, REFUSED, RESETS, sealed
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER, boolean, integer
from odradek.common.secret import Secret, hidden
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.translated_errors import raise_error, translating

_INT_MAX = 2**31 - 1
_WITHOUT_PORT = re.compile(r"((?:^|(?<=,))\s*(?:\w+://)?(?:\[[^],]*\]|[^\[\]:,\s]+))(?=\s*(?:,|$))")
"""Matches an address without a port in a list of addresses; librdkafka's default is 9092."""
_CALLBACKS = {"error_cb": TypeError, "stats_cb": TypeError, "oauth_cb": TypeError,
              "throttle_cb": ValueError}  # fmt: skip
"""Callbacks of all clients, with the exception type for a value that isn't callable."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    PRODUCER: {
        "delivery.timeout.ms": 300_000,
        "max.request.size": 1_000_000,
        "partitioner": "consistent_random",
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "delivery.report.only.error": False,
    },
    CONSUMER: {
        "auto.offset.reset": "largest",
        "isolation.level": "read_committed",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5000,
        "enable.auto.offset.store": True,
        "enable.partition.eof": False,
    },
    ADMIN: {},
}
"""librdkafka's defaults that differ from Odradek's in a visible way, by kind of client."""
_KINDS = dict.fromkeys(
    ("delivery.report.only.error", "enable.auto.offset.store", "enable.partition.eof"), "boolean"
)
"""Types of settings that Odradek's clients don't have."""
_WITH_CALLS = (*_CALLBACKS, "on_commit", "on_delivery", "logger")
_UNDOTTED = {"log_level": "log.level"}
"""librdkafka's only setting with an underscore (it has no effect), and its name in our tables."""
_READ_ELSEWHERE = ("ssl.ca.location", "oauth.cb", "topic.metadata.refresh.interval.ms")
"""Names that aren't translated here, because Odradek's alias table converts their values."""
_WORDS = {"1": True, "t": True, "0": False, "f": False}
"""Values, besides the words true and false, that librdkafka accepts for booleans."""
_LINGER = "linger.ms"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_SESSION, HEARTBEAT = "session.timeout.ms", 3000
_LONGEST_STATISTICS = 86_400_000
"""One day in milliseconds."""
_MOST_ORDERED = 5
"""Maximum number of requests in flight with which brokers detect duplicates."""
_ROOM = 64 << 20
"""Bytes of `buffer.memory` in addition to a producer's queue: for open batches."""


@dataclass
class Given:
    """Translated configuration."""

    ours: dict[str, Any] = field(repr=False)
    """Settings for the Odradek client, by Kafka's names."""
    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    stats_every: float = 0.0
    """Seconds between two calls of `stats_cb`; 0 for none."""
    on_delivery: Callable[[Any, Any], object] | None = None
    on_commit: Callable[[Any, Any], object] | None = None
    logger: logging.Logger | None = None
    most_messages: int = 0
    most_bytes: int = 0
    only_errors: bool = False
    store_offsets: bool = True
    """Whether returned messages count as processed (`enable.auto.offset.store`)."""
    commit_every: float | None = None
    """Seconds between commits by this package; None if the Odradek client commits."""
    auto_commit: bool = False
    partition_eof: bool = False
    transactional: bool = False
    answer_timeout: float = 60.0
    """Default timeout of admin calls in seconds (`socket.timeout.ms`)."""
    admin: dict[str, Any] = field(default_factory=dict, repr=False)
    """Settings for an Odradek admin client."""

    def checked_login(self, username: str, password: str) -> bool:
        """Check the types of new credentials; return whether the client uses SASL."""
        for what, given in (("username", username), ("password", password)):
            if not isinstance(given, str):
                raise TypeError(f"{what} must be a str, not {type(given).__name__}")
        return str(self.ours.get("security.protocol", "")).startswith("SASL")


def given(kind: str, config: Any, keywords: Mapping[str, Any] | None = None) -> Given:
    """Translate the configuration of a client of this kind; keywords override the dict."""
    if config is None and keywords:
        config = {}
    if not isinstance(config, dict):
        raise TypeError("expected configuration dict")
    settings = {**_DEFAULTS[kind], **_spelled({**config, **(keywords or {})})}
    settings.setdefault("bootstrap.timeout.ms", _INT_MAX)  # no timeout in librdkafka
    if isinstance(servers := settings.get("bootstrap.servers"), str):
        settings["bootstrap.servers"] = _WITHOUT_PORT.sub(r"\1:9092", servers)
    found = Given({})
    _take_callbacks(kind, settings, found)
    with translating():
        if kind == PRODUCER:
            _take_queue(settings, found)
        if kind == CONSUMER:
            _take_offsets(settings, found)
        if kind == ADMIN and "socket.timeout.ms" in settings:
            whole = integer(10, _INT_MAX)
            found.answer_timeout = _number(settings, "socket.timeout.ms", whole) / 1000
        found.ours = sealed(_ours(kind, settings))
    found.transactional = "transactional.id" in found.ours
    found.admin = {
        name: value
        for name, value in found.ours.items()
        if name in _READ_ELSEWHERE or ADMIN in OPTIONS[name].clients
    }
    return found


def _spelled(config: dict[Any, Any]) -> dict[str, Any]:
    """Return settings by Kafka's names; settings in `default.topic.config` take precedence."""
    nested = config.pop("default.topic.config", None) or {}
    if not isinstance(nested, dict):
        raise TypeError("default.topic.config must be a dict")
    found = {_UNDOTTED.get(name, name): value for name, value in {**config, **nested}.items()}
    for name in found:
        if name in ("dr_cb", "dr_msg_cb"):
            raise_error(KafkaError._INVALID_ARG, f"{name} isn't supported: use on_delivery")
        if name not in _WITH_CALLS and (not isinstance(name, str) or "_" in name):
            raise_error(KafkaError._INVALID_ARG, f'No such configuration property: "{name}"')
    spelled = {
        name if name in _READ_ELSEWHERE else ALIASES.get(name, name): value
        for name, value in found.items()
    }
    return {name: _as_text_says(name, value) for name, value in spelled.items()}


def _as_text_says(name: str, value: Any) -> Any:
    """Convert a value as librdkafka does, which parses the text of each setting."""
    option = OPTIONS.get(name)
    kind = _KINDS.get(name) if option is None else option.parse.kind
    if isinstance(value, bool):
        return value
    if kind == "boolean":
        return _WORDS.get(str(value).strip().lower(), value)
    if kind == "text" and isinstance(value, int | UUID):
        value = str(value)
    if name == "group.instance.id" and isinstance(value, str):
        return AnyName(value) if value.strip() else None
    if name == _LINGER:  # librdkafka accepts fractions of a millisecond
        with suppress(TypeError, ValueError, OverflowError):
            return math.ceil(float(value)) if float(value) >= 0 else value
    return value


def _take_callbacks(kind: str, settings: dict[str, Any], found: Given) -> None:
    for name, wrong in _CALLBACKS.items():
        if name in settings and not callable(settings[name]):
            raise wrong(f"expected {name} property as a callable function")
    for name, of in (("on_delivery", PRODUCER), ("on_commit", CONSUMER)):
        if name not in settings:
            continue
        if kind != of:
            raise_error(KafkaError._INVALID_ARG, f'No such configuration property: "{name}"')
        if not callable(settings[name]):
            raise_error(KafkaError._INVALID_ARG, f"{name} requires a callable object")
    found.error_cb = settings.pop("error_cb", None)
    found.on_delivery = settings.pop("on_delivery", None)
    found.on_commit = settings.pop("on_commit", None)
    found.logger = settings.pop("logger", None)
    if "throttle_cb" in settings:
        raise_error(
            KafkaError._INVALID_ARG,
            "throttle_cb isn't supported: this client doesn't report throttling. Remove it",
        )
    found.stats_cb = settings.pop("stats_cb", None)
    with translating():
        every = integer(0, _LONGEST_STATISTICS)
        settings.setdefault("statistics.interval.ms", 0)
        found.stats_every = _number(settings, "statistics.interval.ms", every) / 1000
    token = settings.pop("oauth_cb", None)
    if token is not None:
        asked = hidden(settings.get("sasl.oauthbearer.config", ""))
        settings["sasl.oauthbearer.token.provider"] = lambda: token(
            asked.reveal() if isinstance(asked, Secret) else asked
        )


def _take_queue(settings: dict[str, Any], found: Given) -> None:
    """Read the settings of a producer's queue and of its timeouts."""
    whole = integer(1, _INT_MAX)
    found.most_messages = _number(settings, "queue.buffering.max.messages", integer(0, _INT_MAX))
    found.most_bytes = _number(settings, "queue.buffering.max.kbytes", whole) * 1024
    found.only_errors = _flag(settings, "delivery.report.only.error")
    settings.setdefault("buffer.memory", 2 * found.most_bytes + _ROOM)
    if settings["delivery.timeout.ms"] in (0, "0"):
        settings["delivery.timeout.ms"] = _INT_MAX
    # In librdkafka, waiting for a topic's metadata is part of the delivery timeout.
    settings.setdefault("max.block.ms", settings["delivery.timeout.ms"])
    _fit_request(settings)
    in_flight = integer(1, _INT_MAX)(_IN_FLIGHT, settings.get(_IN_FLIGHT, 1))
    if in_flight > _MOST_ORDERED and "transactional.id" not in settings:
        settings.setdefault("enable.idempotence", False)
    level = settings.pop("compression.level", None)
    codec = settings.get("compression.type")
    if level not in (None, -1, "-1") and codec in ("gzip", "lz4", "zstd"):
        settings[f"compression.{codec}.level"] = level


def _fit_request(settings: dict[str, Any]) -> None:
    """Limit `request.timeout.ms` to the delivery timeout; librdkafka accepts any combination."""
    whole = integer(0, _INT_MAX)
    names = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
    if names[2] in settings:
        delivery, linger, request = (whole(name, settings.get(name, 0)) for name in names)
        settings[names[2]] = max(1, min(request, delivery - linger))


def _take_offsets(settings: dict[str, Any], found: Given) -> None:
    """Read the settings of a consumer's automatic commits and offset resets."""
    if settings.get("group.id") is None:
        raise ValueError("Failed to create consumer: group.id must be set")
    found.store_offsets = _flag(settings, "enable.auto.offset.store")
    found.partition_eof = _flag(settings, "enable.partition.eof")
    found.auto_commit = boolean("enable.auto.commit", settings["enable.auto.commit"])
    if found.auto_commit and (not found.store_offsets or found.on_commit is not None):
        interval = integer(0, _INT_MAX)
        found.commit_every = _number(settings, "auto.commit.interval.ms", interval) / 1000
        settings["enable.auto.commit"] = False
    reset = str(settings["auto.offset.reset"])
    if reset.lower() not in RESETS:
        raise ConfigurationError(
            f'Invalid value "{reset}" for configuration property "auto.offset.reset": '
            f"expected one of {', '.join(RESETS)}"
        )
    settings["auto.offset.reset"] = RESETS[reset.lower()]
    if settings.get("group.protocol", "classic") == "classic":
        settings.setdefault("partition.assignment.strategy", "range,roundrobin")
        session = integer(1, _INT_MAX)(_SESSION, settings.get(_SESSION, _INT_MAX))
        if session <= HEARTBEAT:  # librdkafka accepts sessions shorter than the heartbeat interval
            settings.setdefault("heartbeat.interval.ms", max(1, session // 3))


def _number(settings: dict[str, Any], name: str, read: Callable[[str, Any], int]) -> int:
    return read(name, settings.pop(name))


def _flag(settings: dict[str, Any], name: str) -> bool:
    return boolean(name, settings.pop(name))


def _ours(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that have an effect on the Odradek client; reject unknown ones."""
    found: dict[str, Any] = {}
    settings = {name: value for name, value in settings.items() if value is not None}
    report(kind, [name for name in settings if not has_effect(name, kind)])
    for name, value in settings.items():
        if not has_effect(name, kind):
            continue
        if name not in OPTIONS and name not in _READ_ELSEWHERE:
            refused = CURES.get(name) or REFUSED.get(name)
            raise ConfigurationError(
                f"{name} isn't supported here: {refused}"
                if refused
                else f'No such configuration property: "{name}"'
            )
        found[name] = str(value).upper() if name == "security.protocol" else value
    return found


def checked_seconds(timeout: float) -> float:
    """Check a timeout in seconds; a negative one means no limit. Raises `TypeError`."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    return FOREVER if timeout < 0 else float(timeout)


FOREVER = 1e8
"""Seconds that mean no limit; small enough to be added to a clock's time."""
