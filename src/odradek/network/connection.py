"""Represent one connection in the engine: a state, a reader, its requests in flight.

In: calls of the network client. Out: whether it can be used, whether it is suspect. Must not:
decide anything about other connections or connection attempts.
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
"""Purposes of connections in addition to the first one.

A long fetch must never delay a heartbeat, a held write a metadata request, a held JoinGroup a
commit, or a held fetch another request to its broker. METADATA, BESIDE and ASIDE are for the last
three cases, and are only opened then. A PROBE only shows whether an address still answers (R-RB-9).
A PUSH takes metrics, whose receiver may be slow (KIP-714).
Backoff is per address anyway.
"""
SECONDARY = frozenset((ASIDE, PUSH))
"""Purposes of connections from which nothing is concluded (see `secondary_connections`)."""
ASIDE_IDLE = 10.0
"""Seconds for which an unused secondary connection is kept."""
CONNECT_SUSPICION = 1.5
"""Seconds after which an attempt without TCP is suspect.

A lost SYN is retransmitted after one second, and the kernel accepts connections even for a stopped
process.
"""
_BEFORE_TCP = frozenset((ConnectionState.RESOLVING, ConnectionState.CONNECTING))
LEAST_BYTES = 1024
WINDOW = 2.0
"""Bytes of an unfinished response that must arrive within this number of seconds (R-TI-1).

Fewer are silence: a broker that sends a byte a second would otherwise delay its callers for ever.
A full packet is more, so a slow line is read for as long as its packets come.
"""
HELD = 0.25
"""Seconds after which an unanswered write counts as held by the broker."""


class Connection:
    """One connection, from the attempt to its end. A new attempt creates a new object."""

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
        """State of the address, which outlives this connection."""
        self.broker_id: int | None = None
        """Id of the broker at this address, if the request named it and the broker confirmed it
        (KIP-1242)."""
        self.state: ConnectionState = ConnectionState.RESOLVING
        self.ready = False
        """Whether ApiVersions is answered, so that requests may be sent."""
        self.ended = False
        """It won't be used again."""
        self.reader = FrameReader()
        self.in_flight = InFlightRequests()
        self.versions: dict[int, tuple[int, int]] = {}
        self.ip: str | None = None
        self.setup_deadline = dialled_at
        self.ready_at = math.inf
        self.last_used = dialled_at
        self.last_received = dialled_at
        self.heard_at = -math.inf
        """Time of the last response, or of enough bytes of one (`LEAST_BYTES`)."""
        self.left_in_use = False
        """Whether the broker closed it cleanly right after a request, which means that it shuts
        down."""
        self.throttled_until = 0.0
        self.proved = False
        self.new_bytes = 0
        """Number of bytes that came since the last step."""
        self.window_at, self.window_bytes = -math.inf, 0
        """Begin of the present `WINDOW`, and the bytes that came in it."""
        self.ours = False
        """Whether no response contradicted that it belongs to the client's cluster (R-RB-5)."""
        self.asked_whose = False
        """Whether the broker was asked for its cluster id and hasn't answered."""
        self.for_metadata = False
        self.beside = False
        """Whether it was opened while another attempt is silent; it has a shorter timeout."""
        self.suspect = False
        """Whether nothing, or too little, was received for the suspicion time (R-RB-2, R-TI-1).

        A request is unanswered, or the attempt has been pending, for this time.
        """
        self.suspected_at = math.inf
        """Time at which it became suspect last."""
        self.writable = True
        self.session: SaslSession | None = None
        """The SASL session, if the broker requires a new authentication after some time
        (KIP-368)."""
        self.steps_down = False
        """Whether it was closed only because the broker doesn't know the version of ApiVersions, as
        far as is known, which isn't a failure of the address."""
        self.asks = ""
        """The question that it answers in addition to its purpose (see `probe`)."""
        self.works_outside = False
        """Whether its authentication waits for a function on this side: the broker isn't silent."""

    def version_for(self, request: type[AnyRequest]) -> int:
        """Return the highest version of an API that both sides support."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION)
        if version < max(low, request.MIN_VERSION):
            raise UnsupportedVersionError(
                f"{request.API_NAME}: broker {self.address} {self._supports(request)}, "
                f"this client supports {request.MIN_VERSION} to {request.MAX_VERSION}"
            )
        return version

    def check_values(self, body: AnyRequest, version: int) -> None:
        """Raise if the broker would take a value of the request for another one."""
        for value in VALUES.get(body.API_KEY, ()):
            if version < value.version and value.used(body):
                raise UnsupportedVersionError(self.lacks(type(body), value))

    def lacks(self, request: type[AnyRequest], value: VersionedValue) -> str:
        """Return why the broker doesn't understand a value, and what to do."""
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
        """It does so now, for the first time or once more."""
        again = self.session is not None and self.session.gated
        return again or self.state is ConnectionState.AUTHENTICATING

    # On its way to READY

    def beside_of(self, first: Connection, now: float) -> None:
        """Set the timeout of an attempt beside a silent one: the age of that one."""
        self.beside = True
        self.hurry(2 * now - first.dialled_at)

    def hurry(self, deadline: float) -> None:
        """Its setup has less time than is usual."""
        self.setup_deadline = min(self.setup_deadline, deadline)

    def opens_to(self, ip: str) -> None:
        """Set the IP that it is opened to."""
        self.ip = ip
        self.record.opens_to(ip)
        self.move(ConnectionEvent.RESOLVED)

    def connected(self, now: float) -> None:
        """TCP (and TLS) is up: if it was hurried for want of TCP, the rest has its whole time."""
        self.last_received = now
        if not (self.beside or self.asks):
            allowed = self.dialled_at + self.record.setup_timeout
            self.setup_deadline = max(self.setup_deadline, allowed)
        self.move(ConnectionEvent.CONNECTED)

    def speaks(self, versions: dict[int, tuple[int, int]], broker_id: int | None) -> None:
        """Set the broker's versions, and its id if it confirmed one."""
        self.versions, self.broker_id = versions, broker_id

    def outside(self, works: bool, now: float) -> None:
        """Note that a function for its authentication has started, or has ended."""
        self.works_outside = works
        if not works:
            self.last_received = now  # silence counts from here on

    def became_ready(
        self, now: float, event: ConnectionEvent, limit: int, buffers: FrameBuffers
    ) -> None:
        """Note that requests may be sent; responses may be as large as `limit`."""
        self.move(event)
        self.ready_at = self.last_received = self.heard_at = now
        self.suspect = False
        self.reader.allow(limit, buffers)

    def has_session(self, session: SaslSession) -> None:
        """Set the session, whose end requires another authentication (KIP-368)."""
        self.session = session

    def finds_out(self, asks: str, left: str) -> None:
        """Take over its address's question (see `probe`), of which `left` remains."""
        self.asks = asks
        self.record.suspect_of(left)

    # In use

    def take_bytes(self, count: int) -> list[memoryview]:
        """So many bytes were received; the frames that they complete."""
        self.new_bytes += count
        return self.reader.buffer_updated(count)

    def progresses(self, now: float) -> bool:
        """Return whether an unfinished response comes at the least rate (R-TI-1)."""
        if now - self.window_at > WINDOW:
            self.window_at, self.window_bytes = now, 0
        self.window_bytes += self.new_bytes
        self.new_bytes = 0
        return self.window_bytes >= LEAST_BYTES

    def heard(self, now: float) -> bool:
        """Note a response, or enough of one; return whether that ended a silence."""
        self.last_received = max(self.throttled_until, now)
        self.heard_at = now
        self.record.heard(now)
        self.new_bytes, self.window_at = 0, -math.inf
        if not self.suspect:
            return False
        self.suspect = False
        return True

    def sends(self, request: InFlightRequest, now: float) -> None:
        """Note that a request is sent: it is in flight now."""
        if self.in_flight.head is None:
            # Silence counts from the question on, or from the end of a throttle.
            self.last_received = max(self.throttled_until, now)
        self.in_flight.note(request)
        self.record.asked()
        self.last_used = now

    def uses_nothing(self, last_used: float) -> None:
        """Ignore the last request for the idle time."""
        self.last_used = last_used

    def silent(self, now: float) -> None:
        """R-RB-2: it is suspect from now on."""
        self.suspect, self.suspected_at = True, now

    def throttle(self, until: float, now: float) -> None:
        """KIP-219: the broker reads nothing until then, so that its silence means nothing."""
        added = until - max(self.throttled_until, now)
        if added > 0.0:
            self.rest(until)
            self.last_received = max(self.last_received, until)
            self.in_flight.put_off(added)

    def rest(self, until: float) -> None:
        """Send nothing until then."""
        self.throttled_until = max(self.throttled_until, until)

    def set_writable(self, ready: bool) -> None:
        """Set whether the host accepts more bytes for it."""
        self.writable = ready

    def proves(self, proved: bool) -> None:
        """Note that it has proved itself, or that the proof was another cluster's answer."""
        self.proved = proved

    def asks_whose(self, asks: bool) -> None:
        """Set whether its broker was asked for its cluster id and hasn't answered."""
        self.asked_whose = asks

    def is_ours(self) -> None:
        """R-RB-5: its cluster is ours, for as long as it lasts."""
        self.ours = True

    # Ends

    def leaves_in_use(self) -> None:
        """Note that the broker closes it properly although it has just been used."""
        self.left_in_use = True

    def ends_for_its_version(self, steps_down: bool) -> bool:
        """Note and return whether only the version of ApiVersions led to its end."""
        self.steps_down = steps_down
        return steps_down

    def lost(self, error: KafkaError) -> None:
        """Go to the state in which it ended."""
        refused = isinstance(error, AuthenticationError) and self.state not in _BEFORE_TCP
        event = ConnectionEvent.AUTHENTICATION_REFUSED if refused else ConnectionEvent.LOST
        self.move(event)

    def take_requests(self, now: float) -> list[InFlightRequest]:
        """Take out all that wait for an answer or to be sent, in their order: it ends."""
        requests = self.in_flight.clear()
        self.record.connection_ended(self.in_flight, now)
        return requests if self.session is None else requests + self.session.take_held()

    def move(self, event: ConnectionEvent) -> None:
        """Change to the state in the table."""
        self.state = state = move(self.state, event)
        self.ready = state is ConnectionState.READY
        self.ended = state in ENDED

    def dial_suspect_at(self, suspicion: float) -> float:
        """Return when a pending attempt will be suspect: sooner without a TCP connection."""
        if self.state is ConnectionState.AUTHENTICATING:
            return math.inf if self.works_outside else self.last_received + suspicion
        if self.state is ConnectionState.CHECKING_API_VERSIONS or suspicion < CONNECT_SUSPICION:
            return self.dialled_at + suspicion
        return self.dialled_at + CONNECT_SUSPICION

    def suspect_at(self, suspicion: float) -> float | None:
        """Return when it becomes suspect without bytes (R-RB-2); None with nothing in flight."""
        if not self.ready:
            return self.dial_suspect_at(suspicion)
        head = self.in_flight.head
        if head is None:
            return None
        return max(head.sent_at + head.patience, self.last_received) + suspicion

    def look_at(self, suspicion: float, idle: float, proof: float) -> float:
        """When something is due on it: its setup, an answer, a proof, an end, a new session."""
        if not self.ready:
            due = self.setup_deadline
            return due if self.suspect else min(due, self.dial_suspect_at(suspicion))
        head = self.in_flight.head
        if head is None:
            usual = self.session is None and not self.secondary  # `idle_at`, written out
            deadline = self.last_used + idle if usual else self.idle_at(idle)
            if not self.proved:
                deadline = min(deadline, self.ready_at + proof)
        elif self.suspect:
            deadline = self.overdue_at(suspicion)
        else:
            sent, heard, deadline = head.sent_at, self.last_received, self.in_flight.deadline
            if heard > sent and heard + suspicion > deadline:  # `overdue_at`, written out
                deadline = heard + suspicion
            silent = max(sent + head.patience, heard) + suspicion
            if silent < deadline:
                deadline = silent
        return deadline if self.session is None else min(deadline, self.session.due_at)

    def idle_at(self, idle: float) -> float:
        """When it ends for want of use; never while requests wait in its session."""
        if self.secondary:  # a place at the broker that others may need more
            idle = min(idle, ASIDE_IDLE)
        waited_for = self.session is not None and self.session.held
        return math.inf if waited_for else self.last_used + idle

    def may_hold(self) -> bool:
        """Return whether a request that is sent now may rightly be answered late.

        It may if a JoinGroup is unanswered, or waits itself for another authentication.
        """
        held = () if self.session is None else self.session.held
        return self.in_flight.has_patient() or any(r.patience > 0.0 for r in held)

    @property
    def held_at(self) -> float | None:
        """Time from which its first request counts as held, so that later ones may be late."""
        head = self.in_flight.head
        if head is None or not head.held:
            return None
        return max(head.sent_at, self.last_received) + HELD

    def is_held(self, now: float) -> bool:
        """Return whether a write that the broker may rightly hold is unanswered for a while."""
        at = self.held_at
        return at is not None and now >= at

    def overdue_at(self, grace: float) -> float:
        """When the oldest request counts as lost; bytes that arrive put it off by `grace`."""
        head, deadline = self.in_flight.head, self.in_flight.deadline
        if head is None:
            return math.inf
        # The first question of a quiet connection sets `last_received` as well: that is no byte.
        heard = self.last_received > head.sent_at
        return max(deadline, self.last_received + grace) if heard else deadline
