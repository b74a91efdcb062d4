"""Proxy that delivers one request late: after its retry was answered on a new connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.proxy_server import ProxyServer, take


class LateProxy(ProxyServer):
    """Forward whole frames; hold back the next request of an API and end its connection."""

    def __init__(self) -> None:
        super().__init__()
        self._api: int | None = None
        self._kept: tuple[socket.socket, bytes] | None = None
        self._brokers: set[socket.socket] = set()
        self._answered = threading.Event()
        self.answer = b""
        """Response of the broker to the request that was held back."""

    def keep(self, api: int) -> None:
        """Hold back the next request with this API key."""
        self._api = api

    def deliver(self, timeout: float) -> None:
        """Deliver the request that was held back, and wait until its broker has answered it."""
        assert self._kept is not None, "no request was kept"
        broker, frame = self._kept
        broker.sendall(frame)
        assert self._answered.wait(timeout)

    def _connect(self, host: str, port: int) -> socket.socket:
        made = super()._connect(host, port)
        self._brokers.add(made)
        return made

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = take(source, 4)
                frame = take(source, int.from_bytes(head, "big"))
                if source in self._brokers:
                    if self._kept is not None and source is self._kept[0]:
                        self.answer = frame
                        self._answered.set()
                elif int.from_bytes(frame[:2], "big") == self._api:
                    self._api, self._kept = None, (sink, head + frame)
                    source.shutdown(socket.SHUT_RDWR)
                    return  # the broker's connection stays open
                sink.sendall(head + frame)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
