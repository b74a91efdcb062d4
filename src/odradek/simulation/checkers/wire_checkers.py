"""Check invariants on the wire, between one client and its brokers.

In: connection attempts, requests and responses as a host's links see them, and the client's
rebootstraps to compare with them. Out: violations. Must not ask the client for the state of its
connections.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from odradek.common.config import Config
from odradek.common.events import Event
from odradek.common.types import Address
from odradek.network.connection import SECONDARY
from odradek.network.effects import OutgoingRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.simulation.checkers.invariants import SLACK, Violation
from odradek.simulation.world.virtual_time import VirtualTime

FRESH = 0.2
"""Seconds for which a response proves that a connection answers. It is shorter than the time after
which a write counts as blocked, so the checker never contradicts the client."""
HELD = 0.25
"""Seconds after which a write counts as blocked by its broker."""
BY_TIMER = ("REBOOTSTRAP_REQUIRED", "no metadata for")
"""Reasons of rebootstraps that don't depend on the number of brokers."""
SETUP = frozenset(
    kind.API_KEY for kind in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
)
"""APIs that are answered before a connection can be used, even by half-dead brokers and those that
refuse a client."""
PIPELINED = SETUP | {ProduceRequest.API_KEY, FetchRequest.API_KEY}
"""APIs that are requested again without waiting for the previous response."""
QUESTIONS = {"Metadata": 8, "FindCoordinator": 4, "Heartbeat": 40, "ConsumerGroupHeartbeat": 40}
"""How often a client with slow brokers (`patient`) may send these requests on its own; others:
twice, as to two leaders. A transactional client with a group has two coordinators, and the first
response for each is that its topic is being created."""
SPARE_REQUESTS = 16
"""Maximum number of requests in flight on one connection, in addition to one for each caller."""


@dataclass(slots=True)
class _Line:
    address: Address
    connected: bool = False
    over: bool = False
    """Whether the client has closed it; it may still send what it had decided to send before."""
    open: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Requests without a response: correlation id → API key and time."""
    answers: int = 0
    """Number of responses, except those during setup."""
    last_answer: float = -math.inf
    was_held: float = -math.inf
    """Time of the last response to a write that the broker had blocked."""


class Wire:
    """The traffic between one client and its brokers; the `Watcher` of its host."""

    def __init__(
        self, time: VirtualTime, config: Config, calls: Callable[[], int] = lambda: 0
    ) -> None:
        """Set the clock and the limits; `calls` returns the number of open calls."""
        self.violations: list[Violation] = []
        self.patient = False
        """While this is set, brokers are only slow (R-RB-9)."""
        self.slow: Collection[str] = ()
        """The APIs whose responses take seconds while `patient` is set."""
        self.asked: Counter[str] = Counter()
        """Requests by API while `patient` is set."""
        self.dials = 0
        self.requests = 0
        self._time = time
        self._calls = calls
        self._lines: dict[int, _Line] = {}
        self._asides: set[int] = set()
        """Numbers of secondary connections, from whose responses clients conclude nothing."""
        produce = "max.in.flight.requests.per.connection"
        self._limits = {FetchRequest.API_KEY: 1}
        if config.client == "producer":
            self._limits[ProduceRequest.API_KEY] = config[produce]

    def expect_slow(self, apis: Collection[str]) -> None:
        """Set the APIs whose responses take seconds while `patient` is set."""
        self.slow = apis

    def end_patience(self) -> None:
        """Expect responses as from healthy brokers."""
        self.patient = False

    # Callbacks of a host

    def opened(self, number: int, address: Address, ip: str) -> None:
        """Note a connection attempt."""
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
        line.open[request.correlation_id] = (key, self._time.now)
        if self.patient and request.body.API_NAME in self.slow and key not in PIPELINED:
            self._asked(request)
        limit = self._limits.get(key)
        if limit is not None and sum(k == key for k, _ in line.open.values()) > limit:
            name = request.body.API_NAME
            self._found(f"more than {limit} {name} requests in flight to {line.address}")
        if len(line.open) > SPARE_REQUESTS + self._calls():
            self._found(f"{len(line.open)} requests in flight to {line.address}")
        if not line.connected:
            self._found(f"a request to {line.address}, which isn't connected")

    def _asked(self, request: OutgoingRequest) -> None:
        """Check R-RB-9: a request is sent once, and once more to another broker."""
        name = request.body.API_NAME
        self.asked[name] += 1
        limit = QUESTIONS.get(name, 2) * 2
        if self.asked[name] > limit:
            self._found(f"{name} is asked more than {limit} times of brokers that are only slow")

    def answered(self, number: int, correlation_id: int) -> None:
        """Note a response."""
        line = self._lines.get(number)
        if line is None:
            return
        if self._held(line):
            line.was_held = self._time.now
        key, _ = line.open.pop(correlation_id, (-1, 0.0))
        line.answers += key not in SETUP
        line.last_answer = self._time.now

    def ended(self, number: int) -> None:
        """Note that the connection has ended for the client."""
        self._lines.pop(number, None)
        self._asides.discard(number)

    # The client's events, compared with the traffic

    def is_held(self, address: str) -> bool:
        """Return whether a broker blocks an acks=all write, so that later requests wait."""
        return any(
            self._held(line) or self._was_given_up(line)
            for line in self._lines.values()
            if str(line.address) == address and not line.over
        )

    def _was_given_up(self, line: _Line) -> bool:
        """Return whether a metadata request waited for a blocked write."""
        asked = [sent for key, sent in line.open.values() if key == MetadataRequest.API_KEY]
        return any(sent <= line.was_held for sent in asked)

    def _held(self, line: _Line) -> bool:
        key, sent = next(iter(line.open.values()), (-1, 0.0))
        waits = self._time.now - max(sent, line.last_answer)
        return key == ProduceRequest.API_KEY and waits >= HELD - SLACK

    def __call__(self, event: Event) -> None:
        """Check R-RB-3: while a known broker answers, no count causes a rebootstrap."""
        if event.kind in ("dial_failed", "disconnected"):
            line = self._lines.get(event.fields["connection"])
            if line is not None:  # the client may have closed it itself; the effect comes later
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

    def _found(self, text: str) -> None:
        self.violations.append(Violation(f"{self._time.now}: {text}"))
