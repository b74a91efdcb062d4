"""The table of a transactional producer's states: Java's rules, and nothing else."""

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
# The sources that Java's TransactionManager allows for each state.
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
# A refused init_transactions may be called again, and so may an abort that a coordinator refused.
# A producer of Spark's sink changes its transactional id, and leaves its transaction to the driver.
OURS = {
    *((_S.INITIALIZING, _S.UNINITIALIZED), (_S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR)),
    *((_S.UNINITIALIZED, _S.UNINITIALIZED), (_S.IN_TRANSACTION, _S.UNINITIALIZED)),
}


@pytest.mark.parametrize("state", _S)
@pytest.mark.parametrize("event", TransactionEvent)
def test_each_pair_moves_as_the_table_says_or_is_refused(
    state: TransactionState, event: TransactionEvent
) -> None:
    following = TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(RuntimeError, match=state.value):
            move(state, event)
    else:
        assert move(state, event) is following
        assert state in JAVA[following] or (state, following) in OURS


def test_nothing_leads_out_of_a_fatal_error_and_everything_leads_there() -> None:
    outcomes = {to for (state, _), to in TRANSITIONS.items() if state is _S.FATAL_ERROR}
    assert outcomes == {_S.FATAL_ERROR}
    assert {state for (state, _), to in TRANSITIONS.items() if to is _S.FATAL_ERROR} == set(_S)


def test_whatever_is_open_can_be_ended_by_an_abort() -> None:
    for state in OPEN:
        found = {state}
        for _ in _S:
            found |= {
                to
                for (source, event), to in TRANSITIONS.items()
                if source in found and event is not TransactionEvent.BROKEN
            }
        assert _S.READY in found
