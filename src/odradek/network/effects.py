"""Define what a client's engine and its I/O host (thread or event loop) exchange.

Out of the engine: a queue of effects, which are I/O operations for the host. Into the engine: the
methods of `Inputs` record events, and `step(now)` alone changes state. TLS is part of the host (the
engine receives decrypted bytes), SASL of the engine. Must not: contain behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from odradek.common.proxy import Proxy
from odradek.common.types import Address
from odradek.protocol.headers import encode_request
from odradek.protocol.message import Message, Request

AnyRequest = Request[Any]


class Resolve(NamedTuple):
    """Resolve a host name; the host answers with `resolved(token, ips | error)`."""

    token: int
    host: str
    port: int
    deadline: float


class Hop(NamedTuple):
    """A proxy, and the host and port to which the proxy must connect."""

    proxy: Proxy
    target: Address


class Open(NamedTuple):
    """Open a connection to `ip`:port; `address` contains the name (for TLS and for messages).

    With `plain`, don't use TLS, to find out whether the port expects plaintext. With a `hop`, `ip`
    and port are the proxy's.
    """

    connection: int
    address: Address
    ip: str
    plain: bool = False
    hop: Hop | None = None


class OutgoingRequest(NamedTuple):
    """A request that a host sends encoded, over a socket, or (in simulations) as this object."""

    body: AnyRequest
    version: int
    correlation_id: int
    client_id: str
    answered: bool = True
    """Whether the broker sends a response.

    If not (Produce with acks=0), the host reports when the request is written.
    """

    def encode(self) -> list[bytes | memoryview]:
        """Return one frame as buffers, with its length prefix; record batches aren't copied."""
        return encode_request(self.body, self.version, self.correlation_id, self.client_id)


class Send(NamedTuple):
    """Send one request; while the socket isn't writable, the host keeps requests in order."""

    connection: int
    request: OutgoingRequest


class Close(NamedTuple):
    """Close a connection; the host reports no event of it afterwards."""

    connection: int
    reason: str


class Call(NamedTuple):
    """Run user code or a slow function; the host answers with `called(token, result | error)`."""

    token: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    where: Literal["caller", "worker"]
    deadline: float


Effect = Resolve | Open | Send | Close | Call


class IncomingResponse(NamedTuple):
    """A response that a simulating host delivers as an object, not as bytes."""

    correlation_id: int
    message: Message


class Inputs(Protocol):
    """Methods that a host calls to report events; the engine processes these in `step`."""

    def connected(self, connection: int) -> None:
        """Note that TCP (and TLS, if it is used) is established."""

    def disconnected(self, connection: int, error: BaseException | str | None) -> None:
        """Note that the connection ended or couldn't be opened.

        The error is None if the peer closed it.
        """

    def not_sent(self, connection: int, correlation_id: int, error: BaseException) -> None:
        """Note that a request couldn't be encoded: nothing was sent, the connection stays open."""

    def sent(self, connection: int, correlation_id: int) -> None:
        """Note that a request without a response was written to the socket."""

    def get_buffer(self, connection: int) -> memoryview:
        """Return a buffer of at least one byte for the next received bytes."""

    def buffer_updated(self, connection: int, count: int) -> None:
        """Note that `count` bytes were written into the buffer that `get_buffer` returned."""

    def received(self, connection: int, response: IncomingResponse) -> None:
        """Note a response that arrived as an object, not as bytes (in simulations only)."""

    def writable(self, connection: int, ready: bool) -> None:
        """Note whether the host accepts more bytes, as its queue is below the high-water mark."""

    def resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        """Note the numeric addresses of a name, or the error of resolving it."""

    def called(self, token: int, result: Any, error: BaseException | None) -> None:
        """Note the result or the error of a `Call`."""
