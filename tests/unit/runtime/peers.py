"""A scripted engine and loopback servers, for tests of I/O hosts (loop or thread) without Kafka."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar, cast

from odradek.common.events import EventLog
from odradek.common.types import Address
from odradek.network.effects import (
    Call,
    Close,
    Effect,
    IncomingResponse,
    Open,
    OutgoingRequest,
    Resolve,
    Send,
)
from odradek.network.engine import Engine
from odradek.network.flow import Completion
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost

T = TypeVar("T")

PATIENCE = 60.0
"""Timeout in seconds for waits that would otherwise hang in a failing test."""


class RawRequest:
    """A request whose encoded bytes are given."""

    def __init__(self, buffers: Sequence[bytes | memoryview], unanswered: int) -> None:
        self.answered = not unanswered
        self.correlation_id = unanswered
        self.buffers = buffers

    def encode(self) -> list[bytes | memoryview]:
        return list(self.buffers)


class ScriptedEngine(Engine):
    """An engine whose connections only record what the I/O host reports."""

    def __init__(self) -> None:
        super().__init__(EventLog("scripted"))
        self.up: dict[int, Completion[None]] = defaultdict(Completion)
        self.down: dict[int, Completion[BaseException | str | None]] = defaultdict(Completion)
        self.unsent: dict[int, Completion[BaseException]] = defaultdict(Completion)
        self.written: dict[int, Completion[None]] = defaultdict(Completion)
        self.results: dict[int, Completion[Any]] = {}
        self.received_bytes: dict[int, bytearray] = defaultdict(bytearray)
        self.writable_calls: list[tuple[int, bool]] = []
        self.scratch = bytearray(1 << 20)
        self._expected: list[tuple[int, int, Completion[None]]] = []
        self._next_connection = 0

    # Inputs from the I/O host

    def connected(self, connection: int) -> None:
        self.post(lambda now: self.up[connection].complete(None))

    def disconnected(self, connection: int, error: BaseException | str | None) -> None:
        self.post(lambda now: self.down[connection].complete(error))

    def sent(self, connection: int, correlation_id: int) -> None:
        self.post(lambda now: self.written[correlation_id].complete(None))

    def not_sent(self, connection: int, correlation_id: int, error: BaseException) -> None:
        self.post(lambda now: self.unsent[correlation_id].complete(error))

    def get_buffer(self, connection: int) -> memoryview:
        return memoryview(self.scratch)

    def buffer_updated(self, connection: int, count: int) -> None:
        self.received_bytes[connection] += memoryview(self.scratch)[:count]
        self.post(lambda now: self._arrived())

    def received(self, connection: int, response: IncomingResponse) -> None:
        raise AssertionError("a byte host passes bytes")

    def writable(self, connection: int, ready: bool) -> None:
        self.post(lambda now: self.writable_calls.append((connection, ready)))

    def resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        if isinstance(result, BaseException):
            self.called(token, None, result)
        else:
            self.called(token, list(result), None)

    def called(self, token: int, result: Any, error: BaseException | None) -> None:
        def note(now: float) -> None:
            if error is None:
                self.results[token].complete(result)
            else:
                self.results[token].fail(error)

        self.post(note)

    def _arrived(self) -> None:
        for entry in list(self._expected):
            connection, count, completion = entry
            if len(self.received_bytes[connection]) >= count:
                self._expected.remove(entry)
                completion.complete(None)

    # Called by tests

    def open(self, port: int, host: str = "127.0.0.1", ip: str = "127.0.0.1") -> int:
        self._next_connection += 1
        number = self._next_connection
        self.effect(Open(number, Address(host, port), ip))
        return number

    def effect(self, effect: Effect) -> None:
        self.post(lambda now: self.effects.append(effect))

    def send(self, connection: int, *buffers: bytes | memoryview, unanswered: int = 0) -> None:
        """Send these bytes; `unanswered`: correlation id of a request that expects no response."""
        request = cast("OutgoingRequest", RawRequest(buffers, unanswered))
        self.effect(Send(connection, request))

    def close(self, connection: int) -> None:
        self.effect(Close(connection, "test"))

    def expect(self, connection: int, count: int) -> Completion[None]:
        completion: Completion[None] = Completion()
        self._expected.append((connection, count, completion))
        self.post(lambda now: self._arrived())
        return completion

    def resolve(self, host: str, deadline: float) -> Completion[list[str]]:
        return self._wanted(lambda token: Resolve(token, host, 9092, deadline))

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        where: Literal["caller", "worker"],
        deadline: float,
    ) -> Completion[Any]:
        return self._wanted(lambda token: Call(token, function, arguments, where, deadline))

    def _wanted(self, effect: Callable[[int], Effect]) -> Completion[Any]:
        token = self.new_token()
        self.results[token] = Completion()
        self.effect(effect(token))
        return self.results[token]

    def finish(self, completion: Completion[Any]) -> None:
        self.post(lambda now: completion.complete(None))


def run(host: SelectorHost | ThreadHost, completion: Completion[T]) -> Completion[T]:
    """Run an I/O host until the completion is done."""
    assert host.run(completion, host.now() + PATIENCE)
    return completion


Talk = Callable[[socket.socket], None]


class Peer:
    """A loopback listener; a thread handles each connection with `talk` and then closes it."""

    def __init__(self, talk: Talk, context: ssl.SSLContext | None = None) -> None:
        self._talk = talk
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.errors: list[Exception] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            self._talk(sock)
        except OSError as error:
            self.errors.append(error)
        finally:
            sock.close()

    def close(self) -> None:
        self._end(self._listener)
        self._threads[0].join(PATIENCE)  # no connection is accepted after this line
        for sock in list(self._sockets):
            self._end(sock)
        for thread in self._threads:
            thread.join(PATIENCE)

    @staticmethod
    def _end(sock: socket.socket) -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


@contextmanager
def peer(talk: Talk, context: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """Run a listener, and finally close it and end its threads."""
    running = Peer(talk, context)
    try:
        yield running
    finally:
        running.close()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 20):
        sock.sendall(data)


def refused_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
