"""Compare the state table of transactional producers with Java's rules."""

from __future__ import annotations

import pytest

from odradek.clients.producer.transaction_state import (
    OPEN,
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
    move,
)

_S = TransactionState
# The source states that Java's TransactionManager allows for each target state.
JAVA: dict[TransactionState, set[TransactionState]] = {
    _S.UNINITIALIZED: {_S.READY, _S.ABORTABLE_ERROR},
    _S.INITIALIZING: {_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.READY: {_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.IN_TRANSACTION: {_S.READY},
    _S.COMMITTING_TRANSACTION: {_S.IN_TRANSACTION},
    _S.ABORTING_TRANSACTION: {_S.IN_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.ABORTABLE_ERROR: {_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.INITIALIZING},
    _S.FATAL_ERROR: set(_S),
}
# Allowed only in odradek: repeating init_transactions or an abort that the coordinator rejected;
# changing the transactional id (Spark's sink, which leaves its transaction to the driver).
OURS = {
    *((_S.INITIALIZING, _S.UNINITIALIZED), (_S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR)),
    *((_S.UNINITIALIZED, _S.UNINITIALIZED), (_S.IN_TRANSACTION, _S.UNINITIALIZED)),
}


@pytest.mark.parametrize("state", _S)
@pytest.mark.parametrize("event", TransactionEvent)
def test_each_transition_is_allowed_in_java_or_a_known_difference_or_raises(
    state: TransactionState, event: TransactionEvent
) -> None:
    following = TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(RuntimeError, match=state.value):
            move(state, event)
    else:
        assert move(state, event) is following
        assert state in JAVA[following] or (state, following) in OURS


def test_a_fatal_error_is_final_and_reachable_from_every_state() -> None:
    outcomes = {to for (state, _), to in TRANSITIONS.items() if state is _S.FATAL_ERROR}
    assert outcomes == {_S.FATAL_ERROR}
    assert {state for (state, _), to in TRANSITIONS.items() if to is _S.FATAL_ERROR} == set(_S)


def test_every_open_transaction_can_be_aborted() -> None:
    for state in OPEN:
        found = {state}
        for _ in _S:
            found |= {
                to
                for (source, event), to in TRANSITIONS.items()
                if source in found and event is not TransactionEvent.BROKEN
            }
        assert _S.READY in found
