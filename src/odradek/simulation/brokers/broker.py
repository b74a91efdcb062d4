"""A simulated broker: accepts connections, answers requests in order, and fails on demand.

In: dials and requests from links (or from real sockets, see `odradek.testing`). Out: real protocol
messages in the version that was asked, after a small processing time. What each API does stands in
`broker_handlers`; what the cluster knows in `cluster`. Must not: know bytes, or who the client is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, cast

from odradek.common.kafka_errors import RebootstrapRequiredError, UnsupportedVersionError
from odradek.common.types import Address
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.registry import api_name
from odradek.simulation.brokers.broker_handlers import BY_KEY, ClusterPicture, api_versions
from odradek.simulation.brokers.fetch_sessions import FetchSessions
from odradek.simulation.brokers.injected_errors import OUT_OF_ORDER, Injection, find
from odradek.simulation.brokers.produce_handler import written_before
from odradek.simulation.world.environment import Peer, ReceivedRequest, Session, Verdict

if TYPE_CHECKING:
    from odradek.simulation.brokers.cluster import SimulatedCluster
    from odradek.simulation.brokers.sasl import Door

NAMES_WHO_IS_MEANT = 5
"""From this version on ApiVersions names the cluster and the broker that are meant."""


class Misbehaviour(Enum):
    """How a broker that runs misbehaves."""

    NONE = "none"
    PAUSED = "paused"
    """Stopped by a signal: the kernel accepts dials, nothing is answered until it goes on."""
    BLACK_HOLE = "black_hole"
    """Its network is gone: dials and bytes vanish."""
    ACCEPT_RESET = "accept_reset"
    """Accepts each dial and resets it at once."""
    READY_CLOSE = "ready_close"
    """Answers ApiVersions, then closes."""
    SILENT = "silent"
    """Accepts dials and reads requests, but never answers."""


class BrokerSession:
    """A broker's end of one connection: one request at a time, the others wait (as in Kafka)."""

    __slots__ = (
        "_busy",
        "_inbox",
        "_left",
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
        """What is known of its authentication, where the cluster wants one."""
        self.ended = False
        self.forgotten = False
        self.swallowed = False
        """Something wasn't answered."""
        self._inbox: deque[ReceivedRequest] = deque()
        self._busy = False
        self._left = False

    def receive(self, request: ReceivedRequest) -> None:
        """Queue a request."""
        if self.forgotten:
            self.peer.close(reset=True)  # as a host does with bytes for a connection it lost
        if self.broker.fault is Misbehaviour.SILENT:
            self.swallowed = True
        elif not self.ended:
            self._inbox.append(request)
            self.go_on()

    def go_on(self) -> None:
        """Begin with the next request unless one is being worked on."""
        if self._busy or self.ended or not self._inbox or self.broker.fault is Misbehaviour.PAUSED:
            return
        self._busy = True
        self.broker.time.after(self.broker.processing_time(), self._work)

    def _work(self) -> None:
        if self.ended:
            return
        if self.broker.fault is Misbehaviour.PAUSED:  # stopped meanwhile; `resume` comes back to it
            self._busy = False
            return
        request = self._inbox.popleft()
        try:
            self.broker.work(self, request)
        except Exception as error:
            self.peer.failed(request, error)

    @property
    def idle(self) -> bool:
        """Nothing that was received waits or is being worked on."""
        return self.ended or not (self._busy or self._inbox)

    def answer(self, request: ReceivedRequest, response: Message | None, version: int) -> None:
        """Send the answer (None: the request wants none) and go on with the next request."""
        if self.ended or not self._busy:
            return
        if self.broker.fault is Misbehaviour.SILENT:
            self.swallowed = True
        elif response is not None:
            self.peer.respond(request, response, version)
        if self.broker.quota:  # KIP-219: the answer comes at once, the next request waits
            self.broker.time.after(self.broker.quota, self._unmuted)
        else:
            self._unmuted()

    def _unmuted(self) -> None:
        self._busy = False
        self.go_on()
        self._close_when_idle()

    def end(self, *, reset: bool = False) -> None:
        """The broker ends the connection."""
        if not self.ended:
            self.closed()
            self.peer.close(reset=reset)

    def forget(self) -> None:
        """Half-open: this end is gone without a word; who sends to it is answered by a reset."""
        if not self.ended:
            self.forgotten = True
            self.closed()

    def left(self) -> None:
        """The client has closed it: the requests that had arrived are still carried out (as by
        Kafka's `Selector`, which closes a channel once what was received is handled).
        """
        self._left = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._left and not self._busy and not self._inbox and not self.ended:
            self.closed()

    def closed(self) -> None:
        """This end is gone, and with it what it had received."""
        self.ended = True
        self._inbox.clear()
        self.broker.sessions.pop(self, None)


class SimulatedBroker:
    """One broker of a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster, node_id: int, address: Address) -> None:
        self.cluster = cluster
        self.id = node_id
        self.address = address
        self.time = cluster.environment.time
        self.alive = False
        self.registered = False
        """The controller believes it to be alive: it stands in metadata answers and may lead."""
        self.fault = Misbehaviour.NONE
        self.sessions: dict[BrokerSession, None] = {}
        self.fetch_sessions = FetchSessions()
        self.rack: str | None = None
        """With one, it serves fetches as a follower, and sends clients to followers (KIP-392)."""
        self.behind = 0
        """How many offsets it lacks, as a follower, at the end of each log."""
        self.processing = 0.0002
        """Seconds of work on a request, on average."""
        self.throttle = 0.0
        """Seconds of `throttle_time_ms` in every answer."""
        self.quota = 0.0
        """Seconds for which a connection isn't read after each answer, which says so."""
        self.handshake_delay = 0.0
        """Seconds by which ApiVersions is late."""
        self.delays: dict[int, float] = {}
        """Seconds by which answers are late, by the API's key: what was asked is done at once, and
        whatever came behind it on the same connection waits."""
        self.injections: list[Injection] = []
        """Errors that are to be answered."""
        self.versions: Mapping[int, tuple[int, int]] | None = None
        """What it speaks, where that isn't what its cluster does (a rolling upgrade)."""
        self.closes_on_unknown = False
        """It closes on a version of ApiVersions that it doesn't know, as Azure Event Hubs does."""
        self.cut_from: dict[str, None] = {}
        """Clients between which and this broker nothing travels."""
        self.picture: ClusterPicture | None = None
        """What metadata answers show instead of the present (`stale_metadata`)."""
        self.requests: Counter[str] = Counter()
        """Requests worked on, by the API's name."""
        self._rng = cluster.environment.rng(f"{cluster.name}/broker/{node_id}")

    def __repr__(self) -> str:
        state = self.fault.value if self.alive else "down"
        return (
            f"<SimulatedBroker {self.id} of {self.cluster.cluster_id} at {self.address}: {state}>"
        )

    def behave(self) -> None:
        """Be quick, frank and up to date again."""
        self.throttle = self.handshake_delay = self.quota = 0.0
        self.picture = None
        self.delays.clear()
        self.injections.clear()

    @property
    def spoken(self) -> Mapping[int, tuple[int, int]]:
        """The APIs that it knows, with their versions."""
        return self.cluster.versions if self.versions is None else self.versions

    @property
    def reachable(self) -> bool:
        """Other brokers can talk to it."""
        return self.alive and self.fault not in (Misbehaviour.PAUSED, Misbehaviour.BLACK_HOLE)

    @property
    def paused(self) -> bool:
        """Its process is stopped; it goes on as if nothing had been."""
        return self.alive and self.fault is Misbehaviour.PAUSED

    def processing_time(self) -> float:
        """Seconds until the next request is worked on, drawn anew."""
        return self.processing * (0.5 + self._rng.random())

    # Connections

    def accept(self, peer: Peer) -> Session | Verdict:
        """A dial arrives."""
        if not self.alive:
            return Verdict.REFUSED
        if self._cut(peer):
            return Verdict.DROPPED
        session = BrokerSession(self, peer)
        self.sessions[session] = None
        if self.fault is Misbehaviour.ACCEPT_RESET:
            self.time.after(0.0, lambda: session.end(reset=True))
        return session

    def _cut(self, peer: Peer) -> bool:
        return self.fault is Misbehaviour.BLACK_HOLE or peer.client in self.cut_from

    def cut(self, client: str, on: bool) -> None:
        """Let nothing travel between this broker and one client, or let it travel again."""
        if on:
            self.cut_from[client] = None
        else:
            self.cut_from.pop(client, None)
        for session in [s for s in self.sessions if s.peer.client == client]:
            session.peer.hold(self._cut(session.peer))

    def set_fault(self, fault: Misbehaviour) -> None:
        """Begin or end (`Misbehaviour.NONE`) a misbehaviour."""
        before, self.fault = self.fault, fault
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
                session.end(reset=True)  # answers in order are all that clients can make sense of

    def disconnect_all(self, *, reset: bool = False) -> None:
        """End every connection."""
        for session in list(self.sessions):
            session.end(reset=reset)

    # Requests

    def work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Do what a request asks."""
        self.requests[api_name(request.api_key)] += 1
        sasl = self.cluster.sasl
        if sasl is not None and not sasl.admits(self, session, request):
            return
        low, high = self.spoken.get(request.api_key, (0, -1))
        if request.api_key == ApiVersionsRequest.API_KEY:
            self._api_versions(session, request, known=low <= request.version <= high)
            return
        if request.body is None or not low <= request.version <= high:
            session.end()  # as Kafka does: it can't know the layout
            return
        for observe in self.cluster.observers:
            observe(self, session.peer.client, request)
        reply = self._reply(session, request)
        if self.injections:
            injected = find(self.injections, request.body)
            if injected is not None and not self._would_lie(injected, request):
                reply = injected.answering(request.body, reply)
                if not injected.does(request.body):
                    reply(None)
                    return
        response = BY_KEY[request.api_key](self, request.body, request.version, reply)
        if response is not None:
            reply(response)

    def _would_lie(self, injected: Injection, request: ReceivedRequest) -> bool:
        """A leader that has a batch says of none that its sequence is out of order."""
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
                session.end()  # something was refused: as in Kafka, that is all it says
                return
            if self.throttle and response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = round(self.throttle * 1000)
            if self.quota and response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = round(self.quota * 1000)
            if self.versions is not None and response is not None:
                # Objects carry fields that an older version doesn't have.
                data = b"".join(response.encode(request.version))
                response = type(response).decode(memoryview(data), request.version, 0)
            late = self.delays.get(request.api_key, 0.0)
            if late:
                self.time.after(late, lambda: session.answer(request, response, request.version))
            else:
                session.answer(request, response, request.version)

        return reply

    def misled(self, asked: ApiVersionsRequest) -> bool:
        """Whether the client meant another cluster, or another broker of this one."""
        other = asked.cluster_id is not None and asked.cluster_id != self.cluster.cluster_id
        return other or (asked.node_id >= 0 and asked.node_id != self.id)

    def _api_versions(
        self, session: BrokerSession, request: ReceivedRequest, *, known: bool
    ) -> None:
        asked = cast("ApiVersionsRequest | None", request.body)
        # KIP-1242: objects carry the fields of newer versions.
        told = known and request.version >= NAMES_WHO_IS_MEANT
        if told and asked is not None and self.misled(asked):
            response, version = ApiVersionsResponse(RebootstrapRequiredError.code), request.version
        elif known:
            response, version = api_versions(self), request.version
        elif self.closes_on_unknown:
            session.end()
            return
        else:  # KIP-511: in the oldest layout, with the versions that are known
            low, high = self.spoken[ApiVersionsRequest.API_KEY]
            response, version = api_versions(self, only=(low, high)), 0
            response.error_code = UnsupportedVersionError.code

        def answer(response: ApiVersionsResponse = response) -> None:
            session.answer(request, response, version)
            if self.fault is Misbehaviour.READY_CLOSE:
                session.end()

        if self.handshake_delay:
            self.time.after(self.handshake_delay, answer)
        else:
            answer()
