"""Send a test's own requests to a broker without a client; responses come in order."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from tests.answers import decode_response
from tests.proxy_server import take

from odradek.protocol.headers import encode_request


class RawConnection:
    """Blocking connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 10.0)
        self._asked: list[tuple[Any, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, body: Any, version: int) -> None:
        """Send a request; `answer` reads its response."""
        number = len(self._asked)
        self._asked.append((type(body), version))
        self._socket.sendall(b"".join(encode_request(body, version, number, "script")))

    def answer(self, number: int = -1) -> Any:
        """Return the next response, decoded for the last request or the request with a number."""
        (size,) = struct.unpack(">i", take(self._socket, 4))
        kind, version = self._asked[number]
        return decode_response(kind, version, take(self._socket, size))[1]

    def ask(self, body: Any, version: int) -> Any:
        """Send a request and return its response."""
        self.send(body, version)
        return self.answer()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
