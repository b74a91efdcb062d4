"""Commit and look up a consumer's offsets in its group.

In: offsets, or the current positions; partitions without a position. Out: commits; their callbacks,
each of which is called exactly once, at the latest while the consumer leaves its group; positions
for those partitions; a rejoin if the group has removed this member. Must not: decide when to commit
automatically (`auto_commit` does), or communicate with the coordinator (`committed_offsets` does).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from odradek.clients.consumer.group.announced_ownership import (
    AnnouncedOwnership,
    AskedCommit,
    Offsets,
)
from odradek.clients.consumer.group.committed_offsets import (
    UNKNOWN_FOR,
    CommittedOffsets,
    lost_membership,
    recreated,
)
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.clients.consumer.group.pending_callbacks import (
    COMMIT_CALLBACK,
    PendingCallback,
    PendingCallbacks,
)
from odradek.clients.consumer.group.poll_overdue import OVERDUE_CURE, why_overdue
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.error_explanations import with_cure
from odradek.common.backoff import Backoff
from odradek.common.errors import ClientClosedError, CommitFailedError, KafkaError
from odradek.common.errors.kafka import FencedInstanceIdError, UnstableOffsetCommitError
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.connection_state import worded
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Signal, Wait

if TYPE_CHECKING:
    from odradek.clients.traces import Traces
    from odradek.common.config import Config

logger = logging.getLogger("odradek.consumer")

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
Committing = Flow[dict[TopicPartition, OffsetAndMetadata]]
"""A commit in progress; it returns the offsets."""
GONE = (MemberState.UNJOINED, MemberState.FENCED, MemberState.STALE, MemberState.FATAL)


def patience(config: Config) -> float:
    """Return the timeout in seconds of work that no caller waits for.

    It is `default.api.timeout.ms`, but at least `request.timeout.ms`: with less it might never
    succeed.
    """
    request: float = config["request.timeout.ms"]
    call: float = config["default.api.timeout.ms"]
    return max(call, request)


RENEW_AFTER = 600.0
"""Maximum number of seconds after which a commit is repeated.

Otherwise brokers would delete the committed offset of a partition without new records.
"""
WARN_AFTER_S = 10.0
"""Seconds for which a partition may wait for its committed offset before a warning."""
OPEN_TRANSACTION = (
    ". An open transaction has sent an offset for it: that ends when its producer commits or "
    "aborts it, or after the producer's transaction.timeout.ms"
)


class AwaitedOffset:
    """A partition whose committed offset is unavailable."""

    __slots__ = ("since", "told", "why")

    def __init__(self, since: float) -> None:
        self.since = since
        self.why: KafkaError | None = None
        self.told = False


class UnawaitedCommit:
    """A commit of `commit_async`, until the caller is notified of the result."""

    __slots__ = ("__weakref__", "callback", "offsets")

    def __init__(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        self.offsets = offsets
        self.callback = callback


class GroupCommits:
    """The commits of one consumer."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        subscription: SubscriptionState,
        member: ThisMember,
        ownership: AnnouncedOwnership,
        callbacks: PendingCallbacks,
        stored: CommittedOffsets,
        traces: Callable[[], Traces | None],
        *,
        rng: Rng,
    ) -> None:
        """Set `traces`, which returns the listener for commits, if there is one."""
        self._engine = engine
        self._config = config
        self._subscription = subscription
        self._member = member
        self._ownership = ownership
        self._callbacks = callbacks
        self.stored = stored
        self._traces = traces
        self.awaited: dict[TopicPartition, AwaitedOffset] = {}
        """Partitions without a position, because their committed offset couldn't be fetched."""
        self._rejoins = Backoff(config.backoff("retry.backoff"), rng)
        """Backoff of rejoins after failed commits, until a commit succeeds (R-RT-1)."""
        self._rejoins_later = False
        self._open: dict[UnawaitedCommit, None] = {}
        self._under_way: WeakSet[UnawaitedCommit] = WeakSet()
        """All commits in progress, whether or not their callers wait for them.

        If a caller is interrupted before its commit begins, the commit is freed with its generator.
        """
        self._given_back: set[TopicPartition] = set()
        """Partitions whose revocation waits for commits in progress."""
        self._closed = False
        """Whether further calls of `commit_async` are refused."""
        self._settled = Signal()
        self.elsewhere = False
        """Whether producers may commit this group's offsets in transactions."""

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of each partition, without records that the caller hasn't received.

        A partition that was assigned again, and not announced yet, is left out, as the caller
        doesn't know it.
        """
        subscription = self._subscription
        settled, states = subscription.hand_over.settled, subscription.partitions.items()
        given = self._given_back
        stand = {p: settled(s) for p, s in states if not s.ownership.unknown and p not in given}
        return {
            p: OffsetAndMetadata(position, leader_epoch=epoch)
            for p, (position, epoch) in stand.items()
            if position is not None
        }

    def asked(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, *, read: bool
    ) -> AskedCommit:
        """Return a commit of these offsets (None: the positions) with the present ownerships.

        `read`: the offsets come from returned records, and aren't the caller's own choice.
        """
        ownership = self._ownership
        chosen = self.positions() if offsets is None else dict(offsets)
        if self._member.membership is None:
            asked = AskedCommit(chosen, {})
        elif offsets is not None:
            asked = ownership.asked(chosen, read=read)
        else:
            asked = ownership.asked(chosen, read=False)._replace(broken=ownership.broken)
        return self.with_topics(asked, positions=offsets is None)

    def in_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, read: bool = False
    ) -> AskedCommit:
        """Return the commit of offsets that a producer sends in a transaction."""
        return self.asked(offsets, read=read)

    def expect_transactions(self) -> None:
        """Note that the caller takes the group's metadata, with which producers may commit."""
        self.elsewhere = True

    def under_way(self) -> set[TopicPartition]:
        """Return the partitions with commits in progress."""
        return {p for commit in (*self._open, *self._under_way) for p in commit.offsets}

    def with_topics(self, asked: AskedCommit, *, positions: bool = False) -> AskedCommit:
        """Note which topics the offsets belong to, when the caller commits.

        By the time the request is sent, another topic of the same name may exist, and all of its
        records would be skipped (R-ID-3). With `positions`, the commit concerns all positions, also
        those that are being looked up.
        """
        subscription, stored = self._subscription, self.stored
        what = f"commit to group {stored.group_id!r}"
        ids: dict[TopicPartition, bytes] = {}
        replaced: dict[TopicPartition, KafkaError] = {}
        for partition, offset in asked.offsets.items():
            state = subscription.last_known(partition)
            known = NO_ID if state is None else state.topic_id
            ids[partition] = stored.topic_id(partition.topic) if known == NO_ID else known
            if state is not None and state.outdated(offset.offset):
                text = f"{what}, offset {offset.offset} of {partition}"
                replaced[partition] = recreated(text, partition, state.former_id, known)
        for state in subscription.untold if positions else ():
            if subscription.holds(state) and state.partition not in replaced:
                text = f"{what}, position of {state.partition}"
                replaced[state.partition] = recreated(
                    text, state.partition, state.former_id, state.topic_id
                )
        asked = asked._replace(ids=ids, replaced=replaced)
        return asked._replace(topic_id=stored.topic_id, is_missing=stored.is_missing)

    def commit(
        self,
        asked: AskedCommit,
        deadline: float,
        *,
        unknown_for: float = UNKNOWN_FOR,
        unasked: bool = False,
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit these offsets, and return them.

        A revocation that begins before the commit's first step waits for the commit, too.
        """
        under_way = UnawaitedCommit(asked.offsets, None)
        self._under_way.add(under_way)
        return self._commit(asked, deadline, under_way, unknown_for, unasked=unasked)

    def _commit(
        self,
        asked: AskedCommit,
        deadline: float,
        under_way: UnawaitedCommit,
        unknown_for: float,
        *,
        unasked: bool,
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit offsets.

        From now on, automatic commits don't replace them by older offsets.
        """
        try:
            return (yield from self._sent(asked, deadline, unknown_for, unasked=unasked))
        finally:
            self._under_way.discard(under_way)
            self._settled.notify()

    def _sent(
        self, asked: AskedCommit, deadline: float, unknown_for: float, *, unasked: bool
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata]]:
        now = yield START
        chosen, membership = asked.offsets, self._member.membership
        if (chosen or asked.broken) and membership is not None and not self._member.is_member:
            # An empty group accepts commits of non-members: a removed member could overwrite newer
            # offsets.
            raise self._not_a_member(membership.state) from self._member.error
        if asked.broken:
            raise lost_membership(self._member.group_id, "its partitions were lost")
        states = self._owned(asked)
        for partition, state in states.items():
            if not unasked:
                state.say(chosen[partition])

        def accepted(partition: TopicPartition, offset: OffsetAndMetadata) -> None:
            state = states.get(partition)
            if state is not None:
                state.commit_accepted(offset, self._engine.now)
                done.add(partition)

        done: set[TopicPartition] = set()
        refused = False

        def refuse() -> None:
            nonlocal refused
            refused = True

        try:
            yield from self.stored.commit(
                asked,
                deadline,
                accepted=accepted,
                refused=refuse,
                unknown_for=unknown_for,
            )
        except FencedInstanceIdError as error:
            fenced = with_cure(error, self._config)
            self._member.refuse(fenced)
            raise fenced from error.__cause__  # `fenced` may be `error` itself
        except CommitFailedError as error:
            membership, now = self._member.membership, self._engine.now
            present = self.stored.refused == self._member.identity()
            if present and membership is not None and membership.state not in GONE:
                self._rejoin(error.__cause__, now)
            raise
        else:
            if chosen:
                self._rejoins.succeeded()
        finally:
            for partition, state in states.items():
                if partition in done:
                    continue
                if not refused:
                    state.commit_in_doubt(chosen[partition])
                state.forget_reported_commit(chosen[partition], refused=refused)
        return chosen

    def _not_a_member(self, state: MemberState) -> CommitFailedError:
        """Return why the group accepts no commit of this consumer now."""
        group_id, error = self._member.group_id, self._member.error
        if error is not None:
            return CommitFailedError(
                f"the commit to group {group_id!r} was refused, because the group refuses this "
                f"consumer, and poll() raises the same error: {error}"
            )
        if state is MemberState.STALE:
            return CommitFailedError(
                f"the commit to group {group_id!r} was refused: {why_overdue(self._config)}. "
                f"Records after the last commit are read again. {OVERDUE_CURE}"
            )
        return lost_membership(group_id, f"the member's state is {worded(state)}")

    def _rejoin(self, why: BaseException | None, now: float) -> None:
        """Join again: the first time at once, then after a backoff, until a commit succeeds again.

        Otherwise a coordinator that accepts each join and refuses each commit would receive
        requests without end, and the records since the last commit would be returned each time.
        """
        membership = self._member.membership
        if self._rejoins_later or membership is None:
            return
        until = self._rejoins.failed(now)
        if self._rejoins.failures == 1:
            membership.refused(why, now)
            return
        self._rejoins_later = True
        self._engine.start(self._rejoin_at(until, why, self._member.identity()))

    def _rejoin_at(
        self, until: float, why: BaseException | None, refused: GroupIdentity
    ) -> Flow[None]:
        now = yield START
        try:
            while now < until:
                now = yield Wait((), until)
            membership = self._member.membership
            present = self._member.identity() == refused
            if present and membership is not None and membership.state not in GONE:
                membership.refused(why, now)
        finally:
            self._rejoins_later = False

    def _owned(self, asked: AskedCommit) -> dict[TopicPartition, PartitionState]:
        """Return the states of the commit's partitions whose ownership hasn't ended."""
        here = self._subscription.partitions
        refused = {*asked.refused(), *asked.replaced}
        return {p: here[p] for p in asked.offsets if p in here and p not in refused}

    def commit_and_tell(
        self, asked: AskedCommit, deadline: float, callback: CommitCallback | None
    ) -> Flow[None]:
        """Return a generator that commits, after which the next `poll()` runs the callback.

        The callback runs even if the client ends before the commit starts. None: errors are logged.
        """
        if self._closed:
            raise ClientClosedError("the consumer is being closed and no longer commits offsets")
        told = UnawaitedCommit(asked.offsets, callback)
        self._open[told] = None
        commit = self.traced(self.commit(asked, deadline), asked.offsets)
        return self._committed(told, commit)

    def traced(self, commit: Committing, offsets: Offsets, *, asked: bool = True) -> Committing:
        """Report a commit to the trace, if there is one. `asked`: the caller requested it."""
        traces = self._traces()
        if traces is None:
            return commit
        return traces.settled(commit, offsets, self._member.group_id, asked=asked)

    def _committed(self, told: UnawaitedCommit, commit: Committing) -> Flow[None]:
        failure: KafkaError | None = None
        through = False
        try:
            yield from commit
            through = True
        except KafkaError as error:
            failure, through = error, True
        finally:
            self._tell(told, failure if through else self._ended())

    def _ended(self) -> KafkaError:
        text = "the consumer was closed before this commit finished"
        return self._engine.ended or ClientClosedError(text)

    @property
    def open(self) -> bool:
        """Return whether commits are in progress whose callers will be notified."""
        return bool(self._open)

    def settle(self, deadline: float, now: float) -> Flow[float]:
        """Wait until no commit is in progress whose caller will be notified, or the deadline."""
        while self._open and now < deadline:
            now = yield Wait((self._settled,), deadline)
        return now

    def before_revocation(self, partitions: set[TopicPartition], now: float) -> Flow[float]:
        """Wait for requested commits of these partitions: after the revocation they are refused.

        Other members wait for the partitions, so the wait is limited like an automatic commit.
        """
        config = self._config
        deadline = now + min(patience(config), config["max.poll.interval.ms"])
        asked = (*self._open, *self._under_way)
        self._given_back = partitions
        try:
            for commit in [c for c in asked if not partitions.isdisjoint(c.offsets)]:
                while now < deadline and (commit in self._open or commit in self._under_way):
                    now = yield Wait((self._settled,), deadline)
        finally:
            self._given_back = set()
        return now

    def give_up(self, now: float) -> None:
        """Fail the commits in progress, because the time to wait for them has ended."""
        for told in list(self._open):
            what = f"the response to commit_async() of group {self._member.group_id!r}"
            self._tell(told, self._engine.ended or self.stored.timeout(what, now))

    def close(self, now: float) -> None:
        """Fail the commits in progress, and refuse later ones."""
        self._closed = True
        self.give_up(now)

    def _tell(self, told: UnawaitedCommit, failure: KafkaError | None) -> None:
        if told not in self._open:
            return
        del self._open[told]
        callback, offsets = told.callback, told.offsets
        if callback is not None:
            self._callbacks.put(
                PendingCallback(COMMIT_CALLBACK, lambda: callback(offsets, failure), [])
            )
            self._subscription.readable.notify()
        elif failure is not None:
            logger.warning("group %s: commit_async() failed: %s", self._member.group_id, failure)
        self._settled.notify()

    def look_up(self, states: list[PartitionState]) -> Flow[None]:
        """Set partitions' positions to the committed offsets; called from the fetcher's `advance`.

        Without a committed offset, `auto.offset.reset` decides.
        """
        now = yield START
        wanted = {s.partition: (s, s.generation) for s in states}
        deadline = now + patience(self._config)
        subscription = self._subscription
        refused = False

        def still(partition: TopicPartition) -> bool:
            """Return whether the partition is still assigned, and no seek has moved it."""
            state, generation = wanted[partition]
            return state.generation == generation and subscription.holds(state)

        def take(partition: TopicPartition) -> PartitionState | None:
            state = wanted[partition][0] if still(partition) else None
            del wanted[partition]
            if state is not None:
                state.looked_up(state.log_end)
                subscription.touch()
            return state

        def told(
            partition: TopicPartition,
            found: OffsetAndMetadata | KafkaError | None,
            topic_id: bytes,
            by_name: bool,
        ) -> bool:
            nonlocal refused
            if partition not in wanted:
                return False
            if isinstance(found, KafkaError) and found.retriable and still(partition):
                self._wait_for(partition, found)
                return True
            self.awaited.pop(partition, None)
            state = take(partition)
            if state is None or not state.is_assigned(topic_id):
                return False
            if isinstance(found, KafkaError):
                refused = True
                subscription.fail(state, found, self._engine.now)
            elif found is None:
                subscription.begin(state, topic_id)
            elif topic_id == NO_ID != state.topic_id and self._is_coming(partition.topic):
                # The offset may belong to the topic that was read before or to a recreated one
                # (R-ID-3): retry once the metadata has the topic.
                state.backoff.failed(self._engine.now)
            else:
                self._move_to(state, found, topic_id, by_name=by_name)
            self._subscription.readable.notify()
            return True

        error: KafkaError | None = None
        try:
            yield from self.stored.fetch(list(wanted), deadline, told=told)
        except KafkaError as failure:
            error = failure
        for partition in list(wanted):
            state = take(partition)
            if state is None:
                self.awaited.pop(partition, None)
            elif error is None or error.retriable or refused:
                state.backoff.failed(self._engine.now)  # the fetcher retries after this backoff
            else:
                subscription.fail(state, error, self._engine.now)
        self._subscription.readable.notify()

    def _move_to(
        self, state: PartitionState, found: OffsetAndMetadata, topic_id: bytes, *, by_name: bool
    ) -> None:
        """Move a position to a committed offset.

        If it was looked up by the topic's name, metadata shows whether the topic was recreated.
        """
        now = self._engine.now
        self._subscription.identify(state, topic_id)
        state.move_to(found.offset, found.leader_epoch)
        if by_name and topic_id != NO_ID:
            state.looked_up_by_name(now)
            self.stored.metadata.request(f"{state.partition}: its offset was looked up by name")
        self._hear(state, found.leader_epoch)
        # The commit's age is unknown: assume half of the time after which it is renewed.
        state.commit_accepted(found, now - RENEW_AFTER / 2)

    def _is_coming(self, topic: str) -> bool:
        """Return whether the metadata has neither this topic nor an error for it yet.

        If it has the topic, but without an id, its brokers are too old for topic ids.
        """
        metadata = self.stored.metadata
        known = metadata.snapshot is not None and metadata.snapshot.topic(topic) is not None
        return not known and topic not in metadata.topic_errors

    def _hear(self, state: PartitionState, epoch: int) -> None:
        """Pass the leader epoch of a committed offset to the metadata (R-ID-4)."""
        if epoch >= 0:
            self.stored.metadata.is_older(state.partition, epoch, state.topic_id)

    def _wait_for(self, partition: TopicPartition, why: KafkaError) -> None:
        """Note that a partition's offset is unavailable; warn once if that lasts long."""
        now = self._engine.now
        waits = self.awaited.setdefault(partition, AwaitedOffset(now))
        waits.why = why
        if not waits.told and now - waits.since >= WARN_AFTER_S:
            waits.told = True
            logger.warning(
                "group %s: not reading %s: its committed offset has been unavailable for %.0f s "
                "(%s)%s",
                *(self._member.group_id, partition, now - waits.since, why),
                OPEN_TRANSACTION if isinstance(why, UnstableOffsetCommitError) else "",
            )
