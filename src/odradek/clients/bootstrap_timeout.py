"""R-RB-10: `bootstrap.timeout.ms`, for clients that haven't reached any broker so far.

In: a client's options. Out: the seconds after which its calls and records time out. Must not: limit
a client that has reached a broker: its own, longer timeouts save records in an outage.

A broker is reached once a connection to a server that knows Metadata is set up, with TLS, SASL and
ApiVersions. If a metadata response were required, a slow broker would count as a wrong address; if
TCP were enough, a load balancer or a stopped process would count as a broker. Metadata from
another client (`bootstrap_hint`) counts as well. `metadata.unavailable.timeout.ms` can't replace
this option: it applies to every outage and ends `poll()`, so it has no default. Spark's source and
sink, `odradek copy` and the modules with other clients' names keep longer timeouts.
"""

from __future__ import annotations

import math

from odradek.common.config import Config

FIRST_CONTACT = "bootstrap.timeout.ms"
AWAY = "metadata.unavailable.timeout.ms"
API_TIMEOUT, BLOCK_TIMEOUT, DELIVERY_TIMEOUT = (
    *("default.api.timeout.ms", "max.block.ms"),
    "delivery.timeout.ms",
)
"""The options that limit how long a call may take."""
SETUP = ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms")
"""The options that limit how long a connection attempt may take."""
GOVERNING = {
    API_TIMEOUT: (API_TIMEOUT, AWAY),
    BLOCK_TIMEOUT: (BLOCK_TIMEOUT, DELIVERY_TIMEOUT, AWAY),
    DELIVERY_TIMEOUT: (BLOCK_TIMEOUT, DELIVERY_TIMEOUT, AWAY),
}
"""For each option that sets a call's timeout: all options with which a user limits the wait."""


def seconds_to_reach(config: Config, governed_by: str | None) -> float:
    """Return the seconds that a wait may take while its client hasn't reached any broker.

    Infinity if the user has set a limit. `governed_by`: the option of the call's timeout; None if
    the caller has passed a timeout.
    """
    limit: float = config["bootstrap.timeout.ms"]
    jitter: float = config["reconnect.first.jitter.ms"]
    if FIRST_CONTACT in config.given:
        return limit
    if governed_by is None or not config.given.isdisjoint(GOVERNING[governed_by]):
        return math.inf
    setup: list[float] = [config[name] for name in SETUP if name in config.given]
    return max([limit, *setup]) + jitter
