"""Is the broker behind this connection still one of ours? Asked before records go there by name.

In: a connection that was made again to an address. Out: whether it can be trusted. An address may
be given to another cluster (R-RB-5); from Produce 13 and Fetch 13 on topic ids keep records apart,
older brokers know topics by name, and another cluster's topic of the same name would take them.
The first connection to an address is trusted: the cluster has just named it. Each later one is
asked for its cluster's id, once. Must not: ask for metadata (R-MD-4 allows one such request).
"""

from __future__ import annotations

from typing import cast

from odradek.clients.client_engine import ClientEngine
from odradek.common.kafka_errors import UnsupportedVersionError
from odradek.common.types import Address
from odradek.metadata.bootstrap import check_cluster_id
from odradek.network.connection import Connection
from odradek.network.flow import Completion
from odradek.protocol.message import Message
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class ClusterCheck:
    """What one client knows of its connections' clusters."""

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine
        self._trusted: dict[Address, int] = {}
        """The connection at an address that is known to lead to our cluster."""
        self._asked: dict[Address, int] = {}

    def passed(self, connection: Connection, now: float) -> bool:
        """Whether records may go there; asks where that isn't known, and `changed` tells."""
        address, number = connection.address, connection.id
        if self._trusted.setdefault(address, number) == number:
            return True
        if self._asked.get(address) == number:
            return False
        try:
            reply = self._engine.network.send(connection, DescribeClusterRequest(), now)
        except UnsupportedVersionError:  # before Kafka 2.8: there is nothing to ask with
            self._trusted[address] = number
            return True
        self._asked[address] = number
        reply.when_done(lambda done: self._answered(connection, done))
        return False

    def _answered(self, connection: Connection, reply: Completion[Message]) -> None:
        engine, now, address = self._engine, self._engine.now, connection.address
        self._asked.pop(address, None)
        if reply.error is not None or engine.ended is not None:
            return
        response = cast("DescribeClusterResponse", reply.result())
        found = response.cluster_id if not response.error_code else None
        foreign = check_cluster_id(engine.metadata.cluster_id, found, address)
        if foreign is None:
            self._trusted[address] = connection.id
            engine.network.changed.notify()
            return
        engine.events.emit(
            now,
            "foreign_cluster",
            address=str(address),
            expected=foreign.expected,
            found=foreign.found,
        )
        engine.network.disown(connection, foreign, now)
        engine.metadata.request(f"{address} belongs to another cluster")
