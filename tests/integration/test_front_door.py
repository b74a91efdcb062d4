"""Test the front door (a TCP proxy) on real sockets: it forwards data and closed connections."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from odradek.common.types import Address
from odradek.testing import FrontDoor

TIMEOUT = 10.0


class Backend:
    """Server that sends its name on each connection, then echoes until the peer closes."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._server = socket.create_server(("127.0.0.1", 0))
        host, port = self._server.getsockname()
        self.address = Address(host, port)
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                thread = threading.Thread(target=self._echo, args=(connection,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _echo(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(self._name)
            while data := connection.recv(65536):
                connection.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in [self._acceptor, *self._threads]:
            thread.join(TIMEOUT)


@pytest.fixture
def backends() -> Iterator[list[Backend]]:
    made = [Backend(b"0"), Backend(b"1")]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def door() -> Iterator[FrontDoor]:
    opened = FrontDoor()
    opened.start()
    yield opened
    opened.close()


def connect(door: FrontDoor) -> socket.socket:
    return socket.create_connection((door.address.host, door.address.port), TIMEOUT)


def first_byte(door: FrontDoor) -> bytes:
    with connect(door) as connection:
        return connection.recv(1)


def test_connections_are_distributed_and_backends_can_be_changed(
    door: FrontDoor, backends: list[Backend]
) -> None:
    first, second = backends
    door.lead_to([first.address, second.address])
    assert sorted(first_byte(door) for _ in range(4)) == [b"0", b"0", b"1", b"1"]
    door.lead_to([second.address])
    assert {first_byte(door) for _ in range(3)} == {b"1"}
    assert door.accepted == 7


def test_a_dead_backend_is_skipped(door: FrontDoor, backends: list[Backend]) -> None:
    dead, alive = backends
    dead.close()
    door.lead_to([dead.address, alive.address])
    assert {first_byte(door) for _ in range(4)} == {b"1"}


def test_without_a_backend_the_connection_is_closed_at_once(door: FrontDoor) -> None:
    with connect(door) as connection, suppress(ConnectionResetError):
        assert connection.recv(1) == b""


def test_megabytes_are_forwarded_in_both_directions(
    door: FrontDoor, backends: list[Backend]
) -> None:
    door.lead_to([backends[0].address])
    sent = os.urandom(8 * 1024 * 1024)
    with connect(door) as connection:
        assert connection.recv(1) == b"0"
        # The echo comes back during sending, so both buffers fill and both directions have to wait.
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        received = bytearray()
        while len(received) < len(sent):
            received += connection.recv(1 << 20)
        sender.join(TIMEOUT)
    assert bytes(received) == sent


def test_open_connections_keep_their_backend_until_they_are_dropped(
    door: FrontDoor, backends: list[Backend]
) -> None:
    door.lead_to([backends[0].address])
    with connect(door) as connection:
        assert connection.recv(1) == b"0"
        door.lead_to([backends[1].address])
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        door.drop_connections()
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_starting_on_a_used_port_and_connecting_to_a_closed_proxy_raise(door: FrontDoor) -> None:
    with pytest.raises(OSError, match="in use"):
        FrontDoor(port=door.address.port).start()
    door.close()
    with pytest.raises(ConnectionRefusedError):
        connect(door)


def test_close_closes_both_ends_of_each_connection(backends: list[Backend]) -> None:
    """Close connections that are just being accepted, and connections with unsent data.

    A socket that is still open warns when it is collected; pytest raises the warning as an error.
    """
    deaf = socket.create_server(("127.0.0.1", 0))
    for _ in range(50):
        door = FrontDoor()
        door.start()
        door.lead_to([Address(*deaf.getsockname()[:2]), backends[0].address])
        dialled: list[socket.socket] = []

        def come(door: FrontDoor = door, dialled: list[socket.socket] = dialled) -> None:
            with suppress(OSError):
                for _ in range(20):
                    one = connect(door)
                    dialled.append(one)
                    one.setblocking(False)
                    one.send(bytes(1 << 20))

        comer = threading.Thread(target=come)
        comer.start()
        while not dialled:
            time.sleep(0.001)
        door.close()
        comer.join(TIMEOUT)
        for one in dialled:
            one.close()
        del door
    gc.collect()
    deaf.close()
