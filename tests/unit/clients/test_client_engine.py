"""Test that callers' threads can read connections while the I/O thread changes them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from odradek.clients.client_engine import ClientEngine
from odradek.common.errors import Attempt
from odradek.common.types import Address
from odradek.metadata.refusals import Refusals
from odradek.network.connection_state import ConnectionState

HERE, THERE = Address("here", 1), Address("there", 2)


class AddingConnection:
    """A connection that adds another one to the dict whenever it is read."""

    state = ConnectionState.CONNECTING
    dialled_at = 1.0

    def __init__(self, connections: dict[Any, Any], address: Address) -> None:
        self._connections = connections
        self.address = address

    @property
    def ready(self) -> bool:
        self._connections[len(self._connections), "another"] = self
        return False


def network() -> Any:
    connections: dict[Any, Any] = {}
    for address in (HERE, THERE):
        connections[address, "data"] = AddingConnection(connections, address)
    return SimpleNamespace(connections=connections, states=SimpleNamespace(all=list))


def test_recent_attempts_can_be_listed_while_connections_are_added() -> None:
    updater = SimpleNamespace(attempts=deque([Attempt(HERE, "Metadata", "no answer", 0.5)]))
    engine = cast("ClientEngine", SimpleNamespace(network=network(), updater=updater))
    found = ClientEngine.recent_attempts(engine, 2.0)
    assert [(a.address, a.what) for a in found] == [
        (HERE, "Metadata"),
        (HERE, "connect"),
        (THERE, "connect"),
    ]


def test_connections_can_be_checked_while_connections_are_added() -> None:
    refusals = Refusals.__new__(Refusals)
    refusals._network = network()
    assert not refusals._connected()
