"""Check the configuration of one client, and complete it with the defaults of all options.

In: a dict with Kafka's names, or keywords with underscores. Out: a checked `Config` whose times are
float seconds and whose secrets are `Secret`. Must not: read files, resolve names or read
environment variables. Unknown names are errors with a suggestion; an option of a later release is
an error that says so. An option of another kind of client only causes a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import ArgumentError, ConfigurationError, KafkaError
from odradek.common.options.connection import RECONNECT_BACKOFF
from odradek.common.options.group import check_group
from odradek.common.options.option_aliases import (
    ALIASES,
    SUPERSEDED,
    canonical_option,
    dotted,
    sealed,
)
from odradek.common.options.security_values import shown_url
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import (
    ADMIN,
    ALL,
    CONSUMER,
    PARTITIONERS,
    PRODUCER,
    check_schemes,
    lookback,
    parse_address,
)
from odradek.common.security import settle_security

__all__ = [
    "ADMIN",
    "ALL",
    "CONSUMER",
    "OPTIONS",
    "PARTITIONERS",
    "PRODUCER",
    "Config",
    "lookback",
    "parse_address",
]

logger = logging.getLogger("odradek")

ALL_REPLICAS = -1
"""Value of `acks` for `acks=all`."""
MOST_IN_FLIGHT = 5
"""Maximum of `max.in.flight.requests.per.connection` with idempotence."""


class Config:
    """A checked configuration of one client; `config["linger.ms"]` is in seconds."""

    __slots__ = ("_values", "client", "given", "stated")

    def __init__(
        self, client: str, given: Mapping[str, Any] | None = None, **keywords: Any
    ) -> None:
        # A traceback may show locals: from here on, they contain secrets as `Secret` only.
        keywords = sealed(keywords)
        given = sealed(given)
        self.client = client
        merged: dict[str, Any] = {}
        pairs = [(dotted(key), value) for key, value in (*given.items(), *keywords.items())]
        names = [key for key, _ in pairs]
        ignored = _without_effect(client, names)
        for key, value in pairs:
            if key in ignored or SUPERSEDED.get(key) in names:
                continue
            name, meant = canonical_option(key, value)
            if name in merged and (merged[name] != meant or key == name):
                also = "" if key == name else f", also as {key}"
                raise ConfigurationError(f"{name} is set twice{also}")
            merged[name] = meant
        self.given = frozenset(merged)
        self.stated = merged
        """Values as the user set them, by Kafka's names, with secrets as `Secret`."""
        self._values = {o.name: o.default for o in OPTIONS.values() if client in o.clients}
        for name, value in merged.items():
            self._values[name] = self._check(name, value)
        if self._values["bootstrap.servers"] is None:
            raise ConfigurationError("bootstrap.servers is missing: set at least one host:port")
        self._settle()
        if ignored:
            from odradek.common.options.ignored_settings import report

            report(client, ignored, names)

    def _check(self, name: str, value: Any) -> Any:
        option = OPTIONS.get(name)
        if option is not None:
            try:
                return option.parse(name, value)
            except KafkaError:
                raise
            except (TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError):
                kind = type(value).__name__  # no value, which may be private
                raise ArgumentError(f"{name} has an invalid value of type {kind}") from None
        from odradek.common.options.ignored_settings import unknown  # most clients don't need it

        raise unknown(name, self.client)

    def _settle(self) -> None:
        values = self._values
        base = values["reconnect.backoff.ms"]
        if base != RECONNECT_BACKOFF and "reconnect.backoff.max.ms" not in self.given:
            # KIP-144: if only the base is set, the wait is constant (R-CS-1).
            values["reconnect.backoff.max.ms"] = base
        for base in ("retry.backoff", "socket.connection.setup.timeout"):
            low, high = values[f"{base}.ms"], values[f"{base}.max.ms"]
            if low > high:  # constant wait (R-BO-2)
                logger.warning(
                    "%s.ms (%d) is above %s.max.ms (%d): the wait is constant, %d ms",
                    *(base, low * 1000, base, high * 1000, high * 1000),
                )
        if self.client == CONSUMER and values["fetch.max.wait.ms"] >= values["request.timeout.ms"]:
            raise ConfigurationError("fetch.max.wait.ms must be below request.timeout.ms")
        if self.client == CONSUMER:
            check_group(values, self.given)
        if self.client == PRODUCER:
            self._settle_idempotence()
            self._settle_delivery()
            self._settle_sizes()
            by_key = values["partitioner"] not in ("default", "random")
            if by_key and values["partitioner.ignore.keys"]:
                raise ConfigurationError(
                    "partitioner.ignore.keys=true contradicts "
                    f"partitioner={values['partitioner']}: remove one of them"
                )
        settle_security(values, self.given)
        check_schemes(self.stated["bootstrap.servers"], values["security.protocol"])
        if values.get("allow.auto.create.topics", False) is None:
            values["allow.auto.create.topics"] = self.client == PRODUCER
        if values["metadata.unavailable.timeout.ms"] is None:
            strategy = values["metadata.recovery.strategy"]
            values["metadata.unavailable.timeout.ms"] = 60.0 if strategy == "none" else None

    def _settle_idempotence(self) -> None:
        """Switch idempotence off if acks or retries contradict it, as in Java (KIP-679).

        If the user enabled it explicitly, raise an error.
        """
        values, in_flight = self._values, "max.in.flight.requests.per.connection"
        asked = "enable.idempotence" in self.given and values["enable.idempotence"]
        weaker = ""
        if values["acks"] != ALL_REPLICAS:
            weaker = f"acks={values['acks']}"
        elif not values["retries"]:
            weaker = "retries=0"
        if weaker and asked:
            raise ConfigurationError(
                f"enable.idempotence=true contradicts {weaker}: remove one of them"
            )
        if weaker and values["enable.idempotence"]:
            logger.info("%s: idempotence is switched off", weaker)
            values["enable.idempotence"] = False
        if values["enable.idempotence"] and values[in_flight] > MOST_IN_FLIGHT:
            raise ConfigurationError(
                f"{in_flight} must be 1 to {MOST_IN_FLIGHT} with enable.idempotence, not "
                f"{values[in_flight]}, because brokers remember only a producer's last "
                f"{MOST_IN_FLIGHT} batches: lower it, or set enable.idempotence=false"
            )
        if not values["enable.idempotence"] and values["transactional.id"] is not None:
            why = weaker or "enable.idempotence=false"
            raise ConfigurationError(
                f"transactional.id contradicts {why}: transactions need idempotence"
            )

    def _settle_sizes(self) -> None:
        """Ensure max.request.size ≤ buffer.memory; lower `max.request.size` if it isn't set."""
        values, given = self._values, self.given
        most, memory = values["max.request.size"], values["buffer.memory"]
        if most <= memory:
            return
        if "max.request.size" not in given:
            values["max.request.size"] = memory
            return
        default = "" if "buffer.memory" in given else ", the default"
        raise ConfigurationError(
            f"max.request.size ({most}) can't exceed buffer.memory ({memory}{default}), because a "
            "record of that size would never fit: raise buffer.memory"
        )

    def _settle_delivery(self) -> None:
        """Ensure delivery.timeout.ms ≥ linger.ms + request.timeout.ms; adjust timeouts not set."""
        values, given = self._values, self.given
        linger, delivery = values["linger.ms"], values["delivery.timeout.ms"]
        least = linger + values["request.timeout.ms"]
        if delivery >= least:
            return
        if "delivery.timeout.ms" not in given:  # as in Java
            values["delivery.timeout.ms"] = least
        elif "request.timeout.ms" in given or ("linger.ms" in given and linger >= delivery):
            raise ConfigurationError(
                "delivery.timeout.ms must be at least linger.ms + request.timeout.ms"
            )
        else:
            values["request.timeout.ms"] = max(0.001, delivery - linger)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __repr__(self) -> str:
        if not hasattr(self, "_values"):  # shown by a debugger after a failed __init__
            return f"Config({getattr(self, 'client', '')})"
        shown = {name: self._values[name] for name in sorted(self.given) if name in self._values}
        for name in shown:
            if name.endswith(".url") and isinstance(shown[name], str):
                shown[name] = shown_url(shown[name])
        return f"Config({self.client}: {', '.join(f'{n}={v!r}' for n, v in shown.items())})"

    def backoff(self, name: str) -> ExponentialBackoff:
        """Return the backoff of the options `name.ms` and `name.max.ms`."""
        return ExponentialBackoff(self._values[f"{name}.ms"], self._values[f"{name}.max.ms"])


def _without_effect(client: str, names: list[str]) -> list[str]:
    """Return the names of settings that have no effect on this kind of client."""
    options = ((name, OPTIONS.get(ALIASES.get(name, name))) for name in names)
    others = [name for name, one in options if one is None or client not in one.clients]
    if not others:
        return others
    from odradek.common.options.ignored_settings import has_effect  # most clients don't need it

    return [name for name in others if not has_effect(name, client)]
