"""One connection as the engine sees it: a state, a reader, its requests in flight.

In: what the network client does with it. Out: whether it can be used, whether it is suspect.
Must not: decide anything about other connections or about dialling.
"""

from __future__ import annotations

import math

from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection_state import ENDED, ConnectionEvent, ConnectionState, move
from odradek.network.frame import FrameReader
from odradek.network.in_flight_requests import InFlightRequests

DATA, COORDINATOR, METADATA = "data", "coordinator", "metadata"
BESIDE = "beside"
"""Purposes: a long fetch must never delay a heartbeat, nor held writes a question for metadata, nor
a held JoinGroup a commit (the connections for these two, METADATA and BESIDE, are made only then).
Backoff is per address all the same."""
CONNECT_SUSPICION = 1.5
"""Seconds after which a dial without TCP is suspect: a lost SYN is sent again after one second, and
even a stopped process is connected to, by its kernel."""
HELD = 0.25
"""Seconds after which a write that isn't answered counts as held by the broker."""


class Connection:
    """One connection, from its dial to its end. A new dial makes a new object."""

    __slots__ = (
        "address",
        "beside",
        "broker_id",
        "bytes_seen",
        "dialled_at",
        "ended",
        "for_metadata",
        "heard_at",
        "id",
        "in_flight",
        "ip",
        "last_received",
        "last_used",
        "left_in_use",
        "proved",
        "purpose",
        "reader",
        "ready",
        "ready_at",
        "record",
        "setup_deadline",
        "state",
        "suspect",
        "throttled_until",
        "versions",
        "writable",
    )

    def __init__(
        self,
        number: int,
        address: Address,
        purpose: str,
        now: float,
        record: AddressState | None = None,
    ) -> None:
        self.id = number
        self.address = address
        self.record = record or AddressState(address)
        """What is remembered of the address, whatever becomes of this connection."""
        self.purpose = purpose
        self.broker_id: int | None = None
        self.state = ConnectionState.RESOLVING
        self.ready = False
        """ApiVersions is answered: requests may be sent."""
        self.ended = False
        """It won't be used again."""
        self.reader = FrameReader()
        self.in_flight = InFlightRequests()
        self.versions: dict[int, tuple[int, int]] = {}
        self.ip: str | None = None
        self.dialled_at = now
        self.setup_deadline = now
        self.ready_at = math.inf
        self.last_used = now
        self.last_received = now
        self.heard_at = -math.inf
        """When the last byte came."""
        self.left_in_use = False
        """The broker ended it in order although it had just been used: it is going away."""
        self.throttled_until = 0.0
        self.proved = False
        self.bytes_seen = False
        """Bytes came since the last step."""
        self.for_metadata = False
        self.beside = False
        """Dialled while another dial of the address is silent; given up sooner than that one."""
        self.suspect = False
        """R-RB-2: a request is unanswered and no byte came for the suspicion time, or the dial has
        been pending for so long."""
        self.writable = True

    def move(self, event: ConnectionEvent) -> None:
        """Go on to the state that the table gives."""
        self.state = state = move(self.state, event)
        self.ready = state is ConnectionState.READY
        self.ended = state in ENDED

    def dial_suspect_at(self, suspicion: float) -> float:
        """When a pending dial will be suspect: sooner while there isn't even TCP."""
        if self.state is ConnectionState.CHECKING_API_VERSIONS or suspicion < CONNECT_SUSPICION:
            return self.dialled_at + suspicion
        return self.dialled_at + CONNECT_SUSPICION

    def suspect_at(self, suspicion: float) -> float | None:
        """When it will be suspect unless bytes arrive (R-RB-2); None with nothing in flight."""
        if not self.ready:
            return self.dial_suspect_at(suspicion)
        head = self.in_flight.head
        if head is None:
            return None
        return max(head.sent_at + head.patience, self.last_received) + suspicion

    @property
    def held_at(self) -> float | None:
        """When what it carries counts as held: answers behind it will be late for no fault."""
        head = self.in_flight.head
        if head is None or not head.held:
            return None
        return max(head.sent_at, self.last_received) + HELD

    def is_held(self, now: float) -> bool:
        """A write that the broker may rightly hold is unanswered for a while."""
        at = self.held_at
        return at is not None and now >= at

    def overdue_at(self, grace: float) -> float | None:
        """When the oldest request counts as lost; bytes that arrive put it off by `grace`."""
        head = self.in_flight.head
        if head is None:
            return None
        deadline = self.in_flight.next_deadline() or math.inf
        # The first question of a quiet connection sets `last_received` as well: that is no byte.
        heard = self.last_received > head.sent_at
        return max(deadline, self.last_received + grace) if heard else deadline
