"""Send JoinGroup and SyncGroup, the two requests of every classic rebalance.

In: the member (`ClassicIdentity`), its protocols and subscription. Out: the coordinator's
responses. Errors that end the membership are raised unchanged. Must not: change the owned
partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odradek.clients.consumer.group.assignors import Assignor, MemberSubscription, user_data
from odradek.clients.consumer.group.embedded_protocol import PROTOCOL_TYPE, encode_subscription
from odradek.clients.consumer.group.membership import Group
from odradek.common.backoff import Backoff
from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.errors.kafka import (
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    error_for,
)
from odradek.common.types import Rng, TopicPartition
from odradek.network.effects import AnyRequest
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

LONGEST_REASON = 255
"""Maximum length of a reason; brokers refuse longer ones (KIP-800)."""
NAMED = 5.0
"""Seconds for which a leaving consumer waits for its member id (see `learn_id`)."""
GRACE = 5.0
"""Seconds after the rebalance timeout in which a broker has to answer."""
R = TypeVar("R", JoinGroupResponse, SyncGroupResponse)
NO_GENERATION = -1
NO_MEMBER = ""


@dataclass(slots=True)
class ClassicIdentity:
    """Member id and generation, by which the coordinator knows this member."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION

    def forget(self, *, member_id: bool = True) -> None:
        """Forget the generation, and the member id unless told to keep it."""
        self.generation = NO_GENERATION
        if member_id:
            self.member_id = NO_MEMBER


class Joining:
    """The requests of one membership to join."""

    def __init__(
        self,
        group: Group,
        engine: Engine,
        identity: ClassicIdentity,
        assignors: Sequence[Assignor],
        rng: Rng,
    ) -> None:
        self._group = group
        self._engine = engine
        self._identity = identity
        self._assignors = assignors
        config = group.config
        self._rebalance_timeout: float = config["max.poll.interval.ms"]
        self._request_timeout: float = config["request.timeout.ms"]
        self._session_timeout: float = config["session.timeout.ms"]
        self._rack: str | None = config["client.rack"] or None
        self._again = Backoff(config.backoff("retry.backoff").steady(), rng)
        """Backoff of joins in a row after which the coordinator requires another join."""
        self.last: tuple[TopicPartition, ...] = ()
        """The last assignment, for assignors."""
        self.last_generation = NO_GENERATION
        self._unnamed: Completion[JoinGroupResponse] | None = None
        """A first JoinGroup, sent without a member id, while it is in flight."""
        self._leaves = False
        """Whether the member is leaving: a JoinGroup in flight isn't retried then."""

    def took(self, assigned: tuple[TopicPartition, ...], generation: int) -> None:
        """Note the member's last assignment and its generation, for sticky assignors."""
        self.last, self.last_generation = assigned, generation

    def join(self, topics: Sequence[str], reason: str) -> Flow[JoinGroupResponse]:
        """Join, without a time limit: until all members have joined, or the group is stable."""
        yield START
        group, identity = self._group, self._identity

        def body(_: float) -> JoinGroupRequest:
            if self._leaves:
                raise IllegalStateError("the consumer is leaving its group")
            return JoinGroupRequest(
                group.group_id,
                round(self._session_timeout * 1000),
                round(self._rebalance_timeout * 1000),
                identity.member_id,
                group.instance_id,
                PROTOCOL_TYPE,
                [self._offer(assignor, topics) for assignor in self._assignors],
                reason[:LONGEST_REASON],
            )

        named = False
        while True:
            asked = self._ask("JoinGroup", body, JoinGroupResponse)
            if identity.member_id == NO_MEMBER and group.instance_id is None:
                asked = self._unnamed_asks(asked)
            answer = yield from asked
            if not answer.error_code:
                self._check_protocol(answer.protocol_type, answer.protocol_name)
                identity.member_id, identity.generation = answer.member_id, answer.generation_id
                self._again.succeeded()
                return answer
            again = True
            if answer.error_code == MemberIdRequiredError.code:  # the response has an id (KIP-394)
                identity.member_id = answer.member_id
                again, named = named, True
            if again:
                until = self._again.failed(self._engine.now)
                yield Wait((), until)

    def _unnamed_asks(self, ask: Flow[JoinGroupResponse]) -> Flow[JoinGroupResponse]:
        """Send a first join in a generator of its own, which a leaving consumer doesn't cancel.

        The response contains the member id, which the consumer needs for leaving (`learn_id`).
        """
        self._unnamed = asked = self._engine.start(ask)
        yield Wait((asked,), math.inf)
        self._unnamed = None
        return asked.result()

    def learn_id(self, deadline: float) -> Flow[Completion[JoinGroupResponse] | None]:
        """Wait for the response to a first JoinGroup, and take the member id from it.

        Returns the request if it isn't answered in time. The other members have to wait for a
        member with an id until it leaves or its session times out.
        """
        now = yield START
        asked, self._unnamed, self._leaves = self._unnamed, None, True
        if asked is None:
            return None
        if not asked.done:
            yield Wait((asked,), min(deadline, now + NAMED))
        if not asked.done:
            return asked
        if asked.error is None:
            self._identity.member_id = asked.result().member_id
        return None

    def sync(
        self, protocol: str, assignments: list[SyncGroupRequestAssignment]
    ) -> Flow[bytes | None]:
        """Return this member's assignment; None if the group is rebalancing again."""
        group, identity = self._group, self._identity
        body = SyncGroupRequest(
            group.group_id,
            identity.generation,
            identity.member_id,
            group.instance_id,
            PROTOCOL_TYPE,
            protocol,
            assignments,
        )
        answer = yield from self._ask("SyncGroup", lambda _: body, SyncGroupResponse)
        if answer.error_code:
            return None
        self._check_protocol(answer.protocol_type, answer.protocol_name or protocol)
        if answer.protocol_name not in (None, protocol):
            raise InconsistentGroupProtocolError(
                f"group {group.group_id!r}: JoinGroup chose assignor {protocol!r}, but SyncGroup "
                f"{answer.protocol_name!r}"
            )
        return answer.assignment

    def _ask(self, what: str, body: Callable[[float], AnyRequest], response: type[R]) -> Flow[R]:
        """Send a request to the coordinator, which answers when all members have joined."""
        return self._group.coordinator.ask(
            what,
            body,
            response,
            _check,
            math.inf,
            timeout=max(self._request_timeout, self._rebalance_timeout + GRACE),
            patience=self._rebalance_timeout,
            steady=True,
        )

    def _offer(self, assignor: Assignor, topics: Sequence[str]) -> JoinGroupRequestProtocol:
        """Return the data that this member sends for an assignor."""
        subscription = MemberSubscription(
            tuple(topics),
            tuple(self._group.owned()),
            self._identity.generation,
            self._rack,
            self._group.instance_id,
            user_data(assignor, self.last, self.last_generation),
        )
        return JoinGroupRequestProtocol(assignor.name, encode_subscription(subscription))

    def _check_protocol(self, kind: str | None, name: str | None) -> None:
        known = [assignor.name for assignor in self._assignors]
        if kind not in (None, PROTOCOL_TYPE) or name not in known:
            raise InconsistentGroupProtocolError(
                f"group {self._group.group_id!r} uses protocol type {kind or PROTOCOL_TYPE} with "
                f"assignor {name!r}; this member supports {', '.join(known)} "
                "(partition.assignment.strategy)"
            )


def _check(answer: JoinGroupResponse | SyncGroupResponse) -> KafkaError | None:
    """Return the response's error; None for an error that is part of the join protocol."""
    code = answer.error_code
    named = code == MemberIdRequiredError.code and isinstance(answer, JoinGroupResponse)
    return None if named or code in (0, RebalanceInProgressError.code) else error_for(code)
