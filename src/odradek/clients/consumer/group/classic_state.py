"""The life of a classic membership as a transition table, with Kafka's names for the states.

    UNJOINED -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE -> PREPARING_REBALANCE …
        FENCED: put out of the group; joins again at once
        STALE: the application doesn't poll; joins again when it does
        FATAL: refused, until the application subscribes once more

In: events of `classic_membership`. Out: the next state, or a refusal. Must not: know about time.
"""

from __future__ import annotations

from enum import StrEnum

from odradek.clients.consumer.group.membership import MemberState


class MemberEvent(StrEnum):
    """What can happen to a member of a classic group."""

    SUBSCRIBED = "subscribed"
    JOINED = "joined"
    SYNCED = "synced"
    REBALANCE = "rebalance"
    """A reason to join again: the coordinator's, the leader's or the application's."""
    SESSION_EXPIRED = "session_expired"
    """By this side's clock: the group may have gone on without it."""
    SESSION_CONFIRMED = "session_confirmed"
    """The group hadn't."""
    REMOVED = "removed"
    """The group has gone on without it."""
    POLL_OVERDUE = "poll_overdue"
    POLLED = "polled"
    LEAVE = "leave"
    LEFT = "left"
    REFUSED = "refused"


_S, _E = MemberState, MemberEvent
_MEMBER = (_S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.STABLE)
_ACTIVE = (*_MEMBER, _S.FENCED, _S.STALE)

TRANSITIONS: dict[tuple[MemberState, MemberEvent], MemberState] = {
    (_S.UNJOINED, _E.SUBSCRIBED): _S.PREPARING_REBALANCE,
    (_S.FATAL, _E.SUBSCRIBED): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SYNCED): _S.STABLE,
    (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    **{(state, _E.SESSION_EXPIRED): state for state in _MEMBER},
    **{(state, _E.SESSION_CONFIRMED): state for state in _MEMBER},
    **{(state, _E.REMOVED): _S.FENCED for state in _MEMBER},
    (_S.FENCED, _E.REBALANCE): _S.PREPARING_REBALANCE,
    **{(state, _E.POLL_OVERDUE): _S.STALE for state in _MEMBER},
    (_S.STALE, _E.POLLED): _S.PREPARING_REBALANCE,
    **{(state, _E.REFUSED): _S.FATAL for state in _ACTIVE},
    **{(state, _E.LEAVE): _S.LEAVING for state in (*_ACTIVE, _S.UNJOINED, _S.FATAL)},
    (_S.LEAVING, _E.LEFT): _S.UNJOINED,
}


def move(state: MemberState, event: MemberEvent) -> MemberState:
    """The state after the event; refuses what the table doesn't allow."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        # A bug, and no KafkaError: the membership would take that for the group's fault.
        raise RuntimeError(f"a member that is {state.value} can't be {event.value}") from None
