"""Define the environment of a simulated broker: time, random numbers, addresses, connections.

In: nothing. Out: the protocols with which brokers and clients' I/O hosts use a simulation. `World`
implements them in virtual time; the loopback server of `odradek.testing` implements the brokers'
protocols with real sockets, so both use the same broker code. Must not know what a broker does.
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
    """Outcome of a connection attempt that isn't accepted."""

    REFUSED = "refused"
    """No endpoint listens at the address; the client gets the refusal after a round trip."""
    DROPPED = "dropped"
    """The connection attempt is never answered."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as a broker receives it; `body` is None for unsupported versions."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Message | None


class Peer(Protocol):
    """The broker's view of one connection, for responses."""

    client: str
    """Name of the client, used to count and to select connections by client."""

    def respond(self, request: ReceivedRequest, response: Message, version: int) -> None:
        """Send a response, encoded in the format of `version`."""

    def failed(self, request: ReceivedRequest, error: Exception) -> None:
        """Report that the broker failed to handle a request.

        Such a failure is a bug if the client is Odradek's; other clients may send anything.
        """

    def close(self, *, reset: bool) -> None:
        """Close the connection from the broker's side, in an orderly way or by a reset."""

    def hold(self, on: bool) -> None:
        """Hold back all bytes in both directions (black hole), or deliver the bytes held back."""

    def trickle(self, seconds: float, *, both: bool = False) -> None:
        """Deliver one response byte every `seconds`, and never the last byte; 0 ends the fault.

        With `both`, requests arrive only after the fault has ended.
        """

    def strand(self, seconds: float, arrived: ReceivedRequest | None = None) -> None:
        """Hold back the client's bytes, reset the connection later, and then deliver the bytes.

        Both delays are `seconds`. So requests of an old connection arrive after those of the
        connection that has replaced it. `arrived` is a request that the broker has just received,
        and that is held back, too.
        """


class Session(Protocol):
    """A broker's end of an accepted connection."""

    @property
    def ended(self) -> bool:
        """Whether the broker has finished with the connection."""

    @property
    def idle(self) -> bool:
        """Whether no received request waits or is being handled."""

    def receive(self, request: ReceivedRequest) -> None:
        """Receive a request; requests are answered in order."""

    def left(self) -> None:
        """Note that the client has closed the connection after its last request."""

    def closed(self) -> None:
        """Drop the connection, with all requests that the broker hasn't begun to handle."""


class Endpoint(Protocol):
    """A listener at a network address."""

    def accept(self, peer: Peer) -> Session | Verdict:
        """Accept, refuse or drop a connection attempt that arrives now."""


class Environment(Protocol):
    """The part of a simulation that clusters need."""

    time: VirtualTime
    dns: dict[str, list[str]]

    def epoch_time(self) -> float:
        """Return the brokers' wall-clock time in seconds since the epoch."""

    def rng(self, name: str) -> random.Random:
        """Return the random generator that belongs to this name."""

    def new_address(self) -> Address:
        """Return a numeric address at which nothing has listened before."""

    def listen(self, address: Address, endpoint: Endpoint) -> None:
        """Let this endpoint accept the connections to an address."""

    def unlisten(self, address: Address) -> None:
        """Refuse connections to an address from now on."""

    def black_hole(self, address: Address, on: bool) -> None:
        """Drop connection attempts to an address, whether or not anything listens there."""


class Timekeeper(Protocol):
    """An event loop that advances virtual time while a program does other things."""

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""


class HostEnvironment(Protocol):
    """The part of a simulation that the I/O hosts of clients need."""

    time: VirtualTime
    hot_loops: list[str]

    @property
    def driver(self) -> Timekeeper | None:
        """The event loop that advances virtual time; None if clients' calls advance the time."""

    def wall_clock(self) -> float:
        """Return the clients' wall-clock time in seconds since the epoch."""

    def rng(self, name: str) -> random.Random:
        """Return the random generator that belongs to this name."""

    def dialled(self, peer: Peer, ip: str, port: int) -> Session | Verdict:
        """Return the outcome of a connection attempt that reaches the address now."""

    def resolve(self, name: str, answer: Callable[[list[str] | BaseException], None]) -> None:
        """Look up a name, and call `answer` with its addresses or an error."""


def read_request(frame: bytes | memoryview, *, whole: bool = True) -> ReceivedRequest:
    """Decode a frame (without its length) as a broker does.

    With `whole=False` bytes after the request are ignored, as Kafka's brokers do: librdkafka sends
    three such bytes at the end of a Metadata request for all topics. The header of ApiVersions is
    read even in future versions, because brokers must answer such requests. Any other unreadable
    request is a bug of the client under test and raises an error.
    """
    api_key, version, correlation_id, client_id, position = decode_request_header(frame)
    kind: type[Request[Any]] = request_class(api_key)
    body = None
    if kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        body = kind.decode(frame, version, position, whole=whole)
    return ReceivedRequest(api_key, version, correlation_id, client_id, body)
