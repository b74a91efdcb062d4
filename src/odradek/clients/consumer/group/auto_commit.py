"""Auto-commit: every auto.commit.interval.ms, before a revocation, and at the end.

In: what the caller is through with, partition by partition. Out: commits; what fails is logged, for
the next one makes it good. Must not: commit what the caller may still be working on (R-GR-1): at
least once is the promise, so records in the hands of a loop count only when it asks for more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.clients.consumer.group.group_commits import patience
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import PartitionState
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow, Wait

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup

logger = logging.getLogger("odradek.consumer")

UNKNOWN_FOR = 1.0
"""Seconds for which a commit asks for a topic that its coordinator doesn't know. One that was
deleted mustn't hold up a rebalance; what a new one missed, the next commit makes good."""


class AutoCommit:
    """The commits of one group consumer with `enable.auto.commit`."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        config = group.config
        self._interval: float = config["auto.commit.interval.ms"]
        # While one commit is tried again and again, newer ones wait for it.
        self._patience: float = max(self._interval, config["request.timeout.ms"])
        self._before_revocation: float = min(patience(config), config["max.poll.interval.ms"])

    def run(self) -> Flow[None]:
        """Commit now and then, for as long as the client lives."""
        now = yield START
        while True:
            until = now + max(self._interval, 0.001)
            while now < until:
                now = yield Wait((), until)
            if self._group.leaving:  # `at_the_end` does it; after the goodbye all would be refused
                continue
            if self._group.is_member or not self._group.subscribed:
                now = yield from self._commit(self._due(self._all()), now + self._patience, now)

    def before_revocation(self, states: Iterable[PartitionState], now: float) -> Flow[float]:
        """Commit what is about to be given back, so that its next reader goes on there."""
        return self._commit(self._due(states), now + self._before_revocation, now)

    def before_assignment(self) -> Flow[float]:
        """Commit what another `assign` is about to take away; the caller doesn't wait for it."""
        offsets = self._due(self._all())

        def commit() -> Flow[float]:
            now = yield START
            return (yield from self._commit(offsets, now + self._patience, now))

        return commit()

    def at_the_end(self, deadline: float, now: float) -> Flow[float]:
        """Commit what is left, at `close()` and `unsubscribe()`."""
        if self._group.subscribed and not self._group.is_member:
            return now
        return (yield from self._commit(self._due(self._all()), deadline, now))

    def _commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], deadline: float, now: float
    ) -> Flow[float]:
        group, traces = self._group, self._group.engine.traces
        if not offsets:
            return now
        commit = group.commits.commit(offsets, deadline, unknown_for=UNKNOWN_FOR, unasked=True)
        if traces is not None:
            commit = traces.settled(commit, offsets, group.group_id, asked=False)
        try:
            yield from commit
        except KafkaError as error:
            logger.warning("group %s: auto-commit failed: %s", group.group_id, error)
        return group.engine.now

    def _all(self) -> Iterable[PartitionState]:
        return self._group.engine.subscription.partitions.values()

    def _due(self, states: Iterable[PartitionState]) -> dict[TopicPartition, OffsetAndMetadata]:
        # Without members a group's offsets expire one by one, so all are told again (as in Java).
        every = not self._group.subscribed
        return {
            s.partition: offset
            for s in states
            if (offset := s.due()) is not None and (every or offset.offset != s.committed)
        }
