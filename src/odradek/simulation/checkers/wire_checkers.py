"""Check invariants on the wire, between one client and its brokers.

In: connection attempts, requests and responses as simulated connections see them, and the client's
rebootstraps. Out: violations. Must not ask the client for the state of its connections.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from odradek.clients.consumer.group.classic_join import GRACE
from odradek.common.config import Config
from odradek.common.events import Event
from odradek.common.types import Address
from odradek.network.connection import LEAST_BYTES, SECONDARY, WINDOW
from odradek.network.effects import OutgoingRequest
from odradek.network.network_client import LONGEST_THROTTLE, SUSPECT_AFTER_S
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.simulation.checkers.invariants import SLACK, Violation
from odradek.simulation.world.virtual_time import VirtualTime

FRESH = 0.2
"""Seconds for which a response proves that a connection works. The time is shorter than `HELD`, so
that the checker never contradicts the client."""
HELD = 0.25
"""Seconds after which a write counts as blocked by its broker."""
TOLERANCE = 0.1
"""Seconds by which a client's decision may be later or earlier than the checker expects."""
BY_TIMER = ("REBOOTSTRAP_REQUIRED", "no metadata for")
"""Reasons of rebootstraps that don't depend on failures of brokers."""
SETUP = frozenset(
    kind.API_KEY for kind in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
)
"""APIs that set up a connection: even brokers that fail otherwise or refuse the client answer
them."""
REBALANCES = frozenset((JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY))
PIPELINED = SETUP | {ProduceRequest.API_KEY, FetchRequest.API_KEY}
"""APIs whose requests a client may repeat before the previous response has arrived."""
QUESTIONS = {"Metadata": 8, "FindCoordinator": 4, "Heartbeat": 40, "ConsumerGroupHeartbeat": 40}
"""Half of the allowed number of these requests with slow brokers (`patient`); 2 for other APIs,
one for each of two leaders. A transactional client with a group has two coordinators, and the first
response for each says that the coordinator's topic is being created."""
SPARE_REQUESTS = 16
"""Maximum number of requests in flight on one connection, in addition to one for each caller."""


@dataclass(slots=True)
class _Open:
    """A request whose response hasn't arrived."""

    key: int
    sent: float
    deadline: float
    """Time when the client should give up if it receives no bytes. A request during setup also ends
    with the setup."""


@dataclass(slots=True)
class _Line:
    address: Address
    connected: bool = False
    over: bool = False
    """Whether the client has closed the connection; requests sent before may still arrive."""
    open: dict[int, _Open] = field(default_factory=dict)
    """Requests without a response, by correlation id."""
    answers: int = 0
    """Number of responses, without those during the connection's setup."""
    last_answer: float = -math.inf
    was_held: float = -math.inf
    """Time of the last response to a write that the broker had blocked."""
    throttled: float = -math.inf
    """End of the throttle that the broker has announced."""
    heard: float = -math.inf
    """Time of the last response, of enough bytes of a response, or of the end of a throttle."""
    progressed: float = -math.inf
    """Time when enough bytes of an unfinished response had arrived."""
    window: tuple[float, int] = (-math.inf, 0)
    """Start of a time window, and how many bytes of an unfinished response arrived in it."""

    @property
    def first(self) -> _Open | None:
        """The oldest request without a response, which the broker answers next."""
        return next(iter(self.open.values()), None)


class Wire:
    """The traffic between one client and its brokers; the `Watcher` of the client's connections."""

    def __init__(
        self, time: VirtualTime, config: Config, calls: Callable[[], int] = lambda: 0
    ) -> None:
        """Set the clock and the limits; `calls` returns the number of open calls."""
        self.violations: list[Violation] = []
        self.patient = False
        """Whether brokers are only slow at present, not failing (R-RB-9)."""
        self.slow: Collection[str] = ()
        """The APIs whose responses take seconds while `patient` is set."""
        self.asked: Counter[str] = Counter()
        """Number of requests by API while `patient` is set."""
        self.dials = 0
        self.requests = 0
        self._time = time
        self._calls = calls
        self._lines: dict[int, _Line] = {}
        self._asides: set[int] = set()
        """Numbers of secondary connections, whose responses don't count as signs of a working
        broker."""
        self._timeout: float = config["request.timeout.ms"]
        self._rebalance = self._timeout
        """Seconds that JoinGroup and SyncGroup may take."""
        self._stopped_until = -math.inf
        produce = "max.in.flight.requests.per.connection"
        self._limits = {FetchRequest.API_KEY: 1}
        if config.client == "producer":
            self._limits[ProduceRequest.API_KEY] = config[produce]
        if config.client == "consumer":
            self._rebalance = max(self._timeout, config["max.poll.interval.ms"] + GRACE)

    def expect_slow(self, apis: Collection[str]) -> None:
        """Set the APIs whose responses take seconds while `patient` is set."""
        self.slow = apis

    def end_patience(self) -> None:
        """Expect prompt responses again: brokers aren't slow any more."""
        self.patient = False

    def excuse(self, until: float) -> None:
        """Allow late responses until this time, because the client's process is stopped."""
        self._stopped_until = until

    # Callbacks of the client's I/O host

    def opened(self, number: int, address: Address, ip: str) -> None:
        """Note that the client attempts to connect."""
        self.dials += 1
        self._lines[number] = _Line(address)

    def connected(self, number: int) -> None:
        """Note that the connection was accepted."""
        if number in self._lines:
            self._lines[number].connected = True

    def sent(self, number: int, request: OutgoingRequest) -> None:
        """Check the limit of requests in flight, and that correlation ids are unique."""
        line = self._lines.get(number)
        if line is None:
            self._found("a request on a connection that doesn't exist")
            return
        key = request.body.API_KEY
        self.requests += 1
        if request.correlation_id in line.open:
            self._found(f"correlation id {request.correlation_id} is in flight twice")
        self._check_time(line)
        now = self._time.now
        waits = request.body.max_wait_ms / 1000.0 if isinstance(request.body, FetchRequest) else 0.0
        timeout = self._rebalance if key in REBALANCES else self._timeout
        deadline = now + timeout + waits
        if not line.open:
            line.heard = max(line.throttled, now)
        line.open[request.correlation_id] = _Open(key, now, deadline)
        if self.patient and request.body.API_NAME in self.slow and key not in PIPELINED:
            self._asked(request)
        limit = self._limits.get(key)
        if limit is not None and sum(o.key == key for o in line.open.values()) > limit:
            name = request.body.API_NAME
            self._found(f"more than {limit} {name} requests in flight to {line.address}")
        if len(line.open) > SPARE_REQUESTS + self._calls():
            self._found(f"{len(line.open)} requests in flight to {line.address}")
        if not line.connected:
            self._found(f"a request to {line.address}, which isn't connected")

    def _asked(self, request: OutgoingRequest) -> None:
        """Check R-RB-9: slow brokers don't cause a client to repeat its requests."""
        name = request.body.API_NAME
        self.asked[name] += 1
        limit = QUESTIONS.get(name, 2) * 2
        if self.asked[name] > limit:
            self._found(f"{name} is asked more than {limit} times of brokers that are only slow")

    def came(self, number: int, size: int) -> None:
        """Note that bytes of an unfinished response arrive."""
        line, now = self._lines.get(number), self._time.now
        if line is None:
            return
        begin, count = line.window
        line.window = (begin, count + size) if now - begin <= WINDOW else (now, size)
        if line.window[1] >= LEAST_BYTES:
            line.heard, line.window = max(line.throttled, now), (-math.inf, 0)
            line.progressed = now

    def answered(self, number: int, correlation_id: int, throttle: float = 0.0) -> None:
        """Note that a response arrives."""
        line, now = self._lines.get(number), self._time.now
        if line is None:
            return
        self._check_time(line)
        if self._held(line):
            line.was_held = now
        done = line.open.pop(correlation_id, None)
        line.answers += done is None or done.key not in SETUP
        line.last_answer = now
        added = now + min(throttle, LONGEST_THROTTLE) - max(line.throttled, now)
        if added > 0.0:
            line.throttled = max(line.throttled, now) + added
            for one in line.open.values():
                one.deadline += added
        line.heard, line.window = max(line.throttled, now), (-math.inf, 0)

    def ended(self, number: int) -> None:
        """Note that the connection has ended for the client."""
        line = self._lines.pop(number, None)
        if line is not None:
            self._check_time(line)
        self._asides.discard(number)

    def _check_time(self, line: _Line) -> None:
        """Check R-TI-1: no request waits beyond its timeout for a response that trickles."""
        first, now = line.first, self._time.now
        if first is None or line.over or now <= self._stopped_until + TOLERANCE:
            return
        if first.key in SETUP:
            return  # the request ends with the connection's setup
        until = max(
            first.deadline, line.heard + SUSPECT_AFTER_S if line.heard > first.sent else 0.0
        )
        if now > until + TOLERANCE:
            self._found(f"a request to {line.address} of {first.sent} is open; it ends at {until}")

    # The client's events, which are compared with the traffic

    def is_held(self, address: str) -> bool:
        """Return whether a broker blocks an acks=all write, so that later requests must wait."""
        return any(
            self._held(line) or self._was_given_up(line)
            for line in self._lines.values()
            if str(line.address) == address and not line.over
        )

    def _was_given_up(self, line: _Line) -> bool:
        """Return whether a metadata request had to wait for a blocked write on this connection."""
        asked = [o.sent for o in line.open.values() if o.key == MetadataRequest.API_KEY]
        return any(sent <= line.was_held for sent in asked)

    def _held(self, line: _Line) -> bool:
        first = line.first
        if first is None or first.key != ProduceRequest.API_KEY:
            return False
        return self._time.now - max(first.sent, line.last_answer) >= HELD - SLACK

    def __call__(self, event: Event) -> None:
        """Check R-RB-3: while a known broker answers, failures don't cause a rebootstrap."""
        if event.kind == "silent" and event.fields["ready"]:
            self._check_silence(event)
        if event.kind in ("dial_failed", "disconnected"):
            line = self._lines.get(event.fields["connection"])
            if line is not None:  # the client hasn't closed it
                self._check_deadline(line, event)
                line.over = True
        if event.kind == "dial" and event.fields.get("purpose") in SECONDARY:
            self._asides.add(event.fields["connection"])
        if event.kind != "rebootstrap":
            return
        why = str(event.fields["why"])
        if any(text in why for text in BY_TIMER):
            return
        known = set(event.fields["known"])
        for number, line in self._lines.items():
            if line.over or number in self._asides:
                continue
            fresh = line.answers > 0 and event.at - line.last_answer < FRESH
            if fresh and str(line.address) in known:
                self._found(
                    f"a rebootstrap ({why}), though {line.address} answered at {line.last_answer}"
                )

    def _check_deadline(self, line: _Line, event: Event) -> None:
        """Check R-TI-1: a throttle, or a response that progresses, extends `request.timeout.ms`."""
        least = min((one.deadline for one in line.open.values()), default=math.inf)
        if line.first is not None and line.progressed > line.first.sent:
            least = max(least, line.progressed + SUSPECT_AFTER_S)
        late = str(event.fields.get("error")).startswith("ResponseTimeoutError")
        if late and event.at < least - TOLERANCE:
            self._found(f"{line.address} has until {least} for a response: {event}")

    def _check_silence(self, event: Event) -> None:
        """Check R-TI-1: a throttled connection doesn't count as silent."""
        for line in self._lines.values():
            first = line.first
            if str(line.address) != event.fields["address"] or first is None or line.over:
                continue
            if event.at >= max(first.sent, line.heard) + SUSPECT_AFTER_S - TOLERANCE:
                return
        self._found(
            f"{event}, though it was heard within {SUSPECT_AFTER_S} s, or throttles this client"
        )

    def _found(self, text: str) -> None:
        self.violations.append(Violation(f"{self._time.now}: {text}"))
