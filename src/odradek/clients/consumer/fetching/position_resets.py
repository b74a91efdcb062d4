"""Look up positions of partitions without one: committed offsets, else `auto.offset.reset`.

In: partitions without a position, positions outside of their logs. Out: positions, or errors for
the next poll. The group commits a position that a reset found (R-GR-6). Must not: fetch, or move a
position that a seek has changed meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.clients.any_broker import Brokers
from odradek.clients.consumer.fetching.offsets import (
    BEGINNING,
    END,
    ListedOffset,
    ListOffsetsCall,
    list_offsets,
)
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import NoOffsetForPartitionError, NoSuchOffsetError
from odradek.clients.consumer.subscription_state import (
    COMMITTED,
    COMMITTED_OR_EARLIEST,
    EARLIEST,
    LATEST,
    NONE,
    SubscriptionState,
)
from odradek.clients.missing_topics import MissingTopics
from odradek.common.config import Config, lookback
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.network.flow import START, Flow

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup

LOOKUPS = (COMMITTED, COMMITTED_OR_EARLIEST)
"""Reset policies that look up the group's committed offset."""
LOG_RANGE_TIMEOUT = 5.0
"""Maximum number of seconds to look up a log's start and end for an error message."""


class PositionResets:
    """Looks up positions for the partitions of one consumer."""

    def __init__(
        self,
        brokers: Brokers,
        config: Config,
        subscription: SubscriptionState,
        group: ConsumerGroup | None,
        missing: MissingTopics,
        *,
        isolation: int,
        wall_clock: Callable[[], float],
    ) -> None:
        """Set `wall_clock`, which returns seconds since the epoch, for resets by duration."""
        self._brokers = brokers
        self._engine = brokers.engine
        self._metadata = brokers.metadata
        self._subscription = subscription
        self._group = group
        self._missing = missing
        self._isolation = isolation
        self._wall_clock = wall_clock
        self._lookback = lookback(config["auto.offset.reset"])

    def start(self, lost: Iterable[PartitionState], now: float) -> bool:
        """Look up missing positions; called from the fetcher's `advance`."""
        states = [s for s in lost if not s.resetting and s.error is None and self._is_assigned(s)]
        if self._group is not None and states:
            asked = [s for s in states if s.reset in LOOKUPS]
            states = [s for s in states if s.reset not in LOOKUPS]
            if asked:
                for state in asked:
                    state.look_up()
                self._engine.start(self._group.commits.look_up(asked))
                if not states:
                    return True
        wanted: dict[TopicPartition, int] = {}
        resets: dict[TopicPartition, tuple[PartitionState, int]] = {}
        for state in states:
            if state.reset == NONE:
                where = "no position" if self._group is None else "no committed offset"
                self._subscription.fail(
                    state, NoOffsetForPartitionError(state.partition, where), now
                )
                continue
            self._note_topic(state)
            state.look_up()
            wanted[state.partition] = self._reset_timestamp(state)
            resets[state.partition] = (state, state.generation)
        if not wanted:
            return False

        def still(partition: TopicPartition) -> bool:
            state, generation = resets[partition]
            return state.generation == generation and self._subscription.holds(state)

        def found(partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
            if still(partition):
                self._reset_found(resets[partition][0], result)

        call = ListOffsetsCall(
            *(self._brokers, self._missing, wanted, found), isolation=self._isolation, still=still
        )
        self._engine.start(call.run())
        return True

    def _is_assigned(self, state: PartitionState) -> bool:
        """Return whether the topic with this name is still the one that was assigned."""
        known = self._topic(state)
        if known is None or state.is_assigned(known.topic_id):
            return True
        self._metadata.request_once(
            f"the group has assigned a topic {state.partition.topic} with another id"
        )
        return False

    def _topic(self, state: PartitionState) -> Topic | None:
        snapshot = self._metadata.snapshot
        return None if snapshot is None else snapshot.topic(state.partition.topic)

    def _note_topic(self, state: PartitionState) -> None:
        """Note the id of the topic for which ListOffsets looks up a position.

        ListOffsets uses names, and another topic may have the name when records are fetched.
        """
        known = self._topic(state)
        if known is not None and not self._subscription.identify(state, known.topic_id):
            state.reset_by(EARLIEST)

    def _reset_timestamp(self, state: PartitionState) -> int:
        """Return the timestamp for ListOffsets.

        A reset by duration looks up the log's end first, then the offset of the time. If no record
        is young enough, the reset uses the end.
        """
        if state.reset == EARLIEST:
            return BEGINNING
        if state.reset == LATEST or self._lookback is None or state.log_end is None:
            return END
        # Negative timestamps are special values, such as END.
        return max(0, math.floor((self._wall_clock() - self._lookback) * 1000))

    def _reset_found(self, state: PartitionState, result: ListedOffset | KafkaError) -> None:
        by_duration = state.reset not in (EARLIEST, LATEST)
        self._subscription.touch()
        if isinstance(result, KafkaError):
            state.looked_up()
            self._subscription.fail(state, result, self._engine.now)
        elif by_duration and state.log_end is None:
            # In its next step, the fetcher looks up the time, for all partitions in one request.
            state.looked_up(result.offset)
            return
        elif by_duration and state.log_end is not None and result.offset < 0:
            self._begin_at(state, state.log_end)
        else:
            self._begin_at(state, result.offset)
        self._subscription.readable.notify()

    def _begin_at(self, state: PartitionState, offset: int) -> None:
        """Move a position to the offset of a reset, and let the group commit it (R-GR-6).

        A reset to the beginning isn't committed: if it is repeated, no record is skipped.
        """
        state.move_to(offset)
        if self._group is not None and state.reset != EARLIEST:
            self._group.took(state, offset)

    def out_of_range(self, state: PartitionState) -> None:
        """Let the next poll raise an error with the position and the range of the log."""
        state.fetch_from(None)  # don't fetch while the range is looked up
        self._engine.start(self._log_range(state, state.generation))

    def _log_range(self, state: PartitionState, generation: int) -> Flow[None]:
        now = yield START
        partition, position = state.partition, state.position
        log: dict[int, int] = {}
        for which in (BEGINNING, END):
            try:
                deadline = now + LOG_RANGE_TIMEOUT
                found = yield from list_offsets(
                    self._brokers, self._missing, {partition: which}, self._isolation, deadline
                )
                log[which] = found[partition].offset
            except KafkaError:  # the error message then contains "unknown"
                break
        if state.generation != generation or position is None:
            return
        state.fetch_from(position)
        error = NoSuchOffsetError(partition, position, log.get(BEGINNING), log.get(END))
        self._subscription.fail(state, error, self._engine.now)
