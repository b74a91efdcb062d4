"""Serve metrics on an HTTP endpoint that Prometheus scrapes.

In: an address, a function that returns the text in pieces, which readers share if unchanged. Out:
that text for `GET /metrics`, from separate threads. Must not: wait for a cluster, or keep resources
open for a slow reader.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Self

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import whole_number
from odradek.common.errors import ConfigurationError

MOST_CONNECTIONS = 16
"""Maximum number of concurrent connections; further ones are closed at once."""
LONGEST = 10.0
"""Maximum duration of a connection in seconds."""
BACKLOG = 16
CONTENT = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
FLAG = "--prometheus"
MOST_PORTS = 65535


def where_to_listen(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `[v6]:port` or `:PORT`; an empty host means all addresses.

    Raises `UsageError`.
    """
    host, colon, port = text.rpartition(":")
    number = whole_number(port, MOST_PORTS)
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or number is None or "/" in host or (":" in host and bare == host):
        refuse(f"{FLAG}: expected HOST:PORT or :PORT, as in 127.0.0.1:9308 or :9308, not {text!r}")
    return bare, number


class MetricsEndpoint:
    """HTTP server of one text (context manager). Raises `ConfigurationError` if it can't listen."""

    def __init__(self, host: str, port: int, pieces: Callable[[], Sequence[bytes]]) -> None:
        self._server = _Server(_listening(host, port), pieces)
        at = str(self._server.server_address[0])
        self.port = int(self._server.server_address[1])
        self.url = f"http://{f'[{at}]' if ':' in at else at}:{self.port}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="odradek-metrics-endpoint", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listening(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv4 is tried below, and reports errors
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
    try:
        return _listening_at(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        shown = f"[{host}]" if ":" in host else host
        raise ConfigurationError(f"{FLAG}: can't listen on {shown}:{port}: {reason}") from error


def _listening_at(host: str, port: int) -> socket.socket:
    """Listen on the first possible address of a name; IPv4 addresses are tried first.

    Without a host, listen on all IPv4 addresses. Raises the error of the first address.
    """
    family = socket.AF_UNSPEC if host else socket.AF_INET
    found = socket.getaddrinfo(
        host or None, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found.sort(key=lambda one: one[0] is not socket.AF_INET)
    first: OSError | None = None
    for kind, _, _, _, address in found:
        try:
            return socket.create_server(address, family=kind, backlog=BACKLOG)
        except OSError as error:
            first = first or error
    raise first or OSError(f"{host!r} has no address")


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, pieces: Callable[[], Sequence[bytes]]) -> None:
        address = listening.getsockname()
        super().__init__(address, _Scrape, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = address
        self.pieces = pieces
        self._lock = threading.Lock()
        self._open: dict[Any, float] = {}
        """Open connections, and the time at which each is closed."""

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            free = len(self._open) < MOST_CONNECTIONS
            if free:
                self._open[request] = time.monotonic() + LONGEST
        if free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that are open for too long; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for request, until in self._open.items():
                if until < now:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a scraper that disconnected."""


class _Scrape(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "odradek", ""
    timeout = LONGEST

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"metrics are at {PATH}")
            return
        pieces = self.server.pieces()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.end_headers()
        for piece in pieces if body else ():
            self.wfile.write(piece)

    def log_message(self, *_: Any) -> None:
        """Log nothing, because there is a request every few seconds."""
