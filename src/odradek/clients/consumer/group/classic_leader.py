"""Lead a classic group: divide the partitions among its members.

In: the subscriptions of all members, metadata. Out: each member's assignment as bytes, and
later the reason for a rebalance, if a topic of the group has another number of partitions, even one
that only other members subscribe to. Must not: send anything.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from odradek.clients.consumer.group.assignors import (
    BUILT_IN,
    COOPERATIVE,
    Assignments,
    Assignor,
    AssignorError,
    MemberSubscription,
    assign_group,
)
from odradek.clients.consumer.group.embedded_protocol import decode_subscription, encode_assignment
from odradek.clients.consumer.group.membership import Group
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import TopicAuthorizationError
from odradek.common.printable import command, shell_quoted
from odradek.common.types import Rng
from odradek.metadata.cluster import Cluster
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.messages.join_group import JoinGroupResponseMember
from odradek.protocol.messages.sync_group import SyncGroupRequestAssignment

logger = logging.getLogger("odradek.consumer")

TOPICS_TIMEOUT = 5.0
"""Seconds for which the leader waits for metadata of topics before it assigns.

A topic that is found later causes another rebalance.
"""
MISSING_FIRST, MISSING_MOST = 0.5, 10.0
"""Initial and maximum number of seconds between metadata requests for a missing topic."""
GONE_AFTER = 10.0
"""Seconds for which an assigned topic has to be missing before the group rebalances.

A broker that has just started may not know it yet.
"""


class Leader:
    """The work of a group's leader; does nothing while another member leads."""

    def __init__(
        self,
        group: Group,
        engine: Engine,
        metadata: Metadata,
        rng: Rng,
        assignors: Sequence[Assignor],
    ) -> None:
        self._group = group
        self._engine = engine
        self._metadata = metadata
        self._assignors = {a.name: a for a in assignors}
        self._counts: dict[str, int] | None = None
        """Number of partitions of each topic at the last assignment; None in followers."""
        self._gone_since = math.inf
        self._withheld_until = math.inf
        """Time of a rebalance if owners of withheld partitions still haven't joined again."""
        config = group.config
        self._first_pause: float = 2 * config["heartbeat.interval.ms"]
        self._longest_pause: float = max(self._first_pause, config["max.poll.interval.ms"])
        self._withheld_pause = self._first_pause
        self._denied: set[str] = set()
        """Topics of the group for which this client lacks the permission DESCRIBE."""
        retry = ExponentialBackoff(MISSING_FIRST, MISSING_MOST)
        self._missing = Backoff(retry, rng)

    def divide(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Flow[list[SyncGroupRequestAssignment]]:
        """Assign with the assignor that all members support."""
        yield START
        subscriptions = {
            m.member_id: decode_subscription(m.metadata, m.group_instance_id, m.member_id)
            for m in members
        }
        topics = dict.fromkeys(t for s in subscriptions.values() for t in s.topics)
        cluster = yield from self._cluster(topics)
        self._lead(topics, cluster)
        assignor = self._assignors[protocol]
        given = yield from self._assign(assignor, subscriptions, cluster)
        self._note_withheld(assignor, given)
        return [
            SyncGroupRequestAssignment(member, encode_assignment(partitions))
            for member, partitions in given.items()
        ]

    def _assign(
        self, assignor: Assignor, subscriptions: Mapping[str, MemberSubscription], cluster: Cluster
    ) -> Flow[Assignments]:
        """Run the assignor: Kafka's built-in ones here, a user's in a worker thread.

        A user's assignor may be slow or never end. The client continues meanwhile, but the group
        waits until the leader's session times out.
        """
        if type(assignor) in BUILT_IN.values():
            return assign_group(assignor, subscriptions, cluster)
        session: float = self._group.config["session.timeout.ms"]
        done = self._engine.call(
            *(assign_group, (assignor, subscriptions, cluster)),
            deadline=self._engine.now + session,
            where="worker",
        )
        while not done.done:
            yield Wait((done,))
        error = done.error
        if error is None or isinstance(error, KafkaError):
            return done.result()
        if isinstance(error, TimeoutError):
            text = f"didn't finish within session.timeout.ms ({session:g} s)"
        else:
            text = f"returned an invalid assignment: {type(error).__name__}: {error}"
        raise AssignorError(f"the assignor {assignor.name!r} {text}") from error

    def _note_withheld(self, assignor: Assignor, given: Assignments) -> None:
        """Note partitions that are withheld until their owner has revoked them (KIP-429).

        Owners join again after they have revoked. A static member that restarts in between doesn't,
        so the leader requests a rebalance itself after a pause, which doubles each time.
        """
        if type(assignor) not in BUILT_IN.values() or assignor.protocol is not COOPERATIVE:
            return
        counts = sum((self._counts or {}).values())
        if counts == sum(len(partitions) for partitions in given.values()):
            self._withheld_pause = self._first_pause
            return
        self._withheld_until = self._engine.now + self._withheld_pause

    def watch(self, members: Sequence[JoinGroupResponseMember]) -> Flow[None]:
        """Watch the topics as a static leader that returned and keeps the assignment (KIP-814)."""
        yield START
        subscriptions = [
            decode_subscription(m.metadata, m.group_instance_id, m.member_id) for m in members
        ]
        topics = dict.fromkeys(t for s in subscriptions for t in s.topics)
        cluster = yield from self._cluster(topics)
        self._lead(topics, cluster)

    def step_down(self) -> None:
        """Forget topics to which only other members subscribe: this member no longer leads."""
        if self._counts is not None:
            own = {*self._group.topics(), *(p.topic for p in self._group.owned())}
            metadata = self._metadata
            metadata.held_by.remove(self._topics)
            metadata.forget_topics(t for t in self._counts if t not in own)
            self._counts = None
            self._gone_since = self._withheld_until = math.inf

    def reason(self, now: float) -> str | None:
        """Return why the group should rebalance, according to the metadata."""
        snapshot = self._metadata.snapshot
        if not self._counts or snapshot is None:
            self._gone_since = math.inf  # without metadata, no topic is known to be missing
            self._missing.succeeded()
            return None
        if now >= self._withheld_until:
            # Rebalances that other members cause, however many, don't delay this one.
            self._withheld_pause = min(2 * self._withheld_pause, self._longest_pause)
            return (
                "partitions are unassigned, because their former owner hasn't released them in time"
            )
        gone = missing = None
        for topic, before in self._counts.items():
            found = snapshot.topic(topic)
            count = len(found.partitions) if found is not None else 0
            if found is None:
                missing = topic
            if count > before:
                return f"the partitions of topic {topic} were increased from {before} to {count}"
            if count < before:
                gone = f"the partitions of topic {topic} were decreased from {before} to {count}"
        if gone is None:
            self._gone_since = math.inf
        elif self._gone_since == math.inf:
            self._gone_since = now
        self._look_for(missing, now)
        return gone if now >= self._gone_since + GONE_AFTER else None

    def look_at(self) -> float:
        """Return when to call `reason` again, whether or not metadata has changed."""
        missing = self._missing.until if self._missing.failures else math.inf
        return min(self._gone_since + GONE_AFTER, missing, self._withheld_until)

    def _look_for(self, missing: str | None, now: float) -> None:
        """Request metadata of a topic of the group that doesn't exist.

        If the topic is created, its partitions have no owner until the leader rebalances.
        """
        if missing is None:
            self._missing.succeeded()
        elif now >= self._missing.until:
            if self._missing.failures:
                self._metadata.request(f"topic {missing} doesn't exist")
            self._missing.failed(now)

    def _lead(self, topics: Iterable[str], cluster: Cluster) -> None:
        self._gone_since = self._withheld_until = math.inf
        if self._counts is None:
            self._metadata.held_by.append(self._topics)
        self._counts = {}
        for topic in topics:
            found = cluster.topic(topic)
            self._counts[topic] = len(found.partitions) if found is not None else 0
        self._warn_of_refused(self._counts)

    def _warn_of_refused(self, topics: Iterable[str]) -> None:
        """Warn once of other members' topics for which this leader lacks permissions.

        Without DESCRIBE on them it can't assign their partitions, and no other member reports that.
        The search for missing topics notices when the permission is added.
        """
        errors = self._metadata.topic_errors
        denied = {t for t in topics if errors.get(t) == TopicAuthorizationError.code}
        new = sorted(denied - self._denied - {*self._group.topics()})
        self._denied = denied
        if new:
            create = "acls create --allow-principal User:… --operation read --topic "
            servers = self._group.config["bootstrap.servers"]
            example = command(create + shell_quoted(new[0]), servers)
            logger.warning(
                "group %r: no member is assigned partitions of %s, because this consumer leads the "
                "group and its user lacks DESCRIBE on %s. All members of a group need "
                "DESCRIBE and READ on all of its topics. Add ACLs, for example with: %s",
                *(self._group.group_id, *[", ".join(map(repr, new))] * 2, example),
            )

    def _topics(self) -> Iterable[str]:
        return self._counts or ()

    def _cluster(self, topics: Iterable[str]) -> Flow[Cluster]:
        """Wait up to `TOPICS_TIMEOUT` for metadata of the topics, and return the snapshot."""
        now = yield START
        metadata = self._metadata
        until = now + TOPICS_TIMEOUT
        metadata.want(topics)
        while True:
            snapshot = metadata.snapshot
            if snapshot is not None and all(
                t in snapshot.topics or t in metadata.topic_errors for t in topics
            ):
                return snapshot
            if now >= until:
                return snapshot or Cluster()
            now = yield Wait((metadata.changed,), until)
