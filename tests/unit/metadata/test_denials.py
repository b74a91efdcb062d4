"""R-RB-8: which denials, how many and how soon, end a connection (the reasons: in the module)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.types import Address
from odradek.metadata.denials import Denials
from odradek.network.connection import ASIDE, COORDINATOR, DATA
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest


class Scene:
    """Denials on one connection after the other."""

    def __init__(self) -> None:
        self.closed: list[float] = []
        self.engine = SimpleNamespace(now=0.0)
        network: Any = SimpleNamespace(engine=self.engine, on_lost=[], close=self.close)
        self.denials = Denials(network, SimpleNamespace(), random.Random(1))  # type: ignore[arg-type]
        self.lost = network.on_lost[0]
        self.connection = self.dial()

    def dial(self, purpose: str = DATA) -> Any:
        address, number = Address("a", 9092), len(self.closed)
        return SimpleNamespace(
            address=address, purpose=purpose, id=number, ended=False, in_flight=[]
        )

    def close(self, connection: Any, now: float, reason: str) -> None:
        self.closed.append(now)
        self.lost(connection, None, False, now)
        self.connection = self.dial(connection.purpose)

    def deny(self, thing: str = "x", named: int = 1, *, answered: int = 0, after: int = 0) -> int:
        """How many connections were ended by now."""
        self.engine.now += 1.0
        self.denials.denied(self.connection, thing, named, answered, after)
        return len(self.closed)


def test_the_third_denial_of_one_thing_counts() -> None:
    scene = Scene()
    assert [scene.deny() for _ in range(3)] == [0, 0, 1]
    assert [scene.deny() for _ in range(3)] == [1, 1, 2]


def test_only_what_was_said_again_since_can_be_denied_again() -> None:
    scene = Scene()
    said = [(1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3), (3, 4)]
    assert [scene.deny(answered=a, after=b) for a, b in said] == [0, 0, 0, 0, 0, 0, 1]


def test_another_leader_or_epoch_begins_anew() -> None:
    scene = Scene()
    assert [scene.deny(named=n) for n in (1, 1, 2, 2, 1, 1, 1)] == [0, 0, 0, 0, 0, 0, 1]


def test_one_thing_is_witness_and_the_last_of_any_gives_the_moment() -> None:
    scene = Scene()
    assert [scene.deny(t) for t in "xyyyyxy"] == [0] * 7
    scene.connection.in_flight = [SimpleNamespace(body=ProduceRequest())]
    assert scene.deny("x") == 0
    scene.connection.in_flight = [SimpleNamespace(body=FetchRequest())]
    assert scene.deny("y") == 1


def test_what_was_long_ago_counts_no_more() -> None:
    scene = Scene()
    for _ in range(5):
        assert scene.deny() == 0
        scene.engine.now += 61.0


@pytest.mark.parametrize("purpose", [DATA, COORDINATOR])
def test_ends_are_ever_rarer_until_there_were_none_for_a_while(purpose: str) -> None:
    scene = Scene()
    scene.connection = scene.dial(purpose)
    while scene.engine.now < 600.0:
        scene.deny()
    gaps = [b - a for a, b in zip(scene.closed, scene.closed[1:], strict=False)]
    assert gaps[:3] == sorted(gaps[:3])
    assert min(gaps[4:]) >= 6.0
    assert max(gaps) <= 11.0
    scene.engine.now += 100.0
    before = len(scene.closed)
    while scene.engine.now < 708.0:
        scene.deny()
    assert len(scene.closed) - before >= 2


def test_a_second_connection_proves_nothing() -> None:
    scene = Scene()
    scene.connection = scene.dial(ASIDE)
    assert [scene.deny() for _ in range(5)] == [0] * 5
