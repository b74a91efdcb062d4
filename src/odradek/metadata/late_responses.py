"""Track late metadata requests, and whether their brokers are only slow (R-RB-9).

In: metadata requests whose response is late, so that another broker was asked as well. Out: late
responses; whether asking one more broker could help; connection attempts that show whether a silent
address, which lately sent nothing or too little, is alive. A response counts whenever it arrives.
If two brokers are late and one of them is slow but alive, the client waits, because a third request
would only make it slower. Must not: judge a response, or send a request.

If another connection answers, a silent one isn't closed: a half-open connection and a slow request
look alike, and a request that takes 25 s would be repeated forever. When the request times out,
idle connections to the address that have received nothing since it was sent are closed as well.
"""

from __future__ import annotations

import math

from odradek.common.types import Address
from odradek.metadata.candidates import RECENT_RESPONSE_S, Candidates
from odradek.metadata.round import PendingRequest
from odradek.network.connection import PROBE
from odradek.network.network_client import NetworkClient

ENOUGH = 2
"""Maximum number of silent brokers to wait for; while only one is silent, another one is asked."""
ADDRESS_CHECK_S = 3.0
"""Seconds until the next check whether the address of a slow broker accepts connections.

The next check ends before the last response is too old to count (`RECENT_RESPONSE_S`).
"""


class LateResponses:
    """Metadata requests that were still in flight when the client asked another broker."""

    def __init__(self, network: NetworkClient, candidates: Candidates) -> None:
        self._network = network
        self._candidates = candidates
        self.asked: list[PendingRequest] = []
        self.added = 0
        """Number of late requests since the client started."""

    def add(self, asked: PendingRequest) -> None:
        """Add a late request, whose response will still be used."""
        self.asked.append(asked)
        self.added += 1

    def clear(self) -> None:
        """Drop all late requests, because a good response arrived."""
        self.asked.clear()

    def forget_failures(self) -> bool:
        """Drop requests that failed; return whether a response to one of the others has arrived."""
        self.asked = [a for a in self.asked if not (a.reply.done and a.reply.error)]
        return any(a.reply.done for a in self.asked)

    def take(self) -> list[PendingRequest]:
        """Remove and return the requests that have a response or have failed."""
        if not self.asked:
            return self.asked
        ended = [a for a in self.asked if a.reply.done]
        if ended:
            self.asked = [a for a in self.asked if not a.reply.done]
        return ended

    def only_slow(self, now: float) -> bool:
        """Return whether to ask no other broker, as two are silent and one of them is only slow."""
        slow = self._slow()
        return len(slow) >= ENOUGH and any(
            self._candidates.lives(other, now)
            for a in slow
            for other in self._network.of_address(a.connection.address)
        )

    def _slow(self) -> list[PendingRequest]:
        """Return the requests that are the oldest ones of their connection, which is silent."""
        return [a for a in self.asked if a.connection.suspect and a.first]

    def arriving(self, now: float) -> list[Address]:
        """Return the addresses of late requests that aren't delayed by silence or a slow write."""
        return [a.connection.address for a in self.asked if a.is_on_its_way(now)]

    def prove(self, now: float) -> float:
        """Connect to silent addresses, to see if they are alive; return when to check again.

        A connection that was opened for this check is closed as soon as it is ready.
        """
        look_at = math.inf
        for asked in self._slow():
            connection = asked.connection
            probe = self._network.connection(connection.address, PROBE)
            if probe is not None and probe.ready:
                self._network.close(probe, now, "it only tested whether the address answers")
            heard = connection.record.heard_at
            if heard > connection.suspected_at:
                due = heard + ADDRESS_CHECK_S
                if heard + RECENT_RESPONSE_S > now:
                    look_at = min(look_at, heard + RECENT_RESPONSE_S)
            else:
                due = now
            if connection.record.dialling:
                continue  # another pending attempt is a check, too
            due = max(
                due,
                self._network.next_dial_at(
                    connection.address, now, purpose=PROBE, for_metadata=True
                ),
            )
            if due <= now:
                self._network.dial(connection.address, now, purpose=PROBE, for_metadata=True)
            else:
                look_at = min(look_at, due)
        return look_at
