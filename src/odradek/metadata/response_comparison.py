"""Compare a large metadata response with known topics in parts, before it is applied.

In: the decoded parts of a response; the snapshot and the epochs to compare with. Out: the topics
that are compared ("ready"), and the topics that are left for `apply`. If snapshot or epochs change,
the result is invalid, and `Metadata` drops it. Must not: change either.
"""

from __future__ import annotations

from collections.abc import Container

from odradek.metadata.cluster import Cluster, Epochs, Ready, topic_of
from odradek.metadata.partitions import SeenEpochs, brings_news, no_epoch_is_lower
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.packed_metadata import PackedPartitions


class ResponseComparison:
    """A metadata response and the result of its comparison so far."""

    def __init__(self, answer: MetadataResponse) -> None:
        self.answer = answer
        self.ready = Ready()
        self.left: list[MetadataResponseTopic] = []
        self.seen: Epochs = {}
        """The epochs of topics that are ready, if they differ from the known epochs."""
        self.news = False
        """Whether a topic that is ready has news (see `brings_progress`)."""
        self.added: list[str] = []
        """Names of topics that are ready and weren't known before."""
        self._done = 0
        self._names: set[str | None] = set()

    @classmethod
    def at_nothing(cls, answer: MetadataResponse) -> ResponseComparison:
        """Return a comparison in which no topic of the response was compared yet."""
        looked = cls(answer)
        looked.left = answer.topics
        return looked

    def go_on(self, snapshot: Cluster | None, epochs: Epochs) -> None:
        """Compare the topics that were decoded since the last call."""
        items = self.answer.topics[self._done :]
        self._done += len(items)
        for item in items:
            self._names.add(item.name)
            seen = epochs.get(item.name or "")
            packed = item.partitions
            if (
                item.name is not None
                and not item.error_code
                and isinstance(packed, PackedPartitions)
                and packed.numbered
                and (not seen or no_epoch_is_lower(seen, item.topic_id, packed))
            ):
                self._make(item, snapshot, seen)
                packed.forget_compared()
            else:
                self.left.append(item)

    def _make(
        self,
        item: MetadataResponseTopic,
        snapshot: Cluster | None,
        seen: SeenEpochs | dict[int, tuple[bytes, int]] | None,
    ) -> None:
        name = item.name or ""
        before = None if snapshot is None else snapshot.topics.get(name)
        known: Epochs = {} if seen is None else {name: seen}
        topic = topic_of(item, before, known)
        if known[name] is not seen:
            self.seen[name] = known[name]
            if not seen:
                self.added.append(name)
        self.ready.add(topic, before)
        if topic is not before and not self.news:
            self.news = (
                before is None
                or before.topic_id != topic.topic_id
                or brings_news(before.partitions, topic.partitions)
            )

    def is_all_of(self, answer: MetadataResponse, asked: Container[str]) -> bool:
        """Return whether this result covers the whole response, so that `apply` can use it.

        Each topic must occur once, and all compared topics must have been requested.
        """
        if answer is not self.answer or not self._done == len(self._names) == len(answer.topics):
            return False
        return all(name in asked for name in self.ready.topics)
