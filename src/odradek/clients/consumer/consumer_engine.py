"""Combine subscription, fetcher and offsets of one consumer with the client engine.

In: assignments and calls of the consumer. Out: offsets, descriptions, and by `delivery` records or
columns. The caller's thread may change the assignment and positions while another thread steps:
both hold the engine's lock. Must not: block; callers wait for the generators of this class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.completed_fetch import NULL_LOCK
from odradek.clients.consumer.fetching.delivery import Delivery
from odradek.clients.consumer.fetching.epoch_ends import EpochEndsCall
from odradek.clients.consumer.fetching.fetch_session import TOPIC_IDS_FROM
from odradek.clients.consumer.fetching.fetcher import Fetcher
from odradek.clients.consumer.fetching.offsets import END, ListedOffset, list_offsets
from odradek.clients.consumer.fetching.position_resets import PositionResets
from odradek.clients.consumer.partition_state import PartitionState, Place
from odradek.clients.consumer.records import (
    OffsetAndTimestamp,
)
from odradek.clients.consumer.subscription_state import (
    COMMITTED,
    Selector,
    SubscriptionState,
)
from odradek.clients.unavailable_timeout import MIN_TRY_S
from odradek.common.config import Config
from odradek.common.errors import IllegalStateError, first_use
from odradek.common.types import Lock, Rng, TopicPartition
from odradek.metadata.cluster import NO_ID, to_hint
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.descriptions import TopicDescription

KnownEpoch = tuple[int, bytes]
"""The leader epoch of a position, -1 if unknown, and the id of its topic."""
FRAME_SLACK = 64 << 20
"""Maximum size of a response beyond `fetch.max.bytes`.

Brokers send a first batch completely even if it exceeds that limit.
"""
BUFFER_SLACK = 32 << 20
"""Bytes by which receive buffers may exceed `fetch.max.bytes`, which only limits their content."""


class ConsumerEngine(ClientEngine):
    """The engine of one consumer: its components, and generators that carry out its calls."""

    right = "READ"

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
        """Create the engine with its clocks.

        `wall_clock` returns seconds since the epoch, only for resets by duration; `clock` is the
        I/O host's, to measure decoding in the caller: no decision depends on it. With
        `readers_first`, callers that wait for records get them before the next fetch is created.
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
        self.isolation = 1 if config["isolation.level"] == "read_committed" else 0
        self.lock = lock
        self._roused = False
        self.group: ConsumerGroup | None = None
        if group_id is not None:
            # Imported here: a consumer without a group doesn't need it.
            from odradek.clients.consumer.group.wiring import wired

            self.group = wired(self.brokers, config, self.subscription, lambda: self.traces, lock)
        resets = PositionResets(
            *(self.brokers, config, self.subscription, self.group, self.missing),
            isolation=self.isolation,
            wall_clock=wall_clock,
        )
        self.fetcher = Fetcher(
            *(self.brokers, config, self.subscription, resets, self.missing),
            lock=lock,
            clock=clock,
            readers_first=readers_first,
        )
        self.components.append(self.fetcher)
        self.metadata.held_by.append(self._topics_in_use)
        self.metadata.on_forgotten.append(self.fetcher.waiting.forget)
        self.delivery = Delivery(
            self, config, self.subscription, self.fetcher.waiting, self.group, lock
        )
        if self.group is not None and self.group.auto_commit is not None:
            self.start(self.group.auto_commit.run())

    def step(self, now: float) -> float | None:
        """Process the inputs while no caller changes the state."""
        with self.lock:
            return super().step(now)

    # Assignment

    def _topics_in_use(self) -> set[str]:
        subscribed = () if self.group is None else self.group.topics()
        return {*subscribed, *(p.topic for p in self.subscription.partitions)}

    def assign(
        self,
        partitions: Iterable[TopicPartition],
        until: Mapping[TopicPartition, Place] | None,
        positions: Mapping[TopicPartition, Place] | None = None,
    ) -> None:
        """Replace the assignment and the topics in use; start at `positions` where given."""
        for partition, (offset, _) in (positions or {}).items():
            if partition in self.subscription.partitions:
                self.subscription.check_seek(partition, offset)
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
        self.hear(positions or {})
        self.hear(until or {})
        self.post(lambda _: self.metadata.forget_topics(gone))
        self.post(lambda _: self.metadata.want(topics))

    def hear(self, positions: Mapping[TopicPartition, Place]) -> None:
        """Pass the leader epochs of positions to the metadata (R-ID-4); callable in any thread."""
        states, metadata = self.subscription.partitions, self.metadata
        given = [
            (states[p], epoch) for p, (_, epoch) in positions.items() if epoch >= 0 and p in states
        ]

        def hear(_: float) -> None:
            for state, epoch in given:
                known = (
                    metadata.snapshot.topic(state.partition.topic) if metadata.snapshot else None
                )
                topic_id = known.topic_id if known and state.topic_id == NO_ID else state.topic_id
                metadata.is_older(state.partition, epoch, topic_id)

        if given:
            self.post(hear)

    def take_over(self, old: SubscriptionState) -> None:
        """Copy another engine's assignment, positions and pauses, which the user has set."""
        states = list(old.partitions.values())
        self.assign(
            [s.partition for s in states],
            {s.partition: (s.until, s.until_epoch) for s in states},
        )
        for state in states:
            mine = self.subscription.get(state.partition)
            mine.take_over(state)
            mine.succeed(state)
            position, epoch = old.hand_over.settled(state)
            if position is not None:
                mine.move_to(position, epoch)

    # Positions

    def position(self, partition: TopicPartition, deadline: float) -> Flow[int]:
        """Return the offset of the next record; wait for a reset."""
        yield START
        state = self.subscription.get(partition)
        yield from self._reset(state, deadline)
        if state.position is None:
            raise IllegalStateError(f"{partition} is no longer assigned to this consumer")
        return state.position

    def positions(self, partitions: Iterable[TopicPartition] | None, deadline: float) -> Flow[None]:
        """Wait for position resets of these partitions (None: all), while they are assigned."""
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
                raise self.timeout(f"the position of {state.partition}", now)
            now = yield Wait((self.subscription.readable,), deadline)

    # Offsets

    def offsets_at(
        self, partitions: Iterable[TopicPartition], which: int, deadline: float
    ) -> Flow[dict[TopicPartition, int]]:
        """Return the start or end offsets of these partitions."""
        wanted = dict.fromkeys(partitions, which)
        found = yield from self._listed(wanted, deadline)
        return {p: f.offset for p, f in found.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], deadline: float
    ) -> Flow[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return the first record at or after a time by partition; None if there is none."""
        found = yield from self._listed(times, deadline)
        return {
            p: OffsetAndTimestamp(f.offset, f.timestamp_ms, f.leader_epoch)
            if f.offset >= 0
            else None
            for p, f in found.items()
        }

    def _listed(
        self, wanted: Mapping[TopicPartition, int], deadline: float
    ) -> Flow[dict[TopicPartition, ListedOffset]]:
        yield START
        recreated = [s for s in self.subscription.untold if s.partition in wanted]
        found = yield from list_offsets(
            self.brokers, self.missing, wanted, self.isolation, deadline
        )
        for state in recreated:  # the caller now has an offset of the new topic (R-ID-3)
            self.subscription.note_told(state)
        return found

    def log_ends(
        self, partitions: Mapping[TopicPartition, KnownEpoch], deadline: float, *, stable: bool
    ) -> Flow[dict[TopicPartition, ListedOffset]]:
        """Return the log ends with the leaders' epochs; outdated leaders aren't asked (R-ID-4).

        `stable`: return last stable offsets if this consumer reads committed records only.
        """
        yield START
        snapshot = self.metadata.snapshot
        for partition, (epoch, topic_id) in partitions.items():
            known = None if snapshot is None else snapshot.topic(partition.topic)
            now_id = NO_ID if known is None else known.topic_id
            # The epochs of a deleted topic say nothing about a new topic of the same name.
            if epoch >= 0 and (NO_ID in (now_id, topic_id) or now_id == topic_id):
                self.metadata.is_older(partition, epoch, topic_id)
        wanted, isolation = dict.fromkeys(partitions, END), self.isolation if stable else 0
        return (yield from list_offsets(self.brokers, self.missing, wanted, isolation, deadline))

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], deadline: float
    ) -> Flow[dict[TopicPartition, ListedOffset]]:
        """Return where the records of leader epochs end in the current logs (KIP-320)."""
        return list_offsets(
            *(self.brokers, self.missing, epochs, self.isolation, deadline), EpochEndsCall
        )

    def has_other_ids(self, topic_ids: Mapping[str, bytes]) -> bool:
        """Return whether the client's metadata has another id for one of these topics."""
        snapshot = self.metadata.snapshot
        known = {} if snapshot is None else {n: snapshot.topic(n) for n in topic_ids}
        return any(
            t is not None and t.topic_id not in (NO_ID, topic_ids[n]) for n, t in known.items()
        )

    def fetches_by_name(self, _deadline: float) -> Flow[bool]:
        """Return whether a broker's Fetch names topics by name, not by id (before Kafka 3.1)."""
        yield START
        versions = [c.versions.get(FetchRequest.API_KEY) for c in self.network.connections.values()]
        return any(found is not None and found[1] < TOPIC_IDS_FROM for found in versions)

    # Topics

    def list_topics(self, deadline: float, *, internal: bool) -> Flow[list[str]]:
        """Return the names of all topics."""
        with first_use():
            from odradek.clients.descriptions import list_topics

        return list_topics(self.brokers, deadline, internal=internal)

    def descriptions_by_each(
        self, topics: Collection[str], deadline: float
    ) -> Flow[tuple[int, list[dict[str, TopicDescription | None]]]]:
        """Return the number of brokers, and each broker's description of the topics."""
        with first_use():
            from odradek.clients.descriptions import describe_by_each

        return describe_by_each(self.brokers, topics, deadline)

    def partitions_for(self, topic: str, deadline: float) -> Flow[list[TopicPartition]]:
        """Return the partitions of a topic."""
        found = yield from self.describe_topics([topic], deadline)
        return [TopicPartition(topic, p.partition) for p in found[topic].partitions]

    def bootstrap_hint(self) -> dict[str, Any] | None:
        """Return the cluster's metadata as plain data, for a consumer in another process."""
        snapshot = self.metadata.snapshot
        return None if snapshot is None else to_hint(snapshot)

    # Polling

    def data(self, deadline: float, of: Selector | None = None) -> Flow[bool]:
        """Wait for records or errors for the caller; return False at the deadline or the end.

        `of` returns the partitions that the caller reads: records of others don't end the wait.
        Raises `NoBrokerAvailableError` once `metadata.unavailable.timeout.ms` has passed (R-RB-6).
        """
        now, group = (yield START), self.group
        if not self.subscription.partitions and (group is None or not group.subscribed):
            raise IllegalStateError(
                "nothing to read: call subscribe() or assign() first (with AsyncConsumer, await "
                "subscribe())"
            )
        patience = min(deadline, now + MIN_TRY_S)
        while True:
            if self.group is not None and self.group.calls:
                return True
            some = None
            if of is not None:
                self.subscription.read(some := of())
            if self.subscription.failed(some) is not None:
                return True
            if self.fetcher.waiting.head(some) is not None:
                return True
            if self._roused:
                self._roused = False
                return True
            if (group is None or not group.subscribed) and self.subscription.finished():
                return False
            raise_at = max(self.unavailable_until(), patience)
            if now >= raise_at:
                raise self.timeout("records", now)
            if now >= deadline:
                return False
            until = min(deadline, raise_at)
            self.waiting["records"] = (deadline, "")
            try:
                now = yield Wait((self.subscription.readable, self.metadata.changed), until)
            finally:
                self.waiting.pop("records", None)

    def look_again(self, of: Selector) -> None:
        """In the next step, update which partitions the waiting callers read."""
        self.post(lambda _: self.subscription.read(of()))

    def rouse(self) -> None:
        """End a running `data` call, or else the next one; callable in any thread."""

        def end(_: float) -> None:
            self._roused = True
            self.subscription.readable.notify()

        self.post(end)
