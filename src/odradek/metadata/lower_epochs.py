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
"""Number of responses in a row with a lower epoch, each after another error of the known leader."""
SECONDS = 10.0
"""Seconds over which these responses must arrive.

Within them, outdated brokers are found out: KRaft's controllers fence a broker that is cut off
after 9 s (broker.session.timeout.ms), and the responses of other brokers don't name it any more.
"""


class LowerEpochs:
    """Evidence against the known leaders of topics without ids."""

    def __init__(self) -> None:
        self._refused: dict[str, set[int]] = {}
        self._doubts: dict[str, tuple[int, float, float]] = {}
        """By topic: the number of such responses, and the times of the first and the last one."""

    def refused(self, topic: str, partition: int) -> None:
        """Note that the known leader refused a request for a partition."""
        self._refused.setdefault(topic, set()).add(partition)

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer used."""
        self._refused.pop(topic, None)
        self._doubts.pop(topic, None)

    def forget_those(self, topics: Iterable[str]) -> None:
        """Forget many topics; this is cheap if there is no evidence at all."""
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

        `leaders` are the known ones, `brokers` those in the response: a leader that left the
        cluster can't refuse requests any more.
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
            # Requested because of its age or for other topics: no evidence about the leader.
            return False
        count, first, last = self._doubts.get(name, (0, now, now))
        if now - last > SECONDS:
            count, first = 0, now
        if count + 1 < ANSWERS or now - first < SECONDS:
            self._doubts[name] = (count + 1, first, now)
            return False
        self.forget(name)
        return True
