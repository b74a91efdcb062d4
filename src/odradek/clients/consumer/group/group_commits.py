"""A group consumer's commits and lookups: what goes to its group, what comes of it.

In: offsets, or the positions; partitions that have no position. Out: commits, their callbacks
(each is called exactly once, at the latest while the consumer leaves its group), positions to begin
at; a rejoin where the group says that this member is none any more.
Must not: decide when to commit without being asked (`auto_commit` does), or speak with the
coordinator (`committed_offsets` does).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.clients.consumer.group.committed_offsets import (
    UNKNOWN_FOR,
    CommittedOffsets,
    lost_membership,
)
from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.group.pending_callbacks import COMMIT_CALLBACK, PendingCallback
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import PartitionState
from odradek.common.errors import ClientClosedError, CommitFailedError, KafkaError
from odradek.common.kafka_errors import FencedInstanceIdError, UnstableOffsetCommitError
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow, Signal, Wait

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.common.config import Config

logger = logging.getLogger("odradek.consumer")

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
GONE = (MemberState.UNJOINED, MemberState.FENCED, MemberState.STALE, MemberState.FATAL)


def patience(config: Config) -> float:
    """Seconds that a question of the client's own may take; it is asked again when they are over.

    `default.api.timeout.ms` is for calls. What nobody calls needs at least the time of one request,
    or it could never succeed.
    """
    request: float = config["request.timeout.ms"]
    call: float = config["default.api.timeout.ms"]
    return max(call, request)


TELL_AFTER = 10.0
"""Seconds for which a partition may wait for its committed offset before the log tells of it."""
OPEN_TRANSACTION = (
    ". A transaction that has sent one is open: it ends when its producer ends it, or after that "
    "one's transaction.timeout.ms"
)


class Awaited:
    """A partition whose committed offset can't be had."""

    __slots__ = ("since", "told", "why")

    def __init__(self, since: float) -> None:
        self.since = since
        self.why: KafkaError | None = None
        self.told = False


class Told:
    """A commit that its caller doesn't wait for, until the caller is told how it ended."""

    __slots__ = ("callback", "offsets")

    def __init__(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        self.offsets = offsets
        self.callback = callback


class GroupCommits:
    """The commits of one consumer."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        subscription = group.engine.subscription
        self.stored = CommittedOffsets(
            group.engine,
            group.coordinator,
            identity=group.identity,
            owner=lambda p: subscription.partitions.get(p),
        )
        self.awaited: dict[TopicPartition, Awaited] = {}
        """Partitions that have no position yet, because their committed offset can't be had."""
        self._open: dict[Told, None] = {}
        self.closed = False
        """Nothing is begun any more that a caller would have to be told of."""
        self._settled = Signal()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where all partitions stand, without what is on its way to the caller yet."""
        subscription = self._group.engine.subscription
        settled = subscription.hand_over.settled
        stand = {p: settled(s) for p, s in subscription.partitions.items()}
        return {
            p: OffsetAndMetadata(position, leader_epoch=epoch)
            for p, (position, epoch) in stand.items()
            if position is not None
        }

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        deadline: float,
        *,
        unknown_for: float = UNKNOWN_FOR,
        unasked: bool = False,
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit these, or the positions; gives what was committed.

        What the caller asks for counts from now on, for commits that nobody asks for as well: one
        that comes after it must not take it back.
        """
        now = yield START
        chosen = self.positions() if offsets is None else dict(offsets)
        membership = self._group.membership
        # Positions that were lost are what `commit()` is about, too, though none is left.
        something = bool(chosen) or self._group.dispossessed
        if something and membership is not None and not self._group.is_member:
            # An empty group accepts commits of non-members: a stale member could overwrite newer
            # offsets.
            raise lost_membership(
                self._group.group_id, f"its state is {membership.state.value}"
            ) from self._group.error
        if not chosen:
            return chosen
        here = self._group.engine.subscription.partitions
        states = {p: here.get(p) for p in chosen}
        for partition, state in states.items():
            if state is not None and not unasked:
                state.say(chosen[partition])

        def accepted(partition: TopicPartition, offset: OffsetAndMetadata) -> None:
            state = states[partition]
            if state is not None:
                state.committed_at(offset.offset)
                done.add(partition)

        done: set[TopicPartition] = set()
        try:
            yield from self.stored.commit(
                chosen, deadline, accepted=accepted, unknown_for=unknown_for
            )
        except FencedInstanceIdError as error:
            self._group.failed(error, self._group.engine.now)
            raise
        except CommitFailedError as error:
            membership, now = self._group.membership, self._group.engine.now
            present = self.stored.refused == self._group.identity()
            if present and membership is not None and membership.state not in GONE:
                membership.rejoin(f"a commit failed: {error.__cause__}", now)
            raise
        finally:
            for partition, state in states.items():
                if state is None or state.said is None or partition in done:
                    continue
                if state.said[0] is chosen[partition]:
                    state.unsay()
        return chosen

    def commit_and_tell(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        deadline: float,
        callback: CommitCallback | None,
    ) -> Flow[None]:
        """Commit; the caller is told in its next `poll()`, or the log is.

        From this call on, even if the client ends before what is given begins.
        """
        if self.closed:
            raise ClientClosedError("the consumer is being closed: nothing is committed any more")
        told, traces = Told(offsets, callback), self._group.engine.traces
        self._open[told] = None
        commit = self.commit(offsets, deadline)
        if traces is not None:
            commit = traces.settled(commit, offsets, self._group.group_id)
        return self._committed(told, commit)

    def _committed(
        self, told: Told, commit: Flow[dict[TopicPartition, OffsetAndMetadata]]
    ) -> Flow[None]:
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
        text = "the consumer ended before this commit did"
        return self._group.engine.ended or ClientClosedError(text)

    @property
    def open(self) -> bool:
        """Commits are under way that their callers will be told of."""
        return bool(self._open)

    def settle(self, deadline: float, now: float) -> Flow[float]:
        """Wait until none of them is."""
        while self._open and now < deadline:
            now = yield Wait((self._settled,), deadline)
        return now

    def give_up(self, now: float) -> None:
        """Tell of those that are still under way: nobody waits for them any more."""
        for told in list(self._open):
            what = f"answer to commit_async() of group {self._group.group_id!r}"
            engine = self._group.engine
            self._tell(told, engine.ended or engine.timeout(what, now))

    def _tell(self, told: Told, failure: KafkaError | None) -> None:
        if told not in self._open:
            return
        del self._open[told]
        callback, offsets = told.callback, told.offsets
        if callback is not None:
            self._group.callbacks.put(
                PendingCallback(COMMIT_CALLBACK, lambda: callback(offsets, failure), [])
            )
            self._group.engine.fetcher.changed.notify()
        elif failure is not None:
            logger.warning("group %s: commit_async() failed: %s", self._group.group_id, failure)
        self._settled.notify()

    def look_up(self, states: list[PartitionState]) -> Flow[None]:
        """Give partitions the positions that the group has committed; part of the fetcher's
        advance. Where nothing is committed `auto.offset.reset` decides.
        """
        now = yield START
        wanted = {s.partition: (s, s.generation) for s in states}
        deadline = now + patience(self._group.config)
        subscription = self._group.engine.subscription
        refused = False

        def still(partition: TopicPartition) -> bool:
            """Nobody has sought in it, or given it away."""
            state, generation = wanted[partition]
            return state.generation == generation and subscription.holds(state)

        def take(partition: TopicPartition) -> PartitionState | None:
            state = wanted[partition][0] if still(partition) else None
            del wanted[partition]
            if state is not None:
                state.looked_up(state.log_end)
                subscription.touch()
            return state

        def told(partition: TopicPartition, found: OffsetAndMetadata | KafkaError | None) -> bool:
            nonlocal refused
            if partition not in wanted:
                return False
            if isinstance(found, KafkaError) and found.retriable and still(partition):
                self._wait_for(partition, found)
                return True
            self.awaited.pop(partition, None)
            state = take(partition)
            if state is None:
                return False
            if isinstance(found, KafkaError):
                refused = True
                subscription.fail(state, found, self._group.engine.now)
            elif found is None:
                state.reset_by(subscription.policy)
            else:
                state.move_to(found.offset, found.leader_epoch)
                state.committed_at(found.offset)
            self._group.engine.fetcher.changed.notify()
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
                state.backoff.failed(self._group.engine.now)  # the fetcher asks again
            else:
                subscription.fail(state, error, self._group.engine.now)
        self._group.engine.fetcher.changed.notify()

    def _wait_for(self, partition: TopicPartition, why: KafkaError) -> None:
        """Its offset can't be had yet; the log tells once of one that waits for long."""
        now = self._group.engine.now
        waits = self.awaited.setdefault(partition, Awaited(now))
        waits.why = why
        if not waits.told and now - waits.since >= TELL_AFTER:
            waits.told = True
            logger.warning(
                "group %s: nothing of %s is read: its committed offset can't be had for %.0f s "
                "(%s)%s",
                *(self._group.group_id, partition, now - waits.since, why),
                OPEN_TRANSACTION if isinstance(why, UnstableOffsetCommitError) else "",
            )
