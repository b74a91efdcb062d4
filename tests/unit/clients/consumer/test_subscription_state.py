"""Test assignments, seeks and pauses without fetches."""

from __future__ import annotations

import random

import pytest

from odradek.clients.consumer.partition_state import LEAST_ASKED
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.common.types import TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))


def subscription(policy: str = "latest") -> SubscriptionState:
    return SubscriptionState(policy, ExponentialBackoff(0.1, 1.0), random.Random(1))


def test_partitions_that_remain_assigned_keep_their_positions() -> None:
    s = subscription()
    s.assign([A, B], {})
    s.seek(A, 7)
    gone = s.get(B)
    generation = gone.generation
    s.assign([A, C], {})
    assert s.get(A).position == 7
    assert s.get(C).position is None
    assert gone.generation > generation
    assert not s.holds(gone)
    with pytest.raises(IllegalStateError, match="t-1"):
        s.get(B)


def test_a_fetch_requests_no_more_bytes_than_needed_to_reach_the_until_offset() -> None:
    s = subscription()
    most = 8 << 20
    s.assign([A], {})
    s.seek(A, 0)
    assert s.get(A).worth_asking(most) == most
    s.assign([A], {A: (100, -1)})
    state = s.get(A)
    assert state.worth_asking(most) == LEAST_ASKED
    assert state.worth_asking(1000) == 1000  # the caller's limit of 1000 bytes is smaller
    s.assign([A], {A: (1_000_000, -1)})
    assert state.worth_asking(most) == most
    state.offset_bytes = 4.0  # bytes per offset, measured in a response
    assert state.worth_asking(most) == 5_000_000
    s.seek(A, 900_000)
    assert state.worth_asking(most) == 500_000
    s.seek(A, 1_000_001)
    assert state.worth_asking(most) == LEAST_ASKED


def test_a_partition_is_finished_when_its_position_reaches_the_until_offset() -> None:
    s = subscription()
    s.assign([A], {A: (10, -1)})
    assert not s.finished()  # the partition has no position yet
    s.seek(A, 9)
    assert s.get(A).wants_fetch()
    s.seek(A, 10)
    assert not s.get(A).wants_fetch()
    assert s.finished()
    s.assign([A], {})
    assert s.get(A).position == 10
    assert s.get(A).wants_fetch()


def test_a_requested_reset_clears_the_position_and_stores_the_strategy() -> None:
    s = subscription()
    s.assign([A, B], {})
    s.seek(A, 3)
    s.seek(B, 3)
    s.request_reset(None, "earliest")
    assert [(p.position, p.reset) for p in s.partitions.values()] == [(None, "earliest")] * 2
    s.policy_reset(s.get(A))
    assert s.get(A).reset == "latest"


def test_a_paused_partition_is_not_fetched_and_keeps_its_data() -> None:
    s = subscription()
    s.assign([A], {})
    s.seek(A, 3)
    state = s.get(A)
    state.fetch_offset, generation = 50, state.generation
    s.pause([A], paused=True)
    assert not state.wants_fetch()
    assert (state.position, state.fetch_offset) == (3, 50)
    s.pause([A], paused=False)
    assert state.wants_fetch()
    assert (state.fetch_offset, state.generation) == (50, generation)


def test_a_partitions_error_is_raised_once_and_pauses_the_partition() -> None:
    s = subscription()
    s.assign([A, B], {})
    s.seek(A, 3)
    state = s.get(A)
    s.fail(state, KafkaError("first"), 10.0)
    s.fail(state, KafkaError("second"), 10.0)
    assert not state.wants_fetch()
    assert 10.0 < state.backoff.until < 10.3
    with pytest.raises(KafkaError, match="first"):
        s.raise_pending()
    assert s.failed() is None
    assert state.wants_fetch()


@pytest.mark.parametrize("bad", [TopicPartition("", 0), TopicPartition("t", -1)])
def test_invalid_partitions_limits_and_offsets_are_rejected(bad: TopicPartition) -> None:
    s = subscription()
    with pytest.raises(ConfigurationError):
        s.assign([bad], {})
    with pytest.raises(ConfigurationError, match="t-1"):
        s.assign([A], {B: (5, -1)})
    s.assign([A], {})
    with pytest.raises(ConfigurationError, match="-1"):
        s.seek(A, -1)


def test_after_suspend_and_resume_only_withheld_partitions_are_not_fetched() -> None:
    s = subscription()
    s.add([A, B, C], {})
    for partition in (A, B, C):
        s.seek(partition, 7)
    s.withhold(s.get(A))
    s.suspend()
    assert not any(s.get(p).wants_fetch() for p in (A, B, C))
    during = s.suspended
    s.withhold(s.get(B))
    s.resume()
    assert (during, s.suspended) == (True, False)
    assert [s.get(p).wants_fetch() for p in (A, B, C)] == [False, False, True]
    assert s.get(C).position == 7
    s.resume()
    assert not s.get(A).wants_fetch()


def test_a_recreated_topic_is_reported_once_for_all_of_its_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = subscription()
    places = [TopicPartition(topic, n) for n in range(3) for topic in ("a", "b")]
    state.assign(places, {})
    for id_ in (b"1" * 16, b"2" * 16, b"3" * 16):
        for place in places:
            state.identify(state.partitions[place], id_)
    lines = [line for line in caplog.messages if "was deleted and created again" in line]
    assert [line.split()[1] for line in lines] == ["a", "b", "a", "b"]
