"""Read and write the sockets of an I/O host, and report to the engine.

In: sockets that are ready; effects (I/O operations) that the engine requested. Out: the engine's
inputs. Must not: wait, or decide about Kafka.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.common.errors import KafkaError
from odradek.common.types import Address
from odradek.network.effects import Open, Send
from odradek.network.host import EngineInputs
from odradek.runtime.hosts.interrupt import not_from_outside
from odradek.runtime.hosts.transport import IOV_MAX, READ, WRITE, Transport

if TYPE_CHECKING:
    from odradek.runtime.hosts.tunnel import Tunnel
    from odradek.runtime.tls.file_contexts import TlsSource

READ_BUDGET = 2 << 20
"""Maximum number of bytes read from one connection before other connections are read."""
LARGE_COPY = 64 << 10
"""Bytes received at once from which on it pays to read again, as more have arrived meanwhile."""


class HostSockets:
    """The sockets of a host's connections."""

    _transports: dict[int, Transport]
    _leaving: list[Transport]
    _selector: selectors.BaseSelector | None
    _tls: TlsSource | None
    _closing: bool
    _engine: EngineInputs | None
    read_budget = READ_BUDGET
    plain_transport: Callable[[int, Address, Tunnel | None], Transport] = Transport
    """Function that creates a connection without TLS; simulations replace it."""

    if TYPE_CHECKING:  # defined in subclasses

        def _attached(self) -> EngineInputs: ...
        def _opened_selector(self) -> selectors.BaseSelector: ...

    def _send(self, effect: Send) -> None:
        transport = self._transports.get(effect.connection)
        if transport is None:  # the connection was lost
            return
        request, idle = effect.request, not transport.queued
        at_once = idle and transport.established and request.answered and not transport.tls
        try:
            buffers = request.encode()
            if not at_once or len(buffers) > IOV_MAX:
                transport.queue(buffers)
            elif transport.write(buffers):  # the usual case
                return
        except OSError as error:
            self._broken(transport, error)
        except Exception as error:  # the request can't be encoded
            not_from_outside(error)
            self._attached().not_sent(effect.connection, request.correlation_id, error)
            return
        if not request.answered:
            transport.mark(request.correlation_id)
        if idle and transport.established and transport.sock is not None:
            self._flush_one(transport)
        self._tell_writable(transport)
        self._watch(transport)

    def _open(self, effect: Open) -> None:
        if self._closing:
            self._attached().disconnected(effect.connection, "the client is being closed")
            return
        try:
            transport = self._new_transport(effect)
        except Exception as error:  # a user's TLS function may fail
            not_from_outside(error)
            self._attached().disconnected(effect.connection, error)
            return
        self._transports[effect.connection] = transport
        try:
            up = transport.open(effect.ip)
        except (OSError, KafkaError) as error:
            not_from_outside(error)
            self._lost(transport, error)
            return
        if up:
            self._connecting(transport)
        else:
            self._watch(transport)

    def _new_transport(self, effect: Open) -> Transport:
        tunnel = None
        if effect.hop is not None:
            from odradek.runtime.hosts.tunnel import Tunnel

            tunnel = Tunnel(effect.hop)
        if self._tls is None or effect.plain:
            return self.plain_transport(effect.connection, effect.address, tunnel)
        from odradek.runtime.tls.tls_transport import TlsTransport

        return TlsTransport(effect.connection, effect.address, self._tls(), tunnel)

    def _close(self, connection: int) -> None:
        transport = self._transports.pop(connection, None)
        if transport is None:
            return
        if self._closing and transport.queued and transport.established:
            self._leaving.append(transport)  # to write queued requests first
            return
        self._unwatch(transport)
        transport.close()

    def _watch(self, transport: Transport) -> None:
        if transport.sock is None or transport.watched == transport.wanted:
            return
        selector = self._opened_selector()
        if transport.watched:
            selector.modify(transport.fd, transport.wanted, transport)
        else:
            selector.register(transport.fd, transport.wanted, transport)
        transport.now_watched(transport.wanted)

    def _unwatch(self, transport: Transport) -> None:
        if transport.watched and self._selector is not None:
            self._selector.unregister(transport.fd)
            transport.now_watched(0)

    def _serve(self, transport: Transport, mask: int) -> None:
        if not transport.established:
            self._connecting(transport)
            return
        if mask == READ and not transport.tls:  # usual: there is nothing to write
            self._receive(transport)
            return
        if mask & WRITE or transport.tls:
            self._flush_one(transport)
        # With TLS, reading may wait for the socket to be writable.
        if transport.sock is not None and (mask & READ or transport.tls):
            self._receive(transport)
        self._tell_writable(transport)
        self._watch(transport)

    def _connecting(self, transport: Transport) -> None:
        try:
            if not transport.tcp_up:
                transport.finish_connect()
            if not transport.handshake():
                self._watch(transport)
                return
        except (
            OSError,
            ValueError,
            KafkaError,
        ) as error:  # ValueError: host name invalid for TLS
            not_from_outside(error)
            self._lost(transport, error)
            return
        transport.came_up()
        self._attached().connected(transport.connection)
        if transport.queued:
            self._flush_one(transport)
        self._watch(transport)

    def _flush_one(self, transport: Transport) -> None:
        try:
            transport.flush()
        except OSError as error:
            self._broken(transport, error)
        else:
            self._tell_sent(transport)

    def _broken(self, transport: Transport, error: OSError) -> None:
        """Read the last bytes of a socket to which writing has failed, then close it."""
        not_from_outside(error)
        self._tell_sent(transport)
        self._receive(transport)  # a response may have arrived
        if transport.sock is not None:
            self._lost(transport, error)

    def _tell_sent(self, transport: Transport) -> None:
        for identity in transport.marked():
            self._attached().sent(transport.connection, identity)

    def _receive(self, transport: Transport) -> None:
        engine, budget = self._engine or self._attached(), self.read_budget
        while budget > 0 and transport.sock is not None:
            try:
                buffer = engine.get_buffer(transport.connection)
                room = min(len(buffer), budget)
                count = transport.receive(buffer[:room])
                if count:
                    engine.buffer_updated(transport.connection, count)
            except BlockingIOError:
                return
            except (OSError, MemoryError) as error:  # MemoryError: a large response (R-TI-2)
                not_from_outside(error)
                self._lost(transport, error)
                return
            if count == 0:
                self._lost(transport, None)
                return
            budget -= count
            if count < room and count < LARGE_COPY:
                # Probably nothing is left to read. If the stream has ended, the next call notices
                # it, after the engine has processed the last bytes: a broker reports why it refuses
                # a password, and then closes the connection.
                return

    def _lost(self, transport: Transport, error: BaseException | None) -> None:
        self._transports.pop(transport.connection, None)
        self._unwatch(transport)
        transport.close()
        self._attached().disconnected(transport.connection, error)

    def _tell_writable(self, transport: Transport) -> None:
        if transport.sock is not None and transport.turned():
            self._attached().writable(transport.connection, not transport.full)
