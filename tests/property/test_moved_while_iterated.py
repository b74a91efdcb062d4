"""A position is moved by another thread at any bytecode of an iteration (R-GR-1).

An iteration takes no lock per record. The engine's thread, which moves the position, may have to
wait for the GIL after each of its bytecodes; then the iteration returns a record.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from tests.property.interrupting import At
from tests.unit.clients.consumer.test_fetched import ALL, fetched

from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import FREE_THREADS, TopicPartition

TP = TopicPartition("t", 0)
HANDED, TO = 5, 17
"""Number of records returned before the move, and the target of a seek."""


class Meanwhile(At):
    """Run an action in another thread at the n-th bytecode, instead of raising there."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        super().__init__(number)
        self._act = act
        self.acted = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        del argument
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.acted:
            self.seen += 1
            if self.seen > self.left:
                self.acted = True
                sys.settrace(None)
                self._act()
        return self


def withhold(subscription: SubscriptionState) -> None:
    subscription.withhold(subscription.get(TP))


def suspend(subscription: SubscriptionState) -> None:
    subscription.suspend()


def assign(subscription: SubscriptionState) -> None:
    subscription.assign([TP], {TP: (1000, -1)})


def seek(subscription: SubscriptionState) -> None:
    subscription.seek(TP, TO, 3)


def seek_to_the_next(subscription: SubscriptionState) -> None:
    subscription.seek(TP, HANDED + 1, 3)


def unassign(subscription: SubscriptionState) -> None:
    subscription.assign([], {})


def reset(subscription: SubscriptionState) -> None:
    subscription.request_reset([TP], "earliest")


STAYS = (withhold, suspend, assign)
MOVES = {seek: TO, seek_to_the_next: HANDED + 1, unassign: None, reset: None}


@pytest.mark.skipif(FREE_THREADS, reason="there an iteration takes the lock for each record")
@pytest.mark.parametrize("move", [*STAYS, *MOVES])
def test_no_record_is_returned_twice_and_no_seek_is_lost(
    move: Callable[[SubscriptionState], None],
) -> None:
    for number in range(2000):
        subscription = SubscriptionState("earliest", ExponentialBackoff(0.1, 1.0), random.Random(1))
        subscription.assign([TP], {})
        state = subscription.get(TP)
        state.move_to(0)
        entry = fetched(state, ALL)
        walk: Iterator[int] = entry.walk([row[0] for row in entry.peek(100)])
        handed = [next(walk) for _ in range(HANDED)]
        with Meanwhile(number, lambda h=handed, w=walk: h.extend(take(w))) as meanwhile:  # type: ignore[misc]
            move(subscription)
        handed += walk  # the iteration must return no more
        if move in MOVES:
            assert state.position == state.fetch_offset == MOVES[move], number
            if MOVES[move] is not None:
                assert state.position_epoch == state.fetch_epoch == 3
        else:
            assert state.position == state.fetch_offset == len(handed), number
        assert len(handed) in (HANDED, HANDED + 1)
        if not meanwhile.acted:
            break
    assert number > 20


def take(walk: Iterator[int]) -> list[int]:
    """Return the next record if there is one."""
    return [record for record in [next(walk, None)] if record is not None]
