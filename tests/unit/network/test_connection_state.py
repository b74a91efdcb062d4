"""The transition table of connections, over every pair of state and event."""

from itertools import product

import pytest

from odradek.network.connection_state import TRANSITIONS, ConnectionEvent, ConnectionState, move

S, E = ConnectionState, ConnectionEvent
ENDS = (S.DISCONNECTED, S.AUTHENTICATION_FAILED)
PATH = (S.RESOLVING, S.CONNECTING, S.CHECKING_API_VERSIONS, S.READY)


@pytest.mark.parametrize(("state", "event"), list(product(S, E)))
def test_every_pair_moves_as_the_table_says_or_is_refused(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    if (state, event) in TRANSITIONS:
        assert move(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(RuntimeError, match=state.value):
            move(state, event)


def test_the_way_to_ready_skips_no_state() -> None:
    events = (E.RESOLVED, E.CONNECTED, E.API_VERSIONS_ANSWERED)
    for before, event, after in zip(PATH, events, PATH[1:], strict=False):
        assert move(before, event) is after
        for other in set(PATH) - {before}:
            with pytest.raises(RuntimeError):
                move(other, event)


def test_every_living_state_can_be_lost_and_no_end_is_left_again() -> None:
    for state in PATH:
        assert move(state, E.LOST) is S.DISCONNECTED
    for state, event in product(ENDS, E):
        with pytest.raises(RuntimeError):
            move(state, event)


def test_credentials_can_be_refused_wherever_kafka_is_spoken() -> None:
    allowed = [s for s in S if (s, E.AUTHENTICATION_REFUSED) in TRANSITIONS]
    assert allowed == [S.CHECKING_API_VERSIONS, S.AUTHENTICATING, S.READY]


def test_the_way_through_authentication() -> None:
    state = move(S.CHECKING_API_VERSIONS, E.AUTHENTICATION_BEGUN)
    assert move(state, E.AUTHENTICATED) is S.READY
    with pytest.raises(RuntimeError):
        move(S.CHECKING_API_VERSIONS, E.AUTHENTICATED)
    with pytest.raises(RuntimeError):
        move(state, E.API_VERSIONS_ANSWERED)
