"""Brokers that deny, again and again, what the cluster says of them: are they the ones meant?

An address may come to lead to another broker of our own cluster: two pods that restart in each
other's IP while their names are still cached, a proxy. Brokers from 4.4 on say so (KIP-1242); who
an older one is can't be asked, and it would answer NOT_LEADER_OR_FOLLOWER for as long as its
connection lasts, while metadata goes on naming the broker that was meant.

In: refusals by who isn't a leader or a coordinator. Out: their connections are closed, so that the
name is resolved and the address dialled anew (R-RB-8). It takes several refusals, each after an
answer that was asked for since the one before, as a new leader may not know it yet, or a stale
broker may have been asked. And it is done ever more seldom, as a cluster without a controller says
so for hours; and never while a write is unanswered there, whose outcome would be in doubt.
Must not: conclude anything about the address: it hasn't failed, and its backoff doesn't grow.
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
from odradek.network.connection import ASIDE, Connection
from odradek.network.network_client import NetworkClient
from odradek.protocol.messages.produce import ProduceRequest

logger = logging.getLogger("odradek.metadata")

DENIALS = 3
"""So many in a row say that another broker is there. Elections are over after the first two."""
AGAIN = ExponentialBackoff(1.0, 10.0)
"""Seconds from one such end of an address's connection to the next, by how many there were."""
IN_A_ROW = 60.0
"""Seconds after which what was before doesn't count any more."""


class Denied(NamedTuple):
    """What one connection's broker goes on denying; one thing is witness enough."""

    thing: Hashable
    """A partition, or a coordinator's name."""
    named: Hashable
    """Who leads or coordinates it, as the cluster says."""
    times: int
    counts_from: int
    """The number of the answer after which the next denial counts."""
    at: float


class Denials:
    """What brokers deny to one client."""

    def __init__(self, network: NetworkClient, metadata: Metadata, rng: Rng) -> None:
        self._network, self._metadata, self._rng = network, metadata, rng
        self._denied: dict[int, Denied] = {}
        self._ends: dict[tuple[Address, str], tuple[int, float]] = {}
        """By address and purpose: how many connections were ended, when the next may be."""
        network.on_lost.append(self._lost)

    def leading(self, partition: TopicPartition, address: Address) -> None:
        """Who answers at this address doesn't lead a partition."""
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
        """Who answers on a connection isn't the broker that is `named` for a thing.

        `answered` is how many answers have named it so far, `after` the number of the first that
        will have been asked for after this; both 0 where each denial follows such an answer.
        """
        if connection.ended or connection.purpose == ASIDE:
            return
        now, place = self._network.engine.now, connection.id
        before = self._denied.get(place)
        moved = before is not None and before.thing == thing and before.named != named
        if before is None or moved or now > before.at + IN_A_ROW:
            before = Denied(thing, named, 0, -1, now)
        if before.thing == thing and answered >= before.counts_from:
            before = Denied(thing, named, before.times + 1, after, now)
        self._denied[place] = before
        if before.times >= DENIALS:
            self._dial_anew(connection, before, now)

    def _dial_anew(self, connection: Connection, denied: Denied, now: float) -> None:
        place = connection.address, connection.purpose
        ends, not_before = self._ends.get(place, (0, -math.inf))
        writes = any(r.body.API_KEY == ProduceRequest.API_KEY for r in connection.in_flight)
        if writes or now < not_before:  # the next denial comes
            return
        if now > not_before + IN_A_ROW:
            ends = 0
        self._ends[place] = ends + 1, now + AGAIN.delay(ends, self._rng)
        if not ends:
            text = "%s goes on denying what the cluster says of it (%s): perhaps another broker is "
            text += "there by now; it is dialled anew"
            logger.warning(text, connection.address, denied.thing)
        why = f"its broker goes on denying what the cluster says of it ({denied.thing})"
        self._network.close(connection, now, why)

    def _lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        self._denied.pop(connection.id, None)
