"""Fetches: one in flight per leader, and the next one as soon as an answer has come.

In: positions, the snapshot, fetch answers. Out: `Fetched` records in the order they came, leader
hints, wishes for metadata, errors for the next poll. Sessionless (KIP-227 comes later), by topic id
from version 13 on. Must not: decode records, or move a position.

Bytes: every leader has an equal share of `fetch.max.bytes`, half of it for the request that is
under way and half for what is buffered; so nobody is starved and the sum is kept.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, cast

from odradek.clients.cluster_check import ClusterCheck
from odradek.clients.consumer.fetched import Fetched, survey
from odradek.clients.consumer.subscription_state import EARLIEST, PartitionState, SubscriptionState
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import (
    BrokerNotAvailableError,
    CorruptMessageError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.types import Address
from odradek.metadata.cluster import NO_ID, Broker, Cluster, Partition, Topic
from odradek.network.connection import Connection
from odradek.network.flow import Completion, Signal
from odradek.protocol.message import Message
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.primitives import records_view

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine

logger = logging.getLogger("odradek.consumer")

TOPIC_IDS_FROM = 13
"""KIP-516: from this version on a topic is named by its id alone."""
SMALLEST_SHARE = 1
GONE = frozenset(
    (
        UnknownTopicOrPartitionError.code,
        UnknownTopicIdError.code,
        InconsistentTopicIdError.code,
    )
)
RETRIED_ALL_THE_SAME = frozenset((UnknownServerError.code, BrokerNotAvailableError.code))
"""Not retriable in Kafka's table, but its consumers go on after them."""
FINAL_TOPIC_ERRORS = frozenset((17, 29))


class Asked:
    """One fetch that is under way."""

    __slots__ = ("address", "names", "parts", "version")

    def __init__(self, address: Address, version: int) -> None:
        self.address = address
        self.version = version
        self.parts: dict[tuple[str, int], tuple[PartitionState, int, int]] = {}
        """(topic, partition) to its state, generation and the offset asked for."""
        self.names: dict[bytes, str] = {}


class Fetcher:
    """The component that keeps fetches going for every partition that has a position."""

    def __init__(self, engine: ConsumerEngine, subscription: SubscriptionState) -> None:
        config = engine.config
        self._engine = engine
        self._subscription = subscription
        self._budget: int = config["fetch.max.bytes"]
        self._partition_bytes: int = config["max.partition.fetch.bytes"]
        self._min_bytes: int = config["fetch.min.bytes"]
        self._max_wait: float = config["fetch.max.wait.ms"]
        self._missing_limit: float = config["default.api.timeout.ms"]
        self._isolation = 1 if config["isolation.level"] == "read_committed" else 0
        self._check = ClusterCheck(engine)
        self.changed = Signal()
        """Notified when there is something for the caller: records or an error."""
        self.fetched: deque[Fetched] = deque()
        self._buffered: dict[Address, int] = {}
        self._under_way: dict[Address, Asked] = {}
        self._served = 0
        self._room_made = False
        self._wake_at = math.inf
        self._seen: Cluster | None = None

    # The component's part

    def advance(self, now: float) -> bool:
        """Send a fetch to every leader that has none under way and isn't full."""
        self._wake_at = math.inf
        if not self._subscription.partitions:
            return False
        snapshot = self._engine.metadata.snapshot
        if snapshot is None:
            return False
        if snapshot is not self._seen:
            self._seen = snapshot
            self._release(snapshot)
        moved = self._engine.start_resets(now)
        groups = self._by_leader(snapshot, now)
        half = max(SMALLEST_SHARE, self._budget // (2 * max(1, len(groups))))
        network = self._engine.network
        for address, parts in groups.items():
            if address in self._under_way or self._buffered.get(address, 0) > half:
                continue
            connection = network.ready(address, now)
            if connection is None:
                self._wake_at = min(self._wake_at, network.next_dial_at(address, now))
                continue
            _, newest = connection.versions.get(FetchRequest.API_KEY, (0, -1))
            if newest < TOPIC_IDS_FROM and not self._check.passed(connection, now):
                continue
            moved = self._send(connection, parts, half, now) or moved
        return moved

    def next_deadline(self, now: float) -> float | None:
        """When a backoff ends or a leader may be dialled."""
        wake = min(self._wake_at, self._subscription.next_backoff(now))
        return None if wake == math.inf else max(wake, now)

    def abort(self, error: KafkaError, now: float) -> None:
        """The client has ended: nothing is handed out any more."""
        self.fetched.clear()
        self._buffered.clear()
        self.changed.notify()

    # Asking

    def _release(self, snapshot: Cluster) -> None:
        """Don't wait for a former leader's answer: it may be silent for request.timeout.ms."""
        for asked in self._under_way.values():
            for key, (state, _, _) in list(asked.parts.items()):
                leader = snapshot.leader(*key)
                if leader is not None and leader.address != asked.address:
                    del asked.parts[key]
                    if state.asked is asked:
                        state.asked = None

    def _by_leader(
        self, snapshot: Cluster, now: float
    ) -> dict[Address, list[tuple[PartitionState, Topic, Partition]]]:
        groups: dict[Address, list[tuple[PartitionState, Topic, Partition]]] = {}
        states = [
            s
            for s in self._subscription.partitions.values()
            if s.wants_fetch() and s.backoff.until <= now
        ]
        states.sort(key=lambda s: s.served)
        for state in states:
            name, number = state.partition.topic, state.partition.partition
            topic = snapshot.topic(name)
            partition = snapshot.partition(name, number)
            broker = None if partition is None else snapshot.brokers.get(partition.leader)
            if topic is None or partition is None or broker is None:
                self._leaderless(state, partition, now)
            elif self._same_topic(state, topic):
                groups.setdefault(broker.address, []).append((state, topic, partition))
        return groups

    def _leaderless(self, state: PartitionState, partition: Partition | None, now: float) -> None:
        metadata = self._engine.metadata
        code = metadata.topic_errors.get(state.partition.topic, 0)
        if code in FINAL_TOPIC_ERRORS:
            self._subscription.fail(state, error_for(code, str(state.partition)), now)
            self.changed.notify()
        elif partition is None and not self._missing(state, now):
            self._wake_at = min(self._wake_at, (state.missing_since or now) + self._missing_limit)
        if not metadata.requested and metadata.in_flight_topics is None:
            metadata.request(f"{state.partition} has no leader")

    def _missing(self, state: PartitionState, now: float) -> bool:
        """Note that a topic or partition isn't there; after default.api.timeout.ms poll raises."""
        if state.missing_since is None:
            state.missing_since = now
        if now < state.missing_since + self._missing_limit:
            return False
        text = f"{state.partition} hasn't been there for {now - state.missing_since:.0f} s"
        state.missing_since = None
        self._subscription.fail(state, error_for(UnknownTopicOrPartitionError.code or 3, text), now)
        self.changed.notify()
        return True

    def _same_topic(self, state: PartitionState, topic: Topic) -> bool:
        """KIP-516: a topic with another id is another topic, whose offsets begin anew."""
        before, state.topic_id = state.topic_id, topic.topic_id
        if before in (NO_ID, topic.topic_id) or topic.topic_id == NO_ID:
            return True
        name = topic.name
        logger.warning("topic %s was deleted and made anew (id %s)", name, topic.uuid)
        if self._subscription.policy == "none":
            self._engine.out_of_range(state)
        else:
            # The new topic's records are all unseen: with "latest" some would be skipped.
            self._subscription.policy_reset(state, EARLIEST)
        return False

    def _send(
        self,
        connection: Connection,
        parts: list[tuple[PartitionState, Topic, Partition]],
        most: int,
        now: float,
    ) -> bool:
        network = self._engine.network
        try:
            version = network.version_for(connection, FetchRequest)
        except KafkaError as error:
            for state, _, _ in parts:
                self._subscription.fail(state, error, now)
            self.changed.notify()
            return False
        if any(topic.topic_id == NO_ID for _, topic, _ in parts):
            version = min(version, TOPIC_IDS_FROM - 1)
        asked = Asked(connection.address, version)
        topics: dict[str, FetchTopic] = {}
        for state, topic, partition in parts:
            offset = state.fetch_offset
            if offset is None:
                continue
            entry = topics.get(topic.name)
            if entry is None:
                if version >= TOPIC_IDS_FROM:
                    entry = FetchTopic(topic_id=topic.topic_id)
                    asked.names[topic.topic_id] = topic.name
                else:
                    entry = FetchTopic(topic=topic.name)
                topics[topic.name] = entry
            entry.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=state.max_bytes or self._partition_bytes,
                )
            )
            state.asked = asked
            asked.parts[topic.name, partition.partition] = (state, state.generation, offset)
        largest = max((s.max_bytes or 0 for s, _, _ in parts), default=0)
        body = FetchRequest(
            max_wait_ms=int(self._max_wait * 1000),
            min_bytes=self._min_bytes,
            max_bytes=max(most, largest),
            isolation_level=self._isolation,
            topics=list(topics.values()),
        )
        self._under_way[connection.address] = asked
        request = network.send_version(connection, body, version, now, patience=self._max_wait)
        # Taken in as soon as the answer is there, before flows look for it: so poll(0) finds it.
        request.reply.when_done(lambda reply: self._answered(asked, reply))
        return True

    # Answers

    def _answered(self, asked: Asked, reply: Completion[Message]) -> None:
        now = self._engine.now
        if self._under_way.get(asked.address) is asked:
            del self._under_way[asked.address]
        parts = {
            key: (state, offset)
            for key, (state, generation, offset) in asked.parts.items()
            if state.asked is asked and state.generation == generation
        }
        for state, _ in parts.values():
            state.asked = None
        if reply.error is not None:
            self._lost(parts, reply.error, now)
            return
        response = cast("FetchResponse", reply.result())
        if response.error_code:
            error = error_for(response.error_code, f"Fetch from {asked.address}")
            for state, _ in parts.values():
                self._retry(state, error, now)
            return
        brokers = [
            Broker(n.node_id, Address(n.host, n.port), n.rack) for n in response.node_endpoints
        ]
        for item in response.responses:
            by_id = asked.version >= TOPIC_IDS_FROM
            name = asked.names.get(item.topic_id) if by_id else item.topic
            for data in item.partitions:
                found = parts.get((name or "", data.partition_index))
                if found is not None:
                    self._take(*found, data, asked.address, brokers, now)

    def _lost(
        self,
        parts: dict[tuple[str, int], tuple[PartitionState, int]],
        error: BaseException,
        now: float,
    ) -> None:
        """A fetch without an answer: the address backs off, so partitions needn't."""
        if isinstance(error, KafkaError) and not error.retriable:
            for state, _ in parts.values():
                self._subscription.fail(state, error, now)
            self.changed.notify()

    def _take(
        self,
        state: PartitionState,
        offset: int,
        data: PartitionData,
        address: Address,
        brokers: list[Broker],
        now: float,
    ) -> None:
        if data.error_code:
            self._failed(state, offset, data, brokers, now)
            return
        state.missing_since = None
        records = records_view(data.records)
        if not records:
            state.backoff.succeeded()
            return
        found = survey(records, offset)
        if found.size == 0 and found.needed is not None:
            # The answer was cut within its first batch: ask for all of it, in front of the others.
            state.max_bytes = found.needed
            state.served = 0
            return
        state.max_bytes = None
        if found.next_offset <= offset and not found.odd:
            self._retry(state, KafkaError(f"no record at or after {offset}"), now)
            return
        state.backoff.succeeded()
        aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
        whole = records if found.odd else records[: found.size]
        entry = Fetched(
            state,
            whole,
            found,
            start=offset,
            aborted=aborted,
            address=address,
            arrived=now,
            lock=self._engine.lock,
        )
        self._served += 1
        state.served = self._served
        state.fetch_offset = None if found.odd else found.next_offset
        self._buffered[address] = self._buffered.get(address, 0) + entry.size
        self.fetched.append(entry)
        self.changed.notify()

    def _failed(
        self,
        state: PartitionState,
        offset: int,
        data: PartitionData,
        brokers: list[Broker],
        now: float,
    ) -> None:
        code, metadata = data.error_code, self._engine.metadata
        name, number = state.partition.topic, state.partition.partition
        leader = data.current_leader
        if leader.leader_id >= 0 and metadata.hint(
            name, number, leader.leader_id, leader.leader_epoch, brokers
        ):
            return  # KIP-951: the new leader is asked at once
        if code == OffsetOutOfRangeError.code:
            if state.position != offset:  # first hand out what is buffered, then see again
                state.backoff.failed(now)
            elif self._subscription.policy == "none":
                self._engine.out_of_range(state)
            else:
                logger.warning("position %d of %s isn't in its log", offset, state.partition)
                self._subscription.policy_reset(state)
            return
        error = error_for(code, f"Fetch of {state.partition} at offset {offset}")
        if code in GONE and self._missing(state, now):
            return
        retriable = error.retriable or code in RETRIED_ALL_THE_SAME
        if retriable and not isinstance(error, CorruptMessageError):
            self._retry(state, error, now)
        else:
            self._subscription.fail(state, error, now)
            self.changed.notify()

    def _retry(self, state: PartitionState, error: KafkaError, now: float) -> None:
        """KIP-580: again after a backoff of this partition's own."""
        until = state.backoff.failed(now)
        self._engine.events.emit(
            now,
            "retry",
            what=f"Fetch of {state.partition}",
            error=str(error),
            attempt=state.backoff.failures,
            backoff=round(until - now, 6),
        )
        if error.refresh_metadata:
            self._engine.metadata.request(f"{state.partition}: {type(error).__name__}")

    # Handing out (in the caller's thread)

    def head(self) -> Fetched | None:
        """What is to be handed out next; drops what a seek made useless."""
        while self.fetched:
            entry = self.fetched[0]
            if entry.valid and not entry.exhausted:
                return entry
            self._drop(entry)
        return None

    def made_room(self) -> bool:
        """Whether something was dropped since the last question: a fetch may have waited for it."""
        made, self._room_made = self._room_made, False
        return made

    def _drop(self, entry: Fetched) -> None:
        self.fetched.popleft()
        self._room_made = True
        left = self._buffered.get(entry.address, 0) - entry.size
        if left > 0:
            self._buffered[entry.address] = left
        else:
            self._buffered.pop(entry.address, None)
        state = entry.state
        if entry.valid and state.fetch_offset is None:
            state.fetch_offset = state.position  # what follows wasn't known until it was decoded

    def discard(self, entry: Fetched, error: KafkaError, now: float) -> None:
        """A batch that can't be decoded is fetched again, once the caller knows."""
        self._drop(entry)
        state = entry.state
        state.move_to(state.position)
        self._subscription.fail(state, error, now)
