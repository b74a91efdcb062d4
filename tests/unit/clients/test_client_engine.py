"""What callers' threads look at while the host's thread works on it."""

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


class Restless:
    """A connection; whoever looks at it finds that others came and went meanwhile."""

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
        connections[address, "data"] = Restless(connections, address)
    return SimpleNamespace(connections=connections, states=SimpleNamespace(all=list))


def test_attempts_are_told_while_connections_come_and_go() -> None:
    updater = SimpleNamespace(attempts=deque([Attempt(HERE, "Metadata", "no answer", 0.5)]))
    engine = cast("ClientEngine", SimpleNamespace(network=network(), updater=updater))
    found = ClientEngine.recent_attempts(engine, 2.0)
    assert [(a.address, a.what) for a in found] == [
        (HERE, "Metadata"),
        (HERE, "connect"),
        (THERE, "connect"),
    ]


def test_a_refusal_is_looked_up_while_connections_come_and_go() -> None:
    refusals = Refusals.__new__(Refusals)
    refusals._network = network()
    assert not refusals._connected()
