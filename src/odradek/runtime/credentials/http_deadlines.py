"""Open HTTP connections that end at a deadline, whatever the server does.

In: the deadline of one exchange of request and response (`ExchangeDeadline`). Out: a urllib opener
for http and https. Each wait (for the name server, TCP, TLS, sending, and each read of a response
or of endless "100 Continue") is limited to the remaining time, and no wait starts when that is
over. So a server that sends single bytes doesn't hold a thread or socket for ever. Must not: follow
a redirect or use the environment's proxies, because both would send the client's secret to another
server.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import ssl
import threading
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from odradek.runtime.locks import LONGEST_WAIT
from odradek.runtime.resolver import Answer, Resolver, is_numeric, numeric_address
from odradek.runtime.system_clock import SystemClock


@dataclass(frozen=True, slots=True)
class ExchangeDeadline:
    """Deadline of one request with its response, and timeouts of single waits, in seconds."""

    clock: SystemClock
    deadline: float
    connect: float | None = None
    """Timeout for TCP, and another for TLS; None: only the deadline limits them."""
    read: float | None = None
    """Timeout of one wait for bytes; None: only the deadline limits it."""

    def left(self, most: float | None = None) -> float:
        """Return the seconds that a wait may take; raise `TimeoutError` if no time is left."""
        left = self.deadline - self.clock.now()
        if left <= 0:
            raise TimeoutError("the response took too long")
        return min(left, LONGEST_WAIT, math.inf if most is None else most)


class _Incoming(io.RawIOBase):
    """A server's response, with the socket, as urllib drops the connection before reading."""

    def __init__(self, sock: socket.socket, until: ExchangeDeadline) -> None:
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        until = self._until
        self._sock.settimeout(until.left(until.read))
        count = self._sock.recv_into(buffer)
        until.left()  # also after many short waits
        return count

    def close(self) -> None:
        with suppress(OSError):
            self._sock.close()
        super().close()


class _Socket:
    """The methods of a socket that `http.client` uses, with timeouts."""

    def __init__(self, sock: socket.socket, until: ExchangeDeadline) -> None:
        self._sock = sock
        self._until = until
        self._given_away = False

    def sendall(self, data: Any) -> None:
        """Send in parts, so that the deadline holds even if the server reads byte by byte."""
        until, rest = self._until, memoryview(data)
        while rest:
            self._sock.settimeout(until.left(until.read))
            rest = rest[self._sock.send(rest[:16384]) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._given_away = True
        # Python's buffer has 128 KiB from 3.14 on, too much for a response of a few hundred bytes.
        return io.BufferedReader(_Incoming(self._sock, self._until), 8192)

    def close(self) -> None:
        if not self._given_away:
            self._sock.close()


class _Connection(http.client.HTTPConnection):
    def __init__(
        self,
        host: str,
        until: ExchangeDeadline,
        resolver: Resolver,
        context: ssl.SSLContext | None = None,
        **rest: Any,
    ) -> None:
        if context is not None:
            self.default_port = http.client.HTTPS_PORT
        super().__init__(host, **rest)
        self._until = until
        self._resolver = resolver
        self._context = context

    def connect(self) -> None:
        sock = self._dialled(self._addresses())
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._secured(self._context, sock)
        except BaseException:
            sock.close()
            raise
        self.sock = _Socket(sock, self._until)  # a socket for `http.client`

    def _addresses(self) -> list[str]:
        """Resolve the host name in a thread, which is abandoned on a timeout.

        A call of `getaddrinfo` can't be interrupted.
        """
        if is_numeric(self.host):
            return [self.host]
        answers: list[Answer] = []
        told = threading.Event()

        def deliver(answer: Answer) -> None:
            answers.append(answer)
            told.set()

        self._resolver.resolve(self.host, self.port, deliver)
        if not told.wait(self._until.left(self._until.connect)):
            raise TimeoutError("the name server didn't answer in time")
        answer = answers[0]
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, BaseException) or not answer:
            raise OSError(f"{self.host} has no IP address")
        return answer

    def _dialled(self, addresses: list[str]) -> socket.socket:
        """Connect to the first address that accepts; each one has a share of the remaining time."""
        until, failed = self._until, OSError(f"{self.host} has no IP address")
        shares = len(addresses)
        for share, ip in enumerate(addresses):
            family, address = numeric_address(ip, self.port)
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(until.left(until.connect) / (shares - share))
                sock.connect(address)
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
            else:
                return sock
        raise failed

    def _secured(self, context: ssl.SSLContext, plain: socket.socket) -> ssl.SSLSocket:
        """Establish TLS; the remaining time limits the whole handshake, not each read."""
        sock = context.wrap_socket(
            plain, server_hostname=self.host, do_handshake_on_connect=False
        )  # `wrap_socket` has detached `plain`
        try:
            sock.settimeout(self._until.left(self._until.connect))
            sock.do_handshake()
        except BaseException:
            sock.close()
            raise
        return sock


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    def __init__(self, until: ExchangeDeadline, resolver: Resolver) -> None:
        super().__init__()
        self._connection = partial(_Connection, until=until, resolver=resolver)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(
        self, until: ExchangeDeadline, resolver: Resolver, context: ssl.SSLContext
    ) -> None:
        super().__init__(context=context)
        self._connection = partial(_Connection, until=until, resolver=resolver, context=context)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)


def opener(
    context: ssl.SSLContext, until: ExchangeDeadline, resolver: Resolver
) -> urllib.request.OpenerDirector:
    """Return an opener for http and https only, without `.netrc` or the environment's proxies."""
    director = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _NoRedirect(),
        _Http(until, resolver),
        _Https(until, resolver, context),
    ):
        director.add_handler(handler)
    return director
