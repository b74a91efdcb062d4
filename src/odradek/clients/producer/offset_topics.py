"""Check the topics of a transaction's offsets (R-ID-3), and their ownership (R-ID-1).

In: offsets, the topic ids and ownership known to the consumer that read them, the producer's
metadata. Out: topic ids, noted when the caller sends the offsets; the error of offsets whose topic
was recreated, or that another member may have read. Must not: ask brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from odradek.clients.consumer.records import HeldGroupMetadata, OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    IllegalGenerationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.errors.topics import TopicRecreatedError, topic_id_text
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.metadata.metadata import Metadata

UNKNOWN = (UnknownTopicOrPartitionError.code, UnknownTopicIdError.code)
UNKNOWN_FOR = 5.0
"""Seconds for which a group's coordinator may not know a topic: the topic may be new."""


class OffsetTopics:
    """Topic ids by partition, and whether they still are the ids of these topics."""

    def __init__(
        self,
        ids: Mapping[TopicPartition, bytes],
        refused: Mapping[TopicPartition, KafkaError],
        topic_ids: tuple[Callable[[str], bytes], ...],
        is_missing: Callable[[str], bool] | None = None,
        not_owned: Callable[[], Collection[TopicPartition]] = tuple,
    ) -> None:
        """Set the functions that look topics up.

        Each function of `topic_ids` returns a topic's id in the metadata of the consumer or the
        producer. `is_missing` returns whether a topic is missing in the consumer's metadata,
        `not_owned` the partitions that another member may have read in the meantime.
        """
        self.ids = {p: topic_id for p, topic_id in ids.items() if topic_id != NO_ID}
        self.refused = refused
        self._topic_ids = topic_ids
        self._is_missing = is_missing
        self._not_owned = not_owned

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: Any,
        *,
        read: bool = False,
    ) -> OffsetTopics:
        """Note the current topics of offsets.

        The ids come from the consumer of `group_metadata()`, or from the producer's metadata if
        `group` is only an id. `read`: the offsets come from returned records.
        """

        def topic_id(topic: str) -> bytes:
            snapshot = metadata.snapshot
            found = None if snapshot is None else snapshot.topics.get(topic)
            return NO_ID if found is None else found.topic_id

        asked = group.asked() if isinstance(group, HeldGroupMetadata) else None
        if asked is None:
            return cls({p: topic_id(p.topic) for p in offsets}, {}, (topic_id,))
        known = asked(offsets, read=read)
        ids = (known.topic_id, topic_id)
        return cls(known.ids, known.replaced, ids, known.is_missing, known.refused)

    def check_owned(self, offsets: Collection[TopicPartition], group_id: str) -> None:
        """Raise if another member may have read a partition in the meantime.

        The coordinator only checks the generation, which this member may have again after a
        rebalance.
        """
        over = [str(partition) for partition in self._not_owned() if partition in offsets]
        if over:
            raise error_for(
                IllegalGenerationError.code or -1,
                f"offsets of group {group_id!r} in the transaction: {', '.join(over[:5])}: this "
                "consumer lost the partition, or gave it to another member, after it read these "
                "records",
            )

    def check(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise if an offset's topic has another id now."""
        for partition, refusal in self.refused.items():
            if partition in offsets:
                raise refusal
        for partition, offset in offsets.items():
            read_id = self.ids.get(partition, NO_ID)
            for topic_id in self._topic_ids if read_id != NO_ID else ():
                now_id = topic_id(partition.topic)
                if now_id not in (NO_ID, read_id):
                    raise TopicRecreatedError(
                        partition,
                        f"offset {offset.offset} of {partition} in a transaction",
                        topic_id_text(read_id),
                        topic_id_text(now_id),
                    )

    def check_names(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str
    ) -> None:
        """Raise if an offset would be sent by the name of a topic that doesn't exist any more.

        The topic is missing in the metadata of the consumer that read it; another topic may have
        been created with its name since.
        """
        self.check(offsets)
        if self._is_missing is None:
            return
        for partition in offsets:
            if partition in self.ids and self._is_missing(partition.topic):
                raise self._unknown(partition, group_id, "the consumer's metadata contains")

    def unknown(self, partition: TopicPartition, group_id: str, since: float, now: float) -> None:
        """Raise if the coordinator has not known a partition's topic for too long."""
        if now >= since + UNKNOWN_FOR:
            raise self._unknown(partition, group_id, "the group's coordinator knows")

    def _unknown(self, partition: TopicPartition, group_id: str, source: str) -> KafkaError:
        read_id = topic_id_text(self.ids.get(partition, NO_ID))
        with_id = "" if read_id is None else f" with id {read_id}"
        return error_for(
            UnknownTopicIdError.code or -1,
            f"offsets of group {group_id!r} in the transaction: {source} no "
            f"topic {partition.topic}{with_id}, or no partition {partition.partition} of it",
        )
