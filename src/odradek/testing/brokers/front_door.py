"""A TCP forwarder on a fixed loopback address, like the load balancer of a real cluster.

In: connections of clients; the addresses of the running brokers (`lead_to`). Out: the same bytes to
and from one of these brokers, chosen round-robin. Must not: interpret any byte. If no broker can be
reached, an accepted connection is closed at once, as load balancers do.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable

from odradek.common.types import Address

_CONNECT_TIMEOUT_S = 2.0


class _Pipe(asyncio.Protocol):
    """One end of a forwarded connection, which writes all received bytes to its `peer`."""

    def __init__(self, door: FrontDoor, *, client: bool) -> None:
        self._door = door
        self.client = client
        self.transport: asyncio.Transport | None = None
        self.peer: _Pipe | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's own promise
        self.transport = transport
        if self.client:
            transport.pause_reading()  # resumed once a broker is connected
        self._door.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    # asyncio calls these two methods: the peer stops reading while this end's buffer is full.
    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.lost(self)
        peer, self.peer = self.peer, None
        if peer is not None and peer.transport is not None:
            # Pass on a reset as a reset, and an orderly close after the last byte. Kafka doesn't
            # use half-closed connections, so the end of one direction ends the other.
            if exc is not None:
                peer.transport.abort()
            else:
                peer.transport.close()


class FrontDoor:
    """TCP forwarder that runs in its own thread from `start()` to `close()`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._wanted = Address(host, port)
        self._bound: Address | None = None
        self._backends: tuple[Address, ...] = ()
        self._turn = itertools.count()
        self._pipes: set[_Pipe] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.accepted = 0
        """Number of connections accepted so far, including those for which no broker was
        reachable."""

    @property
    def address(self) -> Address:
        """The address on which the forwarder listens; it never changes."""
        if self._bound is None:
            raise RuntimeError("the cluster's bootstrap port is not open")
        return self._bound

    def start(self) -> None:
        """Start listening; raises OSError if the address is in use."""
        loop = asyncio.new_event_loop()
        try:
            server = loop.run_until_complete(
                loop.create_server(
                    lambda: _Pipe(self, client=True),
                    self._wanted.host,
                    self._wanted.port,
                    backlog=512,
                )
            )
        except OSError:
            loop.close()
            raise
        host, port = server.sockets[0].getsockname()[:2]
        self._bound = Address(host, port)
        self._loop = loop
        self._thread = threading.Thread(
            target=self._serve, args=(loop, server), name="front-door", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close every forwarded connection; may be called again."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def lead_to(self, backends: Iterable[Address]) -> None:
        """Forward new connections to these addresses; if none are given, close them at once."""
        self._backends = tuple(backends)

    def drop_connections(self) -> None:
        """Close every forwarded connection."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._drop)

    def opened(self, pipe: _Pipe) -> None:
        """Connect a new client to a broker; the client's asyncio protocol calls this."""
        self._pipes.add(pipe)
        if not pipe.client:
            return
        self.accepted += 1
        if self._loop is None:
            return  # `close` will abort this connection
        task = asyncio.get_running_loop().create_task(self._connect(pipe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lost(self, pipe: _Pipe) -> None:
        """Remove a connection that has ended; its asyncio protocol calls this."""
        self._pipes.discard(pipe)

    async def _connect(self, client: _Pipe) -> None:
        loop = asyncio.get_running_loop()
        backends = self._backends
        first = next(self._turn)
        for offset in range(len(backends)):
            backend = backends[(first + offset) % len(backends)]
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    _, pipe = await loop.create_connection(
                        lambda: _Pipe(self, client=False), backend.host, backend.port
                    )
            except OSError:  # or a timeout
                continue
            if client.transport is None or client.transport.is_closing():
                if pipe.transport is not None:
                    pipe.transport.close()
                return
            client.peer, pipe.peer = pipe, client
            client.transport.resume_reading()
            return
        if client.transport is not None:
            client.transport.abort()

    def _drop(self) -> None:
        for pipe in list(self._pipes):
            if pipe.client and pipe.transport is not None:
                pipe.transport.abort()

    async def _end(self, server: asyncio.Server) -> None:
        """Close all connections, including those that are being accepted."""
        server.close()
        for task in list(self._tasks):
            task.cancel()
        if under_way := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(under_way)
        while self._pipes:
            for pipe in list(self._pipes):
                if pipe.transport is not None:
                    pipe.transport.abort()
            await asyncio.sleep(0)

    def _serve(self, loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(self._end(server))
        finally:
            loop.close()
