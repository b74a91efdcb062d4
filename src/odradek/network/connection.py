"""Represent one connection, without its socket: state, frame reader, requests in flight.

In: calls of the network client. Out: whether the connection can be used, whether it is suspect
(silent for too long). Must not: decide anything about other connections or connection attempts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from odradek.common.errors import AuthenticationError, KafkaError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection_state import ENDED, ConnectionEvent, ConnectionState, move
from odradek.network.effects import AnyRequest
from odradek.network.frame import FrameReader
from odradek.network.in_flight_requests import InFlightRequest, InFlightRequests
from odradek.protocol.versioned_values import VALUES, VersionedValue

if TYPE_CHECKING:
    from odradek.network.frame_buffers import FrameBuffers
    from odradek.network.sasl.session import SaslSession

DATA, COORDINATOR, METADATA = "data", "coordinator", "metadata"
BESIDE, ASIDE, PROBE, PUSH = "beside", "aside", "probe", "push"
"""Purposes of connections in addition to DATA, COORDINATOR and METADATA.

A broker answers a connection's requests in order, and may hold a fetch, a write or a JoinGroup.
Heartbeats (COORDINATOR) mustn't wait for a fetch, metadata requests (METADATA) for a write, commits
(BESIDE) for a JoinGroup, other requests (ASIDE) for a fetch. BESIDE and ASIDE connections are only
opened if necessary. A PROBE only shows whether an address still answers (R-RB-9). A PUSH connection
sends metrics, whose receiver may be slow (KIP-714). The backoff is per address, for all purposes.
"""
SECONDARY = frozenset((ASIDE, PUSH))
"""Purposes whose failures and responses don't count for the address.

See `secondary_connections`.
"""
SECONDARY_IDLE_S = 10.0
"""Seconds for which an unused secondary connection is kept."""
CONNECT_SUSPICION = 1.5
"""Seconds after which a connection attempt is suspect if TCP isn't established.

A lost SYN is retransmitted after one second, and the kernel accepts connections even for a stopped
process.
"""
_BEFORE_TCP = frozenset((ConnectionState.RESOLVING, ConnectionState.CONNECTING))
LEAST_BYTES = 1024
WINDOW = 2.0
"""Seconds within which `LEAST_BYTES` of an unfinished response must arrive (R-TI-1).

If fewer bytes arrive, the connection counts as silent, since a broker that sends one byte per
second would delay callers for ever. A full packet has more bytes than that, so a response on a slow
line is read for as long as packets arrive.
"""
HELD = 0.25
"""Seconds after which an unanswered Produce request counts as held by the broker."""


class Connection:
    """One connection, from the attempt to its end; a new attempt creates a new object."""

    __slots__ = (
        "address", "asked_whose", "asks", "beside", "broker_id", "dialled_at", "ended",
        "for_metadata", "heard_at", "id", "in_flight", "ip", "last_received", "last_used",
        "left_in_use", "new_bytes", "ours", "proved", "purpose", "reader", "ready", "ready_at",
        "record", "secondary", "session", "setup_deadline", "state", "steps_down", "suspect",
        "suspected_at", "throttled_until", "versions", "window_at", "window_bytes", "works_outside",
        "writable",
    )  # fmt: skip

    def __init__(
        self, number: int, address: Address, purpose: str, dialled_at: float, record: AddressState
    ) -> None:
        self.id = number
        self.address = address
        self.purpose = purpose
        self.secondary = purpose in SECONDARY
        self.dialled_at = dialled_at
        self.record = record
        """State of the connection's address; it outlives the connection."""
        self.broker_id: int | None = None
        """Broker id that ApiVersions expected and the broker confirmed (KIP-1242), if any."""
        self.state: ConnectionState = ConnectionState.RESOLVING
        self.ready = False
        """Whether ApiVersions is answered, so that requests may be sent."""
        self.ended = False
        """Whether the connection has ended; it isn't used again."""
        self.reader = FrameReader()
        self.in_flight = InFlightRequests()
        self.versions: dict[int, tuple[int, int]] = {}
        self.ip: str | None = None
        self.setup_deadline = dialled_at
        self.ready_at = math.inf
        self.last_used = dialled_at
        self.last_received = dialled_at
        self.heard_at = -math.inf
        """Time when a response was last completed, or `LEAST_BYTES` of one had arrived."""
        self.left_in_use = False
        """Whether the broker closed it without an error while in use, as at its shutdown."""
        self.throttled_until = 0.0
        self.proved = False
        self.new_bytes = 0
        """Number of bytes received since the last step."""
        self.window_at, self.window_bytes = -math.inf, 0
        """Start of the current `WINDOW`, and the number of bytes received since."""
        self.ours = False
        """Whether the broker has shown that it belongs to the client's cluster (R-RB-5)."""
        self.asked_whose = False
        """Whether a request for the broker's cluster id is in flight."""
        self.for_metadata = False
        self.beside = False
        """Whether it was opened beside a silent attempt, and so has a shorter setup timeout."""
        self.suspect = False
        """Whether the peer sent nothing, or too little, for the suspicion time (R-RB-2, R-TI-1).

        Only time during which a request was unanswered or the attempt was pending counts.
        """
        self.suspected_at = math.inf
        """Time at which the connection last became suspect."""
        self.writable = True
        self.session: SaslSession | None = None
        """The SASL session, if the broker requires a new authentication after some time
        (KIP-368)."""
        self.steps_down = False
        """Whether the peer probably closed it for not knowing the version of ApiVersions.

        Such an end isn't a failure of the address.
        """
        self.asks = ""
        """The suspicion (see `probe`) that this connection checks besides its usual work."""
        self.works_outside = False
        """Whether authentication waits for a function in this process, not for the broker."""

    def version_for(self, request: type[AnyRequest]) -> int:
        """Return the highest version of an API that this client and the broker support."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION)
        if version < max(low, request.MIN_VERSION):
            raise UnsupportedVersionError(
                f"{request.API_NAME}: broker {self.address} {self._supports(request)}, "
                f"this client supports {request.MIN_VERSION} to {request.MAX_VERSION}"
            )
        return version

    def check_values(self, body: AnyRequest, version: int) -> None:
        """Raise if a value in the request would be misread by brokers in this API version."""
        for value in VALUES.get(body.API_KEY, ()):
            if version < value.version and value.used(body):
                raise UnsupportedVersionError(self.lacks(type(body), value))

    def lacks(self, request: type[AnyRequest], value: VersionedValue) -> str:
        """Return an error text: why the broker doesn't support a value, and what a user can do."""
        return (
            f"{request.API_NAME}: {value.what} needs version {value.version} "
            f"(Kafka {value.kafka}), but broker {self.address} {self._supports(request)}: "
            f"{value.instead}, or upgrade the brokers"
        )

    def _supports(self, request: type[AnyRequest]) -> str:
        low, high = self.versions.get(request.API_KEY, (0, -1))
        return "doesn't support it" if high < 0 else f"supports versions {low} to {high}"

    @property
    def authenticates(self) -> bool:
        """Whether an authentication, the first or a later one, is running on the connection."""
        again = self.session is not None and self.session.gated
        return again or self.state is ConnectionState.AUTHENTICATING

    # Setup

    def beside_of(self, first: Connection, now: float) -> None:
        """Let this attempt last as long as the pending attempt `first` has lasted by now."""
        self.beside = True
        self.hurry(2 * now - first.dialled_at)

    def hurry(self, deadline: float) -> None:
        """Move the deadline of the setup to this time, if that is earlier."""
        self.setup_deadline = min(self.setup_deadline, deadline)

    def opens_to(self, ip: str) -> None:
        """Set the IP to which the connection is opened."""
        self.ip = ip
        self.record.opens_to(ip)
        self.move(ConnectionEvent.RESOLVED)

    def connected(self, now: float) -> None:
        """Note that TCP (and TLS, if used) is established.

        If `hurry` has set an earlier deadline for the setup, restore the original one.
        """
        self.last_received = now
        if not (self.beside or self.asks):
            allowed = self.dialled_at + self.record.setup_timeout
            self.setup_deadline = max(self.setup_deadline, allowed)
        self.move(ConnectionEvent.CONNECTED)

    def speaks(self, versions: dict[int, tuple[int, int]], broker_id: int | None) -> None:
        """Set the API versions that the broker supports, and its id if it confirmed one."""
        self.versions, self.broker_id = versions, broker_id

    def outside(self, works: bool, now: float) -> None:
        """Note that a function that this client runs to authenticate has started or ended."""
        self.works_outside = works
        if not works:
            self.last_received = now  # silence is measured from here on

    def became_ready(
        self, now: float, event: ConnectionEvent, limit: int, buffers: FrameBuffers
    ) -> None:
        """Allow requests, and responses of up to `limit` bytes, because the setup is finished."""
        self.move(event)
        self.ready_at = self.last_received = self.heard_at = now
        self.suspect = False
        self.reader.allow(limit, buffers)

    def has_session(self, session: SaslSession) -> None:
        """Set the SASL session; before it expires, the connection authenticates again (KIP-368)."""
        self.session = session

    def finds_out(self, asks: str, left: str) -> None:
        """Let this connection check the suspicion `asks` (see `probe`), the next one `left`."""
        self.asks = asks
        self.record.suspect_of(left)

    # In use

    def take_bytes(self, count: int) -> list[memoryview]:
        """Count received bytes; return the response frames that they complete."""
        self.new_bytes += count
        return self.reader.buffer_updated(count)

    def progresses(self, now: float) -> bool:
        """Return whether an unfinished response arrives at the minimum rate (R-TI-1)."""
        if now - self.window_at > WINDOW:
            self.window_at, self.window_bytes = now, 0
        self.window_bytes += self.new_bytes
        self.new_bytes = 0
        return self.window_bytes >= LEAST_BYTES

    def heard(self, now: float) -> bool:
        """Note that (enough of) a response arrived; return whether the connection was suspect."""
        self.last_received = max(self.throttled_until, now)
        self.heard_at = now
        self.record.heard(now)
        self.new_bytes, self.window_at = 0, -math.inf
        if not self.suspect:
            return False
        self.suspect = False
        return True

    def sends(self, request: InFlightRequest, now: float) -> None:
        """Note that a request was sent and is in flight."""
        if self.in_flight.head is None:
            # Silence is measured from this request on, or from the end of throttling.
            self.last_received = max(self.throttled_until, now)
        self.in_flight.note(request)
        self.record.asked()
        self.last_used = now

    def uses_nothing(self, last_used: float) -> None:
        """Restore an earlier `last_used`, so that the last request doesn't count as use."""
        self.last_used = last_used

    def silent(self, now: float) -> None:
        """Mark the connection as suspect (R-RB-2)."""
        self.suspect, self.suspected_at = True, now

    def throttle(self, until: float, now: float) -> None:
        """Send nothing, and suspect nothing, before `until`: the broker reads nothing (KIP-219)."""
        added = until - max(self.throttled_until, now)
        if added > 0.0:
            self.rest(until)
            self.last_received = max(self.last_received, until)
            self.in_flight.put_off(added)

    def rest(self, until: float) -> None:
        """Let the client send no request on this connection until the given time."""
        self.throttled_until = max(self.throttled_until, until)

    def set_writable(self, ready: bool) -> None:
        """Set whether the I/O host (thread or event loop) accepts more bytes to send."""
        self.writable = ready

    def proves(self, proved: bool) -> None:
        """Set whether a response has proved that a broker of the client's cluster answers."""
        self.proved = proved

    def asks_whose(self, asks: bool) -> None:
        """Set whether a request for the broker's cluster id is in flight."""
        self.asked_whose = asks

    def is_ours(self) -> None:
        """Note that the broker belongs to the client's cluster (R-RB-5)."""
        self.ours = True

    # Closing

    def leaves_in_use(self) -> None:
        """Note that the broker closed the connection without an error while it was in use."""
        self.left_in_use = True

    def ends_for_its_version(self, steps_down: bool) -> bool:
        """Set and return whether the peer closed it for not knowing the version of ApiVersions."""
        self.steps_down = steps_down
        return steps_down

    def lost(self, error: KafkaError) -> None:
        """Change to the final state, AUTHENTICATION_FAILED or DISCONNECTED, for this error."""
        refused = isinstance(error, AuthenticationError) and self.state not in _BEFORE_TCP
        event = ConnectionEvent.AUTHENTICATION_REFUSED if refused else ConnectionEvent.LOST
        self.move(event)

    def take_requests(self, now: float) -> list[InFlightRequest]:
        """Remove and return all requests, in order: those in flight, then those not sent yet."""
        requests = self.in_flight.clear()
        self.record.connection_ended(self.in_flight, now)
        return requests if self.session is None else requests + self.session.take_held()

    def move(self, event: ConnectionEvent) -> None:
        """Change to the next state, which the transition table defines for the event."""
        self.state = state = move(self.state, event)
        self.ready = state is ConnectionState.READY
        self.ended = state in ENDED

    def dial_suspect_at(self, suspicion: float) -> float:
        """Return when a pending attempt becomes suspect; earlier if TCP isn't established."""
        if self.state is ConnectionState.AUTHENTICATING:
            return math.inf if self.works_outside else self.last_received + suspicion
        if self.state is ConnectionState.CHECKING_API_VERSIONS or suspicion < CONNECT_SUSPICION:
            return self.dialled_at + suspicion
        return self.dialled_at + CONNECT_SUSPICION

    def suspect_at(self, suspicion: float) -> float | None:
        """Return when the connection becomes suspect if no bytes arrive (R-RB-2).

        None if no request is in flight.
        """
        if not self.ready:
            return self.dial_suspect_at(suspicion)
        head = self.in_flight.head
        if head is None:
            return None
        return max(head.sent_at + head.patience, self.last_received) + suspicion

    def look_at(self, suspicion: float, idle: float, proof: float) -> float:
        """Return when the connection must be checked next.

        The result is the earliest deadline: of setup, response, idle time or SASL session.
        """
        if not self.ready:
            due = self.setup_deadline
            return due if self.suspect else min(due, self.dial_suspect_at(suspicion))
        head = self.in_flight.head
        if head is None:
            usual = self.session is None and not self.secondary  # `idle_at`, inlined
            deadline = self.last_used + idle if usual else self.idle_at(idle)
            if not self.proved:
                deadline = min(deadline, self.ready_at + proof)
        elif self.suspect:
            deadline = self.overdue_at(suspicion)
        else:
            sent, heard, deadline = head.sent_at, self.last_received, self.in_flight.deadline
            if heard > sent and heard + suspicion > deadline:  # `overdue_at`, inlined
                deadline = heard + suspicion
            silent = max(sent + head.patience, heard) + suspicion
            if silent < deadline:
                deadline = silent
        return deadline if self.session is None else min(deadline, self.session.due_at)

    def idle_at(self, idle: float) -> float:
        """Return when to close the idle connection; never while requests wait for a new session."""
        if self.secondary:  # brokers limit the number of connections
            idle = min(idle, SECONDARY_IDLE_S)
        waited_for = self.session is not None and self.session.held
        return math.inf if waited_for else self.last_used + idle

    def may_hold(self) -> bool:
        """Return whether a late response to a request sent now wouldn't indicate a failure.

        True if a request that the broker may hold, such as JoinGroup, is unanswered or unsent.
        """
        held = () if self.session is None else self.session.held
        return self.in_flight.has_patient() or any(r.patience > 0.0 for r in held)

    @property
    def held_at(self) -> float | None:
        """Time when the oldest request counts as held by the broker; None unless it is a write."""
        head = self.in_flight.head
        if head is None or not head.held:
            return None
        return max(head.sent_at, self.last_received) + HELD

    def is_held(self, now: float) -> bool:
        """Return whether the oldest request is a write, unanswered for `HELD` seconds."""
        at = self.held_at
        return at is not None and now >= at

    def overdue_at(self, grace: float) -> float:
        """Return when the oldest request times out, at least `grace` s after the last byte."""
        head, deadline = self.in_flight.head, self.in_flight.deadline
        if head is None:
            return math.inf
        # `sends` also sets `last_received`, although no byte was received.
        heard = self.last_received > head.sent_at
        return max(deadline, self.last_received + grace) if heard else deadline
