"""The life of a KIP-848 membership as a transition table, with Kafka's names for the states.

    UNJOINED -> JOINING -> RECONCILING -> ACKNOWLEDGING -> STABLE -> RECONCILING …
        FENCED: the coordinator no longer knows it; joins again at once
        STALE: the application doesn't poll; joins again when it does
        FATAL: refused for good

In: events of `consumer_membership`. Out: the next state, or a refusal. Must not: know about time.
"""

from __future__ import annotations

from enum import StrEnum

from odradek.clients.consumer.group.membership import MemberState


class ConsumerEvent(StrEnum):
    """What can happen to a member of a group of `group.protocol=consumer`."""

    SUBSCRIBED = "subscribed"
    ASSIGNED = "assigned"
    """An answer brought partitions other than those that it has."""
    RECONCILED = "reconciled"
    """It has what was assigned, and nothing else."""
    CONFIRMED = "confirmed"
    """The coordinator knows that."""
    REMOVED = "removed"
    """The group has gone on without it."""
    REJOIN = "rejoin"
    POLL_OVERDUE = "poll_overdue"
    POLLED = "polled"
    LEAVE = "leave"
    LEFT = "left"
    REFUSED = "refused"


_S, _E = MemberState, ConsumerEvent
MEMBER = (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
"""The coordinator knows it, or is about to."""
_ACTIVE = (*MEMBER, _S.FENCED, _S.STALE)

TRANSITIONS: dict[tuple[MemberState, ConsumerEvent], MemberState] = {
    (_S.UNJOINED, _E.SUBSCRIBED): _S.JOINING,
    **{(state, _E.ASSIGNED): _S.RECONCILING for state in MEMBER},
    (_S.RECONCILING, _E.RECONCILED): _S.ACKNOWLEDGING,
    (_S.JOINING, _E.CONFIRMED): _S.STABLE,
    (_S.ACKNOWLEDGING, _E.CONFIRMED): _S.STABLE,
    **{(state, _E.REMOVED): _S.FENCED for state in MEMBER},
    (_S.FENCED, _E.REJOIN): _S.JOINING,
    **{(state, _E.POLL_OVERDUE): _S.STALE for state in MEMBER},
    (_S.STALE, _E.POLLED): _S.JOINING,
    **{(state, _E.REFUSED): _S.FATAL for state in _ACTIVE},
    **{(state, _E.LEAVE): _S.LEAVING for state in (*_ACTIVE, _S.UNJOINED, _S.FATAL)},
    (_S.LEAVING, _E.LEFT): _S.UNJOINED,
}


def move(state: MemberState, event: ConsumerEvent) -> MemberState:
    """The state after the event; refuses what the table doesn't allow."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        # A bug, and no KafkaError: the membership would take that for the group's fault.
        raise RuntimeError(f"a member that is {state.value} can't be {event.value}") from None
