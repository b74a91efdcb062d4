"""Fetch records: one request in flight per broker, and the next one after each response.

While a broker holds a fetch, partitions that were moved, resumed or assigned since are fetched by a
second request, which doesn't wait until `fetch.max.wait.ms` is over.

In: positions, metadata, fetch responses. Out: `CompletedFetch` objects in the order of their
arrival, leader hints, requests for metadata, errors for the next poll. It uses sessions (KIP-227),
and topic ids from version 13 on. Must not: decode records, or move a position.

`waiting_records` decides how many bytes are fetched at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from odradek.clients.any_broker import Brokers
from odradek.clients.client_engine import FINAL_TOPIC_ERRORS
from odradek.clients.consumer.completed_fetch import CompletedFetch, survey
from odradek.clients.consumer.fetching.fetch_request_state import FetchRequestState
from odradek.clients.consumer.fetching.fetch_session import TOPIC_IDS_FROM
from odradek.clients.consumer.fetching.position_resets import PositionResets
from odradek.clients.consumer.fetching.read_replicas import ReadReplicas
from odradek.clients.consumer.fetching.slow_leaders import SlowLeaders
from odradek.clients.consumer.fetching.truncation import TruncationCheck, made_anew, to_be_checked
from odradek.clients.consumer.fetching.waiting_records import WaitingRecords
from odradek.clients.consumer.partition_state import MAX_OFFSET, PartitionState
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.error_explanations import explain_fetch
from odradek.clients.missing_topics import MissingTopics
from odradek.common.config import Config
from odradek.common.errors import (
    AnswerTooLargeError,
    CorruptRecordError,
    DisconnectedError,
    KafkaError,
)
from odradek.common.errors.kafka import (
    BrokerNotAvailableError,
    CorruptMessageError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.errors.records import FetchTooLargeError
from odradek.common.sampled import Sampled
from odradek.common.types import FREE_THREADS, Address, Lock, TopicPartition
from odradek.metadata.cluster import NO_ID, Broker, Cluster, Topic
from odradek.metadata.partitions import Partition, term
from odradek.network.connection import ASIDE, Connection
from odradek.network.flow import Completion
from odradek.protocol.message import Message
from odradek.protocol.messages.fetch import (
    DEFAULT_REPLICA_STATE,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.primitives import records_view
from odradek.record import apart
from odradek.record.limits import limits_of

logger = logging.getLogger("odradek.consumer")

_GONE_ERRORS = (UnknownTopicOrPartitionError, UnknownTopicIdError, InconsistentTopicIdError)
GONE = frozenset(error.code for error in _GONE_ERRORS)
RETRIED_ALL_THE_SAME = frozenset((UnknownServerError.code, BrokerNotAvailableError.code))
"""Errors that aren't retriable in Kafka's table, but after which Java's consumer continues."""
LARGE_RESPONSE = 64 << 10
"""Minimum size of a response after which the broker probably has more records."""
HELD_AFTER_S = 0.02
"""Seconds after which an unanswered fetch counts as held by its broker."""
SECONDARY_RETRY_S = 0.25
"""Seconds after which the availability of a second connection is checked again."""


_served = attrgetter("served")
Part = tuple[PartitionState, Topic, Partition]


class Fetcher:
    """The component that keeps fetches in flight for all partitions with a position."""

    resting = False

    def __init__(
        self,
        brokers: Brokers,
        config: Config,
        subscription: SubscriptionState,
        resets: PositionResets,
        missing: MissingTopics,
        *,
        lock: Lock,
        clock: Callable[[], float],
        readers_first: bool,
    ) -> None:
        """Create the fetcher; see `ConsumerEngine` for `clock`."""
        self._engine = brokers.engine
        self._network = brokers.network
        self._metadata = brokers.metadata
        self._subscription = subscription
        self._resets = resets
        self._unknown = missing
        self._lock = lock
        self._clock = clock
        self.readers_first = readers_first
        """Whether a reader that waits for records gets them before the next fetch is sent."""
        self._budget: int = config["fetch.max.bytes"]
        self._partition_bytes: int = config["max.partition.fetch.bytes"]
        self._min_bytes: int = config["fetch.min.bytes"]
        self._max_wait: float = config["fetch.max.wait.ms"]
        soon = self._max_wait + self._network.request_timeout / 4
        self._slow = SlowLeaders(self._budget, soon)
        self._missing_limit: float = config["default.api.timeout.ms"]
        self._isolation = 1 if config["isolation.level"] == "read_committed" else 0
        self._limits = limits_of(config)
        self._check = brokers.check
        self._replicas = ReadReplicas(config, self._network, self._metadata, subscription)
        self._truncation = TruncationCheck(
            *(self._engine, self._network, subscription, self._check),
            retry=self._retry,
            out_of_range=resets.out_of_range,
        )
        self.waiting = WaitingRecords(subscription, self._room)
        self._former = Sampled()
        """Response times of fetches, in seconds, from brokers that no longer lead a partition."""
        self.fetched_bytes = 0
        """Number of fetched bytes since the client was created."""
        self._asked: dict[Address, FetchRequestState] = {}
        self._aside: dict[Address, FetchRequestState] = {}
        self._served = 0
        self._halted = False
        self._routes: dict[PartitionState, tuple[Address, Part]] = {}
        """Broker to ask for each partition; cached, because each check needs most of them."""
        # Reasons to check again which partitions to request, see `advance`.
        self._changes = subscription.changes
        self._connections = -1
        self._seen: Cluster | None = None
        """The cluster snapshot at the last check."""
        self._wake_at = math.inf
        """Time when a backoff ends, or when a partition must be checked again."""
        self._due = False
        """Whether partitions must be checked now: after a response, freed memory, a new leader."""
        self._unasked = True
        """Whether some partition may not be requested yet; if false, requests are only repeated."""
        self._reader_first = False
        """Whether a waiting reader gets records before the next fetch is sent."""

    @property
    def measured(self) -> list[Sampled]:
        """Response times of fetches in seconds, by leader."""
        return [self._former, *self._all_asked()]

    # Component

    def advance(self, now: float) -> bool:
        """Send a fetch to every leader without one in flight and with free memory.

        Without a reason to check partitions, a step costs a few comparisons. A sent request doesn't
        count as progress, so the engine needn't call this again in the same step.
        """
        subscription, network = self._subscription, self._network
        snapshot = self._metadata.snapshot
        if self._changes != subscription.changes:
            # Readers learn of `resume`, `seek` and `assign` only here (R-HO-6).
            self._changes = subscription.changes
            subscription.readable.notify()
            self._routes.clear()  # some partitions may not be assigned any more
            self._due = self._unasked = True
        if self._reader_first:
            self._reader_first = self._due = False
            self._wake_at = now
            return False
        if snapshot is not self._seen or now >= self._wake_at:
            self._due = self._unasked = True
        if self._connections != network.changed.serial:
            self._connections = network.changed.serial
            self._due = True
        if not self._due:
            return False
        self._due = False
        if self._unasked:
            self._wake_at = math.inf
        if snapshot is None or self._halted:
            return False
        if snapshot is not self._seen:
            self._seen = snapshot
            self._routes.clear()
            self._release(snapshot, now)
        return self._look(snapshot, now)

    def _look(self, snapshot: Cluster, now: float) -> bool:
        """Send a request to each leader that can be asked now."""
        network = self._network
        all_of_them, self._unasked = self._unasked, True
        if not self._subscription.partitions:
            return False
        lost, states = self._candidates(now) if all_of_them else ([], [])
        moved = bool(lost) and self._resets.start(lost, now)
        groups = self._by_leader(snapshot, states, now) if states else {}
        for address, asked in self._asked.items():
            if asked.parts:
                groups.setdefault(address, [])  # request the broker's previous partitions again
        share = self.waiting.divide(self._budget, groups)
        for address, parts in groups.items():
            before = self._asked.get(address)
            if before is not None and before.under_way:
                moved = (bool(parts) and self._ask_aside(before, parts, share, now)) or moved
                continue
            if self._aside and self._comes_aside(address, now):
                continue
            if self.waiting.full(address):
                continue
            connection = network.ready(address, now)
            if connection is None:
                self._wake_at = min(self._wake_at, network.next_dial_at(address, now))
                self._due = True
                if network.states.backoff_left(address, now) > 0:
                    moved = self._replicas.give_up((s for s, _, _ in parts), now) or moved
                continue
            if not (connection.ours or self._trusted(connection, before, parts, now)):
                continue
            if before is None:
                before = self._asked[address] = FetchRequestState(address)
            moved = self._send(before, connection, parts, share, now) or moved
        if not (self._due or moved or lost):
            for state in states:
                if state.asked is None:
                    return moved
            self._unasked = False
        return moved

    def next_deadline(self, now: float) -> float | None:
        """Return when a backoff ends or an attempt to connect to a leader is allowed."""
        if self._due or self._changes != self._subscription.changes:
            self._candidates(now)  # sets `_wake_at` to the end of a backoff
        return None if self._wake_at == math.inf else max(self._wake_at, now)

    def abort(self, error: KafkaError, now: float) -> None:
        """Drop all records and wake the readers, because the client has ended."""
        self.waiting.clear()
        self._subscription.readable.notify()

    def halt(self) -> list[FetchRequestState]:
        """Stop fetching; return the request states of brokers that keep a fetch session."""
        self._halted = True
        return [asked for asked in list(self._asked.values()) if asked.session.id]

    # Requests

    def _all_asked(self) -> list[FetchRequestState]:
        """Return the request states of all brokers; callable in any thread."""
        return [*list(self._asked.values()), *list(self._aside.values())]

    def _trusted(
        self,
        connection: Connection,
        asked: FetchRequestState | None,
        parts: list[Part],
        now: float,
    ) -> bool:
        """Return whether a connection may be used to fetch these partitions.

        A fetch by topic name needs a check that the connection leads to the client's cluster.
        """
        _, newest = connection.versions.get(FetchRequest.API_KEY, (0, -1))
        by_name = newest < TOPIC_IDS_FROM or bool(asked and asked.parts and asked.nameless)
        for _, topic, _ in parts:
            by_name = by_name or topic.topic_id == NO_ID
        if not by_name or self._check.passed(connection, now):
            return True
        self._due = True
        return False

    def _ask_aside(self, held: FetchRequestState, parts: list[Part], most: int, now: float) -> bool:
        """Send a second fetch for partitions that aren't in the fetch that the broker holds."""
        network, address = self._network, held.address
        aside, first = self._aside.get(address), network.connection(address)
        parts = [part for part in parts if not part[0].oversized]
        if not parts or first is None or first.reader.amid:  # a response is arriving
            return False
        if self.waiting.has_of(address) or (aside is not None and aside.under_way):
            return False
        begin, end = held.sent_at + HELD_AFTER_S, held.sent_at + self._max_wait - HELD_AFTER_S
        if now < begin <= end:
            self._wake_at = min(self._wake_at, begin)
        if not begin <= now <= end:
            return False
        connection = self._check.prompt(address, now)
        if connection is None or connection is first:
            again_at = network.prompt_at(address, now)
            if connection is first:
                again_at = max(now + SECONDARY_RETRY_S, network.asides.allowed_at(address, ASIDE))
            self._wake_at = min(self._wake_at, again_at)
            return False
        if not self._trusted(connection, aside, parts, now):
            return False
        if aside is None:
            aside = self._aside[address] = FetchRequestState(address, aside=True)
        return self._send(aside, connection, parts, most, now)

    def _comes_aside(self, address: Address, now: float) -> bool:
        """Return whether a second request to this leader was sent a moment ago and is in flight."""
        aside = self._aside.get(address)
        if aside is None or not aside.under_way or now >= aside.sent_at + HELD_AFTER_S:
            return False
        self._wake_at = min(self._wake_at, aside.sent_at + HELD_AFTER_S)
        return True

    def _release(self, snapshot: Cluster, now: float) -> None:
        """Apply new metadata: stop waiting for responses of former leaders."""
        here = {broker.address for broker in snapshot.brokers.values()}
        for asked in self._all_asked():
            asked.give_back()
            if not asked.under_way:
                asked.release_all()
                if asked.address not in here:
                    self._former.take_over(asked, now)
                    del (self._aside if asked.aside else self._asked)[asked.address]
                continue
            asked.outdate()
            for key, (state, *_) in list(asked.parts.items()):
                partition = snapshot.partition(*key)
                if partition is not None:
                    source = self._replicas.source(state, snapshot, partition, now)
                    if source is not None and source.address != asked.address:
                        asked.release(key)

    def _candidates(self, now: float) -> tuple[list[PartitionState], list[PartitionState]]:
        """Return partitions without a position, and partitions to fetch, longest waiting first."""
        lost: list[PartitionState] = []
        states: list[PartitionState] = []
        for state in self._subscription.partitions.values():
            if state.backoff.until > now:
                self._wake_at = min(self._wake_at, state.backoff.until)
            elif state.position is None:
                lost.append(state)
            elif (
                state.asked is None
                and state.wants_fetch()
                and not (state.unread and self.waiting.has(state))
            ):
                states.append(state)
        states.sort(key=_served)
        return lost, states

    def _by_leader(
        self, snapshot: Cluster, states: list[PartitionState], now: float
    ) -> dict[Address, list[Part]]:
        groups: dict[Address, list[Part]] = {}
        unchecked: list[tuple[PartitionState, Partition]] = []
        routes = self._routes
        for state in states:
            route = routes.get(state)
            if route is not None and state.replica is None:
                address, part = route
                if (
                    part[2].leader_epoch == state.checked_under
                    and part[1].topic_id == state.topic_id
                ):
                    if address in groups:
                        groups[address].append(part)
                    else:
                        groups[address] = [part]
                    continue
            name, number = state.partition
            topic = snapshot.asked.get(name) or snapshot.topic(name)
            partition = snapshot.partition(name, number)
            broker = None
            if partition is not None:
                if state.replica is None:
                    broker = snapshot.brokers.get(partition.leader)
                else:
                    broker = self._replicas.source(state, snapshot, partition, now)
            if (
                topic is None
                or partition is None
                or broker is None
                or (partition.leader_epoch < state.known_epoch and self._older(state, topic))
            ):
                self._due = True
                self._leaderless(state, partition, now)
            elif topic.topic_id == state.topic_id or self._same_topic(state, topic, partition, now):
                as_before = term(partition) == state.checked_under
                if not as_before and to_be_checked(state, partition):
                    if state.known_epoch >= 0 or made_anew(state, partition.leader_epoch):
                        unchecked.append((state, partition))
                        continue
                    state.checked(term(partition))
                part = (state, topic, partition)
                groups.setdefault(broker.address, []).append(part)
                if state.replica is None:
                    routes[state] = (broker.address, part)
        if unchecked:
            self._wake_at = min(self._wake_at, self._truncation.check(unchecked, snapshot, now))
        return groups

    def _older(self, state: PartitionState, topic: Topic) -> bool:
        """Return whether the leader's epoch is older than the position's (R-ID-4)."""
        if state.topic_id not in (NO_ID, topic.topic_id) and topic.topic_id != NO_ID:
            return False  # the epochs belong to different topics
        metadata = self._metadata
        return metadata.is_older(state.partition, state.known_epoch, state.topic_id)

    def _leaderless(self, state: PartitionState, partition: Partition | None, now: float) -> None:
        metadata = self._metadata
        code = metadata.topic_errors.get(state.partition.topic, 0)
        if code in FINAL_TOPIC_ERRORS:
            error = error_for(code, str(state.partition))
            self._subscription.fail(state, error.needing("READ", state.partition.topic), now)
        elif partition is None and not self._missing(state, now):
            self._unknown.note(state.partition)
            self._wake_at = min(self._wake_at, (state.missing_since or now) + self._missing_limit)
        metadata.request_once(f"{state.partition} has no leader")

    def _missing(self, state: PartitionState, now: float) -> bool:
        """Note a missing topic or partition; after default.api.timeout.ms poll raises."""
        since = state.missed(now)
        if now < since + self._missing_limit:
            return False
        text = f"{state.partition} doesn't exist (waited {now - since:.0f} s)"
        state.there()
        self._subscription.fail(state, error_for(UnknownTopicOrPartitionError.code or 3, text), now)
        return True

    def _same_topic(
        self, state: PartitionState, topic: Topic, partition: Partition, now: float
    ) -> bool:
        """Return whether the topic's id is unchanged; else restart in the new topic (KIP-516)."""
        if not state.is_assigned(topic.topic_id):
            self._due = True
            self._leaderless(state, partition, now)
            return False
        if self._subscription.identify(state, topic.topic_id):
            return True
        named_at = self._metadata.ids.former_named_at(topic.name)
        if not self._subscription.look_up_again(state, named_at):
            self._truncation.began_anew(state, partition.leader_epoch)
        return False

    def _send(
        self,
        asked: FetchRequestState,
        connection: Connection,
        parts: list[Part],
        most: int,
        now: float,
    ) -> bool:
        network = self._network
        try:
            version = connection.version_for(FetchRequest)
        except KafkaError as error:
            if asked.aside:
                network.fail(connection, error, now)
                return False
            for state, _, _ in parts:
                self._subscription.fail(state, error, now)
            return False
        asked.forget_moved(self._subscription.changes)
        by_name = bool(asked.parts) and asked.nameless
        for part in parts:
            by_name = by_name or part[1].topic_id == NO_ID
            if part[0].oversized:
                parts = [part]  # later requests contain the other partitions
                by_name = asked.nameless or part[1].topic_id == NO_ID
                break
        doubted = parts[0][0] if parts and parts[0][0].oversized else None
        if doubted is not asked.doubted:
            asked.doubts(doubted)
        if by_name:
            version = min(version, TOPIC_IDS_FROM - 1)
        if version != asked.version:
            again = bool(asked.parts)
            asked.begin(version)
            if again:  # the next `advance` requests the released partitions
                self._due = True
                return True
        for state, topic, partition in parts:
            largest = state.max_bytes
            if largest is not None:
                most = max(most, largest)
            most_here = largest or self._partition_bytes
            if not largest and state.until != MAX_OFFSET:
                most_here = state.worth_asking(most_here)
            asked.add(state, topic, partition, most_here)
        if not asked.parts:
            return False
        leaders_only = asked.aside or now < self._replicas.leaders_until
        wait = 0.0 if asked.aside else self._max_wait
        body = FetchRequest(
            max_wait_ms=int(wait * 1000),
            min_bytes=self._min_bytes if self._min_bytes < 2 else asked.least(self._min_bytes),
            max_bytes=self._slow.limit(asked.address, most) if self._slow.limits else most,
            isolation_level=self._isolation,
            rack_id="" if leaders_only else self._replicas.rack,
            # One object serves all requests, because a consumer has no replica state.
            replica_state=DEFAULT_REPLICA_STATE,
            **asked.session.says(asked.wanted, version, changed=asked.changed),
        )
        asked.sent(now, leaders_only=leaders_only)
        request = network.send_version(connection, body, version, now, patience=wait)
        # The callback runs before waiting calls look for records, so poll(0) finds these records.
        request.reply.when_done(partial(self._answered, asked))
        return False  # a sent request isn't progress, see `advance`

    # Responses

    def _answered(self, asked: FetchRequestState, reply: Completion[Message]) -> None:
        now = self._engine.now
        unasked, self._due, self._unasked = self._unasked, True, True
        asked.ended(now, answered=reply.error is None)
        if asked.aside:
            self._answered_aside(asked, reply, now)
            return
        aside = self._aside.get(asked.address)
        if aside is not None and aside.give_back():
            unasked = True  # request the partitions that were given back
        if reply.error is not None:
            asked.session.reset()
            self._slow.lost(asked.address, reply.error)
            self._lost(asked.release_all(), reply.error, now)
            return
        response: FetchResponse = reply.result()  # type: ignore[assignment]  # it was asked for
        if response.error_code:
            states = asked.release_all()
            if asked.session.refused(response.error_code):
                return  # the broker has forgotten the session: the next request is a full one
            error = error_for(response.error_code, f"Fetch from {asked.address}")
            self._replicas.give_up(states, now)
            for state in states:
                self._retry(state, error, now)
            return
        asked.session.answered(response.session_id)
        if asked.doubted is not None:
            asked.doubted.doubt_size(False)
        ends = response.node_endpoints
        brokers = [Broker(n.node_id, Address(n.host, n.port), n.rack) for n in ends] if ends else []
        by_id = asked.version >= TOPIC_IDS_FROM
        before = self.fetched_bytes
        waits = self.readers_first and self._subscription.readable.awaited
        for item in response.responses:
            name = asked.names.get(item.topic_id) if by_id else item.topic
            for data in item.partitions:
                place = (name or "", data.partition_index)
                part = asked.parts.get(place)
                found = asked.release(place)
                if found is not None:
                    self._take(*found, data, asked, brokers, now)
                elif part is not None and not data.error_code:
                    self._note_ends(TopicPartition(*place), part[4], data, now)
        if self._slow.limits and self.fetched_bytes > before:
            self._slow.answered(asked.address, now - asked.sent_at)
        if waits:
            self._reader_first = 0 < self.fetched_bytes - before < LARGE_RESPONSE
        if asked.doubtful:
            for state in asked.without_news():
                state.there()
                state.fetched_well()
        if asked.outdated or not asked.session.id:
            asked.release_all()
        elif not response.responses:
            self._unasked = unasked

    def _answered_aside(
        self, asked: FetchRequestState, reply: Completion[Message], now: float
    ) -> None:
        """Apply the response to a fetch that was sent while the broker held the leader's first one.

        A partition without records, or with an error, is left to the next regular fetch: the second
        connection, which this fetch used, may lead to another broker.
        """
        network, address = self._network, asked.address
        response: FetchResponse | None = None
        if reply.error is None:
            response = reply.result()  # type: ignore[assignment]  # it was asked for
        aside = network.connection(address, ASIDE)
        if response is None or response.error_code:
            asked.release_all()
            if aside is not None and response is not None:
                network.fail(aside, DisconnectedError(f"{address} refused a fetch"), now)
            return
        by_id, came, wrong = asked.version >= TOPIC_IDS_FROM, self.fetched_bytes, False
        empty: list[tuple[PartitionState, int]] = []
        for item in response.responses:
            name = asked.names.get(item.topic_id) if by_id else item.topic
            for data in item.partitions:
                found = asked.release((name or "", data.partition_index))
                if found is None:
                    continue
                if data.records and not data.error_code:
                    self._take(*found, data, asked, [], now)
                    continue
                wrong = wrong or bool(data.error_code and error_for(data.error_code).retriable)
                ends = data.last_stable_offset if self._isolation else data.high_watermark
                empty.append((found[0], -1 if data.error_code else ends))
        for state, end in empty:
            # If more records exist, they didn't fit into the response: fetch them again.
            left = self.fetched_bytes > came and (state.fetch_offset or 0) < end
            if not left and state.wants_fetch():
                asked.keep(state)
        if aside is not None and wrong:
            network.fail(aside, DisconnectedError(f"{address} isn't the leader"), now)
        held = self._asked.get(address)
        if held is None or not held.under_way:
            asked.give_back()
        asked.release_all()

    def _lost(self, states: list[PartitionState], error: BaseException, now: float) -> None:
        """Handle a lost fetch; the address has a backoff, so its partitions need none."""
        self._replicas.give_up(states, now)
        if isinstance(error, AnswerTooLargeError):
            self._too_large(states, error, now)
        elif isinstance(error, KafkaError) and not error.retriable:
            for state in states:
                self._subscription.fail(state, error, now)

    def _too_large(
        self, states: list[PartitionState], error: AnswerTooLargeError, now: float
    ) -> None:
        """Fetch partitions one by one (KIP-74), to find the one with the large batch."""
        guilty = states if len(states) == 1 else [s for s in states if s.oversized]
        if not guilty:
            for state in states:
                state.doubt_size(True)
            return
        for state in guilty:
            limit, at = self._network.frame_limit, state.fetch_offset or 0
            failure = FetchTooLargeError(state.partition, at, error.size, limit)
            self._subscription.fail(state, failure, now)
            state.doubt_size(True)

    def _take(
        self,
        state: PartitionState,
        offset: int,
        data: PartitionData,
        asked: FetchRequestState,
        brokers: list[Broker],
        now: float,
    ) -> None:
        if data.error_code:
            if data.error_code == UnknownTopicIdError.code:
                self._check.doubt(asked.address, now)
            self._failed(state, offset, data, asked.address, brokers, now)
            return
        ends = data.high_watermark, data.last_stable_offset
        state.told_ends(*ends, now, committed=bool(self._isolation), confirmed=True)
        node, address = data.preferred_read_replica, asked.address
        sound = node < 0 or self._replicas.prefer(state, node, address, asked.leaders_only, now)
        records = records_view(data.records)
        if not records:
            if not sound:
                why = f"{address} named read replica {node}, which this client didn't ask for"
                self._retry(state, KafkaError(why), now)
            elif node < 0:  # a response that only names a replica doesn't end the backoff
                state.fetched_well()
            return
        found = survey(records, offset)
        if found.size == 0 and found.needed is not None:
            self._cut(state, offset, found.needed, len(records), now)
            return
        if state.max_bytes is not None or state.cut_short:
            state.ask_as_usual()
        if found.next_offset <= offset and not found.odd:
            why = f"the response has no record at or after offset {offset}"
            self._retry(state, KafkaError(why), now)
            return
        if state.backoff.failures or state.losses or state.hinted:
            state.fetched_well()
        # Redpanda lists aborted transactions for read_uncommitted, too.
        listed = data.aborted_transactions if self._isolation else None
        aborted = tuple([(a.producer_id, a.first_offset) for a in listed]) if listed else ()
        whole = records if found.odd else records[: found.size]
        if FREE_THREADS:  # the caller's thread must share no view with this thread
            whole = apart(whole)
        entry = CompletedFetch(
            state,
            whole,
            found,
            start=offset,
            aborted=aborted,
            address=address,
            arrived=now,
            lock=self._lock,
            limits=self._limits,
            clock=self._clock,
        )
        self._served += 1
        self.fetched_bytes += entry.size
        count = found.next_offset - offset
        state.fetched(
            None if found.odd else found.next_offset,
            found.epochs[-1][1] if found.epochs else None,
            bytes_each=entry.size / count if count > 0 else state.offset_bytes,
            served=self._served,
        )
        self.waiting.add(entry)
        self._subscription.readable.notify()

    def _note_ends(
        self, partition: TopicPartition, topic_id: bytes, data: PartitionData, now: float
    ) -> None:
        """Apply the log's end from a response that is outdated by a seek or a new assignment.

        The broker doesn't repeat the end in this session until it changes (KIP-227).
        """
        state = self._subscription.partitions.get(partition)
        if state is not None and state.topic_id in (topic_id, NO_ID):
            ends = data.high_watermark, data.last_stable_offset
            state.told_ends(*ends, now, committed=bool(self._isolation), confirmed=False)

    def _cut(self, state: PartitionState, offset: int, needed: int, came: int, now: float) -> None:
        """Fetch a partition's first batch again, alone, because the response cut it off.

        Brokers send a first batch whole (KIP-74). If all of it was requested and less arrived, it
        is requested once more, alone, because other partitions may have used the space. After that,
        or if its size exceeds any response's limit, another request doesn't help.
        """
        before, limit = state.max_bytes, self._network.frame_limit
        whole = before is not None and before >= needed
        if needed <= limit and not (whole and state.cut_short):
            state.ask_whole(needed, again=whole)
            return
        state.ask_as_usual()
        failure: KafkaError
        if needed > limit:
            failure = FetchTooLargeError(state.partition, offset, needed, limit)
        else:
            failure = CorruptRecordError(
                f"{state.partition}: the length of the batch at offset {offset} is {needed} bytes, "
                "but the response to a fetch of that size (max.partition.fetch.bytes) "
                f"contains only {came}; seek() past the batch to continue"
            )
            failure.partition, failure.offset = state.partition, offset
        self._subscription.fail(state, failure, now)

    def _failed(
        self,
        state: PartitionState,
        offset: int,
        data: PartitionData,
        address: Address,
        brokers: list[Broker],
        now: float,
    ) -> None:
        code, metadata = data.error_code, self._metadata
        from_replica = self._replicas.give_up((state,), now)
        name, number = state.partition.topic, state.partition.partition
        leads = data.current_leader.leader_id, data.current_leader.leader_epoch
        if leads[0] >= 0 and metadata.hint(name, number, *leads, brokers):
            state.hint(now)
            return
        if code == OffsetOutOfRangeError.code:
            if from_replica:
                return  # the replica may be outdated: the leader knows whether the offset exists
            if state.position != offset:  # return buffered records before the position is reset
                state.backoff.failed(now)
            elif self._subscription.policy == "none":
                self._resets.out_of_range(state)
            else:
                text = "offset %d of %s isn't in its log; resetting (auto.offset.reset=%s)"
                logger.warning(text, offset, state.partition, self._subscription.policy)
                self._subscription.lost_position(state, now)
            return
        error = error_for(code, f"Fetch of {state.partition} at offset {offset}")
        explain_fetch(error, name, self._network.connection(address), FetchRequest)
        if code in GONE and self._missing(state, now):
            return
        retriable = error.retriable or code in RETRIED_ALL_THE_SAME
        if retriable and not isinstance(error, CorruptMessageError):
            self._retry(state, error, now, address)
        else:
            self._subscription.fail(state, error, now)

    def _retry(
        self, state: PartitionState, error: KafkaError, now: float, address: Address | None = None
    ) -> None:
        """Fetch a partition again after its own backoff (KIP-580); `address`: the leader's."""
        until = state.backoff.failed(now)
        self._engine.events.emit(
            now,
            "retry",
            what=f"Fetch of {state.partition}",
            error=str(error),
            attempt=state.backoff.failures,
            backoff=round(until - now, 6),
        )
        self._metadata.refused(state.partition, error, at=address)

    def _room(self) -> None:
        """Check all partitions again, because memory for a leader's records was freed."""
        self._due = self._unasked = True
