"""Asks one broker who is there: a Metadata v1 round trip in plain `struct` and a blocking socket.

In: an address. Out: the brokers it knows and the partitions without a leader, or None when it
doesn't answer. Must not: use our own client, which is what the cluster is there to test.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from odradek.common.types import Address

_METADATA = 3
_VERSION = 1  # the oldest that Kafka 4 speaks with a controller id in the answer
_LARGEST_ANSWER = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one broker believes of its cluster."""

    brokers: dict[int, Address]
    controller: int
    topics: int
    leaderless: int


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
        count = self.take(">i")  # first: it moves the position that is added to
        self._at += 4 * count


def ask(address: Address, timeout: float = 2.0) -> ClusterView | None:
    """Return what the broker at `address` answers, None when it can't be asked in time."""
    header = struct.pack(">hhih", _METADATA, _VERSION, 1, -1)
    body = struct.pack(">i", -1)  # a null array: all topics
    request = header + body
    try:
        with socket.create_connection((address.host, address.port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < length <= _LARGEST_ANSWER:
                return None
            return parse(_receive(connection, length))
    except OSError:
        return None


def _receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return bytes(data)


def parse(data: bytes) -> ClusterView:
    """Read an answer from its correlation id on."""
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
    leaderless = 0
    for _ in range(topics):
        reader.take(">h")  # error code
        reader.string()
        reader.take(">b")  # is internal
        for _ in range(reader.take(">i")):
            reader.take(">h")  # error code
            reader.take(">i")  # partition
            leaderless += reader.take(">i") < 0
            reader.skip_int32s()  # replicas
            reader.skip_int32s()  # in-sync replicas
    return ClusterView(brokers, controller, topics, leaderless)
