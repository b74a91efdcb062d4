"""What a call took is put back when an exception ends it (R-GR-1), but for seeks in between."""

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


def kept(entry: CompletedFetch, to: DecodingProgress) -> bool:
    """As what holds the entry still."""
    entry.put_back(to)
    return True


def gone(entry: CompletedFetch, to: DecodingProgress) -> bool:
    entry.put_back(to)
    return False


def take(hand_over: UndeliveredRecords, entry: CompletedFetch, most: int) -> list[int]:
    hand_over.note(entry)
    return [row[0] for row in entry.move(entry.peek(most))]


@pytest.mark.parametrize("most", [3, 100])
def test_what_waits_still_is_put_back(subscription: SubscriptionState, most: int) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    first = take(hand_over, entry, 5)
    hand_over.done()
    rest = take(hand_over, entry, most) + take(hand_over, entry, most)
    assert subscription.position(TP) == first[-1] + 1  # what is on its way doesn't count
    assert not hand_over.take_back(kept)
    assert (state.position, entry.exhausted) == (5, False)
    assert take(hand_over, entry, most) + take(hand_over, entry, most) == rest


def test_what_was_let_go_of_is_fetched_again(subscription: SubscriptionState) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    state.fetch_offset = 40
    take(hand_over, entry, 100)
    assert hand_over.take_back(gone)
    assert (state.position, state.fetch_offset) == (0, 0)
    assert not entry.valid


@pytest.mark.parametrize("offset", [7, 20])
def test_a_seek_meanwhile_stays(subscription: SubscriptionState, offset: int) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    take(hand_over, fetched(state, ALL), 20)
    subscription.seek(TP, offset)  # also to where it stands already
    assert not hand_over.take_back(kept)
    assert state.position == offset


def test_what_is_on_its_way_is_not_consumed(subscription: SubscriptionState) -> None:
    state, hand_over = subscription.get(TP), subscription.hand_over
    entry = fetched(state, ALL)
    take(hand_over, entry, 5)
    subscription.in_hand[state] = None
    subscription.note_consumed()
    assert state.consumed == 0
    hand_over.done()
    subscription.note_consumed()
    assert state.consumed == 5
    assert not subscription.in_hand


def test_iterators_of_the_same_rows_hand_none_out_twice(subscription: SubscriptionState) -> None:
    entry = fetched(subscription.get(TP), ALL)

    def iterator() -> Iterator[int]:
        rows = [row[0] for row in entry.peek(5)]
        return entry.walk(rows)

    first, second = iterator(), iterator()
    assert next(first) == 0
    assert list(second) == []
    assert list(first) == [1, 2, 3, 4]
    assert subscription.position(TP) == 5
