"""Sampled record sizes for maxBytesPerTrigger, and warnings if sampling fails."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ClusterIdMismatchError, KafkaTimeoutError
from odradek.common.errors.kafka import TopicAuthorizationError
from odradek.common.types import Address, TopicPartition
from odradek.spark.driver.byte_rates import SAMPLED, ByteRates
from odradek.spark.driver.offsets import SENTINEL

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)
POLL = "tests.unit.spark.conftest.MemoryConsumer.poll_arrow"


@pytest.fixture
def rates(cluster: Any, clock: Any) -> ByteRates:
    return ByteRates(cluster, clock)


def warnings(caplog: Any) -> list[str]:
    return [r.getMessage() for r in caplog.records if "maxBytesPerTrigger" in r.getMessage()]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def poll(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(POLL, poll)


# -- missing offsets in a log ----------------------------------------------------------------------


def test_missing_offsets_before_the_first_record_do_not_reduce_the_sampled_size(
    rates: ByteRates, cluster: Any
) -> None:
    cluster.gaps[P0] = set(range(90))
    found = rates.weigh({}, {P0: 0}, {P0: 100})
    size = found.sizes[P0]
    assert found.starts == {P0: 90}
    assert size is not None
    assert size > 2  # the average over 10 offsets, not over 100


def test_a_partition_without_any_records_in_its_offset_range_logs_no_warning(
    rates: ByteRates, cluster: Any, caplog: Any
) -> None:
    cluster.gaps[P0] = set(range(100))
    assert rates.weigh({}, {P0: 0}, {P0: 100}).starts == {
        P0: 100
    }  # the log contains none of the 100 offsets
    assert not warnings(caplog)


# -- timeouts and errors ---------------------------------------------------------------------------


def test_record_sizes_are_unknown_until_a_topic_has_a_sample(
    rates: ByteRates, cluster: Any
) -> None:
    cluster.stuck = True
    assert rates.weigh({}, {P0: 0}, {P0: 100}).sizes == {P0: None}
    cluster.stuck = False
    known = rates.weigh({}, {P0: 0}, {P0: 100}).sizes[P0]
    assert known is not None
    asked = cluster.calls.count("poll")
    again = rates.weigh({}, {P0: 0, P1: 20}, {P0: 100, P1: 20})
    assert again.sizes == {P0: known, P1: known}
    assert cluster.calls.count("poll") == asked  # no new sample at the same offset


def test_a_sample_that_arrives_late_is_used_for_the_next_batch(
    rates: ByteRates, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[int] = []
    seek = "tests.unit.spark.conftest.MemoryConsumer.seek"

    def noted(self: Any, tp: TopicPartition, offset: int) -> None:
        sought.append(offset)
        self._positions[tp] = offset

    monkeypatch.setattr(seek, noted)
    cluster.stuck = True
    assert rates.weigh({}, {P0: 0}, {P0: 100}).sizes[P0] is None
    cluster.stuck = False
    found = rates.weigh({}, {P0: 3}, {P0: 100})  # the sampled records have arrived
    assert found.sizes[P0] is not None
    assert found.starts == {P0: 3}
    assert sought == [0]  # a seek would discard the response


def test_after_a_retriable_error_the_client_and_the_known_sizes_are_kept(
    rates: ByteRates, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = rates.weigh({}, {P0: 0}, {P0: 100}).sizes[P0]
    failing(monkeypatch, KafkaTimeoutError("nobody"))
    assert rates.weigh({}, {P0: 50}, {P0: 100}).sizes == {P0: known}
    assert cluster.dropped == 0


def test_after_a_fatal_error_sampling_continues_with_a_new_client(
    rates: ByteRates, cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    with monkeypatch.context() as broken:
        failing(broken, ClusterIdMismatchError("A", "B", Address("h", 1)))
        assert rates.weigh({}, {P0: 5}, {P0: 100}).sizes == {P0: None}
    assert cluster.dropped == 1
    assert rates.weigh({}, {P0: 6}, {P0: 100}).sizes[P0] is not None
    assert [line.split(" (")[0] for line in warnings(caplog)] == [
        "maxBytesPerTrigger: the driver can't sample the record sizes of t-0",
        "maxBytesPerTrigger: record sizes of all partitions can be sampled again",
    ]


def test_an_unreadable_partition_does_not_affect_the_samples_of_others(
    rates: ByteRates, cluster: Any, caplog: Any
) -> None:
    cluster.topics["u"] = (str(UUID(int=2)), {0: (0, 1000)})
    cluster.refused[OTHER] = TopicAuthorizationError("Fetch of u-0").needing("READ", "u")
    found = rates.weigh({}, {P0: 0, OTHER: 0}, {P0: 100, OTHER: 1000})
    assert found.sizes[P0] is not None
    assert found.sizes[OTHER] is None  # another topic's sizes aren't used
    (line,) = warnings(caplog)
    assert "u-0 (" in line
    assert "needs READ on topic 'u'" in line


# -- log messages ----------------------------------------------------------------------------------


def test_the_start_and_the_end_of_an_outage_are_each_logged_once(
    rates: ByteRates, cluster: Any, clock: Any, caplog: Any
) -> None:
    cluster.stuck = True
    for n in range(20):
        rates.weigh({}, {P0: n, P1: 10}, {P0: 100, P1: 20})
        clock.at += 1
    (line,) = warnings(caplog)
    assert "can't sample the record sizes of t-0, t-1 (no answer to a fetch for 2 s)" in line
    assert "the limit holds" in line
    cluster.stuck = False
    for n in range(20, 25):
        rates.weigh({}, {P0: n, P1: 10}, {P0: 100, P1: 20})
    assert warnings(caplog)[1:] == [
        "maxBytesPerTrigger: record sizes of all partitions can be sampled again"
    ]
    cluster.stuck = True
    clock.at += 1
    rates.weigh({}, {P0: 30}, {P0: 100})
    assert len(warnings(caplog)) == 2  # the last sample is new enough


def test_a_warning_is_logged_while_outdated_record_sizes_are_used(
    rates: ByteRates, cluster: Any, clock: Any, caplog: Any
) -> None:
    known = rates.weigh({}, {P0: 0}, {P0: 100}).sizes[P0]
    cluster.stuck = True
    for n in range(1, 30):
        assert rates.weigh({}, {P0: n}, {P0: 100}).sizes[P0] == known
        clock.at += 10
    (line,) = warnings(caplog)
    assert "uses the last known sizes" in line


# -- choice of the partitions to sample ------------------------------------------------------------


def test_one_partition_of_each_topic_that_has_no_sample_is_sampled_first(
    rates: ByteRates, cluster: Any
) -> None:
    cluster.topics = {"t": (str(UUID(int=1)), dict.fromkeys(range(40), (0, 1000)))}
    cluster.topics |= {f"s{n}": (str(UUID(int=n)), {0: (0, 9)}) for n in range(SAMPLED - 1)}
    ends = {TopicPartition("t", n): 1000 for n in range(40)}
    ends |= {TopicPartition(f"s{n}", 0): 9 for n in range(SAMPLED - 1)}
    found = rates.weigh({}, dict.fromkeys(ends, 0), ends)
    assert None not in found.sizes.values()


def test_sizes_of_a_deleted_topic_are_not_used_after_its_recreation(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    cluster.topics["t"] = (str(UUID(int=1)), {0: (0, 10**6)})
    driver = tracker(maxBytesPerTrigger="1k", failOnDataLoss="false")
    first = driver.latest(SENTINEL)
    cluster.topics["t"] = (str(UUID(int=2)), {0: (0, 10**6)})
    cluster.stuck = True
    clock.at += 60
    second = driver.latest(first)
    assert second["from"] == {"t": {"0": 0}}
    assert second["o"]["t"]["0"] == 1  # the old topic's sizes aren't used
