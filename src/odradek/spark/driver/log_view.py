"""Request the state of the logs that a query reads, and judge whether records are lost (R-ID-6).

In: the query's offset. Out: the ends of the logs with the leaders' epochs, the offsets where logs
diverge from positions, and whether a loss is accepted. No leader of an older epoch judges a
position; a loss that an outdated broker may report must last for a while, and a second broker must
confirm it. Must not: move a position, or decide what happens after a loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from odradek.api.log_ends import KnownEpoch, LogEnds
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.driver.cluster_client import ClusterClient
from odradek.spark.driver.discovery import Discovery, UnconfirmedObservation
from odradek.spark.driver.loss_confirmation import DisagreementError, check_agreement
from odradek.spark.driver.offsets import Positions, StreamOffset
from odradek.spark.driver.planning import TopicsSnapshot
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

MEMORY_S = 0.1
"""Seconds for which log ends are cached: Spark calls about 50 times per second when idle."""

UNKNOWN: KnownEpoch = (-1, None)

T = TypeVar("T")


class OtherTopicError(Exception):
    """The client's metadata and the description have different ids for a topic of one name."""


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Partitions and their log ends at one time."""

    topics: TopicsSnapshot
    ends: Positions
    epochs: Positions
    """Epochs of the leaders that returned the ends; -1 from brokers that don't report them."""


class LogView:
    """The logs of one query as the driver last saw them; used by one thread."""

    def __init__(
        self, options: SourceOptions, contact: ClusterClient, discovery: Discovery, clock: Clock
    ) -> None:
        self._options, self._contact, self._discovery = options, contact, discovery
        self._clock = clock
        self.last: PartitionEnds | None = None
        """Result of the last request; None after an error."""
        self._at = 0.0
        self.known: StreamOffset | None = None
        """Last offset that Spark passed; leaders of older epochs can't prove a loss (R-ID-6)."""
        self._newer: dict[TopicPartition, KnownEpoch] = {}
        """Newer leader epochs, which other brokers reported when a broker seemed to have lost
        records."""
        self._in_log: dict[TopicPartition, tuple[int, int, int]] = {}
        """Positions and epochs that the log of a newer leader epoch is known to contain."""
        self._waiting: dict[TopicPartition, int] = {}
        """Positions in open transactions, for one warning each (`read_committed`)."""

    def forget(self) -> None:
        """Drop cached topics and log ends, so that the next call requests them again."""
        self._discovery.forget()
        self.last = None

    def is_believed(
        self,
        doubtful: Collection[TopicPartition],
        doubt: UnconfirmedObservation,
        topics: TopicsSnapshot,
        until: float | None,
    ) -> bool:
        """Return whether a loss was seen for long enough, and a second broker agrees (R-ID-6).

        If not, the next call asks the cluster again, after a pause.
        """
        if not doubtful:
            return True
        if doubt.settled():
            epochs = dict.fromkeys(topics.partitions, -1)
            if self.last is not None:
                epochs |= self.last.epochs
            try:
                self._contact.ask(
                    "asking other brokers about a loss",
                    lambda client, timeout: check_agreement(
                        client, doubtful, topics.topic_ids, epochs, timeout
                    ),
                    until,
                )
            except DisagreementError as other:
                self._newer |= {
                    tp: (epoch, topics.topic_ids.get(tp.topic)) for tp, epoch in other.newer.items()
                }
            else:
                return True
        self.forget()
        self._contact.pause()
        return False

    def recent(self, until: float | None, *, idle: bool) -> PartitionEnds:
        """Return the log ends, cached for `MEMORY_S`; an `idle` caller waits for renewed ones."""
        age = self._clock.now() - self._at
        if self.last is not None and age < MEMORY_S:
            if not idle:
                return self.last
            self._clock.pause(MEMORY_S - age)
        return self.look(until)

    def look(self, until: float | None) -> PartitionEnds:
        """Return the current ends of the logs; each leader is asked once."""

        def ends(client: Consumer, timeout: float) -> PartitionEnds:
            topics = self._discovery.topics(until)  # requested again if `ask` retries `ends`
            calls = LogEnds(client)
            left = min(timeout, self._contact.timeout(until))
            found = _of_same(client, topics, lambda: calls.ends(self._known_epochs(topics), left))
            offsets = {tp: at.offset for tp, at in found.items()}
            epochs = {tp: at.leader_epoch for tp, at in found.items()}
            after = self._after_stable(offsets) if calls.reads_committed else {}
            is_new = self.known is not None and offsets != self.known.positions
            # Describe the topics again: the ends may belong to a recreated topic.
            if after.items() - self._waiting.items() or (is_new and calls.fetches_by_name(left)):
                self._discovery.forget()
                if self._discovery.topics(until) != topics:
                    raise KafkaTimeoutError("the topics changed while end offsets were looked up")
            view = PartitionEnds(topics, offsets, epochs)
            self._waiting = self._in_transactions(calls, after, view, left, until) if after else {}
            return replace(view, ends={**offsets, **self._waiting})

        view = self._contact.ask("looking up end offsets", ends, until)
        self.last, self._at = view, self._clock.now()
        return view

    def _after_stable(self, ends: Positions) -> dict[TopicPartition, int]:
        """Return the query's positions (or its options' offsets) after the last stable offset."""
        if self.known is not None:
            positions = dict(self.known.positions)
        else:
            named = self._options.starting.offsets, self._options.ending.offsets
            positions = {tp: max(at.get(tp, -1) for at in named) for tp in ends}
        return {tp: at for tp, at in positions.items() if at > ends.get(tp, at)}

    def _in_transactions(
        self,
        calls: LogEnds,
        after: Positions,
        view: PartitionEnds,
        timeout: float,
        until: float | None,
    ) -> dict[TopicPartition, int]:
        """Return the positions in open transactions, limited to the ends of the logs.

        Such a position isn't a loss: an earlier run without `read_committed` has read it, or the
        user's options name it. Positions of deleted topics and of diverged logs are left out.
        """
        topics, known = view.topics, self.known
        if known is not None:
            gone = self.diverged(known, view, until)
            there = is_from(known, topics)
            after = {
                tp: at
                for tp, at in after.items()
                if there and is_same_topic(known, tp.topic, topics) and tp not in gone
            }
        epochs = {tp: at for tp, at in self._known_epochs(topics).items() if tp in after}
        logs = calls.ends(epochs, timeout, stable=False) if after else {}
        found = {tp: min(at, logs[tp].offset) for tp, at in after.items()}
        for tp, at in found.items():
            if at == after[tp] and self._waiting.get(tp) != at:
                logger.warning(
                    "%s: offset %d is after the last stable offset %d; the query continues when "
                    "the open transaction ends (kafka.isolation.level is read_committed)",
                    *(tp, at, view.ends[tp]),
                )
        return found

    def _known_epochs(self, topics: TopicsSnapshot) -> dict[TopicPartition, KnownEpoch]:
        """Return the newest leader epoch that is known of each partition, -1 if none is."""
        known, found = self.known, dict.fromkeys(topics.partitions, UNKNOWN)
        if known is not None and is_from(known, topics):
            found |= {
                tp: (epoch, known.topic_ids.get(tp.topic))
                for tp, epoch in known.epochs.items()
                if tp in found
            }
        for tp, newer in self._newer.items():
            if tp in found and newer[0] > found[tp][0]:
                found[tp] = newer
        return found

    def diverged(
        self, start: StreamOffset, view: PartitionEnds, until: float | None
    ) -> dict[TopicPartition, int]:
        """Return the offset where the log diverges, for each position that it no longer contains.

        Only leaders of newer epochs than a position's are asked, once for each position (KIP-320).
        Elections after `view` was requested are noticed by the tasks.
        """
        if not is_from(start, view.topics):
            return {}
        wanted: dict[TopicPartition, int] = {}
        places: dict[TopicPartition, tuple[int, int, int]] = {}
        for tp, epoch in start.epochs.items():
            same = is_same_topic(start, tp.topic, view.topics)
            place = start.positions[tp], epoch, view.epochs.get(tp, -1)
            if same and epoch < place[2] and self._in_log.get(tp) != place:
                wanted[tp], places[tp] = epoch, place
        if not wanted:
            return {}
        found = self.ask(
            "checking for truncated logs",
            lambda client, timeout: LogEnds(client).epoch_ends(wanted, timeout),
            view.topics,
            until,
        )
        lost = {tp: at.offset for tp, at in found.items() if 0 <= at.offset < start.positions[tp]}
        self._in_log |= {tp: place for tp, place in places.items() if tp not in lost}
        return lost

    def beginnings(
        self, partitions: Collection[TopicPartition], topics: TopicsSnapshot, until: float | None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        if not partitions:
            return {}
        return self.ask(
            "looking up beginning offsets",
            lambda client, timeout: dict(client.beginning_offsets(partitions, timeout=timeout)),
            topics,
            until,
        )

    def ask(
        self,
        what: str,
        question: Callable[[Consumer, float], T],
        topics: TopicsSnapshot,
        until: float | None,
    ) -> T:
        """Call `question` with retries; raise `OtherTopicError` if a topic may have another id."""
        return self._contact.ask(
            what,
            lambda client, timeout: _of_same(client, topics, lambda: question(client, timeout)),
            until,
        )

    def start_over(self) -> None:
        """Use another client for the next call, which may request metadata from another broker."""
        self.forget()
        self._contact.close()
        self._contact.pause()


def _of_same(client: Consumer, topics: TopicsSnapshot, call: Callable[[], T]) -> T:
    """Return the result of `call` if the client's metadata has the topic ids of `topics`.

    Leaders don't return topic ids, so the metadata has to tell: a broker that is cut off still
    describes a deleted topic, whose leader epochs may be higher than the new topic's.
    """
    calls = LogEnds(client)
    other = calls.has_other_ids(topics.topic_ids)
    found = call()
    if other or calls.has_other_ids(topics.topic_ids):
        raise OtherTopicError("brokers have different ids for a topic of the query")
    return found


def is_from(offset: StreamOffset, topics: TopicsSnapshot) -> bool:
    """Return whether an offset is of this cluster; other clusters' epochs can't be compared."""
    return offset.cluster in (None, topics.cluster)


def is_same_topic(offset: StreamOffset, topic: str, topics: TopicsSnapshot) -> bool:
    """Return whether an offset's topic id equals the cluster's; an unknown id counts as equal."""
    now = topics.topic_ids.get(topic)
    return offset.topic_ids.get(topic, now) == now
