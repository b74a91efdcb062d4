"""Test that a client logs the start and the end of an outage, and few lines in between."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.events import KINDS, EventLog
from odradek.common.outage import CALM, FIRST_SPACING, LONGEST_SPACING, Spacing, named
from odradek.common.outage_log import FULLY_LOGGED_OUTAGES, QUIET_AFTER_S, OutageLog

BROKERS = ("b1:9092", "b2:9092", "b3:9092")
FRONT = "front:9092"


class Client:
    """A client that has reached its cluster, and the lines of its log."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *, reached: bool = True) -> None:
        caplog.set_level(logging.INFO, "odradek")
        self._caplog = caplog
        self.events = EventLog("c")
        self.outages = OutageLog("c", [FRONT])
        self.events.listen(self.outages)
        self._connections = 0
        if reached:
            self.emit(0.0, "metadata", address=FRONT)

    def emit(self, at: float, kind: str, **fields: Any) -> None:
        self.outages.advance(at)
        self.events.emit(at, kind, **fields)

    def refused(self, at: float, address: str) -> None:
        self._connections += 1
        number = self._connections
        self.emit(at, "dial", address=address, connection=number)
        error = "ConnectionRefusedByPeerError: connection refused"
        self.emit(at, "dial_failed", address=address, error=error, connection=number)
        # A metadata refresh reports failed connection attempts again; each attempt counts once.
        self.emit(at, "metadata_failed", address=address, what="dial", error=error)

    def lines(self) -> list[str]:
        told = [r.getMessage() for r in self._caplog.records]
        self._caplog.clear()
        # A client of another test may still log lines from its thread.
        return [t.removeprefix("[c] ") for t in told if t.startswith("[c] ") or t[:1] != "["]


@pytest.fixture
def client(caplog: pytest.LogCaptureFixture) -> Client:
    return Client(caplog)


def test_a_healthy_client_logs_nothing(client: Client) -> None:
    client.emit(1.0, "dial", address="b1:9092", connection=1)
    client.emit(1.1, "ready", address="b1:9092")
    client.emit(1.2, "proved", address="b1:9092")
    ended = {"error": "closed: idle", "failure": False, "connection": 1}
    client.emit(9.0, "disconnected", address="b1:9092", **ended)
    client.emit(9.0, "retry", what="batch of t-0")
    assert client.lines() == []
    assert client.outages.next_deadline(9.0) is None


def test_the_lines_of_a_total_outage_name_its_start_progress_and_end(client: Client) -> None:
    lost = {"error": "DisconnectedError: reset", "failure": True, "in_flight": 2, "connection": 0}
    client.emit(10.0, "disconnected", address="b1:9092", **lost)
    assert client.lines() == [
        "outage started: known broker b1:9092: connection lost (reset), 2 requests in flight"
    ]
    client.refused(10.1, "b1:9092")
    client.refused(10.2, "b2:9092")
    client.emit(10.3, "rebootstrap", why="none of the 3 is available", known=[*BROKERS])
    client.refused(10.4, FRONT)
    client.emit(10.5, "round_failed", round=7, backoff=0.1)
    assert client.lines() == [
        (
            "rebootstrap: none of the 3 is available; starting again from bootstrap.servers "
            "(3 known brokers before)"
        ),
        (
            "no broker answers: the metadata refresh failed with every address "
            "(b1:9092, b2:9092, front:9092: connection refused); next refresh in 0.10 s"
        ),
    ]
    client.emit(11.0, "round_failed", round=8, backoff=0.2)
    client.emit(11.0, "retry", what="batch of t-0")
    assert client.lines() == []
    client.outages.advance(15.0)
    assert client.lines() == [
        (
            "outage continues after 5.0 s (no broker answers); known brokers: 2 connection "
            "attempts, 2 failures; bootstrap addresses: 1 connection attempt, 1 failure; "
            "2 failed metadata refreshes; 1 retried request; 1 rebootstrap; "
            "b1:9092, b2:9092, front:9092: connection refused"
        )
    ]
    client.emit(20.0, "metadata", address=FRONT)
    client.emit(20.0, "rebootstrapped", address=FRONT, seconds=9.7, cluster_id="abc")
    assert client.lines() == [
        (
            "outage over after 10.0 s: front:9092 answered; known brokers: 2 connection "
            "attempts, 2 failures; bootstrap addresses: 1 connection attempt, 1 failure; "
            "2 failed metadata refreshes; 1 retried request; 1 rebootstrap"
        ),
        "rebootstrap done after 9.7 s: front:9092 answered for cluster abc",
    ]
    assert client.outages.current is None


def test_start_and_end_of_an_outage_have_the_same_level(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.refused(1.0, "b1:9092")
    client.emit(2.0, "proved", address="b1:9092")
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]


def test_a_client_that_never_reached_its_cluster_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(caplog, reached=False)
    client.refused(0.0, FRONT)
    (line,) = client.lines()
    assert line.startswith("the cluster hasn't been reached yet: bootstrap address")
    client.outages.advance(5.0)
    assert "the cluster hasn't been reached for 5.0 s; " in client.lines()[0]
    client.emit(6.0, "metadata", address=FRONT)
    assert client.lines()[0].startswith("reached the cluster after 6.0 s")


def test_the_interval_between_summaries_of_an_outage_grows_to_a_minute(client: Client) -> None:
    client.refused(0.0, "b1:9092")
    client.emit(0.0, "round_failed", round=1, backoff=0.1)
    client.lines()
    told = []
    for second in range(1, 400):
        client.refused(float(second), "b1:9092")
        if client.lines():
            told.append(second)
    assert told == [5, 15, 35, 75, 135, 195, 255, 315, 375]
    assert LONGEST_SPACING == 60


def test_an_outage_of_one_broker_ends_when_it_answers(client: Client) -> None:
    client.refused(10.0, "b2:9092")
    client.emit(10.1, "metadata", address="b1:9092")  # the other brokers answer
    client.emit(11.0, "proved", address="b1:9092")
    assert [line[:14] for line in client.lines()] == ["outage started"]
    client.emit(12.0, "proved", address="b2:9092")
    assert client.lines() == [
        (
            "outage over after 2.0 s: b2:9092 answers again; "
            "known brokers: 1 connection attempt, 1 failure"
        )
    ]


def test_an_outage_ends_when_the_broker_is_no_longer_needed(client: Client) -> None:
    client.refused(10.0, "b2:9092")
    client.emit(10.5, "metadata", address="b1:9092")
    client.lines()
    due = client.outages.next_deadline(11.0)
    assert due == 10.0 + QUIET_AFTER_S
    client.outages.advance(due - 0.1)
    assert client.lines() == []
    client.outages.advance(due)
    assert client.lines() == [
        (
            "outage over after 0.5 s: other brokers answer, and the client no longer "
            "needs b2:9092; known brokers: 1 connection attempt, 1 failure"
        )
    ]


def test_a_pending_connection_attempt_keeps_an_outage_open(client: Client) -> None:
    client.refused(10.0, "b2:9092")
    client.emit(10.5, "metadata", address="b1:9092")
    client.emit(11.0, "dial", address="b2:9092", connection=99)
    client.lines()
    client.outages.advance(19.0)
    assert client.lines()[0].startswith("outage continues after 9.0 s (other brokers answer)")
    assert client.outages.current is not None


def test_a_broker_that_stops_responding_is_an_outage_until_bytes_arrive(client: Client) -> None:
    client.emit(10.0, "silent", address="b2:9092", seconds=2.0, ready=True, held=False)
    client.emit(10.1, "metadata", address="b1:9092")
    assert client.lines() == [
        "outage started: known broker b2:9092: no response (nothing received for 2.0 s)"
    ]
    client.outages.advance(17.0)
    assert client.outages.current is not None  # b1 is still silent, although other brokers answer
    client.lines()
    client.emit(18.0, "heard", address="b2:9092", ready=True)
    (line,) = client.lines()
    assert line == "outage over after 8.0 s: b2:9092 answers again; no attempts yet"
    assert client.outages.current is None


def test_no_response_to_a_delayed_write_is_not_logged_as_an_outage(client: Client) -> None:
    client.emit(10.0, "silent", address="b2:9092", seconds=2.0, ready=True, held=True)
    assert client.lines() == []


def test_repeated_short_outages_are_summarized(client: Client) -> None:
    for second in range(0, 120, 2):
        client.refused(float(second), "b1:9092")
        client.emit(float(second), "rebootstrap", why="none is left", known=[*BROKERS])
        client.emit(second + 1.0, "metadata", address=FRONT)
        client.emit(second + 1.0, "rebootstrapped", address=FRONT, seconds=1.0, cluster_id="abc")
    lines = client.lines()
    begun = [line for line in lines if line.startswith("outage started")]
    assert len(begun) == FULLY_LOGGED_OUTAGES
    assert "number 3 in a row" in begun[-1]
    assert sum("rebootstrap:" in line for line in lines) == FULLY_LOGGED_OUTAGES
    unstable = [line for line in lines if line.startswith("unstable")]
    assert 3 <= len(unstable) <= 5
    assert len(lines) == 4 * FULLY_LOGGED_OUTAGES + len(unstable)
    # The final state is also logged, although no event follows.
    due = client.outages.next_deadline(120.0)
    assert due is not None
    assert due <= 120.0 + LONGEST_SPACING
    client.outages.advance(due)
    (last,) = client.lines()
    assert "60 outages in a row" in last
    assert ", now up; " in last
    assert (
        "known brokers: 58 connection attempts, 58 failures" in last
    )  # outages are summarized from the third on
    assert client.outages.next_deadline(due) is None


def test_an_outage_after_a_quiet_period_is_logged_in_full_again(client: Client) -> None:
    for begin in (0.0, 1.0, 2.0, 3.0, 3.9 + CALM + 0.2):
        client.refused(begin, "b1:9092")
        client.emit(begin + 0.5, "proved", address="b1:9092")
    lines = client.lines()
    assert lines[-2].startswith("outage started: known broker")
    assert client.outages.in_a_row == 1


def test_timeouts_are_logged_once_and_then_counted(client: Client) -> None:
    for n in range(500):
        client.emit(100.0 + n / 1000, "expired", what=f"1 records of t-{n}")
    assert client.lines() == ["timed out: 1 records of t-0"]
    client.emit(106.0, "expired", what="3 records of t-0")
    assert client.lines() == [
        "timed out: 3 records of t-0 (499 similar messages suppressed before)"
    ]


def test_a_wrong_cluster_at_an_address_is_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(4):
        client.emit(float(n), "foreign_cluster", address="b1:9092", expected="abc", found="xyz")
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert client.lines() == ["b1:9092 belongs to cluster xyz, not to abc: its answer was rejected"]


def test_failed_name_resolutions_are_counted_separately(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(caplog, reached=False)
    error = "DnsError: the name 'front' doesn't resolve: Name or service not known"
    for n in range(3):
        client.emit(float(n), "dns_failed", address=FRONT, error="Name or service not known")
        client.emit(float(n), "dial_failed", address=FRONT, error=error, connection=n)
        client.emit(float(n), "round_failed", round=n, backoff=0.1)
    client.outages.advance(5.0)
    begun, continues = client.lines()
    assert "the name 'front' doesn't resolve" in begun
    assert continues == (
        "the cluster hasn't been reached for 5.0 s; bootstrap addresses: 3 failed name "
        "resolutions; 3 failed metadata refreshes"
    )


def test_a_failed_refresh_names_errors_not_logged_yet_if_the_cluster_was_never_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(caplog, reached=False)
    client.refused(0.0, FRONT)
    client.emit(0.1, "dial_failed", address="b1:9092", error="TlsError: reset", connection=9)
    client.emit(0.2, "round_failed", round=1, backoff=0.1)
    _, failed = client.lines()
    assert "every address (b1:9092: reset)" in failed


def test_a_name_that_does_not_resolve_is_logged_once(client: Client) -> None:
    for n in range(4):
        client.emit(float(n), "dns_failed", address=FRONT, error="Name or service not known")
    assert client.lines() == [
        (
            "the host name of front:9092 can't be resolved (Name or service not known); "
            "the client will retry"
        )
    ]


def test_closing_the_client_ends_the_log_of_an_outage(client: Client) -> None:
    client.refused(0.0, "b1:9092")
    client.lines()
    client.emit(3.0, "closed")
    assert client.lines() == [
        (
            "the client was closed during an outage of 3.0 s; "
            "known brokers: 1 connection attempt, 1 failure"
        )
    ]
    client.refused(4.0, "b1:9092")
    client.outages.advance(100.0)
    assert client.lines() == []
    assert client.outages.next_deadline(100.0) is None


def test_a_broken_client_logs_the_reason(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.emit(0.0, "broken", error="KeyError()")
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert client.lines() == ["the client failed and can't continue: KeyError()"]


def test_rebootstraps_without_an_outage_are_logged_at_intervals(client: Client) -> None:
    for n in range(100):
        client.emit(float(n), "rebootstrap", why="REBOOTSTRAP_REQUIRED", known=["b1:9092"])
        client.emit(n + 0.1, "rebootstrapped", address=FRONT, seconds=0.1, cluster_id="abc")
    assert 8 <= len(client.lines()) <= 12


ADDRESSES = st.sampled_from((*BROKERS, FRONT))
FAILURE_FIELDS = st.fixed_dictionaries(
    {
        "address": ADDRESSES,
        "connection": st.integers(0, 9),
        "error": st.sampled_from(("DnsError: no", "ConnectionFailedError: reset", "odd")),
        "failure": st.booleans(),
        "in_flight": st.integers(0, 3),
        "what": st.sampled_from(("dial", "metadata request")),
        "seconds": st.just(2.0),
        "ready": st.booleans(),
        "held": st.booleans(),
        "round": st.integers(1, 99),
        "backoff": st.floats(0, 1),
        "why": st.just("none is left"),
        "known": st.just(list(BROKERS)),
        "expected": st.just("abc"),
        "found": st.just("xyz"),
        "cluster_id": st.just("abc"),
    }
)
ANSWERS = frozenset(("metadata", "proved", "heard", "rebootstrapped"))
ENDS = frozenset(("broken", "closed"))


def streams(kinds: list[str]) -> st.SearchStrategy[list[tuple[float, str, dict[str, Any]]]]:
    event = st.tuples(st.floats(0.0, 3.0), st.sampled_from(kinds), FAILURE_FIELDS)
    return st.lists(event, max_size=200)


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True], ids=["total outage", "any events"])
def test_random_events_cause_a_limited_number_of_log_lines(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    left_out = ENDS if answers else ENDS | ANSWERS

    @given(streams([kind for kind in KINDS if kind not in left_out]))
    def check(stream: list[tuple[float, str, dict[str, Any]]]) -> None:
        caplog.clear()  # hypothesis runs several examples
        client, now = Client(caplog), 0.0
        for gap, kind, fields in stream:
            now += gap
            client.emit(now, kind, **fields)
            due = client.outages.next_deadline(now)
            if due is not None and due <= now:  # clients call `advance` when it is due
                client.outages.advance(now)
                due = client.outages.next_deadline(now)
                assert due is None or due > now
        lines = client.lines()
        assert not any("event listener raised" in line for line in lines), lines
        # Lines with minimum intervals: outages, timeouts, wrong clusters, names by address.
        rows = 1 + (now / CALM if answers else 0)
        per_row = 5 * FULLY_LOGGED_OUTAGES + 6 if answers else 12
        spaced = 9 * (2 + now / LONGEST_SPACING + 5)
        assert len(lines) <= rows * per_row + spaced
        outages = [line for line in lines if line.startswith(("outage", "no broker"))]
        if not answers:
            assert sum("outage started" in line for line in outages) <= 1
            assert len(outages) <= 3 + 5 + now / LONGEST_SPACING

    check()


def test_the_intervals_between_repeated_lines_grow() -> None:
    spacing = Spacing()
    times = [t / 10 for t in range(1000)]
    assert [t for t in times if spacing.allows(t)] == [0.0, 5.0, 15.0, 35.0, 75.0]
    assert spacing.allows(times[-1] + CALM + 1)
    assert FIRST_SPACING == 5
    assert not math.isinf(LONGEST_SPACING)


def test_the_full_stop_at_the_end_of_an_error_is_removed_in_log_lines() -> None:
    assert named({"h:1": "TlsError: it ended.", "i:2": "it ended"}) == "h:1, i:2: it ended"
