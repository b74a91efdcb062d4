"""Run the membership of a group of `group.protocol=consumer` (KIP-848): the coordinator assigns.

One request does everything: ConsumerGroupHeartbeat joins (epoch 0), reports the member's
partitions, returns its assignment, leaves (epoch -1 or -2). In: the group's subscription and
`poll()`s, responses. Out: partitions revoked and assigned, one after the other, while heartbeats
continue and other partitions aren't touched. Must not: know offsets, or the user's callbacks.

Two generators: one sends heartbeats, one reconciles. Partitions are revoked first, then new ones
are assigned, and the next heartbeat reports that: until then the coordinator assigns the revoked
ones to no other member.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from odradek.clients.consumer.group.consumer_heartbeats import JOIN, Heartbeats
from odradek.clients.consumer.group.member_states import CONSUMER, MEMBER, Life, MemberEvent
from odradek.clients.consumer.group.membership import Group, MemberState, PollOverdueError
from odradek.clients.consumer.group.poll_overdue import OVERDUE_CURE, overdue, why_overdue
from odradek.clients.consumer.group.topic_names import TopicNames
from odradek.clients.error_explanations import with_cure
from odradek.clients.final_errors import is_refusal
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import ClientClosedError, KafkaError
from odradek.common.errors.kafka import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
    error_for,
)
from odradek.common.topic_names import KAFKAS_OWN
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.cluster import NO_ID, Cluster
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger("odradek.consumer")

FAREWELL = 5.0
"""Timeout in seconds of a leave that the client starts itself, because `poll()` is overdue."""
NAMES = 5.0
"""Timeout in seconds of a request for topic names."""
UNRELEASED_PATIENCE = 60.0
"""Seconds for which a static member waits for its instance id.

The coordinator keeps the id of a member that was killed for group.consumer.session.timeout.ms, 45 s
by default. Java raises at once.
"""
UNRELEASED_WARNING = 5.0
"""Seconds without its instance id after which a member warns that it has no partitions."""
AWAITED = ExponentialBackoff(0.1, 1.0)
"""Seconds between the heartbeats of a member that has just joined without an assignment.

The broker computes assignments a while after it answers, and other members must revoke first. The
usual interval, 5 s, would delay a new consumer's first record.
"""
SHORTEST_INTERVAL = 0.1
"""Minimum number of seconds between heartbeats, whatever a broker requests."""

_FENCED = (FencedMemberEpochError, UnknownMemberIdError)
_RETRIED = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)

Held = dict[TopicPartition, bytes]
"""Partitions with the ids of their topics: a recreated topic is another topic."""


class ConsumerMembership(Life):
    """One consumer's membership; see `membership.Membership`."""

    def __init__(
        self, group: Group, engine: Engine, metadata: Metadata, rng: Rng, names: TopicNames
    ) -> None:
        super().__init__(group, engine, CONSUMER)
        self._metadata = metadata
        self._rng = rng
        self._names = names
        self._beats = Heartbeats(group)
        self._held: Held = {}
        self._target: dict[bytes, tuple[int, ...]] = {}
        """The coordinator's last assignment."""
        self._changed = Signal()
        self._seen: Cluster | None = None
        """The metadata that was last compared with `_held`."""
        self._others: set[bytes] = set()
        """Ids of topics in that metadata with the name of an assigned topic, but another id."""
        self._soon = False
        """Whether the next heartbeat is due at once."""
        self._due = self._not_before = -math.inf
        self._told = False
        """Whether a heartbeat has reported the current partitions."""
        self._introduced = False
        """Whether a first heartbeat was sent, so that the coordinator may know this member."""
        self._tries = 0
        self._sent_at = 0.0
        self._unreleased_since: float | None = None
        self._unreleased_told = False
        retry = group.config.backoff("retry.backoff")
        self._failures, self._removals = Backoff(retry, rng), Backoff(retry, rng)
        self._awaited = Backoff(AWAITED, rng)
        self._awaited_until = -math.inf
        self._max_poll: float = group.config["max.poll.interval.ms"]
        self._request_timeout: float = group.config["request.timeout.ms"]
        self._life: Completion[None] | None = None
        self._reconciling: Completion[None] | None = None
        self._asks_names = False
        self._holds = False
        """Whether the member is about to leave, and adopts no further assignment."""
        self._stops = 0
        """Number of stops; a generator that still runs once more sees that the number changed."""

    @property
    def member_id(self) -> str:
        """The member id; empty until the coordinator has confirmed it."""
        return self._beats.member_id if self._beats.epoch > JOIN else ""

    @property
    def generation(self) -> int:
        """The member epoch; -1 without one."""
        return self._beats.epoch if self._beats.epoch > JOIN else -1

    def start(self, now: float) -> None:
        """Begin to join."""
        self._beats.choose_id(self._rng)
        self._move(MemberEvent.SUBSCRIBED, "subscribed", now)
        self._soon = True
        self._life = self._engine.start(self._live())

    def rejoin(self, reason: str, now: float) -> None:
        """Send the full state in a heartbeat at once.

        In this protocol members don't start a rebalance: the coordinator decides.
        """
        if self.state in MEMBER:
            self._tell(now, "heartbeat", reason)
            self._beats.say_all()
            self._wake()

    def refused(self, error: BaseException | None, now: float) -> None:
        """Send a heartbeat at once: the response shows whether the member was removed."""
        self.rejoin(f"a commit failed: {error}", now)

    def hold(self) -> None:
        """Prepare to leave: nothing new is assigned, but heartbeats continue."""
        self._holds = True
        self._stop_reconciling("the consumer leaves")

    def leave(self, deadline: float) -> Flow[None]:
        """Leave; never raises."""
        now = yield START
        if self.state is MemberState.LEAVING:
            return
        known = self.state in MEMBER and self._introduced
        self._stop_reconciling("left")
        if self._life is not None:
            self._engine.cancel(self._life, ClientClosedError("left the group"))
        self._move(MemberEvent.LEAVE, "left", now)
        if known:
            yield from self._farewell(deadline)
        self._forget()
        self._move(MemberEvent.LEFT, "left", self._engine.now)

    # Heartbeats

    def _live(self) -> Flow[None]:
        now = yield START
        try:
            while self.state in MEMBER or self.state is MemberState.STALE:
                now = yield from self._turn(now)
        except KafkaError as error:  # unexpected: the next poll raises it
            if self.state in MEMBER:
                yield from self._refuse(error, self._engine.now)

    def _turn(self, now: float) -> Flow[float]:
        if self.state is MemberState.STALE:
            return (yield from self._until_polled(now))
        overdue = self._group.polled_at + self._max_poll
        if now >= overdue:
            return (yield from self._overdue(now))
        self._compare_topics()
        due = max(-math.inf if self._soon else self._due, self._not_before)
        if now >= due:
            deadline = min(overdue, now + self._request_timeout)
            return (yield from self._heartbeat(deadline, now))
        return (yield Wait((self._changed, self._metadata.changed), min(due, overdue)))

    def _compare_topics(self) -> None:
        """Send a heartbeat at once if an assigned topic was recreated, according to metadata.

        No record of the new topic is read before the group assigns it (R-ID-3).
        """
        snapshot = self._metadata.snapshot
        if snapshot is None or snapshot is self._seen:
            return
        self._seen = snapshot
        others = set()
        for partition, topic_id in self._held.items():
            topic = snapshot.topics.get(partition.topic)
            if topic is not None and topic.topic_id not in (topic_id, NO_ID):
                others.add(topic.topic_id)
        if others - self._others:
            self._soon = True
        self._others = others

    def _heartbeat(self, deadline: float, now: float) -> Flow[float]:
        self._tries = 0
        try:
            answer = yield from self._group.coordinator.ask(
                f"heartbeat to group {self._group.group_id!r}",
                self._request,
                ConsumerGroupHeartbeatResponse,
                lambda a: error_for(a.error_code, a.error_message or "") if a.error_code else None,
                deadline,
            )
        except KafkaError as error:
            now = self._engine.now
            self._beats.doubt(now)
            if self.state in MEMBER:
                yield from self._failed(error, now)
            return now
        now = self._engine.now
        if self.state in MEMBER:
            self._answered(answer, now)
        return now

    def _request(self, _: float) -> ConsumerGroupHeartbeatRequest:
        if self._tries:
            self._beats.doubt(self._engine.now)
        self._tries += 1
        self._soon = False
        self._introduced = True
        self._sent_at = self._engine.now
        acknowledge = self.state is MemberState.ACKNOWLEDGING
        request = self._beats.request(self._held, self._engine.now, acknowledge=acknowledge)
        self._told = acknowledge
        return request

    def _answered(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> None:
        joined = self._beats.epoch == JOIN
        self._group.heartbeats.record(now - self._sent_at, now)
        self._beats.answered(answer)
        self._failures.succeeded()
        if not joined and self.state is MemberState.STABLE:
            self._removals.succeeded()
        self._not_before, self._unreleased_since = -math.inf, None
        interval = max(SHORTEST_INTERVAL, answer.heartbeat_interval_ms / 1000)
        self._due = self._sent_at + interval
        if self.state is MemberState.ACKNOWLEDGING and self._told:
            self._move(MemberEvent.CONFIRMED, f"epoch {answer.member_epoch}", now)
        if answer.assignment is not None:
            self._target = _target(answer.assignment)
            target = {(topic_id, n) for topic_id, numbers in self._target.items() for n in numbers}
            if target != {(topic_id, p.partition) for p, topic_id in self._held.items()}:
                self._assigned(now)
        if self.state is MemberState.JOINING:
            self._move(MemberEvent.CONFIRMED, f"epoch {answer.member_epoch}", now)
        if joined:
            if not self._target:
                self._group.assigned_nothing()
            self._awaited.succeeded()
            # Within one interval, heartbeats tell all members which partitions to revoke.
            self._awaited_until = now + interval + AWAITED.maximum
        if not self._target and now < self._awaited_until:
            self._due = min(self._due, self._awaited.failed(now))

    def _failed(self, error: KafkaError, now: float) -> Flow[None]:
        """Handle an error of a heartbeat that retries didn't resolve."""
        said = str(error).rstrip(".")
        gone = isinstance(error, GroupIdNotFoundError) and self._beats.epoch > JOIN
        if isinstance(error, _FENCED) or gone:
            yield from self._removed(error, now)
        elif error.retriable:
            self._not_before = self._failures.failed(now)
        elif isinstance(error, UnreleasedInstanceIdError):
            yield from self._unreleased(error, now)
        elif isinstance(error, UnsupportedVersionError) and self._group.pattern is None:
            text = (
                f"{said}. The brokers don't support group.protocol=consumer (Kafka 4.0 and newer "
                "do, unless group.coordinator.rebalance.protocols excludes it): use "
                "group.protocol=classic"
            )
            yield from self._refuse(UnsupportedVersionError(text), now)
        elif isinstance(error, GroupIdNotFoundError):
            text = (
                f"{said}. A consumer with group.protocol=consumer can only join a group with "
                "classic members if the brokers' group.consumer.migration.policy allows it, and if "
                "the members' assignors write no user data of their own"
            )
            yield from self._refuse(GroupIdNotFoundError(text), now)
        elif is_refusal(error):
            yield from self._refuse(error, now)
        else:  # the error isn't about this member: retry (Java's member fails for good)
            self._group.complain(error)
            self._not_before = self._failures.failed(now)

    def _unreleased(self, error: UnreleasedInstanceIdError, now: float) -> Flow[None]:
        """Send heartbeats until the coordinator releases the instance id.

        Warns once, because the consumer has no partitions meanwhile, and gives up after
        `UNRELEASED_PATIENCE`.
        """
        if self._unreleased_since is None:
            self._unreleased_since, self._unreleased_told = now, False
        waited, group = now - self._unreleased_since, self._group
        told = with_cure(error, group.config)
        if waited >= UNRELEASED_PATIENCE:
            yield from self._refuse(told, now)
            return
        if waited >= UNRELEASED_WARNING and not self._unreleased_told:
            self._unreleased_told = True
            logger.warning(
                "group %r: waiting up to %.0f s for the consumer's instance id: %s",
                *(group.group_id, UNRELEASED_PATIENCE, told),
            )
        self._soon, self._not_before = True, self._failures.failed(now)

    def _removed(self, error: KafkaError, now: float) -> Flow[None]:
        """Join again after a removal from the group, in which all partitions are lost."""
        self._stop_reconciling("removed from the group")
        self._move(MemberEvent.REMOVED, f"{type(error).__name__}: {error}", now)
        yield from self._lose_everything(now)
        if self._holds:
            return
        until = self._removals.failed(now)
        # A single removal isn't delayed; repeated ones must not overload the coordinator.
        self._not_before = until if self._removals.failures > 1 else now
        self._soon = True
        self._move(MemberEvent.REJOIN, "removed", now)

    def _refuse(self, error: KafkaError, now: float) -> Flow[None]:
        """End the membership, because the group refuses this consumer for good."""
        self._stop_reconciling("refused")
        self._move(MemberEvent.REFUSED, f"{type(error).__name__}: {error}", now)
        yield from self._lose_everything(now)
        self._group.failed(error)
        self._changed.notify()

    def _lose_everything(self, now: float, *, taken: bool = True) -> Flow[None]:
        self._forget()
        lost = self._group.owned()
        if lost:
            yield from self._group.lose(lost, taken=taken)

    def _forget(self) -> None:
        self._held, self._target = {}, {}
        self._introduced = False
        self._beats.joining()

    # Applications that don't poll

    def _overdue(self, now: float) -> Flow[float]:
        """Leave because `poll()` is overdue, so that other members get the partitions (KIP-62)."""
        self._stop_reconciling("poll() overdue")
        known, config = self._introduced, self._group.config
        logger.warning("%s. %s", why_overdue(config), OVERDUE_CURE)
        self._move(MemberEvent.POLL_OVERDUE, overdue(config), now)
        # Before leaving: a poll from now on must return no records that other members may get.
        yield from self._lose_everything(now, taken=self._group.instance_id is None)
        if known:
            # Wait for the response: a leave that arrives late would end the next membership.
            yield from self._farewell(now + FAREWELL)
        return self._engine.now

    def _until_polled(self, now: float) -> Flow[float]:
        if self._holds or now >= self._group.polled_at + self._max_poll:
            return (yield Wait((self._group.poll_wanted,)))
        self._soon = True
        self._move(MemberEvent.POLLED, "poll() was called", now)
        return now

    def _farewell(self, deadline: float) -> Flow[None]:
        """Send the heartbeat that leaves; an event notes errors, which are otherwise ignored."""

        def check(answer: ConsumerGroupHeartbeatResponse) -> KafkaError | None:
            error = error_for(answer.error_code) if answer.error_code else None
            return error if isinstance(error, _RETRIED) else None

        if not self._beats.member_id:
            return
        request = self._beats.farewell()
        name = f"leaving group {self._group.group_id!r}"
        try:
            yield from self._group.coordinator.ask(
                name, lambda _: request, ConsumerGroupHeartbeatResponse, check, deadline
            )
        except KafkaError as error:
            self._tell(self._engine.now, "not_left", f"{type(error).__name__}: {error}")

    # Reconciliation

    def _assigned(self, now: float) -> None:
        why = f"{sum(map(len, self._target.values()))} partitions"
        self._move(MemberEvent.ASSIGNED, why, now)
        if self._asks_names:
            self._stop_reconciling("another assignment")
        if self._reconciling is None and not self._holds:
            self._reconciling = self._engine.start(self._reconcile())
            self._reconciling.when_done(self._reconciled)

    def _reconciled(self, done: Completion[None]) -> None:
        if done is self._reconciling:
            self._reconciling = None

    def _stop_reconciling(self, why: str) -> None:
        running, self._reconciling, self._asks_names = self._reconciling, None, False
        self._stops += 1
        if running is not None:
            self._engine.cancel(running, ClientClosedError(why))

    def _reconcile(self) -> Flow[None]:
        """Revoke, assign and report, until the coordinator's assignment is reached."""
        now = yield START
        backoff = Backoff(self._group.config.backoff("retry.backoff"), self._rng)
        stops = self._stops
        try:
            while self._stops == stops:
                target = self._target
                wanted, unknown = self._resolved(target)
                now, changed = yield from self._come_to(wanted, now)
                if self._stops != stops or self._target is not target:
                    continue
                if self.state is MemberState.RECONCILING and (changed or not unknown):
                    self._told = False
                    self._move(MemberEvent.RECONCILED, f"{len(self._held)} partitions", now)
                    self._wake()
                if not unknown:
                    self._names.keep(target)
                    return
                now = yield from self._learn(unknown, backoff, now)
                if self._stops == stops and self.state is not MemberState.RECONCILING:
                    self._move(MemberEvent.ASSIGNED, "topic ids were unknown", now)
        except PollOverdueError:
            return  # the heartbeat generator notices the overdue poll, too, and leaves
        except KafkaError as error:
            if self._stops == stops:
                self._reconciling = None  # so that `_refuse` doesn't cancel this generator
                yield from self._refuse(error, self._engine.now)

    def _come_to(self, wanted: Held, now: float) -> Flow[tuple[float, bool]]:
        """Revoke unassigned partitions, add new ones; return the time and whether any changed."""
        gone = [p for p, topic_id in self._held.items() if wanted.get(p) != topic_id]
        if gone:
            stops, target = self._stops, self._target
            now = yield from self._group.revoke(gone)
            if self._stops != stops:
                return now, True
            for partition in gone:
                del self._held[partition]
            if self._target is not target:
                return now, True  # the assignment has changed during the revocation
        new = [p for p in wanted if p not in self._held]
        if new:
            self._held.update((p, wanted[p]) for p in new)
            now = yield from self._group.assign(new, wanted)
        return now, bool(gone or new)

    def _resolved(self, target: Mapping[bytes, tuple[int, ...]]) -> tuple[Held, list[bytes]]:
        """Return the assignment by name, and the ids whose names have to be looked up.

        Brokers match a pattern with Kafka's internal topics, too; those are left out.
        """
        by_pattern = self._group.pattern is not None
        hides = by_pattern and self._group.config["exclude.internal.topics"]
        wanted: Held = {}
        unknown = []
        for topic_id, partitions in target.items():
            name = self._names.get(topic_id)
            if name is None:
                unknown.append(topic_id)
            elif not (hides and name in KAFKAS_OWN):
                wanted.update((TopicPartition(name, n), topic_id) for n in partitions)
        return wanted, unknown

    def _learn(self, unknown: list[bytes], backoff: Backoff, now: float) -> Flow[float]:
        """Request names of topic ids; wait before a retry if none is known yet."""
        self._asks_names = True
        self._metadata.request("the coordinator has assigned unknown topics")
        try:
            yield from self._names.ask(unknown, now + NAMES)
        except KafkaError as error:
            if is_refusal(error):
                raise
            if not error.retriable:
                self._group.complain(error)
        now = self._engine.now
        if all(self._names.get(topic_id) is None for topic_id in unknown):
            until = backoff.failed(now)
            while now < until:
                now = yield Wait((), until)
        self._asks_names = False
        return now

    # Helpers

    def _wake(self) -> None:
        self._soon = True
        self._changed.notify()


def _target(assignment: Assignment) -> dict[bytes, tuple[int, ...]]:
    return {bytes(t.topic_id): tuple(t.partitions) for t in assignment.topic_partitions}
