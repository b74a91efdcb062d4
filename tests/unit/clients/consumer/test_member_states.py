"""Test the state tables of classic and KIP-848 members for all pairs of state and event."""

import pytest

from odradek.clients.consumer.group.member_states import (
    CLASSIC,
    CONSUMER,
    MemberEvent,
    Transitions,
    move,
)
from odradek.clients.consumer.group.membership import MemberState

both = pytest.mark.parametrize("table", [CLASSIC, CONSUMER], ids=["classic", "consumer"])


@both
@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", MemberEvent)
def test_every_pair_of_state_and_event_is_in_the_table_or_raises(
    table: Transitions, state: MemberState, event: MemberEvent
) -> None:
    if (state, event) in table:
        assert move(table, state, event) is table[state, event]
    else:
        with pytest.raises(RuntimeError, match="can't be"):
            move(table, state, event)


@both
def test_a_member_that_can_be_removed_can_also_be_rejected_and_leave(
    table: Transitions,
) -> None:
    members = {s for (s, e) in table if e is MemberEvent.REMOVED}
    assert MemberState.STABLE in members
    for state in members:
        assert table[state, MemberEvent.REFUSED] is MemberState.FATAL
        assert table[state, MemberEvent.LEAVE] is MemberState.LEAVING
