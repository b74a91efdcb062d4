"""How the Spark driver measures outages: partitions without a leader, and short outages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spark.conftest import MemoryConsumer

from odradek.common.errors import KafkaTimeoutError
from odradek.spark.checkpoint_errors import OutageError
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.options.source_options import BATCH, STREAM

TOLERANCE_S = 600.0
HANGS_S = 7200.0


class StillAskingError(Exception):
    """Raised to end a query that should have failed, but still looks up offsets."""


@pytest.fixture
def leaderless(clock: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes lookups of end offsets fail as if a leader were missing."""
    return lambda: monkeypatch.setattr(MemoryConsumer, "end_offsets", _no_leader(clock))


@pytest.mark.parametrize("run", ["batch", "once", "available now"])
def test_batches_and_finite_streams_fail_if_a_partition_has_no_leader_for_too_long(
    tracker: Any, clock: Any, leaderless: Any, caplog: Any, run: str
) -> None:
    end = tracker().latest(SENTINEL)
    driver = tracker(BATCH if run == "batch" else STREAM)
    if run == "available now":
        driver.freeze()
    leaderless()
    with pytest.raises(OutageError, match=r"looking up end offsets .*outageTolerance.*no leader"):
        driver.plan_batch() if run == "batch" else driver.latest(end, everything=run == "once")
    assert TOLERANCE_S <= clock.at - 1000.0 < TOLERANCE_S + 15
    assert 15 <= len(caplog.records) <= 20  # the driver logs a warning every 30 s


def test_a_stream_waits_for_a_missing_leader_in_short_steps_and_logs_warnings(
    tracker: Any, clock: Any, leaderless: Any, caplog: Any
) -> None:
    driver = tracker()
    end = driver.latest(SENTINEL)
    clock.at += 1
    leaderless()
    begun = clock.at

    def steps() -> None:
        while True:
            asked = clock.at
            assert driver.latest(end) == end
            assert clock.at - asked <= 10.5
            clock.at += 1

    with pytest.raises(OutageError, match="no leader"):
        steps()
    assert TOLERANCE_S <= clock.at - begun < TOLERANCE_S + 15
    waiting = [each for each in caplog.records if "no usable answer" in each.getMessage()]
    assert 14 <= len(waiting) <= 20


def test_the_outage_ends_when_the_partition_has_a_leader_again(
    tracker: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tracker()
    end = driver.latest(SENTINEL)
    for _ in range(3):
        clock.at += 1
        with monkeypatch.context() as patched:
            patched.setattr(MemoryConsumer, "end_offsets", _no_leader(clock))
            begun = clock.at
            while clock.at < begun + 400:
                assert driver.latest(end) == end
        clock.at += 1
        assert driver.latest(end) == end


def _no_leader(clock: Any) -> Any:
    def ends(self: Any, partitions: Any, timeout: float = 0.0) -> Any:
        clock.at += timeout
        if clock.at > 1000.0 + HANGS_S:
            raise StillAskingError
        raise KafkaTimeoutError("t-1 has no leader")

    return ends


def test_a_short_outage_does_not_count_towards_a_later_one(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.waits_through = True  # like the real client, wait if the outage ends in time
    driver = tracker()
    end = driver.latest(SENTINEL)
    clock.at += 60
    cluster.down_until = clock.at + 10
    assert driver.latest(end) == end  # the outage ended during the call
    clock.at += 3600
    cluster.down_until = clock.at + 3
    assert driver.latest(end) == end
    assert clock.at == cluster.down_until
    clock.at += 1
    cluster.down_until = clock.at + 2 * TOLERANCE_S
    begun = clock.at

    def steps() -> None:
        while True:
            assert driver.latest(end) == end

    with pytest.raises(OutageError):
        steps()
    assert clock.at - begun >= TOLERANCE_S  # counted from the second outage's start


def test_a_query_with_long_batches_fails_at_its_third_lookup_during_an_outage(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker()
    end = driver.latest(SENTINEL)
    clock.at += 60
    cluster.down_until = clock.at + 4 * 3600
    for _ in range(2):  # as often as Spark's fetchOffset.numRetries allows
        assert driver.latest(end) == end
        clock.at += 3600
    begun = clock.at
    with pytest.raises(OutageError, match="outageTolerance"):
        driver.latest(end)
    assert 10 <= clock.at - begun < 11
