"""The transition table of a classic membership, over all pairs."""

import pytest

from odradek.clients.consumer.group.classic_state import TRANSITIONS, MemberEvent, move
from odradek.clients.consumer.group.membership import MemberState


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", MemberEvent)
def test_every_pair_moves_or_is_refused(state: MemberState, event: MemberEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert move(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(RuntimeError, match="can't be"):
            move(state, event)


def test_whoever_is_in_a_group_can_be_put_out_of_it_refused_and_can_leave() -> None:
    members = {s for (s, e) in TRANSITIONS if e is MemberEvent.REMOVED}
    assert MemberState.STABLE in members
    for state in members:
        assert move(state, MemberEvent.REFUSED) is MemberState.FATAL
        assert move(state, MemberEvent.LEAVE) is MemberState.LEAVING


def test_a_member_that_was_put_out_gets_back() -> None:
    state = MemberState.STABLE
    for event in (MemberEvent.REMOVED, MemberEvent.REBALANCE, MemberEvent.JOINED):
        state = move(state, event)
    assert move(state, MemberEvent.SYNCED) is MemberState.STABLE
