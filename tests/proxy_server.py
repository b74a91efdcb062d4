"""Run a small proxy for SOCKS5 and HTTP CONNECT on loopback, with faults that a test selects."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

LOCAL = "127.0.0.1"


@dataclass
class ProxyServer:
    """Connect to the requested address; `names`: host names that only the proxy can resolve.

    `login`: user and password that the proxy requires. `refusal`: its response to each connection
    request (a code of SOCKS5 or of HTTP). `pieces`: it sends each byte separately.
    """

    login: tuple[str, str] | None = None
    refusal: int | None = None
    names: dict[str, str] = field(default_factory=dict)
    pieces: bool = False
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Hosts and ports that clients requested."""
    accepted: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server((LOCAL, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()

    def cut(self) -> None:
        """End all connections; new ones are accepted."""
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def url(self, scheme: str, login: str = "") -> str:
        return f"{scheme}://{login}{'@' if login else ''}{LOCAL}:{self.port}"

    def _start(self, function: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.accepted += 1
                self._sockets.append(sock)
                self._start(self._serve, sock)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError):
            first = client.recv(1, socket.MSG_PEEK)
            serve = self._socks if first == b"\x05" else self._http
            broker = serve(client)
            if broker is not None:
                self._sockets.append(broker)
                self._start(self._pump, broker, client)
                self._pump(client, broker)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _send(self, client: socket.socket, text: bytes) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(len(text)) if self.pieces else [0]:
            client.sendall(text[start : start + 1] if self.pieces else text)

    def _connect(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        return socket.create_connection((self.names.get(host, host), port), 5)

    # SOCKS5

    def _socks(self, client: socket.socket) -> socket.socket | None:
        _, count = take(client, 2)
        ways = take(client, count)
        way = 0 if self.login is None else 2
        if way not in ways:
            self._send(client, b"\x05\xff")
            return None
        self._send(client, bytes((5, way)))
        if self.login is not None:
            _, length = take(client, 2)
            user = take(client, length)
            password = take(client, take(client, 1)[0])
            right = (user.decode(), password.decode()) == self.login
            self._send(client, bytes((1, 0 if right else 9)))
            if not right:
                return None
        _, _, _, kind = take(client, 4)
        if kind == 3:
            host = take(client, take(client, 1)[0]).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, take(client, size))
        port = int.from_bytes(take(client, 2), "big")
        if self.refusal is not None:
            self._send(client, bytes((5, self.refusal, 0, 1)) + bytes(6))
            return None
        try:
            broker = self._connect(host, port)
        except OSError:
            self._send(client, bytes((5, 5, 0, 1)) + bytes(6))
            return None
        self._send(client, b"\x05\x00\x00\x03\x05proxy\x12\x34")
        return broker

    # HTTP

    def _http(self, client: socket.socket) -> socket.socket | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += take(client, 1)
        request, *lines = head.decode().split("\r\n")
        wanted = None
        if self.login is not None:
            wanted = base64.b64encode(":".join(self.login).encode()).decode()
        code = self.refusal
        if wanted is not None and f"Proxy-Authorization: Basic {wanted}" not in lines:
            code = 407
        if code is None:
            method, where, _ = request.split()
            host, _, port = where.rpartition(":")
            assert method == "CONNECT"
            with suppress(OSError):
                broker = self._connect(host.strip("[]"), int(port))
                self._send(client, b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n")
                return broker
            code = 502
        # A badly behaved proxy: it sends the request's head, with credentials, back to the client.
        self._send(client, f"HTTP/1.1 {code} {head.decode()}".encode())
        return None


def take(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = sock.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
