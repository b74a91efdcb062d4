"""Encrypt a connection with TLS, in the I/O host: the engine gets decrypted bytes.

In: an established TCP connection, an `ssl.SSLContext`. Out: a `Transport` whose bytes are
encrypted. Decrypted bytes are written directly into the engine's buffer, without a copy. Must not:
choose protocols or trusted certificates, which the context determines.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.common.types import Address
from odradek.runtime.hosts.transport import READ, SEND_BUDGET, WRITE, Transport

if TYPE_CHECKING:
    from odradek.runtime.hosts.tunnel import Tunnel

CHUNK = 64 << 10
"""Number of bytes passed to OpenSSL at once, which splits them into records of 16 KiB."""
JOIN = 8 << 10
"""Size in bytes below which buffers are joined, as each write creates a TLS record."""


class TlsTransport(Transport):
    """A TCP connection with TLS."""

    tls = True

    def __init__(
        self,
        connection: int,
        address: Address,
        context: ssl.SSLContext,
        tunnel: Tunnel | None = None,
    ) -> None:
        super().__init__(connection, address, tunnel)
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._wanted = WRITE
        self._read_wants_write = False
        self._write_wants_read = False
        self._broken: OSError | None = None
        self._ended = False

    def handshake(self) -> bool:
        """Continue the handshake. Raises `ssl.SSLError` with the reason, or `OSError`.

        The file descriptor remains the same when the socket is wrapped.
        """
        if self._tls is None:
            if not super().handshake():
                self._wanted = super().wanted
                return False
            sock = self._socket()
            # If one of these fails inside `wrap_socket`, Python 3.11 leaks the descriptor.
            self.address.host.encode("idna")
            sock.getpeername()
            self.sock = self._tls = self._context.wrap_socket(
                sock,
                # A host name may end with a dot, a name in a certificate doesn't.
                server_hostname=self.address.host.removesuffix("."),
                do_handshake_on_connect=False,
            )
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wanted = READ
            return False
        except ssl.SSLWantWriteError:
            self._wanted = WRITE
            return False
        return True

    def _encrypted(self) -> ssl.SSLSocket:
        if self._tls is None:
            raise OSError("the TLS handshake isn't finished")
        return self._tls

    @property
    def wanted(self) -> int:
        """Events for which the selector should watch: with TLS, reading may require writing."""
        if not self.established:
            return self._wanted
        write = self._read_wants_write or (self._queue and not self._write_wants_read)
        return READ | WRITE if write else READ

    @property
    def pending(self) -> bool:
        """Whether there are decrypted bytes, an end or an error that the selector can't report."""
        if self._tls is None:
            return False
        return self._broken is not None or self._ended or self._tls.pending() > 0

    def queue(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Join small adjacent buffers; large buffers aren't copied."""
        small: list[bytes | memoryview] = []
        for buffer in buffers:
            if memoryview(buffer).nbytes < JOIN:
                small.append(buffer)
                continue
            super().queue([b"".join(small), buffer])
            small.clear()
        super().queue([b"".join(small)])

    def flush(self) -> None:
        """Write as much as OpenSSL accepts; after SSLWant…Error, pass the same bytes again."""
        tls, queue, budget = self._encrypted(), self._queue, SEND_BUDGET
        self._write_wants_read = False
        while queue and budget > 0:
            try:
                count = tls.send(queue[0][:CHUNK])
            except ssl.SSLWantReadError:
                self._write_wants_read = True
                return
            except ssl.SSLWantWriteError:
                return
            self._sent(count)
            budget -= count

    def receive(self, buffer: memoryview) -> int:
        """Decrypt into a buffer until it is full or nothing is left; return 0 at the stream's end.

        OpenSSL returns one TLS record of 16 KiB at a time; reading several saves engine steps. An
        end without close_notify is accepted: Kafka's frames contain their length, so a cut stream
        isn't taken for a response. An error after decrypted bytes is raised by the next call.
        """
        self._read_wants_write = False
        if self._broken is not None:
            raise self._broken
        receive, got, size = self._encrypted().recv_into, 0, len(buffer)
        try:
            while got < size and not self._ended:
                count = receive(buffer[got:])
                self._ended = not count
                got += count
        except ssl.SSLWantReadError:
            if not got:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self._read_wants_write = True
            if not got:
                raise BlockingIOError from None
        except OSError as error:
            if not got:
                raise
            self._broken = error
        return got

    def close(self) -> None:
        """Send close_notify if that is possible at once, then close."""
        if self._tls is not None and self.established and not self._queue:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        self._tls = None
        super().close()

    def abandon(self) -> None:
        """Close the descriptor in a forked child; send nothing, as the parent uses the keys."""
        self._tls = None
        super().abandon()
