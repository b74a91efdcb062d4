"""Each checker reports a violation of its rule, and accepts correct behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.common.config import Config
from odradek.common.events import Event, EventLog
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.checkers.invariants import (
    Checkers,
    PositionsGoForward,
    RecordLedger,
    RecordsOnce,
    TopicIdsAdvance,
    Violation,
)
from odradek.simulation.logs.partition_log import check_batch

TP = TopicPartition("t", 0)
A = "10.0.0.2:9092"
B = "10.0.0.3:9092"


Happening = tuple[float, str, dict[str, Any]]
FAILED: dict[str, Any] = {"failure": True, "backoff": 0.05}
FAILED_AGAIN: dict[str, Any] = {"failure": True, "backoff": 0.1}
BEGUN: dict[str, Any] = {"why": "", "known": []}


def at(when: float, kind: str, address: str | None = A, **fields: Any) -> Happening:
    return when, kind, fields if address is None else {"address": address, **fields}


def dial(when: float, number: int) -> Happening:
    return at(when, "dial", f"10.0.1.{number}:9092", purpose="data", connection=number)


SEEN: dict[str, tuple[list[Happening], list[Happening], str]] = {
    "a second metadata request in flight": (
        [
            *(at(1.0, "metadata_request"), at(1.1, "metadata"), at(1.2, "metadata_request")),
            at(1.3, "metadata_failed", B),  # an attempt at a bootstrap address
        ],
        [at(1.4, "metadata_request", B)],
        "while the one to",
    ),
    "a second metadata request to the same address on the same connection": (
        [
            *(at(1.0, "metadata_request"), at(3.0, "dial", purpose="metadata")),
            at(3.1, "metadata_request"),
        ],
        [at(5.2, "metadata_request")],
        "while the one to",
    ),
    "a dial before the backoff is over": (
        [at(1.0, "dial"), at(1.0, "dial_failed", **FAILED), at(1.041, "dial")],
        [at(1.041, "dial_failed", **FAILED_AGAIN), at(1.10, "dial")],
        "too soon after 2 failures",
    ),
    "a backoff that doesn't grow": (
        [at(1.0, "dial_failed", **FAILED)],
        [at(2.0, "dial_failed", **FAILED)],
        "allowed are 0.080 to 0.120",
    ),
    "a backoff that was reset by a mere connect": (
        [at(1.0, "connected"), at(1.0, "ready"), at(1.0, "disconnected", **FAILED)],
        [at(2.0, "connected"), at(2.0, "ready"), at(2.0, "disconnected", **FAILED)],
        "allowed are",
    ),
    "a proof resets the backoff, and an orderly end is followed by a wait": (
        [
            *(at(1.0, "disconnected", **FAILED), at(1.5, "proved")),
            *(at(2.0, "disconnected", **FAILED), at(2.5, "proved")),
            at(3.0, "disconnected", failure=False),
        ],
        [at(3.01, "dial")],
        "too soon after 0 failures",
    ),
    "another cluster's answer is no proof": (
        [
            *(at(1.0, "dial_failed", **FAILED), at(2.0, "proved"), at(2.0, "foreign_cluster")),
            at(2.0, "disconnected", **FAILED_AGAIN),
        ],
        [at(3.0, "disconnected", **FAILED)],
        "allowed are",
    ),
    "a round that waits too short": (
        [
            *(at(1.0, "round_failed", None, round=1, backoff=wait) for wait in (0.1, 0.2, 0.4)),
            *(at(1.5, "metadata"), at(2.0, "round_failed", None, round=2, backoff=0.1)),
            at(2.0, "retry", None, what="a call", attempt=2, backoff=0.2),
            at(2.0, "retry", None, what="a batch whose leader moved", attempt=7, backoff=0.0),
            at(2.5, "metadata"),
        ],
        [at(3.0, "round_failed", None, round=1, backoff=0.07)],
        "allowed are",
    ),
    "a round that waits too long": (
        [],
        [at(1.0, "round_failed", None, round=1, backoff=0.13)],
        "allowed are",
    ),
    "a retry that waits too short": (
        [],
        [at(1.0, "retry", None, what="a call", attempt=3, backoff=0.2)],
        "allowed are",
    ),
    "an outage that counts two rebootstraps": (
        [
            *(at(1.0, "rebootstrap", None, **BEGUN), at(1.1, "rebootstrapped")),
            at(1.2, "rebootstrap", None, **BEGUN),
        ],
        [at(9.0, "rebootstrap", None, **BEGUN)],
        "during another one",
    ),
    "rebootstraps that follow too fast": (
        [at(1.0, "rebootstrap", None, **BEGUN), at(1.01, "rebootstrapped")],
        [at(1.07, "rebootstrap", None, **BEGUN)],
        r"0\.070 s after the last one",
    ),
    "too many dials in a second": (
        [
            happening
            for n in range(6)
            for happening in (
                dial(1.0 + n * 0.15, n),
                at(1.0 + n * 0.15, "dial_failed", f"10.0.1.{n}:9092", connection=n, **FAILED),
            )
        ],
        [dial(1.9, 6)],
        "more than 6 connection attempts within a second",
    ),
    "dials in a burst": (
        [
            *(at(1.0, "disconnected", **FAILED), dial(1.1, 1), dial(1.14, 2)),
            *(at(1.2, "proved", B), dial(1.2, 3), dial(1.2, 4)),
        ],
        [at(1.3, "disconnected", B, **FAILED), dial(1.4, 5), dial(1.42, 6)],
        r"a connection attempt 0\.0200 s after another",
    ),
    "too many dials that hang": (
        [at(0.0, "disconnected", **FAILED), *(dial(1.0 + n, n) for n in range(6))],
        [dial(8.0, 6)],
        "while 6 others are pending",
    ),
    "dials are limited only after a failure": (
        [
            *(dial(1.0, n) for n in range(20)),
            *(at(1.1, "ready", f"10.0.1.{n}:9092", purpose="data") for n in range(15)),
            *(at(1.1, "dial_failed", "10.0.1.15:9092", connection=15, **FAILED), dial(2.1, 20)),
        ],
        [dial(2.11, 21)],
        "a connection attempt",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_checker_accepts_correct_behaviour_and_reports_a_violation(name: str) -> None:
    fine, then, complaint = SEEN[name]
    events, checkers = EventLog("client"), Checkers(World())
    checkers.watch(events, Config("admin", {"bootstrap.servers": A}))
    for when, kind, fields in fine:
        events.emit(when, kind, **fields)
    checkers.verify()
    for when, kind, fields in then:
        events.emit(when, kind, **fields)
    with pytest.raises(Violation, match=complaint):
        checkers.verify()


def test_a_client_that_returns_to_the_id_of_a_deleted_topic_is_reported() -> None:
    ids: dict[str, bytes] = {}
    older, newer = b"older", b"newer"
    tick = Event(1.0, "metadata", {})

    def client(*steps: dict[str, bytes] | None) -> None:
        check = TopicIdsAdvance(lambda: ids, lambda _: [older, newer])
        for step in steps:
            if step is None:
                check.forgotten("t")
                continue
            ids.clear()
            ids.update(step)
            check(tick)

    client({"t": older}, {"t": newer}, {"t": newer})
    client({"t": newer}, {}, {"t": older})  # the client has never had the older id
    client({"t": older}, {"t": newer}, None, {"t": older})
    for wrong in (
        [{"t": newer}, {"t": older}],
        [{"t": older}, {"t": newer}, {}, {"t": older}],
        [
            {"t": newer},
            {},
            {"t": newer},
            {"t": older},
        ],  # the deleted topic was in the metadata again
        [{"t": newer}, None, {"t": newer}, {}, {"t": newer}, {"t": older}],
    ):
        with pytest.raises(Violation, match="which was deleted before"):
            client(*wrong)


def test_after_a_rebootstrap_an_older_topic_id_is_accepted_unless_the_client_knew_it() -> None:
    ids = {"t": b"newer"}
    check = TopicIdsAdvance(lambda: ids, lambda _: [b"older", b"newer"], ["kafka:9092"])
    usual = Event(1.0, "metadata", {"address": "10.0.0.2:9092"})
    again = Event(2.0, "metadata", {"address": "kafka:9092"})
    check(usual)
    ids["t"] = b"older"  # the client has never had this id
    check(again)
    ids["t"] = b"newer"
    check(usual)
    ids["t"] = b"older"
    with pytest.raises(Violation, match="which was deleted before"):
        check(again)


def test_a_client_in_a_busy_loop_is_reported() -> None:
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
def test_lost_duplicated_and_reordered_records_are_reported(
    records: list[tuple[bytes, int | None]], log: list[bytes], complaint: str
) -> None:
    with pytest.raises(Violation, match=complaint):
        ledger(*records).verify(stored(*log))


def test_unacknowledged_records_may_be_lost_or_stored() -> None:
    sent = ledger((b"a", 0), (b"b", None), (b"c", 1), (b"d", None))
    sent.verify(stored(b"a", b"c", b"d"))


@pytest.mark.parametrize(
    "go_back",
    [lambda p: p.moved(TP, 4), lambda p: (p.sought(TP, 2), p.moved(TP, 3), p.moved(TP, 2))],
)
def test_positions_that_move_back_without_a_seek_are_reported(
    go_back: Callable[[PositionsGoForward], object],
) -> None:
    positions = PositionsGoForward()
    positions.moved(TP, 5)
    positions.moved(TP, 5)
    with pytest.raises(Violation, match="back to"):
        go_back(positions)


def test_records_read_twice_or_never_are_reported() -> None:
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
