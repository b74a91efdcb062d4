"""Check the settings `kafka.*` of the source and the sink.

In: all options of a query. Out: the client's settings without the prefix, checked as its own are;
other clients' settings are dropped. Must not: ignore a misspelled name: only real settings of other
clients are dropped (a query copied from a guide contains some), and none that would change the
meaning of a query. Must not: print a value, which may be a secret.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.options.option_aliases import ALIASES, dotted, sealed
from odradek.common.options.properties import idle_names
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.option_table import SparkOption

logger = logging.getLogger("odradek.spark")

PREFIX = "kafka."
CLIENT_ID = "odradek-spark"
"""Name of Spark's clients in brokers' logs and events, unless an option sets another one."""


def sealed_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with lower-case names and the secrets among `kafka.*` wrapped."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = sealed({n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)})
    return options | {PREFIX + name: value for name, value in kafka.items()}


def divided(
    options: Mapping[str, Any], known: Collection[str], protected: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Split options into the client's settings and all others.

    `known`: settings that the caller reads or sets itself, returned under Kafka's names.
    `protected`: settings that are not allowed, and what to do instead. Raises `OptionError` for a
    protected setting and for one that is set twice. Drops other clients' settings that have no
    effect, and logs a WARNING that names them.
    """
    kafka: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    for name, value in options.items():
        if not name.startswith(PREFIX):
            continue
        given = name.removeprefix(PREFIX)
        usual = ALIASES.get(dotted(given), dotted(given))
        key = usual if usual in known else given
        if key in kafka:
            raise OptionError(
                f"option kafka.{key} is set twice, as kafka.{spelt[key]} and kafka.{given}: "
                "remove one of them"
            )
        kafka[key], spelt[key] = value, given
    idle = [name for name in idle_names(kafka, None) if name not in protected]
    if idle:
        logger.warning(
            "settings without effect on this client (options kafka.*; docs/switching.md says why): "
            "%s",
            ", ".join(sorted(idle)),
        )
    for name, instead in protected.items():
        if name in kafka:
            raise OptionError(f"option kafka.{name} is not supported: {instead}")
    plain = {name: v for name, v in options.items() if not name.startswith(PREFIX)}
    if "eventsdir" in plain:
        kafka["events.dir"] = plain["eventsdir"]
    return {name: value for name, value in kafka.items() if name not in idle}, plain


def checked_by_client(client: str, kafka: Mapping[str, Any], **more: Any) -> Config:
    """Check settings as the client does; raises `OptionError` or `UnsupportedFeatureError`."""
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError(
            "option kafka.bootstrap.servers is missing: set it to one or more host:port addresses"
        )
    try:
        return Config(client, {**kafka, **more})
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"in the options kafka.*: {error}") from error
    except ConfigurationError as error:
        raise OptionError(f"in the options kafka.*: {error}") from error


def suggestion(name: str, options: Iterable[SparkOption]) -> str:
    """Return a suggestion for an unknown option; empty if no name is similar."""
    known = {option.name.lower(): option.name for option in options}
    known["kafka.bootstrap.servers"] = "kafka.bootstrap.servers"
    candidates = difflib.get_close_matches(name, known, n=1)
    if not candidates:
        # The most common mistake is a missing prefix, as in bootstrap.servers.
        candidates = difflib.get_close_matches(f"kafka.{name}", known, n=1, cutoff=0.85)
    return f"; did you mean {known[candidates[0]]}?" if candidates else ""
