"""Auto-commit: every auto.commit.interval.ms, before a revocation, and at the end.

In: what the caller is through with, partition by partition; offsets that resets found, which are
committed at once: until then the next reader of a partition without records would begin later, and
skip what comes in between (R-GR-6). Out: commits; what fails is logged, for the next one makes it
good. Must not: commit what the caller may still be working on (R-GR-1): at
least once is the promise, so records in the hands of a loop count only when it asks for more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.group_commits import GroupCommits, patience
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.topic_watch import TopicWatch
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Signal, Wait

logger = logging.getLogger("odradek.consumer")

UNKNOWN_FOR = 1.0
"""Seconds for which a commit asks for a topic that its coordinator doesn't know. One that was
deleted mustn't hold up a rebalance; what a new one missed, the next commit makes good."""


class AutoCommit:
    """The commits of one group consumer with `enable.auto.commit`, or of one with workers."""

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
        """`only_taken`: commit nothing but offsets that resets found."""
        self._engine = engine
        self._subscription = subscription
        self._member = member
        self._watch = watch
        self._commits = commits
        self._only_taken = only_taken
        self._ended = False
        self._taken = Signal()
        self._unsaved = False
        """A reset has found an offset since the last commit began."""
        self._interval: float = config["auto.commit.interval.ms"]
        # While one commit is tried again and again, newer ones wait for it.
        self._patience: float = max(self._interval, config["request.timeout.ms"])
        self._before_revocation: float = min(patience(config), config["max.poll.interval.ms"])

    def run(self) -> Flow[None]:
        """Commit now and then, until the client ends or the group has no use for this any more."""
        now = yield START
        until = now + max(self._interval, 0.001)
        while not self._ended:
            while now < until and not self._unsaved:
                now = yield Wait((self._taken,), until)
            self._unsaved = False
            regular = now >= until
            states = [s for s in self._all() if regular or s.taken is not None]
            # While leaving, `at_the_end` commits; after the goodbye all would be refused.
            member = self._member
            if member.leaving is None and (member.is_member or not self._watch.active):
                now = yield from self._commit(self._due(states), now + self._patience, now)
            if regular:
                until = now + max(self._interval, 0.001)

    def end(self) -> None:
        """Commit nothing any more by itself."""
        self._ended = True

    def took(self) -> None:
        """Commit the offset that a reset has found, without waiting for the interval."""
        self._unsaved = True
        self._taken.notify()

    def before_revocation(self, states: Iterable[PartitionState], now: float) -> Flow[float]:
        """Commit partitions before they are revoked, so that their next owner continues there."""
        return self._commit(self._due(states), now + self._before_revocation, now)

    def before_assignment(self) -> Flow[float]:
        """Commit what another `assign` is about to take away; the caller doesn't wait for it."""
        due = self._due(self._all())

        def commit() -> Flow[float]:
            now = yield START
            return (yield from self._commit(due, now + self._patience, now))

        return commit()

    def at_the_end(self, deadline: float, now: float) -> Flow[float]:
        """Commit what is left, at `close()` and `unsubscribe()`."""
        if self._watch.active and not self._member.is_member:
            return now
        return (yield from self._commit(self._due(self._all()), deadline, now))

    def _commit(self, due: AskedCommit, deadline: float, now: float) -> Flow[float]:
        if not due.offsets:
            return now
        commit = self._commits.commit(due, deadline, unknown_for=UNKNOWN_FOR, unasked=True)
        try:
            yield from self._commits.traced(commit, due.offsets, asked=False)
        except KafkaError as error:
            logger.warning("group %s: auto-commit failed: %s", self._member.group_id, error)
        return self._engine.now

    def _all(self) -> Iterable[PartitionState]:
        return self._subscription.partitions.values()

    def _due(self, states: Iterable[PartitionState]) -> AskedCommit:
        # Without members a group's offsets expire one by one, so all are told again (as in Java).
        every = not self._watch.active
        due = {
            s: offset
            for s in states
            if (offset := self._of(s)) is not None and (every or offset.offset != s.committed)
        }
        owned = {s.partition: s.ownership for s in due} if self._watch.active else {}
        asked = AskedCommit({s.partition: offset for s, offset in due.items()}, owned)
        return self._commits.with_topics(asked)

    def _of(self, state: PartitionState) -> OffsetAndMetadata | None:
        if not self._only_taken:
            return state.due()
        return None if state.taken is None else OffsetAndMetadata(state.taken)
