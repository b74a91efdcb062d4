"""R-RB-8: test how many NOT_LEADER errors, and over what time, close a connection."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.types import Address
from odradek.metadata.not_leader_errors import NotLeaderErrors
from odradek.network.connection import ASIDE, COORDINATOR, DATA, SECONDARY
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest


class Scene:
    """NOT_LEADER errors on successive connections to one address."""

    def __init__(self, backoff: float = 1.0) -> None:
        self.closed: list[float] = []
        self.quiet: list[float] = []
        self.engine = SimpleNamespace(now=0.0)
        network: Any = SimpleNamespace(engine=self.engine, on_lost=[], close=self.close)
        metadata: Any = SimpleNamespace()
        self.denials = NotLeaderErrors("c", network, metadata, random.Random(1), backoff)
        self.lost = network.on_lost[0]
        self.connection = self.dial()

    def dial(self, purpose: str = DATA) -> Any:
        address, number = Address("a", 9092), len(self.closed)
        made = SimpleNamespace(address=address, purpose=purpose, id=number, ended=False)
        made.secondary = purpose in SECONDARY
        made.in_flight, made.rest = [], self.quiet.append
        return made

    def close(self, connection: Any, now: float, reason: str) -> None:
        self.closed.append(now)
        self.lost(connection, None, False, now)
        self.connection = self.dial(connection.purpose)

    def deny(self, thing: str = "x", named: int = 1, *, answered: int = 0, after: int = 0) -> int:
        """Advance two seconds, report an error, and return the number of closed connections."""
        self.engine.now += 2.0
        self.denials.denied(self.connection, thing, named, answered, after)
        return len(self.closed)


def test_the_third_not_leader_error_for_a_partition_closes_the_connection() -> None:
    scene = Scene()
    assert [scene.deny() for _ in range(3)] == [0, 0, 1]
    assert [scene.deny() for _ in range(3)] == [1, 1, 2]


def test_not_leader_errors_within_an_election_close_no_connection() -> None:
    scene = Scene()
    for _ in range(20):
        scene.denials.denied(scene.connection, "x", 1, 0, 0)
        scene.engine.now += 0.14
    assert scene.closed == []
    assert scene.deny() == 1


def test_an_error_counts_only_if_metadata_was_confirmed_since_the_last_error() -> None:
    scene = Scene()
    said = [(1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3), (3, 4)]
    assert [scene.deny(answered=a, after=b) for a, b in said] == [0, 0, 0, 0, 0, 0, 1]


def test_another_leader_or_epoch_resets_the_count_of_errors() -> None:
    scene = Scene()
    assert [scene.deny(named=n) for n in (1, 1, 2, 2, 1, 1, 1)] == [0, 0, 0, 0, 0, 0, 1]


def test_only_one_partitions_errors_count_until_it_has_none_for_five_seconds() -> None:
    scene = Scene()
    assert [scene.deny(t) for t in "xyxy"] == [0] * 4
    assert scene.deny("x") == 1
    assert [scene.deny(t) for t in "xyyyy"] == [1, 1, 1, 1, 1]
    assert scene.deny("y") == 2


@pytest.mark.parametrize("kind", [ProduceRequest, MetadataRequest])
def test_no_connection_with_a_produce_or_metadata_request_in_flight_is_closed(kind: Any) -> None:
    scene = Scene()
    scene.connection.in_flight = [SimpleNamespace(body=FetchRequest()), SimpleNamespace(body=kind)]
    assert [scene.deny() for _ in range(4)] == [0] * 4
    assert scene.quiet == [6.5, 8.5]
    del scene.connection.in_flight[1]
    assert scene.deny() == 1


def test_not_leader_errors_far_apart_do_not_close_the_connection() -> None:
    scene = Scene()
    for _ in range(5):
        assert scene.deny() == 0
        scene.engine.now += 4.0


def test_not_leader_errors_far_apart_count_if_the_backoff_is_long() -> None:
    scene = Scene(backoff=10.0)
    found = []
    for _ in range(3):
        found.append(scene.deny())
        scene.engine.now += 10.0
    assert found == [0, 0, 1]


def test_the_first_closed_connection_is_logged_as_info_and_the_second_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "odradek.metadata")
    scene = Scene()
    while len(scene.closed) < 2:
        scene.deny()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.messages[0].startswith(
        "[c] reconnecting to a:9092, because the broker there keeps answering"
    )


@pytest.mark.parametrize("purpose", [DATA, COORDINATOR])
def test_connections_are_closed_less_often_until_no_error_occurs_for_a_while(purpose: str) -> None:
    scene = Scene()
    scene.connection = scene.dial(purpose)
    while scene.engine.now < 600.0:
        scene.deny()
    gaps = [b - a for a, b in zip(scene.closed, scene.closed[1:], strict=False)]
    assert gaps[:3] == sorted(gaps[:3])
    assert min(gaps[4:]) >= 6.0
    assert max(gaps) <= 14.0
    scene.engine.now += 100.0
    before = len(scene.closed)
    while scene.engine.now < 716.0:
        scene.deny()
    assert len(scene.closed) - before >= 2


def test_errors_on_a_secondary_connection_do_not_count() -> None:
    scene = Scene()
    scene.connection = scene.dial(ASIDE)
    assert [scene.deny() for _ in range(5)] == [0] * 5
