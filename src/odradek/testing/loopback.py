"""Simulated brokers behind real sockets on loopback, plain or TLS.

In: verbs of a `SimulatedCluster`, real connections of real clients. Out: the same answers and the
same misbehaviour as in virtual time, whose clock here follows the real one. One thread serves all.
Use it to hold the real hosts against the simulated one, and to try other clients on one fault.
A black hole can't be made with loopback sockets: such a broker accepts and stays silent.

    with LoopbackServer() as server:
        cluster = server.call(lambda: SimulatedCluster(server, brokers=1, bootstrap_name=None))
        ...                                        # dial cluster.bootstrap_servers
        server.call(lambda: cluster.crash(1))      # verbs run in the server's thread
"""

from __future__ import annotations

import random
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

from odradek.common.errors import KafkaError
from odradek.common.types import Address
from odradek.protocol.headers import encode_response
from odradek.protocol.message import Message
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
_NO_LINGER = struct.pack("ii", 1, 0)


class _Tls:
    """A server's TLS layer over bytes in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._ready = False

    def received(self, data: bytes) -> bytes:
        """Take in what came over the wire; return what it says."""
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
        """What has to go over the wire to say this."""
        if data:
            self._tls.write(data)
        return self._out.read()


class _Connection:
    """One accepted connection: the broker's `Peer`."""

    def __init__(self, server: LoopbackServer, sock: socket.socket) -> None:
        self.client = "loopback"
        self.session: Session | None = None
        self._server = server
        self._sock = sock
        self._tls = _Tls(server.tls) if server.tls is not None else None
        self._received = bytearray()
        self._outgoing = bytearray()
        self._held = False
        self._ended = False

    # The broker's side

    def respond(self, request: ReceivedRequest, response: Message, version: int) -> None:
        """Send an answer."""
        self._write(b"".join(encode_response(response, version, request.correlation_id)))

    def close(self, *, reset: bool) -> None:
        """End the connection; what can be written at once still is."""
        if self._ended:
            return
        self._ended = True
        if not reset:
            self._flush()
        else:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._server.ended(self)
        self.release()

    def hold(self, on: bool) -> None:
        """Read and write nothing for a while."""
        self._held = on
        self.watch()

    def strand(self, seconds: float) -> None:
        """Only simulated connections can deliver what was sent before they broke."""
        self.close(reset=True)

    # The socket's side

    def watch(self) -> None:
        """Tell the selector what this connection waits for."""
        if self._ended:  # the broker may still work on what it received
            return
        wanted = 0 if self._held else selectors.EVENT_READ
        if self._outgoing and not self._held:
            wanted |= selectors.EVENT_WRITE
        self._server.watch(self._sock, wanted, self._ready)

    def _ready(self, events: int) -> None:
        if self._ended:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
                self.watch()
            if events & selectors.EVENT_READ:
                self._read()
        except (OSError, KafkaError):  # it went away, or speaks no TLS, or not our Kafka
            self._gone()

    def _read(self) -> None:
        data = self._sock.recv(CHUNK)
        if not data:
            self._gone()
            return
        if self._tls is not None:
            data = self._tls.received(data)
            self._write(b"")
        self._received += data
        while not self._ended and len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + length:
                break
            frame = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            if self.session is not None:
                self.session.receive(read_request(frame))

    def _gone(self) -> None:
        self._ended = True
        if self.session is not None:
            self.session.left()
        self._server.ended(self)
        self.release()

    def release(self) -> None:
        """Close the socket."""
        self._ended = True
        self._server.watch(self._sock, 0, self._ready)
        self._sock.close()

    def _write(self, data: bytes) -> None:
        if self._ended:
            return
        self._outgoing += data if self._tls is None else self._tls.sealed(data)
        self._flush()
        self.watch()

    def _flush(self) -> None:
        if self._outgoing and not self._held:
            with suppress(OSError):  # a peer that is gone shows when it is read next
                sent = self._sock.send(self._outgoing)
                del self._outgoing[:sent]


class LoopbackServer:
    """The `Environment` of simulated clusters, with loopback sockets and the real clock."""

    def __init__(self, seed: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.time = VirtualTime()
        self.dns: dict[str, list[str]] = {}
        self.tls = tls
        self._seed = seed
        self._started = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._bound: dict[int, socket.socket] = {}
        self._listening: dict[int, socket.socket] = {}
        self._watched: dict[socket.socket, None] = {}
        self._connections: dict[_Connection, None] = {}
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
        """Run something in the server's thread and return what it returns."""
        done = threading.Event()
        outcome: list[Any] = []

        def order() -> None:
            try:
                outcome.append((action(), None))
            except Exception as error:
                outcome.append((None, error))
            done.set()

        self._orders.append(order)
        with suppress(OSError):  # the thread was awake, and the order was its last one
            self._waker.send(b"!")
        if not done.wait(10.0):
            raise TimeoutError("the loopback server doesn't answer")
        result, error = outcome[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # what `action` returned

    # Environment

    def rng(self, name: str) -> random.Random:
        """A generator of this name's own."""
        return derived_rng(self._seed, name)

    def new_address(self) -> Address:
        """A free port; it is bound at once, so that nobody else gets it, and refuses dials."""
        sock = self._bind(0)
        port: int = sock.getsockname()[1]
        self._bound[port] = sock
        return Address(LOOPBACK, port)

    def listen(self, address: Address, endpoint: Endpoint) -> None:
        """Accept dials to an address."""
        sock = self._bound.pop(address.port, None) or self._bind(address.port)
        sock.listen(128)
        sock.setblocking(False)
        self._listening[address.port] = sock
        self.watch(sock, selectors.EVENT_READ, lambda _: self._accept(sock, endpoint))

    def unlisten(self, address: Address) -> None:
        """Refuse dials to an address; the port stays ours."""
        sock = self._listening.pop(address.port, None)
        if sock is not None:
            self.watch(sock, 0, lambda _: None)
            sock.close()
            self._bound[address.port] = self._bind(address.port)

    def black_hole(self, address: Address, on: bool) -> None:
        """Loopback dials can't be swallowed."""
        raise ValueError("loopback sockets have no black holes")

    # The thread

    def watch(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Wait for events of a socket (0: for none)."""
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
        """A connection is over."""
        self._connections.pop(connection, None)

    @staticmethod
    def _bind(port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((LOOPBACK, port))
        return sock

    def _serve(self) -> None:
        while not self._stopped:
            due = self.time.next_at()
            sleep = LONGEST_SLEEP if due is None else due - self._now()
            ready = self._selector.select(max(0.0, min(sleep, LONGEST_SLEEP)))
            self.time.run_until(self._now())
            for key, events in ready:
                key.data(events)
            while self._orders:
                self._orders.popleft()()

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _drain(self, _: int) -> None:
        self._woken.recv(CHUNK)

    def _accept(self, listening: socket.socket, endpoint: Endpoint) -> None:
        try:
            sock, _ = listening.accept()
        except OSError:  # it went away between the dial and now
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        for sock in [*self._listening.values(), *self._bound.values(), self._waker, self._woken]:
            sock.close()
        self._selector.close()
