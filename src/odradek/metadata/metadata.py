"""Store the snapshot, the topics in use, and the requested refreshes.

In: requests of the clients (R-MD-6), responses from `metadata_updater`. Out: the snapshot, and the
signal `changed`. R-MD-4: any number of callers request refreshes here; the updater sends one
request at a time, and all refreshes requested while it is in flight result in one further request.
Must not: send anything.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import BrokerError, KafkaError
from odradek.common.errors.kafka import (
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
)
from odradek.common.types import Address, Rng, TopicPartition
from odradek.metadata.cluster import (
    NO_ID,
    Broker,
    Cluster,
    Epochs,
    brings_progress,
    seen_epochs,
    updated,
    with_leader,
)
from odradek.metadata.partitions import no_epoch_is_lower
from odradek.metadata.reported_epochs import LowerEpochs, ReportedEpochs
from odradek.metadata.response_comparison import ResponseComparison
from odradek.metadata.topic_ids import TopicIds
from odradek.network.flow import Signal
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.packed_metadata import PackedPartitions

logger = logging.getLogger("odradek.metadata")

DENYING = (NotLeaderOrFollowerError, ReplicaNotAvailableError)
"""Errors of a broker that isn't the leader; before Kafka 2.6, ReplicaNotAvailable is one."""


class Metadata:
    """The state of one client's metadata."""

    def __init__(
        self,
        *,
        max_age: float,
        max_idle: float,
        retry: ExponentialBackoff,
        rng: Rng,
        clock: Callable[[], float],
    ) -> None:
        """Set `clock`, which returns the engine's time, as needed for the last use of topics."""
        self.snapshot: Cluster | None = None
        self.cluster_id: str | None = None
        """Known cluster id; kept outside the snapshot to check it after a rebootstrap (R-RB-5)."""
        self.topics: dict[str, float] = {}
        """Time of the last use of each topic in use; refreshes request only these (R-MD-7)."""
        self.held_by: list[Callable[[], Iterable[str]]] = []
        """Functions that return topics to keep refreshing, even if their last use was long ago."""
        self.on_forgotten: list[Callable[[str], object]] = []
        self.on_denied: list[Callable[[TopicPartition, Address], object]] = []
        """Callbacks, with a partition and the address of a broker that isn't its leader."""
        self.topic_errors: dict[str, int] = {}
        self.changed = Signal()
        self.wanted = Signal()
        self.why = "start"
        self.refreshed_at: float | None = None
        self.allowed_at = -math.inf
        self.in_flight_topics: frozenset[str] | None = None
        self._max_age = max_age
        self._max_idle = max_idle
        self._clock = clock
        self._retry = retry
        self._rng = rng
        self._epochs: Epochs = {}
        self._lower = LowerEpochs()
        self.heard = ReportedEpochs()
        """Leader epochs that are newer than those in metadata."""
        self.ids = TopicIds()
        self._answered_by: Address | None = None
        self._asked = 0
        self._sent = 0
        self._done = 0
        self._equivalent = 0
        self._new_topics: dict[str, None] = {}
        self._crowd = False
        self._looked: ResponseComparison | None = None
        """Comparison of a large response with snapshot and epochs, valid until these change."""

    # Requests of clients

    def expect(self, cluster_id: str) -> None:
        """Accept only the cluster with this id (`cluster.id.expected`)."""
        self.cluster_id = cluster_id

    def request(self, why: str) -> None:
        """Request a refresh; further calls before it is sent cause no additional request."""
        if self._asked <= self._sent:
            self._asked = self._sent + 1
            self.why = why
            self.wanted.notify()

    def refused(
        self,
        partition: TopicPartition,
        error: KafkaError,
        *,
        at: Address | None = None,
        hinted: bool = False,
    ) -> None:
        """Note that a request for a partition failed at its known leader, which has address `at`.

        With `hinted`, the response named the new leader (KIP-951), so that no refresh is needed.
        """
        if isinstance(error, BrokerError) and partition.topic in self.topics:
            self._lower.refused(*partition)
        if at is not None and not hinted and isinstance(error, DENYING):
            for told in self.on_denied:
                told(partition, at)
        # UnknownLeaderEpoch: the leader is outdated, or the topic was recreated.
        wanted = error.refresh_metadata or isinstance(error, UnknownLeaderEpochError)
        if wanted and not hinted:
            self.request(f"{partition}: {type(error).__name__}")

    def want(self, topics: Iterable[str]) -> None:
        """Add topics in use.

        New topics are requested at once (MD-09). For a topic that is in use but unknown, the next
        refresh is requested.
        """
        now = self._clock()
        for name in topics:
            known = name in self.topics
            self.topics[name] = now
            if self.snapshot is not None and name in self.snapshot.topics:
                continue
            if self.in_flight_topics is not None and name in self.in_flight_topics:
                continue  # the request in flight fetches it
            if name in self._new_topics:
                continue
            if known:
                self.request(f"topic {name} isn't known")
            else:
                self._new_topics[name] = None
                self.wanted.notify()

    def use(self, topic: str, now: float) -> None:
        """Note that a known topic is used.

        Any thread may call this. The caller passes `now`, because the engine's clock may lag.
        """
        self.topics[topic] = now

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Remove topics that are no longer in use."""
        for name in topics:
            self.topics.pop(name, None)
            self._new_topics.pop(name, None)
            self.topic_errors.pop(name, None)
            self._lower.forget(name)
            self.heard.forget(name)
            if self.snapshot is None or name not in self.snapshot.topics:
                self._left(name)  # topics in the snapshot are forgotten when they leave it

    def _left(self, name: str) -> None:
        """Forget a topic that is neither in use nor in the snapshot."""
        self._epochs.pop(name, None)
        self.ids.forget(name)
        for told in self.on_forgotten:
            told(name)

    def _forget_idle(self) -> None:
        """Stop refreshing topics that weren't used for metadata.max.idle.ms (R-MD-7)."""
        now = self._clock()
        latest = now - self._max_idle
        idle = [name for name, used in list(self.topics.items()) if used <= latest]
        if not idle:
            return
        for held in self.held_by:
            for name in held():
                if name in self.topics:
                    self.topics[name] = now
        self.forget_topics([name for name in idle if self.topics[name] <= latest])

    def start_from(self, snapshot: Cluster, now: float) -> None:
        """Start with a snapshot from another process, so that no first request is needed."""
        self.snapshot, self._looked = snapshot, None
        self.cluster_id = self.cluster_id or snapshot.cluster_id
        self.refreshed_at = now
        for topic in snapshot.topics.values():
            self.topics[topic.name] = now
            epochs = self._epochs[topic.name] = seen_epochs(self._epochs, topic.name)
            for p in topic.partitions:
                if p.leader_epoch >= 0:
                    epochs[p.partition] = (topic.topic_id, p.leader_epoch)

    # Timing

    def request_once(self, why: str) -> None:
        """Request a refresh, unless a refresh is requested or in flight already."""
        if not self.requested and self.in_flight_topics is None:
            self.request(why)

    @property
    def answered(self) -> int:
        """Serial number of the last refresh that was answered."""
        return self._done

    @property
    def next_question(self) -> int:
        """Serial number that a refresh gets if it is requested now."""
        return self._sent + 1

    @property
    def requested(self) -> bool:
        """Whether a refresh is requested or in flight."""
        return self._asked > self._done

    def due_at(self) -> float:
        """Return the earliest time at which the next refresh is due and allowed."""
        if self._new_topics and self.snapshot is not None:
            # New topics are requested at once (MD-09). But if the last refresh was for several new
            # topics, more will follow, and waiting collects them in one request (R-MD-4).
            return self.allowed_at if self._crowd else -math.inf
        if self.snapshot is None or self.requested:
            return self.allowed_at
        return max(self.allowed_at, (self.refreshed_at or 0.0) + self._max_age)

    def next_topics(self, *, full: bool = False) -> tuple[list[str], bool]:
        """Return the topics to request now, and whether they are the new topics only."""
        partial = bool(self._new_topics) and not self.requested and self.snapshot is not None
        partial = partial and not full
        if not partial:
            self._forget_idle()
        return (list(self._new_topics) if partial else list(self.topics)), partial

    # Responses

    def sent(self, topics: Iterable[str]) -> int:
        """Note that a request for these topics was sent, for all refreshes requested so far.

        Returns the request's serial number, which is passed to `apply` with the response.
        """
        if not self.requested or self._clock() > self.allowed_at + self._retry.maximum:
            # This refresh isn't a repeated one, so the wait starts from the base backoff again.
            self._equivalent = 0
        self.in_flight_topics = frozenset(topics)
        for name in topics:
            self._new_topics.pop(name, None)
        self._sent = self._asked = max(self._asked, self._sent)
        return self._sent

    def failed(self, *, late: bool = False) -> None:
        """Note that the request failed, and request its topics again.

        With `late`, the request is still in flight, and its response is used if it arrives first
        (R-RB-9).
        """
        for name in self.in_flight_topics or ():
            if self.snapshot is None or name not in self.snapshot.topics:
                self._new_topics[name] = None
        self.in_flight_topics = self._looked = None
        self._equivalent = 0
        if self._asked <= self._sent and not late:
            self._asked = self._sent + 1

    def look_over(self, answer: MetadataResponse) -> None:
        """Compare the decoded parts of a response with the snapshot, to save time in `apply`."""
        if self._looked is None or self._looked.answer is not answer:
            self._looked = ResponseComparison(answer)
        self._looked.go_on(self.snapshot, self._epochs)

    def apply(
        self,
        response: MetadataResponse,
        asked: Iterable[str],
        now: float,
        *,
        partial: bool,
        fresh: bool,
        serial: int,
        at: Address | None = None,
        sent_at: float | None = None,
    ) -> Cluster:
        """Apply a good response of the broker at `at` to a request that was sent at `sent_at`.

        With `fresh`, the old snapshot is dropped first (rebootstrap).
        """
        old = None if fresh else self.snapshot
        names = list(asked)
        self._crowd = partial and len(names) > 1
        keep = None if partial else self.topics
        looked, self._looked = self._looked, None
        if looked is None or not looked.is_all_of(response, dict.fromkeys(names)):
            looked = ResponseComparison.at_nothing(response)
        left, ready = looked.left, looked.ready
        sent_at = None if partial else now if sent_at is None else sent_at
        if refused := self.ids.refused(looked, self._epochs, old, at, now, sent_at):
            names = [name for name in names if name not in refused]
            left = [item for item in left if item.name not in refused]
        anew = self._let_go(response, left, now)
        self._lower.forget_those(name for name in ready.topics if self._epochs.get(name))
        self._epochs.update(looked.seen)
        snapshot = updated(
            old, response, names, self._epochs, now, keep=keep, left=left, ready=ready
        )
        if not snapshot.cluster_id:  # keep the known id (R-RB-5)
            snapshot = snapshot.with_id(self.cluster_id)
        self._answered_by = at
        if self.heard:
            snapshot = self.heard.checked(snapshot, at, names, now)
        self.in_flight_topics = None
        self._done = max(self._done, serial)
        for name in self.ids.undecided:
            self.request(f"brokers report different ids of topic {name}")
        # When an earlier request became late, its topics were requested again (R-RB-9).
        for name in names:
            self._new_topics.pop(name, None)
        for name in self.topic_errors.keys() & ready.topics.keys():
            del self.topic_errors[name]
        for item in left:
            if item.name is None:
                continue
            if item.error_code:
                self.topic_errors[item.name] = item.error_code
            else:
                self.topic_errors.pop(item.name, None)
        progress = old is None or anew or looked.news
        if not progress and old is not None:
            others = [name for name in names if name not in ready.topics]
            progress = bool(others or not names) and brings_progress(old, snapshot, others)
        for item in left:
            if isinstance(item.partitions, PackedPartitions):
                item.partitions.forget_compared()
        self._equivalent = 0 if progress else self._equivalent + 1
        # Rule B 1.3: wait at least the base backoff between refreshes, and longer if responses have
        # no news. The jitter is drawn once per response (R-BO-3).
        self.allowed_at = now + self._retry.delay(max(0, self._equivalent - 1), self._rng)
        before, self.snapshot = self.snapshot, snapshot
        if snapshot.cluster_id:
            self.cluster_id = snapshot.cluster_id
        if not partial:
            self.refreshed_at = now
            self._drop_unused(before, snapshot)
        self.changed.notify()
        return snapshot

    def _let_go(
        self, response: MetadataResponse, left: Iterable[MetadataResponseTopic], now: float
    ) -> bool:
        """Forget the epochs of recreated topics without ids; return whether there are any."""
        brokers = {b.node_id for b in response.brokers}
        topics = self.snapshot.topics if self.snapshot is not None else {}
        anew = False
        for item in left:
            name = item.name or ""
            seen = self._epochs.get(name)
            if not seen or item.error_code:
                continue
            packed = item.partitions
            if isinstance(packed, PackedPartitions) and no_epoch_is_lower(
                seen, item.topic_id, packed
            ):
                self._lower.forget(name)
                continue
            epochs = seen_epochs(self._epochs, name)
            known = topics.get(name)
            leaders = {p.partition: p.leader for p in known.partitions} if known else {}
            if self._lower.believed(item, epochs, leaders, brokers, now):
                logger.warning(
                    "topic %s has lower leader epochs and its leaders refuse requests: it was "
                    "deleted and recreated",
                    item.name,
                )
                self.heard.accept(name, epochs)
                epochs.clear()
                anew = True
        return anew

    def _drop_unused(self, old: Cluster | None, snapshot: Cluster) -> None:
        """Drop all state of unused topics that the new snapshot no longer contains."""
        if old is None or old.topics is snapshot.topics:
            return
        there = set(snapshot.topics)
        for name in old.topics:
            if name not in there and name not in self.topics:
                self._lower.forget(name)
                self.heard.forget(name)
                self._left(name)

    def hint(self, topic: str, partition: int, leader: int, epoch: int, b: list[Broker]) -> bool:
        """Apply a leader hint (KIP-951); return whether it changed the snapshot."""
        if self.snapshot is None or not self.heard.allows(TopicPartition(topic, partition), epoch):
            return False
        after = with_leader(self.snapshot, topic, partition, leader, epoch, b)
        if after is self.snapshot:
            return False
        found = after.topics[topic]
        seen = self._epochs[topic] = seen_epochs(self._epochs, topic)
        seen[partition] = (found.topic_id, epoch)
        self.snapshot, self._looked = after, None
        self.changed.notify()
        return True

    def is_older(self, partition: TopicPartition, epoch: int, topic_id: bytes = NO_ID) -> bool:
        """Note the leader epoch of a consumer position; return whether metadata is older (R-ID-4).

        If metadata is older, another broker is asked for the partition's leader.
        """
        snapshot, now = self.snapshot, self._clock()
        known = None if snapshot is None else snapshot.partition(*partition)
        if known is not None and not 0 <= known.leader_epoch < epoch:
            return False
        if not self.heard.hear(partition, epoch, topic_id, now):
            return False
        if snapshot is not None and known is not None and known.leader >= 0:
            self.snapshot = self.heard.checked(snapshot, self._answered_by, None, now)
            self._looked = None
            why = self.heard.why(partition)
            logger.info("not reading %s yet: %s", partition, why)
            self.request(f"{partition}: {why}")
            self.changed.notify()
        return True

    def forget(self) -> None:
        """Drop the snapshot (R-RB-4), but keep the cluster id, the topics and the epochs."""
        before, self.snapshot, self._looked = self.snapshot, None, None
        self._drop_unused(before, Cluster())
        self.changed.notify()
