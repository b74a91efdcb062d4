"""R-GR-1: records of an interrupted call are put back, unless a seek came in between."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.unit.clients.consumer.test_fetched import ALL, fetched

from odradek.clients.consumer.completed_fetch import CompletedFetch, DecodingProgress
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.consumer.undelivered_records import UndeliveredRecords
from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import TopicPartition

TP = TopicPartition("t", 0)


@pytest.fixture
def subscription() -> SubscriptionState:
    made = SubscriptionState("earliest", ExponentialBackoff(0.1, 1.0), random.Random(1))
    made.assign([TP], {})
    made.get(TP).move_to(0)
    return made


def still_buffered(entry: CompletedFetch, to: DecodingProgress) -> bool:
    """Put back a fetch response that is still in the buffer; return True."""
    entry.put_back(to)
    return True


def already_dropped(entry: CompletedFetch, to: DecodingProgress) -> bool:
    entry.put_back(to)
    return False


def take_rows(hand_over: UndeliveredRecords, entry: CompletedFetch, most: int) -> list[int]:
    hand_over.note(entry)
    return [row[0] for row in entry.move(entry.peek(most))]


@pytest.mark.parametrize("most", [3, 100])
def test_undelivered_records_that_are_still_buffered_are_put_back(
    subscription: SubscriptionState, most: int
) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    first = take_rows(hand_over, entry, 5)
    hand_over.done()
    rest = take_rows(hand_over, entry, most) + take_rows(hand_over, entry, most)
    assert subscription.position(TP) == first[-1] + 1  # records of the current call don't count
    assert not hand_over.take_back(still_buffered)
    assert (state.position, entry.exhausted) == (5, False)
    assert take_rows(hand_over, entry, most) + take_rows(hand_over, entry, most) == rest


def test_undelivered_records_of_a_dropped_response_are_fetched_again(
    subscription: SubscriptionState,
) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    state.fetch_offset = 40
    take_rows(hand_over, entry, 100)
    assert hand_over.take_back(already_dropped)
    assert (state.position, state.fetch_offset) == (0, 0)
    assert not entry.valid


@pytest.mark.parametrize("offset", [7, 20])
def test_a_seek_during_an_interrupted_call_is_kept(
    subscription: SubscriptionState, offset: int
) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    take_rows(hand_over, fetched(state, ALL), 20)
    subscription.seek(TP, offset)  # offset 20 is the current position
    assert not hand_over.take_back(still_buffered)
    assert state.position == offset


def test_records_count_as_consumed_only_after_the_application_got_them(
    subscription: SubscriptionState,
) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    take_rows(hand_over, entry, 5)
    subscription.in_hand[state] = None
    subscription.note_consumed()
    assert state.consumed == 0
    hand_over.done()
    subscription.note_consumed()
    assert state.consumed == 5
    assert not subscription.in_hand


def test_two_iterators_over_the_same_rows_return_no_row_twice(
    subscription: SubscriptionState,
) -> None:
    entry = fetched(subscription.get(TP), ALL)

    def iterator() -> Iterator[int]:
        rows = [row[0] for row in entry.peek(5)]
        return entry.walk(rows)

    first, second = iterator(), iterator()
    assert next(first) == 0
    assert list(second) == []
    assert list(first) == [1, 2, 3, 4]
    assert subscription.position(TP) == 5
