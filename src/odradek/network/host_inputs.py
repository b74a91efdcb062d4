"""What a host tells of connections: recorded here, done in the next step by the network client.

In: the calls of a host, from any thread. Out: actions posted to the engine; where received bytes
belong, and the frames that they complete. Must not: move any state (frame readers apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.common.errors import MalformedMessageError
from odradek.network.connection import Connection
from odradek.network.effects import IncomingResponse
from odradek.network.engine import Engine
from odradek.protocol.message import Message


class HostInputs:
    """The half of the network client that faces the host."""

    engine: Engine
    _by_id: dict[int, Connection]

    def connected(self, connection: int) -> None:
        """TCP (and TLS) is up."""
        self.engine.post(lambda now: self._connected(connection, now))

    def disconnected(self, connection: int, error: BaseException | str | None) -> None:
        """The connection is gone or couldn't be opened."""
        self.engine.post(lambda now: self._disconnected(connection, error, now))

    def sent(self, connection: int, correlation_id: int) -> None:
        """A request without an answer is written."""
        self.engine.post(lambda now: self._written(connection, correlation_id))

    def get_buffer(self, connection: int) -> memoryview:
        """Where received bytes belong."""
        found = self._by_id.get(connection)
        return found.reader.get_buffer() if found is not None else memoryview(bytearray(65536))

    def buffer_updated(self, connection: int, count: int) -> None:
        """Bytes were received."""
        if (found := self._by_id.get(connection)) is None:
            return
        try:
            frames = found.take_bytes(count)
        except MalformedMessageError as error:
            failure = error
            self.engine.post(lambda now: self._malformed(connection, failure, now))
            return
        if frames:
            self.engine.post(lambda now: self._frames(connection, frames, now))

    def received(self, connection: int, response: IncomingResponse) -> None:
        """A response as an object."""
        self.engine.post(
            lambda now: self._answered(
                connection, response.correlation_id, None, response.message, now
            )
        )

    def writable(self, connection: int, ready: bool) -> None:
        """Whether the host takes more for this connection."""
        self.engine.post(lambda now: self._set_writable(connection, ready))

    def resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        """A name's addresses."""
        self.engine.post(lambda now: self._resolved(token, result))

    if TYPE_CHECKING:  # what the network client does with them

        def _connected(self, number: int, now: float) -> None: ...
        def _disconnected(
            self, number: int, error: BaseException | str | None, now: float
        ) -> None: ...
        def _malformed(self, number: int, error: MalformedMessageError, now: float) -> None: ...
        def _frames(self, number: int, frames: list[memoryview], now: float) -> None: ...
        def _answered(
            self,
            number: int,
            identity: int,
            frame: memoryview | None,
            message: Message | None,
            now: float,
        ) -> None: ...
        def _written(self, number: int, identity: int) -> None: ...
        def _set_writable(self, number: int, ready: bool) -> None: ...
        def _resolved(self, token: int, result: Sequence[str] | BaseException) -> None: ...
