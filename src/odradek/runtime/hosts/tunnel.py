"""Exchange messages with a proxy on a non-blocking socket, to connect to a broker.

In: a TCP connection to the proxy; the generator of exchanges from `network.proxies`. Out: the TCP
connection, which now leads to the broker. Must not: read a byte that the broker sent, or show an
exchange, which contains a password, even if a proxy repeats it.
"""

from __future__ import annotations

import os
import selectors
import socket

from odradek.common.errors import NotAProxyError, ProxyError
from odradek.network.effects import Hop
from odradek.network.proxies import END_OF_HEAD, Exchange, conversation

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
LONGEST_HEAD = 16 << 10
"""Maximum size in bytes of the status line and headers of a proxy's HTTP response."""
AWAY_CURE = "Check host and port of proxy.url, and whether the proxy is running."


class Tunnel:
    """The exchange with a proxy, until the connection leads to the broker."""

    def __init__(self, hop: Hop) -> None:
        self._proxy = hop.proxy
        self.port = hop.proxy.address.port
        self.wanted = WRITE
        self._conversation = conversation(hop.proxy, hop.target)
        self._now: Exchange | None = None
        self._unsent = b""
        self._got = bytearray()
        self._done = False

    def unreachable(self, error: OSError) -> ProxyError:
        """Return the error for a failed TCP connection to the proxy."""
        why = os.strerror(error.errno) if error.errno else str(error)
        return ProxyError(f"the proxy {self._proxy} can't be reached: {why}", cure=AWAY_CURE)

    def advance(self, sock: socket.socket) -> bool:
        """Continue the exchange; return whether the connection leads to the broker now.

        Raises `ProxyError` and `ValueError`.
        """
        try:
            while not self._done:
                if not (self._sent(sock) and self._heard(sock)):
                    return False
                self._next()
        except BlockingIOError:
            return False
        except OSError as error:
            raise ProxyError(
                f"the connection to the proxy {self._proxy} was lost during its handshake"
            ) from error
        return True

    def _next(self) -> None:
        """Pass the proxy's response to the generator, and store the next exchange it yields."""
        try:
            if self._now is None:
                self._now = next(self._conversation)
            else:
                self._now = self._conversation.send(bytes(self._got))
        except StopIteration:
            self._done = True
            return
        self._unsent, self._got = self._now.send, bytearray()

    def _sent(self, sock: socket.socket) -> bool:
        self.wanted = WRITE
        while self._unsent:
            self._unsent = self._unsent[sock.send(self._unsent) :]
        return True

    def _heard(self, sock: socket.socket) -> bool:
        """Read the proxy's response, but no byte after it; return whether it is complete."""
        if self._now is None:
            return True
        self.wanted = READ
        if not self._now.count:
            return self._heard_head(sock)
        while len(self._got) < self._now.count:
            self._take(sock, self._now.count - len(self._got))
        return True

    def _heard_head(self, sock: socket.socket) -> bool:
        """Read up to an empty line (found by MSG_PEEK), because later bytes are the broker's."""
        while not self._got.endswith(END_OF_HEAD):
            seen = sock.recv(LONGEST_HEAD, socket.MSG_PEEK)
            before = len(self._got)
            place = (self._got[-3:] + seen).find(END_OF_HEAD)
            end = place + len(END_OF_HEAD) - min(before, 3) if place >= 0 else len(seen)
            self._take(sock, max(end, 1))
            if not b"HTTP/".startswith(self._got[:5]) and not self._got.startswith(b"HTTP/"):
                return True  # not HTTP: don't wait for an empty line
            if len(self._got) > LONGEST_HEAD:
                raise NotAProxyError(
                    f"{self._proxy} isn't an HTTP proxy: the end of its response is missing"
                )
        return True

    def _take(self, sock: socket.socket, most: int) -> None:
        taken = sock.recv(most)
        if not taken:
            raise ProxyError(f"the proxy {self._proxy} closed the connection during its handshake")
        self._got += taken
