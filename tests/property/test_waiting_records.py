"""R-GR-1: each offset is returned once, in order, with any pauses, resumes and responses."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.clients.consumer.test_fetched import fetched, rows

from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.clients.consumer.fetching.waiting_records import WaitingRecords
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Address, TopicPartition
from odradek.record.reference import encode

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
EACH = 3
"""Records of one response."""

ACTS = st.tuples(
    st.sampled_from(["answer", "answer", "pause", "resume", "take", "divide", "seek", "full"]),
    st.sampled_from(PARTITIONS),
)
FIRST, OTHER = PARTITIONS


def answer(waiting: WaitingRecords, state: PartitionState) -> None:
    """Add the records of a partition's next fetch to the waiting records."""
    start = state.fetch_offset
    assert start is not None
    entry = fetched(state, encode(rows(start, EACH)), start)
    state.fetch_offset = start + EACH
    waiting.add(entry)


def take(waiting: WaitingRecords) -> tuple[CompletedFetch, list[int]] | None:
    """Return one record, as `poll` does."""
    entry = waiting.head()
    return None if entry is None else (entry, [row[0] for row in entry.move(entry.peek(1))])


@given(acts=st.lists(ACTS, max_size=30))
@example(acts=[("answer", FIRST), ("pause", FIRST), ("answer", FIRST)])
@example(
    # Records that a seek made obsolete are buffered before newer ones; then the state changes
    # again.
    acts=[
        *[("answer", OTHER), ("answer", FIRST), ("seek", FIRST), ("answer", FIRST)],
        *[("pause", FIRST), ("take", OTHER), ("seek", OTHER), ("take", OTHER)],
    ]
)
def test_each_offset_is_returned_once_in_order(acts: list[tuple[str, TopicPartition]]) -> None:
    subscription = SubscriptionState("earliest", ExponentialBackoff(0.1, 1.0), random.Random(1))
    subscription.assign(PARTITIONS, {})
    for partition in PARTITIONS:
        subscription.seek(partition, 0)
    waiting = WaitingRecords(subscription, lambda: None)
    expected = dict.fromkeys(PARTITIONS, 0)

    def check() -> bool:
        found = take(waiting)
        if found is None:
            return False
        entry, offsets = found
        partition = entry.state.partition
        assert not entry.state.paused
        assert offsets == [expected[partition]]
        expected[partition] += 1
        return True

    for act, partition in acts:
        if act == "divide":
            waiting.divide(1 << 20, [])
        elif act == "full":
            waiting.divide(1, [])
            waiting.full(Address("b", 1))
        elif act == "take":
            check()
        elif act == "answer":
            answer(waiting, subscription.get(partition))
        elif act == "seek":
            expected[partition] = 7
            subscription.seek(partition, 7)
        else:
            subscription.pause([partition], paused=act == "pause")
    subscription.pause(PARTITIONS, paused=False)
    while check():
        pass
    for partition, offset in expected.items():
        assert subscription.get(partition).fetch_offset == offset
