"""Send and receive bytes on one socket, without blocking.

In: buffers to send, a buffer to fill. Out: numbers of bytes, and the events for which the selector
should watch the socket. Must not: know the engine, join large buffers, or block.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from odradek.common.types import Address
from odradek.runtime.resolver import numeric_address

if TYPE_CHECKING:
    from odradek.runtime.hosts.tunnel import Tunnel

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
IOV_MAX = min(1024, os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16)
"""Maximum number of buffers in one `sendmsg`."""
KEEPALIVE = tuple(
    (getattr(socket, name), seconds_or_count)
    for name, seconds_or_count in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
)
"""Options of TCP keepalive.

A broker may hold a JoinGroup for minutes. If the broker's machine vanished, or a firewall dropped
the connection, the kernel detects it within 40 s, not after its default of two hours.
"""
SEND_BUDGET = 4 << 20
"""Maximum number of bytes written to one connection before other connections are served."""
HIGH_WATER = 16 << 20
"""Maximum queued bytes on one connection; with more, the engine must pause (`writable`)."""
LOW_WATER = 4 << 20
FLUSH_PATIENCE = 0.5
"""Seconds without progress after which `flush_all` drops the queued bytes."""


class Transport:
    """A TCP connection, from its non-blocking connect to its close."""

    tls = False

    def __init__(self, connection: int, address: Address, tunnel: Tunnel | None = None) -> None:
        self.connection = connection
        self.address = address
        self.tunnel = tunnel
        """The exchange with a proxy before the connection can be used; None without a proxy."""
        self.sock: socket.socket | None = None
        self.fd = -1
        """The file descriptor, for the selector; TLS replaces the socket object, but not this."""
        self.tcp_up = False
        self.established = False
        self.queued = 0
        """Number of bytes that wait to be written."""
        self.full = False
        """Whether the engine must pause, because too many bytes are queued."""
        self.watched = 0
        """Events for which the selector watches the socket; 0: none."""
        self._queue: deque[memoryview] = deque()
        self._written = 0
        """Number of bytes that the kernel has accepted."""
        self._marks: deque[tuple[int, int]] = deque()

    def open(self, ip: str) -> bool:
        """Begin to connect; return whether TCP is established already. Raises `OSError`."""
        port = self.address.port if self.tunnel is None else self.tunnel.port
        family, target = numeric_address(ip, port)
        sock = self.sock = self.new_socket(family)
        self.fd = sock.fileno()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        try:
            sock.connect(target)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._not_up(error) from None
        self.tcp_up = True
        return True

    def new_socket(self, family: int) -> socket.socket:
        """Return a socket that isn't connected yet; a simulation creates its own."""
        return socket.socket(family, socket.SOCK_STREAM)

    def finish_connect(self) -> None:
        """Raise `OSError` if TCP wasn't established; called after the socket became writable."""
        number = self._socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise self._not_up(OSError(number, os.strerror(number)))
        self.tcp_up = True

    def _not_up(self, error: OSError) -> Exception:
        return error if self.tunnel is None else self.tunnel.unreachable(error)

    def handshake(self) -> bool:
        """Continue what follows TCP (an exchange with a proxy, TLS); return whether it is done.

        Raises `OSError`, or the proxy's error.
        """
        return self.tunnel is None or self.tunnel.advance(self._socket())

    def came_up(self) -> None:
        """Note that TCP, and an exchange with a proxy, are finished, so that bytes may be sent."""
        self.established = True

    def _socket(self) -> socket.socket:
        if self.sock is None:
            raise OSError("the socket is closed")
        return self.sock

    @property
    def wanted(self) -> int:
        """Events for which the selector should watch the socket."""
        if not self.established:
            return WRITE if self.tunnel is None else self.tunnel.wanted
        return READ | WRITE if self._queue else READ

    def now_watched(self, what: int) -> None:
        """Set the events for which the selector watches the socket from now on."""
        self.watched = what

    @property
    def pending(self) -> bool:
        """Whether there are bytes to read of which the selector doesn't know."""
        return False

    def queue(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers to send, without copying them."""
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes:
                self._queue.append(view if view.format == "B" else view.cast("B"))
                self.queued += view.nbytes

    def write(self, buffers: list[bytes | memoryview]) -> bool:
        """Write buffers at once and queue the rest; return whether all bytes were written.

        The queue must be empty.

        Raises `OSError`.
        """
        size = 0
        for buffer in buffers:
            size += len(buffer)
        try:
            count = (self.sock or self._socket()).sendmsg(buffers)
        except BlockingIOError:
            self.queue(buffers)
            return False
        if count == size:
            self._written += count
            return True
        self.queue(buffers)
        self._sent(count)
        return False

    def turned(self) -> bool:
        """Update `full`; return whether it changed, so that the engine must be notified."""
        before = self.full
        self.full = self.queued > HIGH_WATER or (before and self.queued >= LOW_WATER)
        return self.full != before

    def mark(self, identity: int) -> None:
        """Register a number, which `marked` returns once all bytes queued so far are written."""
        self._marks.append((self._written + self.queued, identity))

    def marked(self) -> list[int]:
        """Remove and return the numbers from `mark` whose bytes have been written by now."""
        found, marks = [], self._marks
        while marks and marks[0][0] <= self._written:
            found.append(marks.popleft()[1])
        return found

    def flush(self) -> None:
        """Write as much as the socket accepts now. Raises `OSError`."""
        sock, queue, budget = self._socket(), self._queue, SEND_BUDGET
        while queue and budget > 0:
            head = list(islice(queue, IOV_MAX))
            try:
                count = sock.sendmsg(head)
            except BlockingIOError:
                return
            self._sent(count)
            budget -= count

    def _sent(self, count: int) -> None:
        self.queued -= count
        self._written += count
        queue = self._queue
        while count:
            head = queue[0]
            if count < head.nbytes:
                queue[0] = head[count:]
                return
            count -= head.nbytes
            queue.popleft()

    def receive(self, buffer: memoryview) -> int:
        """Read into a buffer; return 0 at the end of the stream. May raise `BlockingIOError`."""
        sock = self.sock
        return sock.recv_into(buffer) if sock is not None else self._socket().recv_into(buffer)

    def drop(self) -> None:
        """Drop the queued bytes."""
        self._queue.clear()
        self._marks.clear()
        self.queued = 0

    def close(self) -> None:
        """Close the socket, and drop the queued bytes."""
        sock, self.sock = self.sock, None
        self.drop()
        if sock is not None:
            with suppress(OSError):
                sock.close()

    def abandon(self) -> None:
        """Close the file descriptor in a forked child, without notifying the peer."""
        sock, self.sock = self.sock, None
        if sock is not None:
            with suppress(OSError):
                os.close(sock.detach())


def flush_all(transports: Iterable[Transport], deadline: float, clock: Callable[[], float]) -> None:
    """Write queued bytes before closing, while there is progress and time."""
    with selectors.DefaultSelector() as selector:  # watches for writing only
        for transport in transports:
            selector.register(transport.fd, WRITE, transport)
        limit = min(deadline, clock() + FLUSH_PATIENCE)
        while selector.get_map() and (left := limit - clock()) > 0:
            for key, _ in selector.select(left):
                before = key.data.queued
                try:
                    key.data.flush()
                except OSError:
                    key.data.drop()
                if key.data.queued < before:
                    limit = min(deadline, clock() + FLUSH_PATIENCE)
                if not key.data.queued:
                    selector.unregister(key.fd)
