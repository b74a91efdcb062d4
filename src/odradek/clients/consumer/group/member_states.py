"""Define the life of a membership as two transition tables, with Kafka's names for the states.

    UNJOINED -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE -> PREPARING_REBALANCE …
    KIP-848: UNJOINED -> JOINING -> RECONCILING -> ACKNOWLEDGING -> STABLE -> RECONCILING …
        FENCED: removed from the group; joins again at once
        STALE: left because the application doesn't poll; joins again at the next poll
        FATAL: refused; a classic member joins again when the application subscribes once more

In: events of `classic_membership` and `consumer_membership`. Out: the next state, reported to
listeners of events, or a refusal. Must not: know about time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from odradek.clients.consumer.group.membership import Group, MemberState
from odradek.network.engine import Engine


class MemberEvent(StrEnum):
    """Events of a member of a group."""

    SUBSCRIBED = "subscribed"
    JOINED = "joined"
    """Classic: the coordinator has answered JoinGroup."""
    SYNCED = "synced"
    """Classic: the leader's assignment has arrived."""
    REBALANCE = "rebalance"
    """Classic: the coordinator, the leader or the application requests another join."""
    SESSION_EXPIRED = "session_expired"
    """Classic: the session has timed out on this side; the group may have removed the member."""
    SESSION_CONFIRMED = "session_confirmed"
    """Classic: the group hadn't removed the member."""
    ASSIGNED = "assigned"
    """KIP-848: a response assigned other partitions than the member has."""
    RECONCILED = "reconciled"
    """KIP-848: the member has exactly the assigned partitions."""
    CONFIRMED = "confirmed"
    """KIP-848: the coordinator has confirmed that the member has its assignment."""
    REJOIN = "rejoin"
    """KIP-848: the member joins again after the group had removed it."""
    REMOVED = "removed"
    """The group has removed the member."""
    POLL_OVERDUE = "poll_overdue"
    POLLED = "polled"
    LEAVE = "leave"
    LEFT = "left"
    REFUSED = "refused"


Transitions = Mapping[tuple[MemberState, MemberEvent], MemberState]
_S, _E = MemberState, MemberEvent


def _ways_out(members: tuple[MemberState, ...]) -> Transitions:
    """Return the transitions of a member in any of these states, for both protocols."""
    active = (*members, _S.FENCED, _S.STALE)
    return {
        **{(state, _E.REMOVED): _S.FENCED for state in members},
        **{(state, _E.POLL_OVERDUE): _S.STALE for state in members},
        **{(state, _E.REFUSED): _S.FATAL for state in active},
        **{(state, _E.LEAVE): _S.LEAVING for state in (*active, _S.UNJOINED, _S.FATAL)},
        (_S.LEAVING, _E.LEFT): _S.UNJOINED,
    }


_CLASSIC = (_S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.STABLE)
CLASSIC: Transitions = {
    (_S.UNJOINED, _E.SUBSCRIBED): _S.PREPARING_REBALANCE,
    (_S.FATAL, _E.SUBSCRIBED): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SYNCED): _S.STABLE,
    (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    **{(state, _E.SESSION_EXPIRED): state for state in _CLASSIC},
    **{(state, _E.SESSION_CONFIRMED): state for state in _CLASSIC},
    (_S.FENCED, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.STALE, _E.POLLED): _S.PREPARING_REBALANCE,
    **_ways_out(_CLASSIC),
}
MEMBER = (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
"""KIP-848: states in which the coordinator knows the member, or has been asked to add it."""
CONSUMER: Transitions = {
    (_S.UNJOINED, _E.SUBSCRIBED): _S.JOINING,
    **{(state, _E.ASSIGNED): _S.RECONCILING for state in MEMBER},
    (_S.RECONCILING, _E.RECONCILED): _S.ACKNOWLEDGING,
    (_S.JOINING, _E.CONFIRMED): _S.STABLE,
    (_S.ACKNOWLEDGING, _E.CONFIRMED): _S.STABLE,
    (_S.FENCED, _E.REJOIN): _S.JOINING,
    (_S.STALE, _E.POLLED): _S.JOINING,
    **_ways_out(MEMBER),
}


class Life:
    """The state of one membership."""

    def __init__(self, group: Group, engine: Engine, transitions: Transitions) -> None:
        self._group = group
        self._engine = engine
        self._transitions = transitions
        self.state = MemberState.UNJOINED
        self.unsettled_since: float | None = None
        """Time since which the member hasn't been stable."""

    def _move(self, event: MemberEvent, why: str | None, now: float) -> None:
        """Change to the state after the event; raise if the table doesn't allow the event."""
        before, self.state = self.state, move(self._transitions, self.state, event)
        if self.state in (MemberState.STABLE, MemberState.UNJOINED):
            self.unsettled_since = None
            if self.state is MemberState.STABLE:
                self._group.settled(now)
        elif self.unsettled_since is None:
            self.unsettled_since = now
            self._group.unsettled(now)
        if self.state is not before or event in (_E.SESSION_EXPIRED, _E.SESSION_CONFIRMED):
            self._tell(now, event, why)

    def _tell(self, now: float, event: str, why: str | None) -> None:
        state, name = self.state.value, str(event)
        what = self._group.group_id
        self._engine.events.emit(now, "group", what=what, state=state, event=name, why=why)


def move(table: Transitions, state: MemberState, event: MemberEvent) -> MemberState:
    """Return the state after the event; raise if the table doesn't allow it."""
    try:
        return table[state, event]
    except KeyError:
        # Not a KafkaError: the membership would attribute this bug to the group.
        raise RuntimeError(f"a member that is {state.value} can't be {event.value}") from None
