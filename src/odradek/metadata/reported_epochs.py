"""Decide when metadata with an older leader epoch is accepted (R-ID-4; R-MD-7 without ids).

In: leader epochs of committed offsets, `seek`, `assign` and records; metadata responses and the
addresses that sent them. Out: a snapshot in which a partition has no leader while its metadata is
older than such an epoch; the brokers with older metadata, so that others are asked; when the lower
epoch is accepted after all. A broker that was frozen or cut off still acts as leader in an outdated
epoch: its information about positions is wrong.

A lower epoch may also be right: the topic was recreated and the offset belongs to the former topic,
or the caller passed an epoch that never existed. So a lower epoch is accepted after `ANSWERS`
responses over `SECONDS` without a newer epoch. More than half of the brokers in these responses (at
most `ANSWERS`) must have sent a lower epoch, because a broker that is cut off is alone, or with
fewer than half. While fewer can be reached, the partition waits, and a WARNING and `explain()`
report it: the client can't distinguish a minority from the majority, and reading everything again
can't be undone. With another topic id, epochs start again; a response with no epoch is never older.

`LowerEpochs` decides for topics without ids, whose epochs come from metadata. A lower epoch comes
from an outdated broker, or from a topic that was deleted and recreated between two refreshes; the
responses look alike. But an outdated broker catches up within seconds, or is the only one with its
epoch, and the known leader still serves requests. Must not: know connections, or accept a lower
epoch after a single response.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Cluster, without_leaders
from odradek.protocol.messages.metadata import MetadataResponseTopic

logger = logging.getLogger("odradek.metadata")

ANSWERS = 5
"""Number of responses with a lower epoch after which the lower epoch may be accepted."""
SECONDS = 10.0
"""Minimum number of seconds from the first of these responses to the last.

After 9 s (broker.session.timeout.ms), KRaft's controllers fence a broker that is cut off, and other
brokers' responses don't name it any more.
"""
WARN_AFTER_S = 5.0
"""Seconds after which a WARNING reports a partition that waits for newer metadata."""


class ReportedEpoch:
    """One partition's newest leader epoch from a source other than metadata."""

    __slots__ = ("answers", "believed", "epoch", "said", "since", "told", "topic_id")

    def __init__(
        self, epoch: int, topic_id: bytes, since: float, *, believed: bool = False
    ) -> None:
        self.epoch = epoch
        self.topic_id = topic_id
        """Id of the topic to which the epoch belongs; `NO_ID` if the id is unknown."""
        self.since = since
        self.answers = 0
        self.said: dict[Address, int] = {}
        """The last older epoch that each broker's metadata contained, by the broker's address."""
        self.believed = believed
        """Whether lower epochs are accepted, because `epoch` is of a deleted topic or wrong."""
        self.told = False

    def why(self) -> str:
        """Return a text for users that says why the partition waits."""
        of = " and ".join(map(str, self.said))
        epochs = " and ".join(map(str, dict.fromkeys(self.said.values())))
        older = f"metadata of {of} is older (epoch {epochs})" if of else "metadata is older"
        return f"{older} than the position (epoch {self.epoch}); the client asks other brokers"


class ReportedEpochs:
    """Leader epochs of one client's partitions that are newer than metadata."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, ReportedEpoch]] = {}
        self.older: dict[Address, None] = {}
        """Brokers whose metadata was older than a known epoch of some partition."""

    def __bool__(self) -> bool:
        return bool(self._topics)

    def hear(self, partition: TopicPartition, epoch: int, topic_id: bytes, now: float) -> bool:
        """Note an epoch that is newer than metadata; return whether the metadata is outdated."""
        heard = self._topics.setdefault(partition.topic, {})
        before = heard.get(partition.partition)
        if before is not None and before.epoch >= epoch:
            return not before.believed
        heard[partition.partition] = ReportedEpoch(epoch, topic_id, now)
        return True

    def accept(self, topic: str, epochs: Mapping[int, tuple[bytes, int]]) -> None:
        """Accept lower epochs than these from now on, as the topic was deleted and recreated."""
        heard = self._topics.setdefault(topic, {})
        for number, (topic_id, epoch) in epochs.items():
            heard[number] = ReportedEpoch(epoch, topic_id, 0.0, believed=True)

    def allows(self, partition: TopicPartition, epoch: int) -> bool:
        """Return whether the leader epoch of a hint isn't older than the known epoch (KIP-951)."""
        found = self._topics.get(partition.topic, {}).get(partition.partition)
        return found is None or found.believed or epoch >= found.epoch

    def why(self, partition: TopicPartition) -> str | None:
        """Return why a partition waits for newer metadata; None if it doesn't."""
        found = self._topics.get(partition.topic, {}).get(partition.partition)
        return None if found is None or found.believed else found.why()

    def forget(self, topic: str) -> None:
        """Drop the epochs of a topic that isn't used any more."""
        if self._topics.pop(topic, None):
            self._look_who()

    def checked(
        self,
        snapshot: Cluster,
        at: Address | None,
        answered: Collection[str] | None,
        now: float,
    ) -> Cluster:
        """Return the snapshot without the leaders whose epoch is older than a known epoch.

        `at` is the address that sent the response, `answered` its topics, or None if an existing
        snapshot is checked again without a new response.
        """
        stale: dict[str, set[int]] = {}
        for name, number, heard in list(self._all()):
            topic = snapshot.topics.get(name)
            partition = snapshot.partition(name, number)
            if topic is None or partition is None:
                continue
            anew = heard.topic_id not in (NO_ID, topic.topic_id) and topic.topic_id != NO_ID
            known = partition.leader_epoch
            if anew or known >= heard.epoch or known < 0:
                self._drop(name, number)
                continue
            if heard.believed:
                continue
            if answered is None or name in answered:
                if at is not None:
                    heard.said[at] = known
                heard.answers += answered is not None
                if self._is_believed(heard, snapshot, now):
                    self._believe(TopicPartition(name, number), heard)
                    continue
                self._tell(TopicPartition(name, number), heard, now)
            stale.setdefault(name, set()).add(number)
        self._look_who()
        return without_leaders(snapshot, stale) if stale else snapshot

    def _is_believed(self, heard: ReportedEpoch, snapshot: Cluster, now: float) -> bool:
        if heard.answers < ANSWERS or now < heard.since + SECONDS:
            return False
        here = [address for address in heard.said if snapshot.knows(address)]
        return len(here) >= min(ANSWERS, len(snapshot.brokers) // 2 + 1)

    def _believe(self, partition: TopicPartition, heard: ReportedEpoch) -> None:
        heard.believed = True
        logger.warning(
            "%s: after %.0f s brokers still report leader epoch %d, below epoch %d of the "
            "position: the topic was deleted and recreated, or that epoch is wrong",
            *(partition, SECONDS, max(heard.said.values(), default=-1), heard.epoch),
        )

    def _tell(self, partition: TopicPartition, heard: ReportedEpoch, now: float) -> None:
        if not heard.told and now >= heard.since + WARN_AFTER_S:
            heard.told = True
            logger.warning("not reading %s: %s", partition, heard.why())

    def _all(self) -> Iterator[tuple[str, int, ReportedEpoch]]:
        for name, heard in self._topics.items():
            for number, found in heard.items():
                yield name, number, found

    def _drop(self, name: str, number: int) -> None:
        heard = self._topics[name]
        del heard[number]
        if not heard:
            del self._topics[name]

    def _look_who(self) -> None:
        self.older = {at: None for *_, h in self._all() if not h.believed for at in h.said}


class LowerEpochs:
    """Evidence against the known leaders of topics without ids."""

    def __init__(self) -> None:
        self._refused: dict[str, set[int]] = {}
        self._doubts: dict[str, tuple[int, float, float]] = {}
        """By topic: number of responses with a lower epoch, times of the first and the last."""

    def refused(self, topic: str, partition: int) -> None:
        """Note that the known leader of a partition answered with an error."""
        self._refused.setdefault(topic, set()).add(partition)

    def forget(self, topic: str) -> None:
        """Forget a topic that isn't used any more, or whose epochs aren't in doubt."""
        self._refused.pop(topic, None)
        self._doubts.pop(topic, None)

    def forget_those(self, topics: Iterable[str]) -> None:
        """Forget many topics; this takes no time if no topic is in doubt."""
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
        among the brokers has left the cluster, which counts like an error of the leader.
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
            # The leader returned no error since the last response, so this response doesn't count.
            return False
        count, first, last = self._doubts.get(name, (0, now, now))
        if now - last > SECONDS:
            count, first = 0, now
        if count + 1 < ANSWERS or now - first < SECONDS:
            self._doubts[name] = (count + 1, first, now)
            return False
        self.forget(name)
        return True
