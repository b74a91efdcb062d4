"""Decide which brokers can be asked for metadata, and which of them count as unavailable.

In: the snapshot, connections, the bootstrap list. Out: candidates for `least_loaded_node`, and
arguments for `bootstrap`. Must not: connect, send, or remember anything except silent brokers.

A broker that delays a write isn't silent: while a replica is dead, brokers hold `acks=all` writes
for up to 9 s, and a metadata request after such a write on the same connection waits, too. So if a
connection's oldest write is unanswered for 0.25 s, a separate connection for metadata is opened,
and only its silence counts. Otherwise, if one broker of three died, the client would rebootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from odradek.common.types import Address
from odradek.metadata.bootstrap import SilentConnections, reason
from odradek.metadata.cluster import Cluster
from odradek.metadata.least_loaded_node import Candidate
from odradek.metadata.metadata import Metadata
from odradek.metadata.round import PendingRequest, Round
from odradek.network.connection import DATA, METADATA, PROBE, Connection
from odradek.network.connection_policy import PENDING_ATTEMPT_WAIT_S
from odradek.network.connection_state import ConnectionState
from odradek.network.network_client import SUSPECT_AFTER_S, NetworkClient
from odradek.protocol.messages.metadata import MetadataRequest

RECENT_RESPONSE_S = 5.0
"""Seconds for which a response proves that its broker's silent connections are only slow."""
HANDSHAKES = frozenset((ConnectionState.CHECKING_API_VERSIONS, ConnectionState.AUTHENTICATING))


class RoundCandidates(NamedTuple):
    """Addresses that haven't failed in a round: connected ones, and others to connect to."""

    connected: list[Candidate]
    starts: list[Address]
    known: list[Address]

    def exhausted(self, *, some_failed: bool) -> bool:
        """Return whether the round is over: all connections are silent, no address is left.

        False if connections exist and none has failed: the next round would be the same.
        """
        if self.starts or self.known:
            return False
        return all(c.suspect for c in self.connected) and (some_failed or not self.connected)


class Candidates:
    """The addresses of one client's brokers that can be asked for metadata."""

    def __init__(
        self, network: NetworkClient, metadata: Metadata, bootstrap: Sequence[Address]
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._bootstrap = bootstrap
        self.silence = SilentConnections()
        self.quick = True
        """Whether the last good response arrived within the suspicion time (2 s)."""

    def has_other(self, round_: Round, asked: PendingRequest, *, rebootstrapping: bool) -> bool:
        """Return whether a round may ask an address other than that of the request `asked`."""
        starts, known = self._addresses(round_, rebootstrapping=rebootstrapping)
        asked_of = asked.connection.address
        return any(a != asked_of and a not in round_.failed for a in (*starts, *known))

    def of_round(
        self,
        round_: Round,
        now: float,
        *,
        rebootstrapping: bool,
        but: Collection[Address] = (),
    ) -> RoundCandidates:
        """Return the addresses that a round may still ask, except those in `but`."""
        starts, known = self._addresses(round_, rebootstrapping=rebootstrapping)
        failed, found = (
            {*round_.failed, *but} if but else round_.failed,
            RoundCandidates([], [], []),
        )
        if not self._network.connections:  # usual in an outage
            found.starts.extend([a for a in starts if a not in failed])
            found.known.extend([a for a in known if a not in failed])
            return found
        for address in dict.fromkeys([*starts, *known]):
            if address in failed:
                continue
            bootstrap = address in starts
            connection = self.line(address, now)
            if connection is None or (bootstrap and self._leads_nowhere(connection)):
                (found.starts if bootstrap else found.known).append(address)
                continue
            young = (
                -math.inf if connection.ready else connection.dialled_at + PENDING_ATTEMPT_WAIT_S
            )
            suspect = not self.answering(connection)
            metadata = self._metadata
            older = address in metadata.heard.older or metadata.ids.asks_later(address)
            found.connected.append(Candidate(address, connection, suspect, young, bootstrap, older))
        return found

    def answered(self, *, quick: bool) -> None:
        """Note a good response; `quick`: it arrived within the suspicion time (2 s)."""
        self.silence.clear()
        self.quick = quick

    def _leads_nowhere(self, connection: Connection) -> bool:
        """Return whether a bootstrap address needs another connection: its only one is silent.

        With a load balancer, or a name with several IPs, the next connection may reach another
        broker. If none were opened, the client might wait for `request.timeout.ms` or the setup
        timeout. The silent connection isn't closed: the connection that answers first is used.
        """
        handshake = connection.state in HANDSHAKES
        if not (connection.suspect and (connection.ready or handshake)):
            return False
        other = DATA if connection.purpose == METADATA else METADATA
        return self._network.connection(connection.address, other) is None

    def may_begin(
        self, round_: Round, earliest: float, now: float, *, rebootstrapping: bool
    ) -> float:
        """Return when a round that is due at `earliest` may first connect or send a request."""
        if self._network.connections:
            return earliest
        starts, known = self._addresses(round_, rebootstrapping=rebootstrapping)
        whom = self._network.dials.whom(starts, known, now, by=earliest)
        later = whom is not None and earliest < whom.at < math.inf
        return whom.at if whom is not None and later else earliest

    def _addresses(
        self, round_: Round, *, rebootstrapping: bool
    ) -> tuple[Sequence[Address], Sequence[Address]]:
        """Return the bootstrap addresses and the known brokers that take part in a round."""
        snapshot = self._metadata.snapshot
        settled = snapshot is not None and rebootstrapping and not self._network.connections
        if settled and round_.known is not None:
            return self._bootstrap, round_.known
        known = snapshot.addresses() if snapshot is not None else []
        starts = self._bootstrap if not known or rebootstrapping else []
        if starts and known:
            known = self._known_of_round(round_, known, len(starts))
        return starts, known

    def _known_of_round(self, round_: Round, known: list[Address], count: int) -> list[Address]:
        """Return the known brokers that a round of a rebootstrap tries.

        These are the connected brokers, and as many other brokers as there are bootstrap addresses;
        the least recently tried are chosen. Trying all brokers of a large dead cluster would delay
        the bootstrap addresses for minutes.
        """
        network = self._network
        kept = round_.known
        if kept is None:
            free = [a for a in known if a not in round_.failed and network.connection(a) is None]
            free.sort(key=lambda a: network.states.state(a).last_dial)
            chosen = set(free[:count])
            kept = [a for a in known if a in chosen]
            round_.keep_to(kept)
        if not network.connections:
            return kept
        return [a for a in known if a in kept or network.connection(a) is not None]

    def line(self, address: Address, now: float) -> Connection | None:
        """Return the connection for a metadata request; None if another one has to be opened.

        Brokers answer the requests of a connection in order. With a dead replica, a write with
        acks=all may be held for the controller's session timeout (9 s by default): a metadata
        request after it would make a healthy broker look silent. So the metadata request is sent on
        a separate connection. A separate connection is also needed if a response is overdue by the
        suspicion time: it distinguishes a slow broker from a dead one (R-RB-9).
        """
        own = self._network.connection(address, METADATA)
        data = self._network.connection(address)
        if own is None:
            silent = data is not None and data.ready and data.suspect
            return None if data is not None and (silent or data.is_held(now)) else data
        if data is not None and data.ready and not (own.ready and not own.suspect):
            # The metadata connection is pending or silent, so use the data connection if it works.
            return own if data.suspect or data.is_held(now) else data
        return own

    def answering(self, connection: Connection) -> bool:
        """Return whether a connection isn't, and doesn't count as, silent (R-RB-2, R-RB-3)."""
        if connection.suspect:
            return False
        snapshot = self._metadata.snapshot
        known = len(snapshot.brokers) if snapshot is not None else 0
        general = self.silence.general(known, self._network.heard_at)
        return not general or not connection.ready or connection.heard_at > self.silence.since

    def why_unavailable(
        self, snapshot: Cluster, failed: Collection[Address], now: float
    ) -> str | None:
        """Return why the known brokers count as unavailable; None if they don't (R-RB-3)."""

        def unavailable(address: Address) -> bool:
            connection = self.line(address, now)
            if connection is not None:
                return connection.suspect
            return self._network.states.state(address).dial_failed

        if self.silence.general(len(snapshot.brokers), self._network.heard_at):
            failed = {*failed, *self.silence.addresses}
        return reason(
            snapshot.addresses(),
            failed,
            answering=any(
                self._answers(address, now)
                or self._serves(connection, now)
                or self.lives(connection, now)
                for (address, _), connection in self._network.connections.items()
                if snapshot.knows(address)
            ),
            unavailable=unavailable,
        )

    def proves(self, asked: PendingRequest, *, rebootstrapping: bool) -> bool:
        """Return whether a missing response to a metadata request proves a failure (R-RB-9).

        It doesn't if the response to an earlier request of the connection is missing, too. A
        cluster's only broker counts as failed only if a new connection fails as well.
        """
        snapshot = self._metadata.snapshot
        alone = snapshot is not None and len(snapshot.brokers) == 1 and not rebootstrapping
        return asked.first and not (alone and asked.connection.purpose == DATA)

    def lives(self, connection: Connection, now: float) -> bool:
        """Return whether a silent connection's broker answers on another one, so is only slow."""
        if not (connection.ready and connection.suspect):
            return False
        return connection.record.heard_at > max(connection.suspected_at, now - RECENT_RESPONSE_S)

    def unneeded(self, snapshot: Cluster, used: Connection) -> list[tuple[Connection, str]]:
        """Return the connections that a new snapshot makes superfluous, each with the reason.

        A silent connection with requests stays open while its broker belongs to the cluster.
        """
        found = []
        for connection in self._network.connections.values():
            gone = not snapshot.knows(connection.address)
            told = connection.broker_id  # the id that the broker confirmed (KIP-1242)
            named = None if told is None else snapshot.brokers.get(told)
            if (
                told is not None
                and not gone
                and (named is None or named.address != connection.address)
            ):
                found.append((connection, "another broker has this address now"))
                continue
            spare = connection.purpose in (METADATA, PROBE) and connection is not used
            idle = not len(connection.in_flight) or not connection.ready
            if gone and (idle or connection.suspect):
                found.append((connection, "the cluster's metadata doesn't contain this address"))
            elif spare and idle:
                found.append((connection, "no longer needed"))
        return found

    def unsettling(self, connection: Connection) -> bool:
        """Return whether a refresh is due because a connection is silent.

        If its oldest unanswered request is a metadata request, a refresh is only due if other
        requests wait after it, no other refresh is running and the last response was quick. Without
        this rule, while metadata is slow, each refresh would make the next one due (R-RB-9).
        """
        head = connection.in_flight.head
        if head is None or not isinstance(head.body, MetadataRequest):
            return True
        snapshot = self._metadata.snapshot
        if snapshot is None or not snapshot.knows(connection.address) or not self.quick:
            return False
        if self._metadata.in_flight_topics is not None:
            return False
        return any(not isinstance(r.body, MetadataRequest) for r in connection.in_flight)

    def waited_for(self) -> Address | None:
        """Return the address of a silent broker for which a refresh is due (see `unsettling`)."""
        found = None
        for connection in self._network.connections.values():
            if connection.ready and connection.suspect and self.unsettling(connection):
                found = connection.address
        return found

    def _serves(self, connection: Connection, now: float) -> bool:
        """Return whether a coordinator's connection shows that its broker is alive.

        Only a recent response (2 s) shows it: while the broker holds a JoinGroup, the connection is
        silent.
        """
        if connection.secondary or connection.purpose in (DATA, METADATA):
            return False
        if now - connection.heard_at >= SUSPECT_AFTER_S:
            return False
        return connection.ready and self.answering(connection)

    def _answers(self, address: Address, now: float) -> bool:
        connection = self.line(address, now)
        return connection is not None and connection.ready and self.answering(connection)
