"""Test the transition table of connections for every pair of state and event."""

from itertools import product

import pytest

from odradek.network.connection_state import TRANSITIONS, ConnectionEvent, ConnectionState, move

S, E = ConnectionState, ConnectionEvent
ENDS = (S.DISCONNECTED, S.AUTHENTICATION_FAILED)
PATH = (S.RESOLVING, S.CONNECTING, S.CHECKING_API_VERSIONS, S.READY)


@pytest.mark.parametrize(("state", "event"), list(product(S, E)))
def test_every_pair_of_state_and_event_is_in_the_table_or_raises(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    if (state, event) in TRANSITIONS:
        assert move(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(RuntimeError, match=state.value):
            move(state, event)


def test_no_state_is_skipped_on_the_way_to_ready() -> None:
    events = (E.RESOLVED, E.CONNECTED, E.API_VERSIONS_ANSWERED)
    for before, event, after in zip(PATH, events, PATH[1:], strict=False):
        assert [s for s in PATH if (s, event) in TRANSITIONS] == [before]
        assert TRANSITIONS[before, event] is after


def test_a_connection_can_be_lost_in_every_open_state_and_final_states_are_final() -> None:
    assert all(TRANSITIONS[state, E.LOST] is S.DISCONNECTED for state in PATH)
    assert not [pair for pair in TRANSITIONS if pair[0] in ENDS]


def test_a_connection_is_authenticated_before_ready_and_can_be_rejected_even_later() -> None:
    """Brokers may reject a login only after the first API call; READY needs authentication."""
    allowed = [s for s in S if (s, E.AUTHENTICATION_REFUSED) in TRANSITIONS]
    assert allowed == [S.CHECKING_API_VERSIONS, S.AUTHENTICATING, S.READY]
    assert TRANSITIONS[S.CHECKING_API_VERSIONS, E.AUTHENTICATION_BEGUN] is S.AUTHENTICATING
    assert TRANSITIONS[S.AUTHENTICATING, E.AUTHENTICATED] is S.READY
    assert (S.CHECKING_API_VERSIONS, E.AUTHENTICATED) not in TRANSITIONS
    assert (S.AUTHENTICATING, E.API_VERSIONS_ANSWERED) not in TRANSITIONS
