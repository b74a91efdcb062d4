"""Read the metrics that every client has: connections, requests, metadata, outages.

In: the engine of a client, read from any thread. Out: values for its snapshot. Must not: change
anything, or wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from odradek.clients.client_engine import ClientEngine
from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric_values import MS, MetricValues
from odradek.common.sampled import Sampled
from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionState

UP = frozenset(
    (
        ConnectionState.CHECKING_API_VERSIONS,
        ConnectionState.AUTHENTICATING,
        ConnectionState.READY,
    )
)


def add_connections(found: MetricValues, engine: ClientEngine, prefix: str) -> None:
    """Add the metrics of all connections, and of each broker.

    `prefix`: that of Java's metric groups for this kind of client. Addresses that no longer belong
    to a broker are only included in the sums.
    """
    network, counts = engine.network, engine.events.counts
    traffic = {record.address: _Traffic(record) for record in network.states.all()}
    open_ = 0
    for connection in list(network.connections.values()):
        open_ += connection.state in UP
        if connection.address in traffic:
            traffic[connection.address].add(connection)
    group, connected = f"{prefix}-metrics", counts.get("connected", 0)
    found.add(group, "connection-creation-total", connected)
    found.add(group, "connection-close-total", connected - open_)
    logins = 0 if network.mechanism is None else counts.get("ready", 0)
    found.add(group, "successful-authentication-total", logins)
    again = counts.get("reauthenticated", 0)
    found.add(group, "successful-reauthentication-total", again)
    found.add(group, "failed-authentication-total", network.refused_logins)
    _add_traffic(found, group, [_Traffic(network.states.former), *traffic.values()])
    snapshot = engine.metadata.snapshot
    age = math.nan if snapshot is None else max(0.0, found.now - snapshot.updated_at)
    found.add(group, "metadata-age", age)
    group = f"{prefix}-node-metrics"
    for node, address in _nodes(engine):
        if address in traffic:
            _add_traffic(found, group, [traffic[address]], node_id=node, address=str(address))


class _Traffic:
    """Counters of all connections to one address, including those that have ended."""

    def __init__(self, record: AddressState) -> None:
        self.ready = self.waiting = 0
        self.sent, self.answered = record.sent, record.answered
        self.measured: list[Sampled] = [record.latency]

    def add(self, connection: Connection) -> None:
        """Add an existing connection."""
        self.ready += connection.ready
        self.waiting += len(connection.in_flight)
        self.measured.append(connection.in_flight)


def _add_traffic(found: MetricValues, group: str, of: list[_Traffic], **tags: str) -> None:
    measured = [sampled for one in of for sampled in one.measured]
    found.add(group, "connection-count", sum(one.ready for one in of), **tags)
    found.add(group, "request-total", sum(one.sent for one in of), **tags)
    found.add(group, "response-total", sum(one.answered for one in of), **tags)
    found.add(group, "requests-in-flight", sum(one.waiting for one in of), **tags)
    found.add_sampled(group, "request-latency", measured, MS, **tags)


def _nodes(engine: ClientEngine) -> Iterator[tuple[str, Address]]:
    """Yield brokers by id, and bootstrap addresses as Java numbers them: -1, -2, and so on."""
    snapshot = engine.metadata.snapshot
    brokers = () if snapshot is None else sorted(snapshot.brokers.values(), key=lambda b: b.id)
    there = {broker.address for broker in brokers}
    for broker in brokers:
        yield f"node-{broker.id}", broker.address
    for n, address in enumerate(engine.config["bootstrap.servers"], 1):
        if address not in there:
            yield f"node-{-n}", address


def add_ours(found: MetricValues, engine: ClientEngine) -> None:
    """Add metrics that Java's clients don't have: connection attempts, rounds, outages."""
    network, updater = engine.network, engine.updater
    counts, outage, now = engine.events.counts, engine.outages.current, found.now
    found.add(OURS, "dial-total", counts.get("dial", 0))
    found.add(OURS, "dial-failed-total", counts.get("dial_failed", 0))
    waits = sum(record.backoff_until > now for record in network.states.all())
    found.add(OURS, "address-backoff-count", waits)
    found.add(OURS, "silence-total", counts.get("silent", 0))
    found.add(OURS, "retry-total", counts.get("retry", 0))
    found.add(OURS, "expired-total", counts.get("expired", 0))
    found.add(OURS, "metadata-request-total", counts.get("metadata_request", 0))
    found.add_sampled(OURS, "metadata-latency", [updater.latency])
    found.add(OURS, "metadata-round-total", updater.rounds)
    found.add(OURS, "metadata-round-failed-total", counts.get("round_failed", 0))
    found.add(OURS, "hedged-request-total", updater.hedged)
    found.add(OURS, "rebootstrap-total", counts.get("rebootstrap", 0))
    found.add(OURS, "outage-seconds", 0.0 if outage is None else max(0.0, now - outage.begun))
    found.add(OURS, "throttle-total", network.throttled.count)
    found.add(OURS, "throttle-time-total", network.throttled.total)
    found.add(OURS, "receive-buffer-bytes", network.buffers.kept)
