"""aiokafka's keyword arguments, translated to Odradek's options.

In: the keywords of a constructor, with aiokafka's defaults. Out: options of Odradek's clients.
Unsupported settings raise `RefusedSettingError` with their name; settings without an effect here
are logged once. Must not: repeat the validation of Odradek's options.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.common.options.group import AnyName
from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from odradek.compat.aiokafka.errors import KafkaConfigurationError

logger = logging.getLogger("odradek.compat")

INT_MAX = 2**31 - 1
DEFAULT_PORT = 9092
MISSING: Final = object()
"""Default of `acks`, which shows that it wasn't set."""
MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
SAME = ("client_id", "connections_max_idle_ms", "metadata_max_age_ms", "security_protocol")
SAME_OF_CONSUMERS = (
    *("auto_commit_interval_ms", "client_rack", "exclude_internal_topics", "fetch_max_bytes"),
    *("fetch_max_wait_ms", "fetch_min_bytes", "group_id", "group_instance_id"),
    *("heartbeat_interval_ms", "isolation_level", "max_partition_fetch_bytes"),
    *("max_poll_interval_ms", "session_timeout_ms"),
)
FLAGS = ("enable_auto_commit", "enable_idempotence", "exclude_internal_topics")
IDLE: Mapping[str, tuple[object, str]] = {
    "check_crcs": (True, "checksums are always verified"),
    "consumer_timeout_ms": (200, "this client doesn't poll in the background"),
}
"""Settings without effect, by name: the default, and the reason."""
_told: set[str] = set()
_numbers = itertools.count(1)
"""Numbers for producers without a `client_id`."""


class RefusedSettingError(KafkaConfigurationError, ValueError):
    """Setting of aiokafka that isn't supported here; the text names it."""


def running_loop(given: Mapping[str, Any]) -> asyncio.AbstractEventLoop:
    """Return the running event loop; `loop` and `api_version` only cause a warning, as in aiokafka.

    Raises `RuntimeError` outside of a coroutine.
    """
    for name in ("loop", "api_version"):
        if given[name] is not None:
            text = f"{name} is deprecated and has no effect"
            warnings.warn(text, DeprecationWarning, stacklevel=4)
    loop: asyncio.AbstractEventLoop | None = given["loop"]
    return loop or asyncio.get_running_loop()


def _whole(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert times to int and flags to bool, because aiokafka also accepts other types."""
    found = dict(given)
    for name, value in given.items():
        if name in FLAGS:
            found[name] = bool(value)
        elif name.endswith("_ms") and isinstance(value, float) and math.isfinite(value):
            found[name] = math.ceil(value)
    return found


def client_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of all clients."""
    for name, (usual, why) in IDLE.items():
        if name in given and given[name] != usual and name not in _told:
            _told.add(name)
            logger.info("%s has no effect: %s", name, why)
    found = {name: given[name] for name in SAME}
    if found["connections_max_idle_ms"] is None:  # None: never close idle connections
        found["connections_max_idle_ms"] = -1
    timeout, backoff = given["request_timeout_ms"], given["retry_backoff_ms"]
    found |= {
        "bootstrap_servers": servers(given["bootstrap_servers"]),
        "request_timeout_ms": timeout,
        "default_api_timeout_ms": timeout,
        "retry_backoff_ms": backoff,
        "retry_backoff_max_ms": max(backoff, 1000),
    }
    return found | _security(given)


def servers(given: str | Iterable[str]) -> list[str]:
    """Return the addresses as host:port; the default port is 9092, as in aiokafka."""
    parts = given.split(",") if isinstance(given, str) else list(given or ())
    if not all(isinstance(part, str) for part in parts):
        raise TypeError(f"bootstrap_servers must be host:port, or a list of those, not {given!r}")
    return [_with_port(part.strip()) for part in parts if part.strip()]


def _with_port(address: str) -> str:
    host, _, port = address.rpartition(":")
    if address.endswith("]") or not (host and port.isdigit()):
        return f"{address}:{DEFAULT_PORT}"
    bare = ":" in host and not host.startswith("[") and "://" not in host
    return f"[{address}]:{DEFAULT_PORT}" if bare else address  # an IPv6 address without brackets


def _security(given: Mapping[str, Any]) -> dict[str, Any]:
    protocol, mechanism = given["security_protocol"], given["sasl_mechanism"]
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("security_protocol must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    if given["sasl_kerberos_domain_name"] is not None:
        raise RefusedSettingError(
            "sasl_kerberos_domain_name isn't supported: the brokers' own host names are used"
        )
    found: dict[str, Any] = {}
    if protocol.endswith("SSL"):
        if given["ssl_context"] is None:
            raise ValueError(f"security_protocol={protocol} needs ssl_context")
        found["ssl_context"] = given["ssl_context"]
    if not protocol.startswith("SASL"):
        return found
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism must be one of {', '.join(MECHANISMS)}")
    found["sasl_mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        provider = given["sasl_oauth_token_provider"]
        if not callable(getattr(provider, "token", None)):
            text = "OAUTHBEARER needs sasl_oauth_token_provider, an AbstractTokenProvider"
            raise ValueError(text)
        return found | {"sasl_oauthbearer_token_provider": provider}
    if mechanism == "GSSAPI":
        return found | {"sasl_kerberos_service_name": given["sasl_kerberos_service_name"]}
    name, password = given["sasl_plain_username"], given["sasl_plain_password"]
    if name is None or password is None:
        raise ValueError(f"{mechanism} needs sasl_plain_username and sasl_plain_password")
    return found | {"sasl_username": name, "sasl_password": password}


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's options; without `enable_idempotence`, `acks` defaults to 1.

    Records stay in order even then, with one request in flight to each broker.
    """
    if given["acks"] not in (0, 1, -1, "all", MISSING):
        raise ValueError("acks must be 0, 1, -1 or 'all'")
    if given["compression_type"] not in ("gzip", "snappy", "lz4", "zstd", None):
        raise ValueError("compression_type must be gzip, snappy, lz4, zstd or None")
    given = _whole(given)
    transactional = given["transactional_id"] is not None
    idempotent = transactional or given["enable_idempotence"]
    if idempotent and given["acks"] not in ("all", -1, MISSING):
        raise ValueError(f"acks={given['acks']} isn't possible with enable_idempotence: use 'all'")
    found = client_settings(given)
    timeout, linger = given["request_timeout_ms"], given["linger_ms"]
    if found["client_id"] is None:
        found["client_id"] = f"aiokafka-producer-{next(_numbers)}"
    found |= {
        "max_block_ms": timeout,
        "linger_ms": linger,
        "batch_size": given["max_batch_size"],
        "max_request_size": given["max_request_size"],
        "buffer_memory": max(32 << 20, 2 * given["max_request_size"]),
        "compression_type": given["compression_type"] or "none",
        "enable_idempotence": idempotent,
    }
    if idempotent:  # retries can't cause duplicates, so they have no limit
        found |= {"acks": "all", "delivery_timeout_ms": INT_MAX}
    else:
        acks = 1 if given["acks"] is MISSING else given["acks"]
        found |= {"acks": acks, "delivery_timeout_ms": timeout + linger}
        found["max_in_flight_requests_per_connection"] = 1
    if transactional:
        found["transactional_id"] = given["transactional_id"]
        found["transaction_timeout_ms"] = given["transaction_timeout_ms"]
    return found


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a consumer's options."""
    most = given["max_poll_records"]
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ValueError("max_poll_records must be a positive int or None")
    if given["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise ValueError(
            "isolation_level must be read_uncommitted or read_committed, not "
            f"{given['isolation_level']!r}"
        )
    given = _whole(given)
    found = client_settings(given)
    if found["client_id"] is None:
        del found["client_id"]
    found |= {name: given[name] for name in SAME_OF_CONSUMERS}
    instance = given["group_instance_id"]
    if isinstance(instance, str):
        found["group_instance_id"] = AnyName(instance) if instance.strip() else None
    found["allow_auto_create_topics"] = True
    reset = given["auto_offset_reset"]
    found["auto_offset_reset"] = reset if reset in ("earliest", "latest") else "none"
    # A broker without new records delays its fetch response for fetch_max_wait_ms.
    least = given["fetch_max_wait_ms"] + 1
    found["request_timeout_ms"] = max(found["request_timeout_ms"], least)
    if given["group_id"] is not None:
        found["enable_auto_commit"] = given["enable_auto_commit"]
        found["partition_assignment_strategy"] = assignors(given["partition_assignment_strategy"])
    return found


def assignors(given: Iterable[type[AbstractPartitionAssignor]]) -> list[str]:
    """Return the names of assignor classes."""
    names = [str(getattr(kind, "name", kind)) for kind in given]
    if unknown := [name for name in names if name not in ASSIGNORS]:
        raise RefusedSettingError(
            f"partition_assignment_strategy has {unknown[0]!r}, and this package's assignors are "
            f"{', '.join(ASSIGNORS)}; one of your own can be given to odradek.AsyncConsumer"
        )
    return names
