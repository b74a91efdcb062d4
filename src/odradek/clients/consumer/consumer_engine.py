"""The engine of one consumer: subscription, fetcher and offsets on top of the client engine.

In: assignments and calls of the facade. Out: offsets, descriptions, and by `delivery` records or
columns. The facade's thread may change the assignment and positions while another steps: both hold
the host's lock. Must not: block; the facade waits for what the flows here wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.fetching.completed_fetch import NULL_LOCK
from odradek.clients.consumer.fetching.delivery import Delivery
from odradek.clients.consumer.fetching.fetcher import Fetcher
from odradek.clients.consumer.fetching.offsets import (
    BEGINNING,
    END,
    ListedOffset,
    ListOffsetsCall,
    list_offsets,
)
from odradek.clients.consumer.partition_arguments import Place
from odradek.clients.consumer.records import (
    NoOffsetForPartitionError,
    NoSuchOffsetError,
    OffsetAndTimestamp,
)
from odradek.clients.consumer.subscription_state import (
    COMMITTED,
    EARLIEST,
    LATEST,
    NONE,
    PartitionState,
    SubscriptionState,
)
from odradek.clients.impatience import LEAST
from odradek.clients.missing_topics import alike, cure, like_it
from odradek.common.config import Config, lookback
from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.imports import loaded
from odradek.common.kafka_errors import UnknownTopicOrPartitionError
from odradek.common.types import Lock, Rng, TopicPartition
from odradek.metadata.cluster import to_hint
from odradek.network.flow import START, Flow, Wait

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.descriptions import TopicDescription

FRAME_SLACK = 64 << 20
"""A first batch is sent whole even where it is above `fetch.max.bytes`."""
BUFFER_SLACK = 32 << 20
"""Receive buffers may keep so much more than `fetch.max.bytes`, which bounds what is in them."""
LOG_RANGE_TIMEOUT = 5.0
"""Seconds for finding out where a log begins and ends, when that is only for an error's text."""


def _group(engine: ConsumerEngine, group_id: str) -> ConsumerGroup:
    """Imported here: who assigns partitions doesn't pay for it."""
    loaded("odradek.clients.consumer.group.consumer_group")
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup

    return ConsumerGroup(engine, group_id)


class ConsumerEngine(ClientEngine):
    """What a consumer is made of."""

    def __init__(
        self,
        config: Config,
        rng: Rng,
        lock: Lock = NULL_LOCK,
        *,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = float,
        readers_first: bool = False,
        hint: Mapping[str, Any] | None = None,
    ) -> None:
        """`wall_clock` gives seconds since the epoch, for resets by duration alone; `clock` the
        host's own, for the time that decoding takes in the caller: it decides nothing.
        `readers_first`: who waits for records has them before the next fetch is made.
        """
        limit = max(config["fetch.max.bytes"], config["max.partition.fetch.bytes"]) + FRAME_SLACK
        super().__init__(config, rng, frame_limit=min(limit, 2**31 - 1), hint=hint)
        self.network.buffers.allow(config["fetch.max.bytes"] + BUFFER_SLACK)
        group_id: str | None = config["group.id"]
        self.subscription = SubscriptionState(
            config["auto.offset.reset"],
            config.backoff("retry.backoff"),
            rng,
            first=None if group_id is None else COMMITTED,
        )
        self._wall_clock = wall_clock
        self.clock = clock
        self.readers_first = readers_first
        self._lookback = lookback(config["auto.offset.reset"])
        self.fetcher = Fetcher(self, self.subscription)
        self.components.append(self.fetcher)
        self.isolation = 1 if config["isolation.level"] == "read_committed" else 0
        self.lock = lock
        self._roused = False
        self.group = None if group_id is None else _group(self, group_id)
        self.metadata.held_by.append(self._topics_in_use)
        self.delivery = Delivery(self, lock)
        if self.group is not None and self.group.auto_commit is not None:
            self.start(self.group.auto_commit.run())

    def step(self, now: float) -> float | None:
        """Move state, while no caller does."""
        with self.lock:
            return super().step(now)

    # The assignment

    def _topics_in_use(self) -> set[str]:
        subscribed = () if self.group is None else self.group.topics()
        return {*subscribed, *(p.topic for p in self.subscription.partitions)}

    def assign(
        self,
        partitions: Iterable[TopicPartition],
        until: Mapping[TopicPartition, int] | None,
        positions: Mapping[TopicPartition, Place] | None = None,
    ) -> None:
        """Replace the assignment, and with it the topics in use; go to `positions`."""
        if self.group is not None:
            self.group.check_assignable()
            with self.lock:
                self.subscription.note_consumed()
                if self.group.auto_commit is not None and self.subscription.partitions:
                    self.start(self.group.auto_commit.before_assignment())
        before = {p.topic for p in self.subscription.partitions}
        with self.lock:
            self.subscription.assign(partitions, until or {})
            for partition, place in (positions or {}).items():
                self.subscription.seek(partition, *place)
        topics = dict.fromkeys(p.topic for p in self.subscription.partitions)
        gone = before.difference(topics)
        self.post(lambda _: self.metadata.forget_topics(gone))
        self.post(lambda _: self.metadata.want(topics))

    def pause_those_left(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Pause or resume what is assigned of these; from within a step."""
        left = [p for p in partitions if p in self.subscription.partitions]
        self.subscription.pause(left, paused=paused)
        self.fetcher.changed.notify()

    def take_over(self, old: SubscriptionState) -> None:
        """Begin with another engine's assignment, positions and pauses, which are the user's."""
        states = list(old.partitions.values())
        self.assign([s.partition for s in states], {s.partition: s.until for s in states})
        for state in states:
            mine = self.subscription.get(state.partition)
            mine.take_over(state)
            position, epoch = old.hand_over.settled(state)
            if position is not None:
                mine.move_to(position, epoch)

    # Positions

    def start_resets(self, lost: Iterable[PartitionState], now: float) -> bool:
        """Look up positions for partitions that have none; part of the fetcher's advance."""
        states = [s for s in lost if not s.resetting and s.error is None]
        if self.group is not None and states:
            asked = [s for s in states if s.reset == COMMITTED]
            states = [s for s in states if s.reset != COMMITTED]
            if asked:
                for state in asked:
                    state.look_up()
                self.start(self.group.commits.look_up(asked))
                if not states:
                    return True
        wanted: dict[TopicPartition, int] = {}
        resets: dict[TopicPartition, tuple[PartitionState, int]] = {}
        for state in states:
            if state.reset == NONE:
                where = "no position" if self.group is None else "no committed offset"
                self.fetcher.fail(state, NoOffsetForPartitionError(state.partition, where), now)
                continue
            state.look_up()
            wanted[state.partition] = self._reset_timestamp(state)
            resets[state.partition] = (state, state.generation)
        if not wanted:
            return False

        def still(partition: TopicPartition) -> bool:
            state, generation = resets[partition]
            return state.generation == generation and self.subscription.holds(state)

        def found(partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
            if still(partition):
                self._reset_found(resets[partition][0], result)

        call = ListOffsetsCall(self, wanted, found, isolation=self.isolation, still=still)
        self.start(call.run())
        return True

    def _reset_timestamp(self, state: PartitionState) -> int:
        """What ListOffsets is asked for. A reset by duration asks twice: for the end, then for
        the time; so it has somewhere to begin where no record is young enough.
        """
        if state.reset == EARLIEST:
            return BEGINNING
        if state.reset == LATEST or self._lookback is None or state.log_end is None:
            return END
        # Below 0 timestamps mean something else.
        return max(0, math.floor((self._wall_clock() - self._lookback) * 1000))

    def _reset_found(self, state: PartitionState, result: ListedOffset | KafkaError) -> None:
        by_duration = state.reset not in (EARLIEST, LATEST)
        self.subscription.touch()
        if isinstance(result, KafkaError):
            state.looked_up()
            self.subscription.fail(state, result, self.now)
        elif by_duration and state.log_end is None:
            state.looked_up(result.offset)  # the fetcher asks on in its next turn, for all at once
            return
        elif by_duration and state.log_end is not None and result.offset < 0:
            state.move_to(state.log_end)
        else:
            state.move_to(result.offset)
        self.fetcher.changed.notify()

    def out_of_range(self, state: PartitionState) -> None:
        """Have the next poll raise where a position is, and where the log begins and ends."""
        state.fetch_from(None)  # nothing is asked meanwhile
        self.start(self._out_of_range(state, state.generation))

    def _out_of_range(self, state: PartitionState, generation: int) -> Flow[None]:
        now = yield START
        partition, position = state.partition, state.position
        log: dict[int, int] = {}
        for which in (BEGINNING, END):
            try:
                deadline = now + LOG_RANGE_TIMEOUT
                found = yield from list_offsets(self, {partition: which}, self.isolation, deadline)
                log[which] = found[partition].offset
            except KafkaError:  # the text will say "unknown"
                break
        if state.generation != generation or position is None:
            return
        state.fetch_from(position)
        error = NoSuchOffsetError(partition, position, log.get(BEGINNING), log.get(END))
        self.fetcher.fail(state, error, self.now)

    def position(self, partition: TopicPartition, deadline: float) -> Flow[int]:
        """The offset of the next record; waits for a reset."""
        yield START
        state = self.subscription.get(partition)
        yield from self._reset(state, deadline)
        if state.position is None:
            raise IllegalStateError(f"{partition} isn't assigned to this consumer any more")
        return state.position

    def positions(self, partitions: Iterable[TopicPartition] | None, deadline: float) -> Flow[None]:
        """Wait for resets of these (None: all), as far as they stay assigned."""
        yield START
        chosen = list(self.subscription.partitions if partitions is None else partitions)
        for state in [self.subscription.get(partition) for partition in chosen]:
            yield from self._reset(state, deadline)

    def _reset(self, state: PartitionState, deadline: float) -> Flow[None]:
        now = yield START
        while state.position is None and self.subscription.holds(state):
            error = state.take_error()
            if error is not None:
                self.subscription.touch()
                raise error
            if now >= deadline:
                raise self.timeout(f"position of {state.partition}", now)
            now = yield Wait((self.fetcher.changed,), deadline)

    # Offsets

    def offsets_at(
        self, partitions: Iterable[TopicPartition], which: int, deadline: float
    ) -> Flow[dict[TopicPartition, int]]:
        """Beginning or end offsets."""
        wanted = dict.fromkeys(partitions, which)
        found = yield from list_offsets(self, wanted, self.isolation, deadline)
        return {p: f.offset for p, f in found.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], deadline: float
    ) -> Flow[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The first record at or after a time; None where there is none."""
        found = yield from list_offsets(self, times, self.isolation, deadline)
        return {
            p: OffsetAndTimestamp(f.offset, f.timestamp_ms, f.leader_epoch)
            if f.offset >= 0
            else None
            for p, f in found.items()
        }

    # Topics

    def describe(self, topics: Sequence[str], deadline: float) -> Flow[dict[str, TopicDescription]]:
        """Describe topics by a request of its own."""
        loaded("odradek.clients.descriptions")
        from odradek.clients.descriptions import describe_topics

        return describe_topics(self, topics, deadline)

    def list_topics(self, deadline: float, *, internal: bool) -> Flow[list[str]]:
        """The names of all topics."""
        loaded("odradek.clients.descriptions")
        from odradek.clients.descriptions import list_topics

        return list_topics(self, deadline, internal=internal)

    def partitions_for(self, topic: str, deadline: float) -> Flow[list[TopicPartition]]:
        """The partitions of a topic; the error of one that isn't there has names like it."""
        loaded("odradek.clients.descriptions")
        from odradek.clients.descriptions import describe_topics, list_topics

        try:
            found = yield from describe_topics(self, [topic], deadline)
        except UnknownTopicOrPartitionError as error:
            there: list[str] = []
            with suppress(KafkaError):  # then nothing is said of names like it
                there = yield from list_topics(self, deadline, internal=False)
            hint = f"topic {topic} isn't there{like_it(alike(topic, there))}. "
            hint += cure(topic, self.updater.bootstrap)
            raise UnknownTopicOrPartitionError(hint) from error
        return [TopicPartition(topic, p.partition) for p in found[topic].partitions]

    def bootstrap_hint(self) -> dict[str, Any] | None:
        """The snapshot as plain data, for a consumer in another process."""
        snapshot = self.metadata.snapshot
        return None if snapshot is None else to_hint(snapshot)

    # Polling

    def data(self, deadline: float) -> Flow[bool]:
        """Wait until there is something for the caller; False at the deadline, or at the end.

        Raises `NoBrokerAvailableError` once `metadata.unavailable.timeout.ms` has passed (R-RB-6).
        """
        now = yield START
        subscribed = self.group is not None and self.group.subscribed
        if not self.subscription.partitions and not subscribed:
            raise IllegalStateError(
                "nothing to read: call subscribe() or assign() first (AsyncConsumer's subscribe() "
                "is awaited)"
            )
        patience = min(deadline, now + LEAST)
        while True:
            if self.group is not None and self.group.calls:
                return True
            if self.subscription.pending or self.fetcher.waiting.head() is not None:
                return True
            if self._roused:
                self._roused = False
                return True
            if not subscribed and self.subscription.finished():
                return False
            raise_at = max(self.unavailable_until(), patience)
            if now >= raise_at:
                raise self.timeout("records", now)
            if now >= deadline:
                return False
            until = min(deadline, raise_at)
            self.waiting["records"] = (deadline, "")
            try:
                now = yield Wait((self.fetcher.changed, self.metadata.changed), until)
            finally:
                self.waiting.pop("records", None)

    def rouse(self) -> None:
        """Have `data` end, now or at its next call; at any place, in any thread."""

        def end(_: float) -> None:
            self._roused = True
            self.fetcher.changed.notify()

        self.post(end)
