"""Find the topics and partitions that a query reads, and cache them.

In: the options subscribe, subscribePattern and assign. Out: a `TopicsSnapshot`, requested again
after an interval and after errors. Topics are described by separate requests, never for each batch;
a missing topic is requested again for a while, since a broker that has just started knows little.
Must not: know offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.spark.driver.cluster_client import ClusterClient
from odradek.spark.driver.planning import TopicsSnapshot
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.options.topic_patterns import compiled
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer
    from odradek.clients.descriptions import TopicDescription

CONFIRM_S = 10.0
"""Seconds for which a loss must be observed: after an election or restart, metadata may be wrong.
"""
AT_ONCE = 500
"""Maximum number of topics in one request."""


class Discovery:
    """The topics and partitions that a query reads, cached for the discovery interval."""

    def __init__(
        self,
        options: SourceOptions,
        contact: ClusterClient,
        clock: Clock,
        check_cluster: Callable[[str], None],
    ) -> None:
        self._options, self._contact, self._clock = options, contact, clock
        self._check_cluster = check_cluster
        self._pattern = None if options.pattern is None else compiled(options.pattern)
        self._topics: TopicsSnapshot | None = None
        self._at = 0.0
        self._absent: frozenset[str] = frozenset()

    @property
    def last(self) -> TopicsSnapshot | None:
        """Last result, of any age; None before the first one and after an error."""
        return self._topics

    def forget(self) -> None:
        """Drop the cached result, so that the next call requests metadata."""
        self._topics = None

    def topics(self, until: float | None) -> TopicsSnapshot:
        """Return the topics, cached or requested; missing ones only count after several checks."""
        young = self._clock.now() - self._at < self._options.discovery_interval
        if self._topics is not None and young:
            return self._topics
        doubt = UnconfirmedObservation(self._options, self._clock)
        while True:
            topics = self._contact.ask("describing topics", self._describe, until)
            if set(topics.missing) <= self._absent or doubt.settled():
                break
            self._contact.pause()
        self._absent = frozenset(topics.missing)
        self._topics, self._at = topics, self._clock.now()
        return topics

    def _describe(self, client: Consumer, timeout: float) -> TopicsSnapshot:
        names: Sequence[str] = self._options.topics
        if self._pattern is not None:
            listed = client.list_topics(timeout=timeout)
            names = [name for name in listed if self._pattern.search(name)]
        described: dict[str, TopicDescription] = {}
        for at in range(0, len(names), AT_ONCE):
            described |= _describe_those_there(client, names[at : at + AT_ONCE], timeout)
        cluster = client.cluster_id(timeout=timeout)
        self._check_cluster(cluster)
        there = [
            TopicPartition(topic, p.partition)
            for topic, d in described.items()
            for p in d.partitions
        ]
        missing = [topic for topic in self._options.topics if topic not in described]
        if self._options.assigned is not None:
            wanted, known = set(self._options.assigned), set(there)
            there = [tp for tp in there if tp in wanted]
            missing += [
                str(tp)
                for tp in self._options.assigned
                if tp not in known and tp.topic in described
            ]
        # Brokers before Kafka 2.8 have no topic ids, so a recreated topic can't be detected.
        ids = {t: d.topic_id for t, d in sorted(described.items()) if d.topic_id is not None}
        return TopicsSnapshot(cluster, ids, tuple(sorted(there)), tuple(missing))


class UnconfirmedObservation:
    """An observation that counts only after it was repeated often and for long enough."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._clock, self._wanted = clock, options.fetch_attempts
        self._since: float | None = None
        self._looks = 0

    def settled(self) -> bool:
        """Count another observation; return whether it counts as confirmed now."""
        now = self._clock.now()
        self._looks += 1
        if self._since is None:
            self._since = now
        return now - self._since >= CONFIRM_S and self._looks >= self._wanted


def _describe_those_there(
    client: Consumer, topics: Sequence[str], timeout: float
) -> dict[str, TopicDescription]:
    """Describe existing topics, one by one if a missing topic makes the call for all fail."""
    try:
        return dict(client.describe(topics, timeout=timeout))
    except UnknownTopicOrPartitionError:
        found: dict[str, TopicDescription] = {}
        if len(topics) > 1:
            for topic in topics:
                found |= _describe_those_there(client, [topic], timeout)
        return found
