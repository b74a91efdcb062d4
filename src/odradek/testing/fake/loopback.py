"""Serve simulated brokers on real sockets on loopback, plain or TLS.

In: calls of a `SimulatedCluster`, real connections of any client. Out: the same responses and
faults as in virtual time, which follows the real clock here. One thread serves all connections.
Input is limited, so that no client can use unlimited memory: a connection whose bytes aren't a
request is closed, and each connection has one request processed at a time. `FakeCluster` wraps this
for users. Must not: know what a broker does.

    with LoopbackServer() as server:
        cluster = server.call(lambda: SimulatedCluster(server, brokers=1, bootstrap_name=None))
        ...                                        # connect to cluster.bootstrap_servers
        server.call(lambda: cluster.crash(1))      # faults run in the server's thread
"""

from __future__ import annotations

import logging
import random
import resource
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Self, TypeVar

from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import CorruptMessageError
from odradek.common.types import Address
from odradek.protocol.headers import encode_response
from odradek.protocol.message import Message
from odradek.protocol.messages.produce import ProduceRequest
from odradek.runtime.system_clock import monotonic
from odradek.simulation.world.environment import (
    Endpoint,
    ReceivedRequest,
    Session,
    Verdict,
    read_request,
)
from odradek.simulation.world.virtual_time import VirtualTime, derived_rng

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16
LONGEST_SLEEP = 0.5
LARGEST_PRODUCE = 16 << 20
"""Maximum size of a Produce request in bytes (100 MiB in Kafka: `socket.request.max.bytes`)."""
LARGEST_REQUEST = 1 << 19
"""Maximum size of any other request in bytes: once decoded, it takes a hundred times the memory."""
READ_AHEAD = 1 << 17
"""A connection that has a complete request and this many buffered bytes isn't read."""
HELD_BYTES = 256 << 20
"""Maximum number of buffered bytes of all connections: unfinished requests and unread responses.
Above this limit, the connection with the most buffered bytes is closed."""
COUNTED_AFTER = 16 << 20
"""Number of bytes received or sent after which all buffered bytes are counted again."""
MOST_CONNECTIONS = 2000
FILLERS = 8
_LOG = logging.getLogger(__name__)
_NO_LINGER = struct.pack("ii", 1, 0)


class _Tls:
    """A server's TLS layer, which encrypts and decrypts bytes in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._ready = False

    def received(self, data: bytes) -> bytes:
        """Decrypt received bytes; return the plaintext."""
        self._in.write(data)
        plain = b""
        with suppress(ssl.SSLWantReadError):
            if not self._ready:
                self._tls.do_handshake()
                self._ready = True
            while piece := self._tls.read(CHUNK):
                plain += piece
        return plain

    def sealed(self, data: bytes) -> bytes:
        """Encrypt `data`; return the bytes to be sent to the client."""
        if data:
            self._tls.write(data)
        return self._out.read()


class _Connection:
    """One accepted connection; simulated brokers use it as their `Peer`."""

    def __init__(self, server: LoopbackServer, sock: socket.socket) -> None:
        self.client = "loopback"
        self.session: Session | None = None
        self._server = server
        self._sock = sock
        self._tls = _Tls(server.tls) if server.tls is not None else None
        self._received = bytearray()
        self._outgoing = bytearray()
        self._held = False
        self._every, self._both = 0.0, False
        self._ended = False
        self._left = False

    @property
    def size(self) -> int:
        """Number of buffered bytes."""
        return len(self._received) + len(self._outgoing)

    @property
    def over(self) -> bool:
        """Whether the socket is closed and the broker has handled all received requests."""
        return self._ended and (self.session is None or self.session.ended)

    # Methods for the broker

    def respond(self, request: ReceivedRequest, response: Message, version: int) -> None:
        """Send a response."""
        self._write(b"".join(encode_response(response, version, request.correlation_id)))

    def failed(self, request: ReceivedRequest, error: Exception) -> None:
        """Close a connection whose request can't be answered; other connections continue."""
        _LOG.warning("a request of API %d can't be answered", request.api_key, exc_info=error)
        self.abandon()

    def close(self, *, reset: bool) -> None:
        """Close the connection, after writing as many bytes as the socket accepts at once."""
        if self._ended:
            return
        self._ended = True
        if not reset:
            self._flush()
        else:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.release()

    def hold(self, on: bool) -> None:
        """Stop reading and writing, or (with `on` false) resume both."""
        self._held = on
        self.watch()

    def trickle(self, seconds: float, *, both: bool = False) -> None:
        """Write one byte every `seconds` and, with `both`, read nothing; 0 ends the fault."""
        begins = seconds and not self._every
        self._every, self._both = seconds, both
        if begins:
            self._server.time.after(seconds, self._drip)
        self.watch()

    def _drip(self) -> None:
        if self._every and not self._ended:
            self._flush(1)
            self._server.time.after(self._every, self._drip)

    def strand(self, seconds: float, arrived: ReceivedRequest | None = None) -> None:
        """Reset the connection: only simulated connections can deliver requests after their end."""
        self.close(reset=True)

    # Methods for the socket's events

    def watch(self) -> None:
        """Register at the selector the events for which this connection waits."""
        if self._ended:  # the broker may still handle received requests
            return
        wanted = 0
        if not self._held:
            reads = self._frame_end() is None or len(self._received) < READ_AHEAD
            if reads and not self._both:
                wanted |= selectors.EVENT_READ
            if self._outgoing and not self._every:
                wanted |= selectors.EVENT_WRITE
        self._server.watch(self._sock, wanted, self._ready)

    def deliver(self) -> None:
        """Pass the next request to the broker when the response to the previous one is sent.

        Kafka doesn't read a connection in the meantime, either. Requests that a client sent before
        it closed the connection are still handled.
        """
        session = self.session
        while session is not None and session.idle and not self._outgoing:
            end = self._frame_end()
            if end is None:
                if self._left:
                    session.left()
                break
            frame = bytes(self._received[4:end])
            del self._received[:end]
            session.receive(read_request(frame, whole=False))
        if self.over:
            self._server.ended(self)
        else:
            self._server.wait(self, self._left or self._frame_end() is not None)
            self.watch()

    def serve(self) -> None:
        """Call `deliver`, but close the connection if its bytes aren't a valid request."""
        try:
            self.deliver()
        except Exception as error:
            if not isinstance(error, KafkaError):
                _LOG.warning("a frame can't be read", exc_info=error)
            self._server.unreadable += 1
            self.abandon()

    def _frame_end(self) -> int | None:
        """Return where the first request ends, None if it is incomplete; raise if it is invalid."""
        received = self._received
        if len(received) < 4:
            return None
        length = int.from_bytes(received[:4], "big", signed=True)
        produce = int.from_bytes(received[4:6], "big") == ProduceRequest.API_KEY
        if not 0 <= length <= (LARGEST_PRODUCE if produce else LARGEST_REQUEST):
            raise CorruptMessageError(f"a request has the invalid length {length}")
        return 4 + length if len(received) >= 4 + length else None

    def _ready(self, events: int) -> None:
        if self._ended:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ:
                self._read()
        except OSError:  # the client has disconnected, or doesn't use TLS
            self._gone()
        self.serve()

    def _read(self) -> None:
        data = self._sock.recv(CHUNK)
        if not data:
            self._gone()
            return
        if self._tls is not None:
            data = self._tls.received(data)
            self._write(b"")
        self._received += data
        self._server.holds(len(data))

    def _gone(self) -> None:
        """Note that the client has closed the connection; its requests are still handled."""
        self._left = True
        self.release()

    def abandon(self) -> None:
        """Close the connection, and drop all received bytes."""
        self._received.clear()
        self.cut_off()

    def cut_off(self) -> None:
        """Reset the connection, and notify the broker of its end."""
        self.close(reset=True)
        if self.session is not None:
            self.session.closed()

    def release(self) -> None:
        """Close the socket."""
        self._ended = True
        self._outgoing.clear()
        if not self._left:
            self._received.clear()
        self._server.watch(self._sock, 0, self._ready)
        self._sock.close()
        if self.over:
            self._server.ended(self)

    def _write(self, data: bytes) -> None:
        if self._ended:
            return
        self._outgoing += data if self._tls is None else self._tls.sealed(data)
        if not self._every:
            self._flush()
        self._server.holds(len(self._outgoing))
        self.watch()

    def _flush(self, most: int | None = None) -> None:
        if self._outgoing and not self._held:
            with suppress(OSError):  # the next read will report the lost connection
                sent = self._sock.send(self._outgoing if most is None else self._outgoing[:most])
                del self._outgoing[:sent]


class LoopbackServer:
    """The `Environment` of simulated clusters, with loopback sockets and the real clock."""

    def __init__(self, seed: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.time = VirtualTime()
        self.dns: dict[str, list[str]] = {}
        self.tls = tls
        self.unreadable = 0
        """Number of connections closed because of an invalid request."""
        self._seed = seed
        self._started = monotonic()
        self._selector = selectors.DefaultSelector()
        self._bound: dict[int, socket.socket] = {}
        self._listening: dict[int, socket.socket] = {}
        self._watched: dict[socket.socket, None] = {}
        self._connections: dict[_Connection, None] = {}
        self._waiting: dict[_Connection, None] = {}
        self._most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._counted = 0
        self._fillers: dict[int, list[socket.socket]] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._waker, self._woken = socket.socketpair()
        self._stopped = False
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        self._thread = threading.Thread(target=self._serve, name="loopback server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._stop)
        self._thread.join(10.0)

    def call(self, action: Callable[[], T]) -> T:
        """Run a function in the server's thread and return its result."""
        outcome: Future[T] = Future()

        def order() -> None:
            try:
                outcome.set_result(action())
            except Exception as error:
                outcome.set_exception(error)

        self._orders.append(order)
        with suppress(OSError):  # the thread has run the order and ended
            self._waker.send(b"!")
        if not wait([outcome], 10.0).done:
            raise TimeoutError("the loopback server doesn't answer")
        return outcome.result()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    # Environment

    epoch_time = staticmethod(time.time)

    def rng(self, name: str) -> random.Random:
        """Return the random generator with this name."""
        return derived_rng(self._seed, name)

    def new_address(self) -> Address:
        """Return an address with a free port, reserved at once, and closed until `listen`."""
        return self.address(0)

    def address(self, port: int) -> Address:
        """Return a new address with this port; raises `OSError` if the port is in use."""
        sock = self._bind(port)
        found: int = sock.getsockname()[1]
        self._bound[found] = sock
        return Address(LOOPBACK, found)

    def listen(self, address: Address, endpoint: Endpoint) -> None:
        """Accept connections at an address."""
        sock = self._bound.pop(address.port, None) or self._bind(address.port)
        sock.listen(128)
        sock.setblocking(False)
        self._listening[address.port] = sock
        self.watch(sock, selectors.EVENT_READ, lambda _: self._accept(sock, endpoint))

    def unlisten(self, address: Address) -> None:
        """Refuse connections at an address; the port remains reserved."""
        sock = self._listening.pop(address.port, None)
        if sock is not None:
            self.watch(sock, 0, lambda _: None)
            sock.close()
            self._bound[address.port] = self._bind(address.port)

    def black_hole(self, address: Address, on: bool) -> None:
        """Let connection attempts at an address time out, by filling the listener's queue."""
        for filler in self._fillers.pop(address.port, []):
            filler.close()
        self.unlisten(address)
        self._bound.pop(address.port).close()
        sock = self._bound[address.port] = self._bind(address.port)
        if on:
            sock.listen(0)
            fillers = self._fillers[address.port] = [socket.socket() for _ in range(FILLERS)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex((LOOPBACK, address.port))

    # Methods for the server's thread

    def watch(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Set the events for which a socket is watched; 0 stops watching the socket."""
        known = sock in self._watched
        if events and known:
            self._selector.modify(sock, events, ready)
        elif events:
            self._selector.register(sock, events, ready)
            self._watched[sock] = None
        elif known:
            self._selector.unregister(sock)
            del self._watched[sock]

    def ended(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)

    def wait(self, connection: _Connection, on: bool) -> None:
        """Note whether a connection has a request or an end that must wait for the broker."""
        if on:
            self._waiting[connection] = None
        else:
            self._waiting.pop(connection, None)

    def holds(self, more: int) -> None:
        """Count buffered bytes; above the limit, close the connection with the most of them."""
        self._counted += more
        if self._counted < COUNTED_AFTER:
            return
        self._counted = 0
        total = sum(connection.size for connection in self._connections)
        while total > HELD_BYTES:
            greediest = max(self._connections, key=lambda connection: connection.size)
            total -= greediest.size
            greediest.abandon()

    @staticmethod
    def _bind(port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            sock.close()
            raise
        return sock

    def _serve(self) -> None:
        while not self._stopped:
            due = self.time.next_at()
            sleep = LONGEST_SLEEP if due is None else due - self._now()
            ready = self._selector.select(max(0.0, min(sleep, LONGEST_SLEEP)))
            try:
                self.time.run_until(self._now())
            except Exception as error:  # an error of a timer; errors of requests close connections
                _LOG.warning("a scheduled action failed", exc_info=error)
            for key, events in ready:
                key.data(events)
            while self._orders:
                self._orders.popleft()()
            for connection in list(self._waiting):
                connection.serve()

    def _now(self) -> float:
        return monotonic() - self._started

    def _drain(self, _: int) -> None:
        self._woken.recv(CHUNK)

    def _accept(self, listening: socket.socket, endpoint: Endpoint) -> None:
        try:
            sock, _ = listening.accept()
        except OSError:  # the client closed the connection already
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._connections) >= self._most:
            sock.close()
            return
        connection = _Connection(self, sock)
        self._connections[connection] = None
        found = endpoint.accept(connection)
        if found is Verdict.REFUSED:
            connection.close(reset=True)
        elif found is Verdict.DROPPED:
            connection.hold(True)
        else:
            connection.session = found
            connection.watch()

    def _stop(self) -> None:
        self._stopped = True
        for connection in list(self._connections):
            connection.release()
        fillers = [sock for some in self._fillers.values() for sock in some]
        ports = [*self._listening.values(), *self._bound.values(), *fillers]
        for sock in [*ports, self._waker, self._woken]:
            sock.close()
        self._selector.close()
