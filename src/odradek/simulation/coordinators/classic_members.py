"""Define the values of classic groups: members, requests, responses and stored states.

In: requests and stored states, as values. Out: values. The state machine is in `classic_group`.
Must not decide anything.
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
    """Kafka's states of a classic group, except for DEAD: dead groups are deleted here."""

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
"""Allowed transitions; the leader's assignment makes a group STABLE only when it is stored."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member, as the internal topic stores it."""

    id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A classic group, as the internal topic stores it."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    empty_since: float


@dataclass(frozen=True, slots=True)
class Join:
    """Arguments of a JoinGroup request."""

    member_id: str
    instance_id: str | None
    client_id: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    id_required: bool
    """Whether a new member gets an id with which it must join again (KIP-394)."""
    may_skip_assignment: bool
    """Whether the response can make the group's leader skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Result of a JoinGroup request."""

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
    """Result of a SyncGroup request."""

    error: BrokerError | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


AnswerJoin = Callable[[Joined], None]
AnswerSync = Callable[[Synced], None]


class Lender(Protocol):
    """Services that a coordinator's shard offers to its classic groups."""

    rng: random.Random

    @property
    def now(self) -> float:
        """Time on the broker's clock in seconds."""

    @property
    def initial_rebalance_delay(self) -> float:
        """Seconds for which the first generation of an empty group waits for more members."""

    def after(self, seconds: float, action: Callable[[], None]) -> ShardTimer:
        """Schedule an action; drop the action if this broker stops coordinating before then."""

    def keep(self, group_id: str, value: Any, done: Callable[[bool], None]) -> None:
        """Write a group's state to the internal topic; call `done(True)` when it is replicated."""


@dataclass(slots=True)
class Member:
    """One member of a classic group."""

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
        """Respond to the member's waiting JoinGroup, if there is one."""
        answer, self.join = self.join, None
        if answer is not None:
            answer(joined)

    def answer_sync(self, synced: Synced) -> None:
        """Respond to the member's waiting SyncGroup, if there is one."""
        answer, self.sync = self.sync, None
        if answer is not None:
            answer(synced)

    def assign(self, assignment: bytes) -> None:
        """Set the member's assignment from the group's leader; b"" if the leader sent none."""
        self.assignment = assignment


@dataclass(slots=True)
class JoinPhase:
    """The current or last join phase, and the timer that ends it."""

    timer: ShardTimer | None = None
    initial: bool = False
    grown: bool = False
    """Whether a member has joined since the current initial delay began."""
    waited: float = 0.0

    def grow(self) -> None:
        """Note that a member has joined."""
        self.grown = True

    def wait(self, seconds: float) -> None:
        """Begin another initial delay of this many seconds."""
        self.grown, self.waited = False, self.waited + seconds


def voted(members: Collection[Member]) -> str:
    """Return the protocol that most members prefer, of the protocols that all members support."""
    common = set.intersection(*({name for name, _ in m.protocols} for m in members))
    votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
    return max(votes, key=lambda name: (votes[name], name))
