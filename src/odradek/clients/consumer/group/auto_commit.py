"""Commit automatically: every auto.commit.interval.ms, before a revocation, and at the end.

In: the offsets up to which the caller has processed records, by partition; offsets that resets
found. Those are committed at once: otherwise the next reader of a partition without records would
begin later, and skip records in between (R-GR-6). Out: commits; a failure is logged, and the next
commit repeats it. Must not: commit records that the caller may still process (R-GR-1). To keep
at-least-once, the records of a loop only count once the caller requests more.

The committed offset of a partition without new records is committed again within `RENEW_AFTER`, and
at the end (R-GR-3). Brokers delete an offset `offsets.retention.minutes` after its last commit: in
groups of the consumer protocol (KIP-848) once the group is empty, before Kafka 2.1 in all groups.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from zlib import crc32

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.group_commits import RENEW_AFTER, GroupCommits, patience
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.topic_watch import TopicWatch
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Signal, Wait

logger = logging.getLogger("odradek.consumer")

UNKNOWN_FOR = 1.0
"""Seconds for which a commit is retried if the coordinator doesn't know a topic.

A deleted topic mustn't delay a rebalance; for a new topic, the next commit succeeds.
"""
RENEWAL_INTERVAL = 30.0
"""Seconds between two searches for committed offsets that must be renewed."""

Due = dict[PartitionState, OffsetAndMetadata]
"""Offsets to commit, by partition."""


class AutoCommit:
    """The automatic commits of one group consumer, with or without workers."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        subscription: SubscriptionState,
        member: ThisMember,
        watch: TopicWatch,
        commits: GroupCommits,
        *,
        only_taken: bool = False,
    ) -> None:
        """Set the group. With `only_taken`, commit only offsets that resets found."""
        self._engine = engine
        self._subscription = subscription
        self._member = member
        self._watch = watch
        self._commits = commits
        self._only_taken = only_taken
        self._ended = False
        self._taken = Signal()
        self._unsaved = False
        """Whether a reset has found an offset since the last commit began."""
        self._interval: float = config["auto.commit.interval.ms"]
        # Time limit of a periodic commit: newer commits wait while it is retried.
        self._patience: float = max(self._interval, config["request.timeout.ms"])
        self._before_revocation: float = min(patience(config), config["max.poll.interval.ms"])

    def run(self) -> Flow[None]:
        """Commit periodically, until the client ends or the group needs no commits any more."""
        now = yield START
        until = now + max(self._interval, 0.001)
        renew_at = now + RENEWAL_INTERVAL
        while not self._ended:
            while now < min(until, renew_at) and not self._unsaved:
                now = yield Wait((self._taken,), min(until, renew_at))
            self._unsaved = False
            regular, renewal = now >= until, now >= renew_at
            states = [s for s in self._all() if regular or s.taken is not None]
            # While leaving, `at_the_end` commits; after LeaveGroup all commits would be refused.
            member = self._member
            if member.leaving is None and (member.is_member or not self._watch.active):
                due = self._due(states)
                if renewal:
                    due |= self._renewals(self._expiring(due, now))
                now = yield from self._commit(due, now + self._patience, now)
            if regular:
                until = now + max(self._interval, 0.001)
            if renewal:
                renew_at = now + RENEWAL_INTERVAL

    def end(self) -> None:
        """Stop committing automatically."""
        self._ended = True

    def took(self) -> None:
        """Commit at once the offsets that resets have found, without waiting for the interval."""
        self._unsaved = True
        self._taken.notify()

    def before_revocation(self, states: Iterable[PartitionState], now: float) -> Flow[float]:
        """Commit partitions before they are revoked, so that their next owner continues there."""
        states = list(states)
        now = yield from self._commit(self._last(states), now + self._before_revocation, now)
        self.warn_of_repeats(states)
        return now

    def before_assignment(self) -> Flow[float]:
        """Commit partitions that the next `assign` will remove; the caller doesn't wait for it."""
        due = self._due(self._all())

        def commit() -> Flow[float]:
            now = yield START
            return (yield from self._commit(due, now + self._patience, now))

        return commit()

    def at_the_end(self, deadline: float, now: float) -> Flow[float]:
        """Commit all remaining offsets, at `close()` and `unsubscribe()`."""
        states = list(self._all())
        try:
            if self._member.is_member or not self._watch.active:
                now = yield from self._commit(self._last(states), deadline, now)
        finally:  # the client may end before the commit does
            self.warn_of_repeats(states)
        return now

    def warn_of_repeats(self, states: Iterable[PartitionState]) -> None:
        """Warn of the number of records that will be read again, because they aren't committed."""
        again = 0
        for state, offset in self._due(states).items():
            if state.missing_since is not None:
                continue  # a deleted topic isn't read again
            begun = state.ownership.span.low if state.committed is None else state.committed.offset
            if begun is not None and begun < offset.offset:
                again += offset.offset - begun
        if again:
            logger.warning(
                "group %s: the last offsets couldn't be committed: %d record%s will be read again",
                *(self._member.group_id, again, "" if again == 1 else "s"),
            )

    def _commit(self, due: Due, deadline: float, now: float) -> Flow[float]:
        if not due:
            return now
        asked = self._asked(due)
        commit = self._commits.commit(asked, deadline, unknown_for=UNKNOWN_FOR, unasked=True)
        try:
            yield from self._commits.traced(commit, asked.offsets, asked=False)
        except KafkaError as error:
            logger.warning("group %s: auto-commit failed: %s", self._member.group_id, error)
        return self._engine.now

    def _all(self) -> Iterable[PartitionState]:
        return self._subscription.partitions.values()

    def _due(self, states: Iterable[PartitionState]) -> Due:
        # For a group without members, brokers expire each offset by its own age, so all offsets
        # are committed each time (as in Java).
        every = not self._watch.active
        return {
            s: offset
            for s in states
            if (offset := self._of(s)) is not None
            and (every or s.committed is None or offset.offset != s.committed.offset)
        }

    def _last(self, states: Iterable[PartitionState]) -> Due:
        """Return the offsets to commit before partitions are given up; renew idle ones.

        Offsets that were committed just now need no renewal.
        """
        states = list(states)
        due, before = self._due(states), self._engine.now - RENEWAL_INTERVAL
        old = (s for s in states if s.committed_since <= before and s not in due)
        return due | self._renewals(old)

    def _expiring(self, due: Due, now: float) -> Iterator[PartitionState]:
        """Yield the idle partitions whose committed offsets must be renewed by now.

        The time depends on a partition's name, so that one request doesn't contain all of them.
        """
        for state in self._all():
            age = now - state.committed_since
            early = age < RENEW_AFTER / 2 or age < RENEW_AFTER * _share(state.partition)
            if not early and state not in due:
                yield state

    def _renewals(self, states: Iterable[PartitionState]) -> Due:
        """Return the committed offsets of these partitions, to commit them again.

        The caller may have committed less than was returned to it. A renewal is left out if another
        commit may have stored a newer offset: one in flight, or one of a transaction.
        """
        if self._commits.elsewhere:
            return {}
        under_way = self._commits.under_way()
        return {
            s: s.committed
            for s in states
            if s.committed is not None and s.partition not in under_way
        }

    def _asked(self, due: Due) -> AskedCommit:
        owned = {s.partition: s.ownership for s in due} if self._watch.active else {}
        asked = AskedCommit({s.partition: offset for s, offset in due.items()}, owned)
        return self._commits.with_topics(asked)

    def _of(self, state: PartitionState) -> OffsetAndMetadata | None:
        if not self._only_taken:
            return state.due()
        return None if state.taken is None else OffsetAndMetadata(state.taken)


def _share(partition: TopicPartition) -> float:
    """Return the part of `RENEW_AFTER` after which a partition's commit is renewed: 0.5 to 0.9."""
    return 0.5 + 0.4 * crc32(f"{partition.topic}-{partition.partition}".encode()) / 2**32
