"""Define the values of classic groups: members, requests, responses and entries.

In: requests and entries, as values. Out: values. The state machine is in `classic_group`. Must not
decide anything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from odradek.common.errors import BrokerError
from odradek.simulation.coordinators.shards import ShardTimer

NO_GENERATION = -1


class ClassicState(Enum):
    """Kafka's states of a group, except DEAD: dead groups are deleted."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


MOVES: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE}),
}
"""Allowed transitions; an assignment from the leader takes effect only when it is stored."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in an entry."""

    id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as an entry of the coordinator's log stores it."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    empty_since: float


@dataclass(frozen=True, slots=True)
class Join:
    """Arguments of a JoinGroup."""

    member_id: str
    instance_id: str | None
    client_id: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    id_required: bool
    """Whether a new member gets an id and must join again with it (KIP-394)."""
    may_skip_assignment: bool
    """Whether the response can tell a leader to skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Result of a JoinGroup."""

    error: BrokerError | None
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """Result of a SyncGroup."""

    error: BrokerError | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


AnswerJoin = Callable[[Joined], None]
AnswerSync = Callable[[Synced], None]


class Lender(Protocol):
    """Services of a shard for its groups."""

    rng: random.Random

    @property
    def now(self) -> float:
        """Time on the broker's clock, in seconds."""

    @property
    def initial_rebalance_delay(self) -> float:
        """Seconds for which a new group waits for members."""

    def after(self, seconds: float, action: Callable[[], None]) -> ShardTimer:
        """Schedule an action, unless this broker stops coordinating before."""

    def keep(self, group_id: str, value: Any, done: Callable[[bool], None]) -> None:
        """Write a group's entry."""


@dataclass(slots=True)
class Member:
    """One member."""

    id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join: AnswerJoin | None = None
    sync: AnswerSync | None = None
    timer: ShardTimer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        return dict(self.protocols).get(protocol or "", b"")

    def joins(self, join: Join, answer: AnswerJoin) -> None:
        """Set the timeouts and protocols of a JoinGroup, and the callback for its response."""
        self.session_timeout, self.rebalance_timeout = join.session_timeout, join.rebalance_timeout
        self.protocols, self.join = join.protocols, answer

    def syncs(self, answer: AnswerSync) -> None:
        """Set the callback for the response to a SyncGroup."""
        self.sync = answer

    def answer_join(self, joined: Joined) -> None:
        """Answer the waiting JoinGroup, if there is one."""
        answer, self.join = self.join, None
        if answer is not None:
            answer(joined)

    def answer_sync(self, synced: Synced) -> None:
        """Answer the waiting SyncGroup, if there is one."""
        answer, self.sync = self.sync, None
        if answer is not None:
            answer(synced)

    def assign(self, assignment: bytes) -> None:
        """Set the assignment from the leader for this member; b"" if the leader sent none."""
        self.assignment = assignment


@dataclass(slots=True)
class JoinPhase:
    """The current join phase and its end."""

    timer: ShardTimer | None = None
    initial: bool = False
    grown: bool = False
    """Whether a member has joined since the current initial delay began."""
    waited: float = 0.0

    def grow(self) -> None:
        """Note that a member has joined."""
        self.grown = True

    def wait(self, seconds: float) -> None:
        """Begin another initial delay."""
        self.grown, self.waited = False, self.waited + seconds


def voted(members: Collection[Member]) -> str:
    """Return the protocol that most members name first among those that all support."""
    common = set.intersection(*({name for name, _ in m.protocols} for m in members))
    votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
    return max(votes, key=lambda name: (votes[name], name))
