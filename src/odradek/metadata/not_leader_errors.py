"""Reconnect to a broker that repeatedly answers that it isn't the leader or coordinator.

The address may lead to another broker of the same cluster now: through a proxy, or if two pods
restart with each other's IP while their names are still cached. Brokers from 4.4 on report that
they aren't the expected broker (KIP-1242). An older broker can't be asked for its id, and would
answer NOT_LEADER_OR_FOLLOWER while its connection lasts.

In: errors of brokers that aren't the leader or coordinator. Out: their connections are closed, so
that the name is resolved and the address connected again (R-RB-8). A reconnect takes three errors
over three seconds, each after a newer metadata response: an election on busy brokers of 3.9, or a
group's first join, may cause three errors within a second, and many clients would then reconnect
and log in at the same moment. The intervals between reconnects grow, because a cluster without a
controller returns these errors for hours. A connection is never closed during a write, whose
outcome would be unknown, or during a metadata request, whose failure would be reported as an
outage. Until both are answered, no new request is sent, because a producer with a hundred
partitions always has a write in flight. Must not: count a failure of the address, or increase its
backoff.

The new connection also negotiates API versions again, which SASL doesn't permit on an open
connection.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable
from typing import NamedTuple

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import KafkaError
from odradek.common.types import Address, Rng, TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.connection import Connection
from odradek.network.network_client import NetworkClient
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest

logger = logging.getLogger("odradek.metadata")

DENIALS = 3
"""Number of errors in a row after which another broker is assumed to be at the address."""
AFTER = 3.0
"""Minimum number of seconds between the first error and a reconnect.

Elections take seconds in a busy cluster, and many clients would reconnect at the same moment.
"""
MAX_GAP_S = 5.0
"""Maximum seconds between two errors in a row, or `BACKOFFS` × the longest backoff if longer."""
BACKOFFS = 3.0
"""Alternative to `MAX_GAP_S`, as a multiple of `retry.backoff.max.ms`."""
RECONNECT_WAITS = ExponentialBackoff(1.0, 10.0)
"""Seconds between two reconnects to an address, by the number of earlier reconnects."""
FORGOTTEN = 60.0
"""Seconds after which earlier reconnects don't lengthen the wait any more."""
DRAIN_TIMEOUT_S = 0.5
"""Seconds without new requests on a connection whose `KEPT` requests delay its closing."""
KEPT = frozenset((ProduceRequest.API_KEY, MetadataRequest.API_KEY))
"""API keys of the requests that must be answered before a connection is closed."""


class Denied(NamedTuple):
    """Errors with which a connection's broker denied one role; others are ignored meanwhile."""

    thing: Hashable
    """The role: leader of this partition, or coordinator with this name."""
    named: Hashable
    """Id and epoch of the leader according to metadata, or id of the coordinator."""
    times: int
    counts_from: int
    """Serial number of the metadata response after which the next error is counted."""
    since: float
    at: float


class NotLeaderErrors:
    """Errors with which brokers tell one client that they aren't the leader or coordinator."""

    def __init__(
        self, client: str, network: NetworkClient, metadata: Metadata, rng: Rng, backoff: float
    ) -> None:
        """Set `client`, the name in log messages, and `backoff`, the maximum retry backoff in s."""
        self._client = client
        self._network, self._metadata, self._rng = network, metadata, rng
        self._in_a_row = max(MAX_GAP_S, BACKOFFS * backoff)
        self._denied: dict[int, Denied] = {}
        self._ends: dict[tuple[Address, str], tuple[int, float]] = {}
        """By address and purpose: number of reconnects, and earliest time of the next one."""
        network.on_lost.append(self._lost)

    def leading(self, partition: TopicPartition, address: Address) -> None:
        """Note that the broker at an address, a partition's known leader, denied that it leads."""
        metadata = self._metadata
        connection = self._network.connection(address)
        if connection is None or metadata.snapshot is None:
            return
        leader = metadata.snapshot.leader(*partition)
        known = metadata.snapshot.partition(*partition)
        if leader is not None and known is not None and leader.address == address:
            named = (leader.id, known.leader_epoch)
            self.denied(connection, partition, named, metadata.answered, metadata.next_question)

    def denied(
        self, connection: Connection, thing: Hashable, named: Hashable, answered: int, after: int
    ) -> None:
        """Note that a broker denied the role `thing`; metadata assigns the role to `named`.

        `answered` is the serial number of the last metadata response, `after` that of the next
        refresh; both are 0 if the caller looks the broker up before each request.
        """
        if connection.ended or connection.secondary:
            return
        now, place = self._network.engine.now, connection.id
        before = self._denied.get(place)
        moved = before is not None and before.thing == thing and before.named != named
        if before is None or moved or now > before.at + self._in_a_row:
            before = Denied(thing, named, 0, -1, now, now)
        if before.thing == thing:
            before = before._replace(at=now)
            if answered >= before.counts_from:
                before = before._replace(times=before.times + 1, counts_from=after)
        self._denied[place] = before
        if before.times >= DENIALS and now >= before.since + AFTER:
            self._dial_anew(connection, before, now)

    def _dial_anew(self, connection: Connection, denied: Denied, now: float) -> None:
        place = connection.address, connection.purpose
        ends, not_before = self._ends.get(place, (0, -math.inf))
        if now < not_before:  # a later error may lead to a reconnect
            return
        if any(r.body.API_KEY in KEPT for r in connection.in_flight):
            connection.rest(now + DRAIN_TIMEOUT_S)  # let the `KEPT` requests end
            return
        if now > not_before + FORGOTTEN:
            ends = 0
        self._ends = {p: end for p, end in self._ends.items() if now <= end[1] + FORGOTTEN}
        self._ends[place] = ends + 1, now + RECONNECT_WAITS.delay(ends, self._rng)
        why = f"the broker there keeps answering that it isn't responsible for {denied.thing}"
        logger.log(
            logging.WARNING if ends else logging.INFO,
            "[%s] reconnecting to %s, because %s: another broker may have this address by now",
            *(self._client, connection.address, why),
        )
        self._network.close(connection, now, why)

    def _lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        self._denied.pop(connection.id, None)
