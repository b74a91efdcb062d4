"""Check that a connection leads to the client's cluster, before requests that only name topics.

Such requests write records by name, create or delete topics, obtain a producer id, or look up
offsets.

In: a connection that is ready. Out: whether it can be trusted. An address may be reassigned to
another cluster (R-RB-5); from Produce 13 and Fetch 13 on, brokers of another cluster reject unknown
topic ids, but older brokers would write records to another cluster's topic of the same name. The
metadata that named the address may be minutes old, so each connection is checked once, unless it
has returned metadata itself. If its broker doesn't know a topic's id, it is checked again.
Must not: take part in refreshes (R-MD-4 allows one).

Requests to coordinators and OffsetForLeaderEpoch are checked, too. Otherwise, with brokers before
4.4, another cluster with a topic of the same name and leader epoch would accept a commit, move a
position to the end of its own log, or make `poll()` raise `LogTruncationError`.
"""

from __future__ import annotations

from typing import cast

from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.types import Address
from odradek.metadata.bootstrap import check_cluster_id
from odradek.metadata.metadata import Metadata
from odradek.network.connection import Connection
from odradek.network.engine import Engine
from odradek.network.flow import Completion
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse


class ClusterCheck:
    """Checks the cluster ids of one client's connections."""

    def __init__(self, engine: Engine, network: NetworkClient, metadata: Metadata) -> None:
        self._engine = engine
        self._network = network
        self._metadata = metadata

    def agreed(self, connection: Connection, now: float) -> bool:
        """Return whether a connection can be trusted for requests without records.

        It is enough that ApiVersions named the expected cluster and the broker didn't object
        (KIP-1242). A proxy that answers itself may ignore the name.
        """
        return connection.broker_id is not None or self.passed(connection, now)

    def prompt(self, address: Address, now: float) -> Connection | None:
        """Return a connection to the client's cluster, preferably one without a held fetch."""
        found = self._network.prompt(address, now)
        return None if found is None or not self.agreed(found, now) else found

    def passed(self, connection: Connection, now: float) -> bool:
        """Return whether records may be sent on a connection.

        If that is unknown, ask the broker, and notify `changed` later.
        """
        if connection.ours or connection.asked_whose:
            return connection.ours
        network = self._network
        try:
            reply = network.send(connection, DescribeClusterRequest(), now)
        except UnsupportedVersionError:  # the broker is older than Kafka 2.8
            reply = network.send(connection, MetadataRequest(topics=[]), now)
        connection.asks_whose(True)
        reply.when_done(lambda done: self._answered(connection, done))
        return False

    def doubt(self, address: Address, now: float) -> None:
        """Check an address whose broker doesn't know a topic's id: the cluster may differ."""
        connection = self._network.connection(address)
        if connection is not None and connection.ready:
            self.passed(connection, now)

    def _answered(self, connection: Connection, reply: Completion[Message]) -> None:
        engine, now, address = self._engine, self._engine.now, connection.address
        connection.asks_whose(False)
        if reply.error is not None or engine.ended is not None:
            return
        response = cast("DescribeClusterResponse | MetadataResponse", reply.result())
        found = response.cluster_id if not response.error_code else None
        foreign = check_cluster_id(self._metadata.cluster_id, found, address)
        if foreign is None:
            connection.is_ours()
            self._network.changed.notify()
            return
        if connection.secondary:
            self._network.disown(connection, foreign, now)
            return
        engine.events.emit(
            now,
            "foreign_cluster",
            address=str(address),
            expected=foreign.expected,
            found=foreign.found,
        )
        self._network.disown(connection, foreign, now)
        self._metadata.request(f"{address} belongs to a different cluster")
