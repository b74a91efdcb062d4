"""Simulate a broker: accept connections, answer requests in order, and inject faults.

In: connections and requests from simulated links (or real sockets, see `odradek.testing`). Out:
real protocol messages after a short processing time. Each API has a handler in `broker_handlers`,
which answers from `cluster_state`. Must not know the encoding as bytes, or the client.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from odradek.common.errors.kafka import RebootstrapRequiredError
from odradek.common.types import Address
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.registry import api_name
from odradek.simulation.brokers.broker_handlers import BY_KEY, api_versions, picture
from odradek.simulation.brokers.cluster_state import BrokerState, ClusterState, Misbehaviour
from odradek.simulation.brokers.injected_errors import OUT_OF_ORDER, Injection, find
from odradek.simulation.brokers.produce_handler import written_before
from odradek.simulation.brokers.sasl import Door
from odradek.simulation.brokers.sasl_listener import SaslListener
from odradek.simulation.brokers.zombie_leader import ZombieCluster, is_answered, unacknowledged
from odradek.simulation.world.environment import Peer, ReceivedRequest, Session, Verdict

NAMES_WHO_IS_MEANT = 5
"""First version of ApiVersions whose requests name the intended cluster and broker."""
REFUSALS = {
    **dict.fromkeys((22, 25, 82, 110, 113), "member refused as fenced or unknown"),
    **dict.fromkeys((47, 90), "producer refused as fenced"),
    27: "member told to rejoin",
}
"""Names of counters in `ClusterState.hits`, by the error code of a response."""


class BrokerSession:
    """A broker's end of one connection: it handles one request at a time, as Kafka does."""

    __slots__ = (
        "_busy",
        "_inbox",
        "_left",
        "_stranded",
        "broker",
        "door",
        "ended",
        "forgotten",
        "peer",
        "swallowed",
    )

    def __init__(self, broker: SimulatedBroker, peer: Peer) -> None:
        self.broker = broker
        self.peer = peer
        self.door: Door | None = None
        """The connection's authentication state; None if the cluster requires none."""
        self.ended = False
        self.forgotten = False
        self.swallowed = False
        """Whether the broker dropped the response to a request, because of the fault `SILENT`."""
        self._inbox: deque[ReceivedRequest] = deque()
        self._busy = False
        self._left = False
        self._stranded = False

    def strand(self, seconds: float, arrived: ReceivedRequest | None = None) -> None:
        """Delay this connection's requests until after the next connection's (late packets)."""
        if not self._stranded and not self.ended:
            self._stranded = True
            self.peer.strand(seconds, arrived)

    def receive(self, request: ReceivedRequest) -> None:
        """Queue a request for handling; faults may drop or delay it."""
        if self.forgotten:
            self.peer.close(reset=True)  # as TCP does for a connection that it doesn't know
        if self.broker.fault is Misbehaviour.SILENT:
            self.swallowed = True
        elif not self.ended:
            if self._stranded:
                self.broker.cluster.late[api_name(request.api_key)] += 1
            elif self.broker.late and (seconds := self.broker.late_by(request)):
                self.strand(seconds, request)
                return
            self._inbox.append(request)
            self.go_on()

    def admits(self, sasl: SaslListener, request: ReceivedRequest) -> bool:
        """Return whether SASL lets the request pass; if not, respond or close the connection."""
        if self.door is None:
            self.door = Door(sasl, self.broker.id, self.broker.time, self.answer, self.end)
        return self.door.admits(request)

    def go_on(self) -> None:
        """Begin to handle the next request unless another one is being handled."""
        if self._busy or self.ended or not self._inbox or self.broker.fault is Misbehaviour.PAUSED:
            return
        self._busy = True
        self.broker.time.after(self.broker.processing_time(), self._work)

    def _work(self) -> None:
        if self.ended:
            return
        # The broker was paused meanwhile; `resume` handles the request.
        if self.broker.fault is Misbehaviour.PAUSED:
            self._busy = False
            return
        request = self._inbox.popleft()
        try:
            self.broker.work(self, request)
        except Exception as error:
            self.peer.failed(request, error)

    @property
    def idle(self) -> bool:
        """Whether no received request waits or is being handled."""
        return self.ended or not (self._busy or self._inbox)

    def answer(self, request: ReceivedRequest, response: Message | None, version: int) -> None:
        """Send the response unless it is None, and handle the next request."""
        hits = self.broker.cluster.hits
        if self.ended or not self._busy:
            hits["answer lost with its connection"] += response is not None
            return
        code = getattr(response, "error_code", 0)
        if code in REFUSALS:
            hits[REFUSALS[code]] += 1
        if self.broker.fault is Misbehaviour.SILENT:
            self.swallowed = True
            hits["answer lost"] += 1
        elif response is not None:
            self.peer.respond(request, response, version)
        if self.broker.quota:  # KIP-219: the response is sent at once, the next request waits
            self.broker.time.after(self.broker.quota, self._unmuted)
        else:
            self._unmuted()

    def _unmuted(self) -> None:
        self._busy = False
        self.go_on()
        self._close_when_idle()

    def end(self, *, reset: bool = False) -> None:
        """Close the connection from the broker's side."""
        if not self.ended:
            self.closed()
            self.peer.close(reset=reset)

    def forget(self) -> None:
        """Forget the connection silently (half-open): later bytes are answered by a reset."""
        if not self.ended:
            self.forgotten = True
            self.closed()

    def left(self) -> None:
        """Note that the client closed the connection; end it when all received requests are done.

        Kafka's `Selector` also handles all received requests before it closes the channel.
        """
        self._left = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._left and not self._busy and not self._inbox and not self.ended:
            self.closed()

    def closed(self) -> None:
        """Mark this end as closed, and drop the requests that wait to be handled."""
        self.ended = True
        self._inbox.clear()
        self.broker.sessions.pop(self, None)


@dataclass(slots=True)
class LateRequests:
    """Number of the next requests of one API that arrive late, and their delay in seconds."""

    api_key: int
    seconds: float
    left: int


class SimulatedBroker(BrokerState):
    """One broker of a simulated cluster."""

    def __init__(
        self,
        cluster: ClusterState,
        node_id: int,
        address: Address,
        observers: Sequence[Observer],
    ) -> None:
        super().__init__(cluster, node_id, address)
        self.sessions: dict[BrokerSession, None] = {}
        self.processing = 0.0002
        """Average time to handle a request, in seconds."""
        self.throttle = 0.0
        """The `throttle_time_ms` of each response, in seconds."""
        self.quota = 0.0
        """Seconds for which the broker doesn't read from a connection after each response (reported
        as its throttle time)."""
        self.delays: dict[int, float] = {}
        """Delay of responses by API key, in seconds. A request takes effect at once; later requests
        on the same connection wait."""
        self.injections: list[Injection] = []
        """Errors that replace responses to the next requests."""
        self.late: list[LateRequests] = []
        """Requests that are to arrive only after the client has lost their connection."""
        self.closes_on_unknown = False
        """Whether the broker closes the connection on an unknown version of ApiVersions, as Azure
        Event Hubs does."""
        self.trickling: tuple[float, bool] | None = None
        """Seconds per byte of a response, and whether the broker reads no requests; None: no
        trickle."""
        self.cut_from: dict[str, None] = {}
        """Names of clients that can't exchange bytes with this broker."""
        self.held: list[tuple[BrokerSession, ReceivedRequest]] = []
        """Requests that a zombie can't answer: they wait until it can reach the other brokers."""
        self.requests: Counter[str] = Counter()
        """Number of handled requests by API name."""
        self._observers = observers
        self._rng = cluster.environment.rng(f"{cluster.name}/broker/{node_id}")

    def __repr__(self) -> str:
        state = self.fault.value if self.alive else "down"
        return (
            f"<SimulatedBroker {self.id} of {self.cluster.cluster_id} at {self.address}: {state}>"
        )

    # Start and end of the process

    def boot(self) -> None:
        """Start the process: it listens, but isn't registered yet."""
        self.fault = Misbehaviour.NONE
        self.alive = True
        self.cluster.environment.listen(self.address, self)

    def register(self) -> None:
        """Register at the controller, which then lists the broker in metadata and lets it lead."""
        self.registered = True

    def fence(self) -> None:
        """Lose the registration, because the controller considers the broker dead."""
        self.registered = False

    def die(self) -> None:
        """End the process and all connections."""
        self.alive = False
        self.fetch_sessions.clear()
        self.fault = Misbehaviour.NONE
        self.is_back()
        self.cluster.environment.unlisten(self.address)
        self.disconnect_all()

    def move(self) -> None:
        """Take an unused address, at which the broker listens after its next start."""
        self.address = self.cluster.environment.new_address()

    def swap_addresses(self, other: SimulatedBroker) -> None:
        """Swap addresses with another broker; both change at their next start."""
        self.address, other.address = other.address, self.address

    # Faults

    def delay(self, api_key: int, seconds: float) -> None:
        """Delay the responses of one API by `seconds`; 0 ends the delay."""
        if seconds:
            self.delays[api_key] = seconds
        else:
            self.delays.pop(api_key, None)

    def speak(
        self, versions: Mapping[int, tuple[int, int]] | None, *, closes_on_unknown: bool = False
    ) -> None:
        """Close all connections; support these API versions now (None: the cluster's versions)."""
        self.versions = versions
        self.closes_on_unknown |= closes_on_unknown
        self.disconnect_all()

    def freeze_metadata(self, on: bool, *, deleted: bool = False) -> None:
        """Freeze the content of metadata responses in its present state, or end that fault."""
        self.picture = picture(self, deleted=deleted) if on else None

    def trickle(self, seconds: float, *, both: bool = False) -> None:
        """Send one byte every `seconds` and, with `both`, read no requests; 0 ends the fault."""
        self.trickling = (seconds, both) if seconds else None
        for session in list(self.sessions):
            session.peer.trickle(seconds, both=both)

    def behave(self) -> None:
        """End throttling, trickling, delays, injected errors and frozen metadata."""
        if self.trickling is not None:
            self.trickle(0.0)
        self.throttle = self.quota = 0.0
        self.picture = None
        self.delays.clear()
        self.injections.clear()
        self.late.clear()

    def cut_off(self) -> BrokerState:
        """Answer from a copy of the present state while the broker is cut off; return the copy."""
        self.zombie = ZombieCluster(self.cluster, self).brokers[self.id]
        return self.zombie

    def is_back(self) -> None:
        """Stop being a zombie: from now on, answer from the present state of the cluster."""
        zombie, self.zombie = self.zombie, None
        held, self.held = self.held, []
        if zombie is None or not self.alive:
            return
        zombie.zombie = self  # answer from the present state again
        for batch in unacknowledged(zombie):
            batch.settle(False)
        for session, request in held:
            if not session.ended:
                self.work(session, request)

    def processing_time(self) -> float:
        """Return a random time in seconds until the next request is handled."""
        return self.processing * (0.5 + self._rng.random())

    def late_by(self, request: ReceivedRequest) -> float:
        """Return by how many seconds to delay this request's connection; 0.0 for no delay."""
        for late in self.late:
            if late.left and late.api_key == request.api_key:
                late.left -= 1
                return late.seconds
        return 0.0

    # Connections

    def accept(self, peer: Peer) -> Session | Verdict:
        """Accept, refuse or drop a connection attempt, depending on the broker's fault."""
        if not self.alive:
            return Verdict.REFUSED
        if self._cut(peer):
            return Verdict.DROPPED
        session = BrokerSession(self, peer)
        self.sessions[session] = None
        if self.trickling is not None:
            seconds, both = self.trickling
            peer.trickle(seconds, both=both)
        if self.fault is Misbehaviour.ACCEPT_RESET:
            self.time.after(0.0, lambda: session.end(reset=True))
        return session

    def _cut(self, peer: Peer) -> bool:
        return self.fault is Misbehaviour.BLACK_HOLE or peer.client in self.cut_from

    def cut(self, client: str, on: bool) -> None:
        """Drop all bytes between this broker and one client, or end that fault."""
        if on:
            self.cut_from[client] = None
        else:
            self.cut_from.pop(client, None)
        for session in [s for s in self.sessions if s.peer.client == client]:
            session.peer.hold(self._cut(session.peer))

    def set_fault(self, fault: Misbehaviour) -> None:
        """Begin a fault, or end it with `Misbehaviour.NONE`."""
        before, self.fault = self.fault, fault
        if self.reachable:
            self.is_back()
        for session in list(self.sessions):
            if Misbehaviour.BLACK_HOLE in (before, fault) and before is not fault:
                session.peer.hold(self._cut(session.peer))
            if fault is Misbehaviour.ACCEPT_RESET:
                session.end(reset=True)
            elif fault is Misbehaviour.READY_CLOSE:
                session.end()
            elif before is Misbehaviour.PAUSED:
                session.go_on()
            elif before is Misbehaviour.SILENT and session.swallowed:
                session.end(reset=True)  # clients need all responses in order

    def disconnect_all(self, *, reset: bool = False) -> None:
        """Close every connection."""
        for session in list(self.sessions):
            session.end(reset=reset)

    # Requests

    def work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Handle a request: check its version, inject errors, and call the API's handler."""
        self.requests[api_name(request.api_key)] += 1
        sasl = self.cluster.sasl
        if sasl is not None and not session.admits(sasl, request):
            return
        low, high = self.spoken.get(request.api_key, (0, -1))
        if request.api_key == ApiVersionsRequest.API_KEY:
            self._api_versions(session, request, known=low <= request.version <= high)
            return
        if request.body is None or not low <= request.version <= high:
            session.end()  # as Kafka does: the request's format is unknown
            return
        for observe in self._observers:
            observe(self, session.peer.client, request)
        reply = self._reply(session, request)
        if self.injections:
            injected = find(self.injections, request.body)
            if injected is not None and not self._would_lie(injected, request):
                self.cluster.hits["error answered" + " after it was done" * injected.done] += 1
                reply = injected.answering(request.body, reply)
                if not injected.does(request.body):
                    reply(None)
                    return
        if self.zombie is not None and not is_answered(request.body):
            self.held.append((session, request))
            return
        self.cluster.hits[f"{api_name(request.api_key)} answered by a zombie"] += (
            self.zombie is not None
        )
        response = BY_KEY[request.api_key](self.view, request.body, request.version, reply)
        if response is not None:
            reply(response)

    def _would_lie(self, injected: Injection, request: ReceivedRequest) -> bool:
        """Return whether an out-of-order error would be false, as the log contains the batch."""
        body = request.body
        return (
            injected.code in OUT_OF_ORDER
            and isinstance(body, ProduceRequest)
            and written_before(self, body, request.version)
        )

    def _reply(
        self, session: BrokerSession, request: ReceivedRequest
    ) -> Callable[[Message | None], None]:
        unanswered = isinstance(request.body, ProduceRequest) and not request.body.acks

        def reply(response: Message | None) -> None:
            if unanswered and response is not None:
                # the request was refused; as in Kafka, acks=0 leaves closing as the only response
                session.end()
                return
            quiet = self.quota or self.throttle
            if quiet and response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = round(quiet * 1000)
            if self.versions is not None and response is not None:
                # Encode and decode the response, to drop fields that the request's version doesn't
                # have.
                data = b"".join(response.encode(request.version))
                response = type(response).decode(memoryview(data), request.version, 0)
            late = self.delays.get(request.api_key, 0.0)
            if late:
                self.cluster.hits["answer delayed by slow_api"] += 1
                self.time.after(late, lambda: session.answer(request, response, request.version))
            else:
                session.answer(request, response, request.version)

        return reply

    def misled(self, asked: ApiVersionsRequest) -> bool:
        """Return whether the request names another cluster or broker as its receiver."""
        other = asked.cluster_id is not None and asked.cluster_id != self.cluster.cluster_id
        return other or (asked.node_id >= 0 and asked.node_id != self.id)

    def _api_versions(
        self, session: BrokerSession, request: ReceivedRequest, *, known: bool
    ) -> None:
        asked = cast("ApiVersionsRequest | None", request.body)
        # KIP-1242: objects decoded from older versions have the fields, too, with default values.
        told = known and request.version >= NAMES_WHO_IS_MEANT
        if told and asked is not None and self.misled(asked):
            response, version = ApiVersionsResponse(RebootstrapRequiredError.code), request.version
        elif known:
            response, version = api_versions(self), request.version
        elif self.closes_on_unknown:
            session.end()
            return
        else:  # KIP-511: answer in version 0, with the supported versions of ApiVersions
            low, high = self.spoken[ApiVersionsRequest.API_KEY]
            response, version = api_versions(self, only=(low, high)), 0

        def answer(response: ApiVersionsResponse = response) -> None:
            session.answer(request, response, version)
            if self.fault is Misbehaviour.READY_CLOSE:
                session.end()

        if late := self.delays.get(ApiVersionsRequest.API_KEY, 0.0):
            self.time.after(late, answer)
        else:
            answer()


Observer = Callable[[SimulatedBroker, str, ReceivedRequest], None]
"""Called with the broker, the client's name and the request."""
