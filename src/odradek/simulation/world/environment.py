"""What a simulated broker finds around it: time, random numbers, addresses, connections' far ends.

In: nothing. Out: the protocols that join brokers and the hosts of clients to a world. `World`
implements them in virtual time; the loopback server of `odradek.testing` implements those of
brokers with real sockets, so that one broker serves both. Must not: know what a broker does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from odradek.common.types import Address
from odradek.protocol.headers import decode_request_header
from odradek.protocol.message import Message, Request
from odradek.protocol.registry import request_class
from odradek.simulation.world.virtual_time import VirtualTime


class Verdict(Enum):
    """What becomes of a dial that isn't accepted."""

    REFUSED = "refused"
    """Nothing listens: the client learns so after a round trip."""
    DROPPED = "dropped"
    """No answer at all."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as a broker gets it. `body` is None for versions that can't be read."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Message | None


class Peer(Protocol):
    """The broker's view of one connection: where its answers go."""

    client: str
    """Who dialled, for the counts."""

    def respond(self, request: ReceivedRequest, response: Message, version: int) -> None:
        """Send an answer in the layout of `version`."""

    def failed(self, request: ReceivedRequest, error: Exception) -> None:
        """The broker has no answer: a bug where the client is ours, else what strangers send."""

    def close(self, *, reset: bool) -> None:
        """End the connection from the broker's side: in order, or by a reset."""

    def hold(self, on: bool) -> None:
        """Keep what travels in either direction until it is let go (a black hole)."""

    def strand(self, seconds: float, arrived: ReceivedRequest | None = None) -> None:
        """Keep what the client sends; reset it after so many seconds, deliver that as much later.

        So requests of an old connection arrive after those of the one that has replaced it.
        `arrived` is a request that has just come, and is delivered with them.
        """


class Session(Protocol):
    """A broker's end of an accepted connection."""

    @property
    def ended(self) -> bool:
        """The broker is through with it."""

    @property
    def idle(self) -> bool:
        """Nothing that was received waits or is being worked on."""

    def receive(self, request: ReceivedRequest) -> None:
        """Take in one request; they are answered in order."""

    def left(self) -> None:
        """The client has closed the connection, after what it has sent."""

    def closed(self) -> None:
        """The connection is gone, and what the broker hadn't begun with."""


class Endpoint(Protocol):
    """What listens at an address."""

    def accept(self, peer: Peer) -> Session | Verdict:
        """Decide about a dial that arrives now."""


class Environment(Protocol):
    """The part of a world that clusters need."""

    time: VirtualTime
    dns: dict[str, list[str]]

    def epoch_time(self) -> float:
        """Seconds since the epoch, as the brokers' clocks have them."""

    def rng(self, name: str) -> random.Random:
        """A generator of this name's own."""

    def new_address(self) -> Address:
        """An address (numeric) that nothing has listened at before."""

    def listen(self, address: Address, endpoint: Endpoint) -> None:
        """Let an endpoint take the dials to an address."""

    def unlisten(self, address: Address) -> None:
        """Refuse dials to an address from now on."""

    def black_hole(self, address: Address, on: bool) -> None:
        """Swallow dials to an address, whether or not anything listens there."""


class Timekeeper(Protocol):
    """An event loop that advances virtual time while a program does other things."""

    def is_closed(self) -> bool:
        """Whether the loop was closed."""


class HostEnvironment(Protocol):
    """The part of a world that the hosts of its clients need."""

    time: VirtualTime
    hot_loops: list[str]

    @property
    def driver(self) -> Timekeeper | None:
        """The event loop that advances virtual time, None where calls of clients do."""

    def wall_clock(self) -> float:
        """Seconds since the epoch, as the clients' clocks have them."""

    def rng(self, name: str) -> random.Random:
        """A generator of this name's own."""

    def dialled(self, peer: Peer, ip: str, port: int) -> Session | Verdict:
        """Return what a connection attempt finds when it arrives."""

    def resolve(self, name: str, answer: Callable[[list[str] | BaseException], None]) -> None:
        """Look a name up, and call back with its addresses or an error."""


def read_request(frame: bytes | memoryview, *, whole: bool = True) -> ReceivedRequest:
    """Decode a frame (without its length) as a broker does.

    With `whole=False` bytes after the request are left, as Kafka's brokers leave them: librdkafka
    has three at the end of a Metadata request for all topics.
    ApiVersions is read even in versions from the future, because brokers must answer those.
    Anything else that can't be read is a bug of the client under test and raises.
    """
    api_key, version, correlation_id, client_id, position = decode_request_header(frame)
    kind: type[Request[Any]] = request_class(api_key)
    body = None
    if kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        body = kind.decode(frame, version, position, whole=whole)
    return ReceivedRequest(api_key, version, correlation_id, client_id, body)
