"""The front door on real sockets: bytes and ends pass, and it leads where it is told."""

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
    """Answers every connection with its name, then echoes until the other end closes."""

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


def dial(door: FrontDoor) -> socket.socket:
    return socket.create_connection((door.address.host, door.address.port), TIMEOUT)


def greeted(door: FrontDoor) -> bytes:
    with dial(door) as connection:
        return connection.recv(1)


def test_backends_take_turns_and_can_be_switched(door: FrontDoor, backends: list[Backend]) -> None:
    first, second = backends
    door.lead_to([first.address, second.address])
    assert sorted(greeted(door) for _ in range(4)) == [b"0", b"0", b"1", b"1"]
    door.lead_to([second.address])
    assert {greeted(door) for _ in range(3)} == {b"1"}
    assert door.accepted == 7


def test_a_dead_backend_is_passed_over(door: FrontDoor, backends: list[Backend]) -> None:
    dead, alive = backends
    dead.close()
    door.lead_to([dead.address, alive.address])
    assert {greeted(door) for _ in range(4)} == {b"1"}


def test_without_a_backend_the_connection_is_closed_at_once(door: FrontDoor) -> None:
    with dial(door) as connection, suppress(ConnectionResetError):
        assert connection.recv(1) == b""


def test_megabytes_pass_both_ways_unharmed(door: FrontDoor, backends: list[Backend]) -> None:
    door.lead_to([backends[0].address])
    sent = os.urandom(8 * 1024 * 1024)
    with dial(door) as connection:
        assert connection.recv(1) == b"0"
        # The whole comes back while it is sent: both buffers fill, so both ways have to wait.
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        received = bytearray()
        while len(received) < len(sent):
            received += connection.recv(1 << 20)
        sender.join(TIMEOUT)
    assert bytes(received) == sent


def test_open_connections_stay_when_the_door_leads_elsewhere_until_they_are_cut(
    door: FrontDoor, backends: list[Backend]
) -> None:
    door.lead_to([backends[0].address])
    with dial(door) as connection:
        assert connection.recv(1) == b"0"
        door.lead_to([backends[1].address])
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        door.drop_connections()
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_a_taken_port_is_refused_and_a_closed_door_too(door: FrontDoor) -> None:
    with pytest.raises(OSError, match="in use"):
        FrontDoor(port=door.address.port).start()
    door.close()
    with pytest.raises(ConnectionRefusedError):
        dial(door)


def test_closing_leaves_no_end_of_a_connection_open(backends: list[Backend]) -> None:
    """Neither of one that is just being accepted, nor of one whose bytes a broker doesn't take.

    What is left open warns when it is collected, and pytest makes an error of that.
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
                    one = dial(door)
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
