"""Ask one broker for the cluster or a topic, with plain `struct` on a blocking socket.

In: an address. Out: the brokers that this broker knows and the number of partitions without a
leader, or the state of a topic; None if the broker doesn't answer. `login` is a name and a password
for SASL PLAIN, if the broker requires them. Must not: use Odradek's client, which is tested with
these clusters. (Kafka's own tool does the same, but its JVM takes a second of CPU time.)
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from odradek.common.types import Address

_METADATA = 3
_VERSION = 1  # oldest version in Kafka 4 with a controller id
_CREATE_TOPICS = 19
_CREATE_VERSION = 2  # oldest version in Kafka 4
_LARGEST_ANSWER = 16 * 1024 * 1024
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36

Login = tuple[str, str]
"""A user name and a password."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A broker's view of its cluster."""

    brokers: dict[int, Address]
    controller: int
    topics: int
    leaderless: int
    refused: int = 0
    """Number of topics with an error instead of partitions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's response for a topic; error code 0 and an empty text if it was created."""

    error_code: int
    text: str


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def string(self) -> str:
        length = self.take(">h")
        if length < 0:
            return ""
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def skip_int32s(self) -> None:
        count = self.take(">i")  # read first, because `take` changes `_at`
        self._at += 4 * count


def ask(
    address: Address, timeout: float = 2.0, topic: str | None = None, login: Login | None = None
) -> ClusterView | None:
    """Return a broker's metadata of one topic or all; None if the broker doesn't answer in time."""
    wanted = struct.pack(">i", -1) if topic is None else struct.pack(">i", 1) + _string(topic)
    data = _exchange(address, _METADATA, _VERSION, wanted, timeout, login)
    return None if data is None else parse(data)


def accepts(address: Address, timeout: float = 0.5) -> bool:
    """Return whether any process accepts connections at an address."""
    try:
        socket.create_connection((address.host, address.port), timeout).close()
    except OSError:
        return False
    return True


def create_topic(
    address: Address,
    topic: str,
    partitions: int,
    copies: int,
    timeout: float,
    login: Login | None = None,
) -> Answer | None:
    """Create a topic through the broker at `address`, which forwards the request."""
    body = struct.pack(">i", 1) + _string(topic) + struct.pack(">ih", partitions, copies)
    body += struct.pack(">iiib", 0, 0, int(timeout * 1000), 0)  # no assignments, no options
    data = _exchange(address, _CREATE_TOPICS, _CREATE_VERSION, body, timeout, login)
    return None if data is None else parse_creation(data)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _exchange(
    address: Address, key: int, version: int, body: bytes, timeout: float, login: Login | None
) -> bytes | None:
    """Send a request on a new connection; return the response without its length."""
    try:
        with socket.create_connection((address.host, address.port), timeout) as connection:
            connection.settimeout(timeout)
            if login is not None:
                _log_in(connection, *login)
            return _answer(connection, key, version, body)
    except OSError:
        return None


def _answer(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 < length <= _LARGEST_ANSWER:
        raise ConnectionError(f"the broker sent an invalid response length, {length}")
    return _receive(connection, length)


def _log_in(connection: socket.socket, name: str, password: str) -> None:
    """Authenticate by SASL PLAIN (RFC 4616) in Kafka's frames (KIP-152)."""
    token = b"\0" + name.encode() + b"\0" + password.encode()
    for key, version, body in (
        (_SASL_HANDSHAKE, 1, _string("PLAIN")),
        (_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token),
    ):
        (code,) = struct.unpack_from(">h", _answer(connection, key, version, body), 4)
        if code:
            raise ConnectionError(f"the broker refuses the credentials (error {code})")


def _receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return bytes(data)


def parse(data: bytes) -> ClusterView:
    """Parse a metadata response, which begins with the correlation id."""
    reader = _Reader(data)
    reader.take(">i")  # correlation id
    brokers = {}
    for _ in range(reader.take(">i")):
        node = reader.take(">i")
        host, port = reader.string(), reader.take(">i")
        reader.string()  # rack
        brokers[node] = Address(host, port)
    controller = reader.take(">i")
    topics = reader.take(">i")
    leaderless = refused = 0
    for _ in range(topics):
        refused += reader.take(">h") != 0  # error code
        reader.string()
        reader.take(">b")  # is internal
        for _ in range(reader.take(">i")):
            reader.take(">h")  # error code
            reader.take(">i")  # partition
            leaderless += reader.take(">i") < 0
            reader.skip_int32s()  # replicas
            reader.skip_int32s()  # in-sync replicas
    return ClusterView(brokers, controller, topics, leaderless, refused)


def parse_creation(data: bytes) -> Answer:
    """Parse a CreateTopics response with one topic."""
    reader = _Reader(data)
    for _ in range(3):  # correlation id, throttle time, number of topics
        reader.take(">i")
    reader.string()
    return Answer(reader.take(">h"), reader.string())
