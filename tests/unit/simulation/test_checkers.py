"""Each checker must notice what it is there for; that it stays quiet else, every scenario shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.common.config import Config
from odradek.common.events import EventLog
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.partition_log import check_batch
from odradek.simulation.checkers.invariants import (
    Checkers,
    PositionsGoForward,
    RecordLedger,
    RecordsOnce,
    Violation,
)

TP = TopicPartition("t", 0)
A = "10.0.0.2:9092"
B = "10.0.0.3:9092"


@pytest.fixture
def watched() -> tuple[EventLog, Checkers]:
    events, checkers = EventLog("client"), Checkers(World())
    checkers.watch(events, Config("admin", {"bootstrap.servers": A}))
    return events, checkers


Watched = tuple[EventLog, Checkers]


def test_a_second_metadata_request_in_flight(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "metadata_request", address=A)
    events.emit(1.1, "metadata", address=A)
    events.emit(1.2, "metadata_request", address=A)
    events.emit(1.3, "metadata_failed", address=B)  # a dial of the round, not the request
    checkers.verify()
    events.emit(1.4, "metadata_request", address=B)
    with pytest.raises(Violation, match="while the one to"):
        checkers.verify()


def test_a_dial_before_the_backoff_is_over(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "dial", address=A)
    events.emit(1.0, "dial_failed", address=A, failure=True, backoff=0.05)
    events.emit(1.041, "dial", address=A)
    checkers.verify()
    events.emit(1.041, "dial_failed", address=A, failure=True, backoff=0.1)
    events.emit(1.10, "dial", address=A)
    with pytest.raises(Violation, match="too soon after 2 failures"):
        checkers.verify()


def test_a_backoff_that_doesnt_grow(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "dial_failed", address=A, failure=True, backoff=0.05)
    events.emit(2.0, "dial_failed", address=A, failure=True, backoff=0.05)
    with pytest.raises(Violation, match="allowed are 0.080 to 0.120"):
        checkers.verify()


def test_a_backoff_that_was_reset_by_a_mere_connect(watched: Watched) -> None:
    events, checkers = watched
    for at in (1.0, 2.0):
        events.emit(at, "connected", address=A)
        events.emit(at, "ready", address=A)
        events.emit(at, "disconnected", address=A, failure=True, backoff=0.05)
    with pytest.raises(Violation):
        checkers.verify()


def test_a_proof_resets_the_backoff(watched: Watched) -> None:
    events, checkers = watched
    for at in (1.0, 2.0):
        events.emit(at, "disconnected", address=A, failure=True, backoff=0.05)
        events.emit(at + 0.5, "proved", address=A)
    events.emit(3.0, "disconnected", address=A, failure=False)
    checkers.verify()
    events.emit(3.01, "dial", address=A)
    with pytest.raises(Violation, match="too soon after 0 failures"):
        checkers.verify()


def test_another_clusters_answer_is_no_proof(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "dial_failed", address=A, failure=True, backoff=0.05)
    events.emit(2.0, "proved", address=A)
    events.emit(2.0, "foreign_cluster", address=A)
    events.emit(2.0, "disconnected", address=A, failure=True, backoff=0.1)
    checkers.verify()
    events.emit(3.0, "disconnected", address=A, failure=True, backoff=0.05)
    with pytest.raises(Violation, match="allowed are"):
        checkers.verify()


def test_rounds_and_retries_wait_as_they_should(watched: Watched) -> None:
    events, checkers = watched
    for backoff in (0.1, 0.2, 0.4):
        events.emit(1.0, "round_failed", round=1, backoff=backoff)
    events.emit(1.5, "metadata", address=A)
    events.emit(2.0, "round_failed", round=2, backoff=0.1)
    events.emit(2.0, "retry", what="a call", attempt=2, backoff=0.2)
    events.emit(2.0, "retry", what="a batch whose leader moved", attempt=7, backoff=0.0)
    checkers.verify()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("round_failed", {"round": 1, "backoff": 0.07}),
        ("round_failed", {"round": 1, "backoff": 0.13}),
        ("retry", {"what": "a call", "attempt": 3, "backoff": 0.2}),
    ],
)
def test_rounds_and_retries_that_wait_too_long_or_too_short(
    watched: Watched, kind: str, fields: dict[str, object]
) -> None:
    events, checkers = watched
    events.emit(1.0, kind, **fields)
    with pytest.raises(Violation, match="allowed are"):
        checkers.verify()


def test_an_outage_that_counts_two_rebootstraps(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "rebootstrap", why="", known=[])
    events.emit(1.1, "rebootstrapped", address=A)
    events.emit(1.2, "rebootstrap", why="", known=[])
    checkers.verify()
    events.emit(9.0, "rebootstrap", why="", known=[])
    with pytest.raises(Violation, match="while the last one goes on"):
        checkers.verify()


def test_rebootstraps_that_follow_too_fast(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "rebootstrap", why="", known=[])
    events.emit(1.01, "rebootstrapped", address=A)
    events.emit(1.07, "rebootstrap", why="", known=[])
    with pytest.raises(Violation, match=r"0\.070 s after the last one"):
        checkers.verify()


def dial(events: EventLog, at: float, number: int) -> None:
    events.emit(at, "dial", address=f"10.0.1.{number}:9092", purpose="data", connection=number)


def test_dials_are_limited_only_after_a_failure(watched: Watched) -> None:
    events, checkers = watched
    for number in range(20):
        dial(events, 1.0, number)
    for number in range(15):
        events.emit(1.1, "ready", address=f"10.0.1.{number}:9092", purpose="data")
    events.emit(
        1.1, "dial_failed", address="10.0.1.15:9092", connection=15, failure=True, backoff=0.05
    )
    dial(events, 2.1, 20)
    checkers.verify()


def test_too_many_dials_in_a_second(watched: Watched) -> None:
    events, checkers = watched
    for number in range(6):
        dial(events, 1.0 + number * 0.15, number)
        fields = {"address": f"10.0.1.{number}:9092", "connection": number}
        events.emit(1.0 + number * 0.15, "dial_failed", failure=True, backoff=0.05, **fields)
    checkers.verify()
    dial(events, 1.9, 6)
    with pytest.raises(Violation, match="more than 6 dials within a second"):
        checkers.verify()


def test_dials_in_a_burst(watched: Watched) -> None:
    events, checkers = watched
    events.emit(1.0, "disconnected", address=A, failure=True, backoff=0.05)
    dial(events, 1.1, 1)
    dial(events, 1.14, 2)
    events.emit(1.2, "proved", address=B)
    dial(events, 1.2, 3)
    dial(events, 1.2, 4)
    checkers.verify()
    events.emit(1.3, "disconnected", address=B, failure=True, backoff=0.05)
    dial(events, 1.4, 5)
    dial(events, 1.42, 6)
    with pytest.raises(Violation, match=r"a dial 0\.0200 s after another"):
        checkers.verify()


def test_too_many_dials_that_hang(watched: Watched) -> None:
    events, checkers = watched
    events.emit(0.0, "disconnected", address=A, failure=True, backoff=0.05)
    for number in range(6):
        dial(events, 1.0 + number, number)
    checkers.verify()
    dial(events, 8.0, 6)
    with pytest.raises(Violation, match="while 6 others are pending"):
        checkers.verify()


def test_hot_loops_are_reported() -> None:
    world = World()
    world.hot_loops.append("client: 9999 steps in second 3")
    with pytest.raises(Violation, match="9999 steps"):
        Checkers(world).verify()


def stored(*values: bytes) -> SimulatedCluster:
    cluster = SimulatedCluster(World(), 1)
    cluster.create_topic("t")
    log = cluster.log("t", 0)
    for value in values:
        builder = BatchBuilder(1 << 16, None)
        builder.append(None, value, (), 1000)
        data = bytes(builder.build())
        log.commit(log.append(data, check_batch(data), 0))
    return cluster


def ledger(*records: tuple[bytes, int | None]) -> RecordLedger:
    made = RecordLedger()
    for value, _ in records:
        made.sent(TP, value)
    for value, offset in records:
        if offset is not None:
            made.acknowledged(TP, value, offset)
    return made


@pytest.mark.parametrize(
    ("records", "log", "complaint"),
    [
        ([(b"a", 0), (b"b", 1)], [b"a"], "is lost"),
        ([(b"a", 0)], [b"b", b"a"], "is at 1"),
        ([(b"a", 0), (b"b", None)], [b"a", b"b", b"b"], "is at 1 and at 2"),
        ([(b"a", 1), (b"b", 0)], [b"b", b"a"], "comes before"),
        ([(b"a", None), (b"b", None)], [b"b", b"a"], "comes before"),
    ],
)
def test_lost_doubled_and_disordered_records(
    records: list[tuple[bytes, int | None]], log: list[bytes], complaint: str
) -> None:
    with pytest.raises(Violation, match=complaint):
        ledger(*records).verify(stored(*log))


def test_records_that_were_not_acknowledged_may_be_lost_or_kept() -> None:
    sent = ledger((b"a", 0), (b"b", None), (b"c", 1), (b"d", None))
    sent.verify(stored(b"a", b"c", b"d"))


@pytest.mark.parametrize(
    "go_back",
    [lambda p: p.moved(TP, 4), lambda p: (p.sought(TP, 2), p.moved(TP, 3), p.moved(TP, 2))],
)
def test_positions_that_go_back(go_back: Callable[[PositionsGoForward], object]) -> None:
    positions = PositionsGoForward()
    positions.moved(TP, 5)
    positions.moved(TP, 5)
    with pytest.raises(Violation, match="back to"):
        go_back(positions)


def test_records_that_are_read_twice_or_not_at_all() -> None:
    read = RecordsOnce()
    with pytest.raises(Violation, match="offset 1, though 0 was next"):
        read.read(TP, 1)
    read.read(TP, 0)
    with pytest.raises(Violation, match="offset 0 again"):
        read.read(TP, 0)
    with pytest.raises(Violation, match="read up to 1 of 2"):
        read.verify(stored(b"a", b"b"), [TP])
    read.read(TP, 1)
    read.verify(stored(b"a", b"b"), [TP])
