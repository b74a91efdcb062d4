"""Decide when a lower leader epoch is accepted after all, without topic ids (R-MD-7).

In: errors of the known leaders, responses with lower epochs. Out: whether the topic is a new one of
the same name. A lower epoch comes from an outdated broker, or from a topic that was deleted and
recreated between two refreshes; without ids the responses look alike. But an outdated broker is the
only one with its epoch, or catches up within seconds, and the known leader still serves requests.
Must not: know connections, or accept the epoch of a single response.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from odradek.metadata.cluster import NO_ID
from odradek.protocol.messages.metadata import MetadataResponseTopic

ANSWERS = 5
"""Required number of responses with a lower epoch, each after a new error of the leader."""
SECONDS = 10.0
"""Minimum number of seconds from the first of these responses to the last.

It is longer than the time after which KRaft's controllers fence a broker that is cut off (9 s,
broker.session.timeout.ms) and other brokers' responses don't name it any more.
"""


class LowerEpochs:
    """Evidence against the known leaders of topics without ids."""

    def __init__(self) -> None:
        self._refused: dict[str, set[int]] = {}
        self._doubts: dict[str, tuple[int, float, float]] = {}
        """By topic: the number of responses with a lower epoch, the first and the last time."""

    def refused(self, topic: str, partition: int) -> None:
        """Note that the known leader refused a request for a partition."""
        self._refused.setdefault(topic, set()).add(partition)

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer used."""
        self._refused.pop(topic, None)
        self._doubts.pop(topic, None)

    def forget_those(self, topics: Iterable[str]) -> None:
        """Forget many topics; this is cheap if nothing is noted about any topic."""
        if self._refused or self._doubts:
            for topic in topics:
                self.forget(topic)

    def believed(
        self,
        item: MetadataResponseTopic,
        epochs: Mapping[int, tuple[bytes, int]],
        leaders: Mapping[int, int],
        brokers: Container[int],
        now: float,
    ) -> bool:
        """Check a response about a topic; return whether its lower epochs are accepted now.

        `leaders` are the known leaders, `brokers` the brokers in the response: a leader that isn't
        among them has left the cluster, which counts like an error from it.
        """
        name = item.name or ""
        refused = self._refused.pop(name, ())
        lower = False
        against = False
        for p in item.partitions:
            index = p.partition_index
            topic_id, known = epochs.get(index, (NO_ID, -1))
            if 0 <= p.leader_epoch < known and NO_ID in (topic_id, item.topic_id):
                lower = True
                against = against or index in refused or leaders.get(index, -1) not in brokers
        if not lower:
            self._doubts.pop(name, None)
            return False
        if not against:
            # No error of the leader since the last response, so this one counts for nothing.
            return False
        count, first, last = self._doubts.get(name, (0, now, now))
        if now - last > SECONDS:
            count, first = 0, now
        if count + 1 < ANSWERS or now - first < SECONDS:
            self._doubts[name] = (count + 1, first, now)
            return False
        self.forget(name)
        return True
