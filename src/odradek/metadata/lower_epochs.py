"""When a lower leader epoch is believed after all, where there are no topic ids (R-MD-7).

In: refusals by the leaders that are known, answers of lower epochs. Out: whether the topic is
another one of the same name. A lower epoch comes from a broker that lags behind, or from a topic
that was deleted and made again between two refreshes; without ids the answers look alike. But a
broker that lags behind is alone with what it says, or catches up within seconds, and the leader
that is known still does its work. Must not: know connections; believe one answer alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from odradek.metadata.cluster import NO_ID
from odradek.protocol.messages.metadata import MetadataResponseTopic

ANSWERS = 5
"""So many answers in a row have to say so, each after another refusal by the known leader,"""
SECONDS = 10.0
"""over so long a time. Brokers that lag behind for longer are cut off from their controller, and
KRaft's fences them after 9 s (broker.session.timeout.ms): the others' answers don't name them."""


class LowerEpochs:
    """What is held against the known leaders of topics without ids."""

    def __init__(self) -> None:
        self._refused: dict[str, set[int]] = {}
        self._doubts: dict[str, tuple[int, float, float]] = {}
        """Per topic: how many answers, the first one's and the last one's time."""

    def refused(self, topic: str, partition: int) -> None:
        """The leader that is known refused a request for a partition."""
        self._refused.setdefault(topic, set()).add(partition)

    def forget(self, topic: str) -> None:
        """Nobody uses the topic any more."""
        self._refused.pop(topic, None)
        self._doubts.pop(topic, None)

    def forget_those(self, topics: Iterable[str]) -> None:
        """The same of many; costs nothing where nothing is held against anybody."""
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
        """Take in an answer about a topic; say whether its lower epochs are the truth by now.

        `leaders` are those that are known, `brokers` those that the answer names: a leader that
        left the cluster can refuse nothing any more.
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
            return False  # asked for by age or for others: it says nothing about the leader
        count, first, last = self._doubts.get(name, (0, now, now))
        if now - last > SECONDS:
            count, first = 0, now
        if count + 1 < ANSWERS or now - first < SECONDS:
            self._doubts[name] = (count + 1, first, now)
            return False
        self.forget(name)
        return True
