"""Calls of a consumer about subscriptions, assignments, commits, offsets and the cluster.

In: the arguments of confluent-kafka. Out: its partitions and metadata. Must not: decide anything;
`consumer_core` does.
"""

from __future__ import annotations

import odradek
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.flows import carried_out
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.subscription import RebalanceCallback
from odradek.compat.confluent_kafka.topic_partition import TopicPartition


class ConsumerCalls:
    """Base of the consumer class; not instantiated directly."""

    _core: ConsumerCore

    # Subscriptions

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group and read these topics; one that begins with ^ is a regular expression.

        Callbacks are called as `callback(consumer, partitions)` inside `poll()` and `consume()`. In
        `on_assign`, `assign()` with offsets says where to begin. Without `on_lost`, `on_revoke` is
        called for what is lost.
        """
        carried_out(self._core.subscribe(self, topics, on_assign, on_revoke, on_lost))

    def unsubscribe(self) -> None:
        """Leave the group; `on_revoke` is called in here."""
        carried_out(self._core.unsubscribe())

    # Assignments

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, from their offsets; in `on_assign`, begin there.

        Without an offset: where the group has committed, or as `auto.offset.reset` says.
        """
        carried_out(self._core.assign(partitions))

    def unassign(self) -> None:
        """Read nothing any more; in a rebalance callback it says nothing new."""
        carried_out(self._core.unassign())

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too; in `on_assign`, begin there."""
        carried_out(self._core.incremental_assign(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more; in `on_revoke` it says nothing new."""
        carried_out(self._core.incremental_unassign(partitions))

    def assignment(self) -> list[TopicPartition]:
        """What is assigned."""
        return self._core.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading a partition at its offset. Raises `_UNKNOWN_PARTITION` if it isn't
        assigned.
        """
        carried_out(self._core.seek(partition))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Behind the last message that was handed out; `OFFSET_INVALID` before the first one."""
        return self._core.position(partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these until `resume()`."""
        self._core.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out messages of these again."""
        self._core.resume(partitions)

    # Commits

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit what is behind a message, these offsets, or what is stored.

        Gives None at once, and `on_commit` hears of the outcome; with `asynchronous=False` it waits
        and gives the partitions. Raises `KafkaException`: `_NO_OFFSET` where nothing is new.
        """
        return carried_out(self._core.commit(message, offsets, asynchronous))

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Say what is worked on, with `enable.auto.offset.store=false`: later commits are of that.

        Raises `KafkaException`: `_INVALID_ARG` where each message is stored as it is handed out,
        `_UNKNOWN_PARTITION` for what isn't assigned.
        """
        self._core.store_offsets(message, offsets)

    # Offsets

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """What the group has committed; `OFFSET_INVALID` where it has nothing."""
        return carried_out(self._core.committed(partitions, timeout))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The first offset that is there, and the one that the next message gets.

        `cached`: as far as it is known, without a question; `OFFSET_INVALID` where it isn't.
        """
        return carried_out(self._core.get_watermark_offsets(partition, timeout, cached))

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """For each partition, whose `offset` is a time in ms, the first message at or after it.

        `OFFSET_END` where there is none.
        """
        return carried_out(self._core.offsets_for_times(partitions, timeout))

    # Group and cluster

    def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Who this consumer is in its group, for `send_offsets_to_transaction()`."""
        return self._core.consumer_group_metadata()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's brokers and topics, or one topic; it makes no topic."""
        return carried_out(self._core.list_topics(topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        return carried_out(self._core.cluster_id(timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        self._core.set_sasl_credentials(username, password)
