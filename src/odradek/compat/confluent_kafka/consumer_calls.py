"""Calls of a consumer about subscriptions, assignments, commits, offsets and the cluster.

In: the arguments of confluent-kafka. Out: its partitions and metadata. Must not: decide anything;
`consumer_core` does.
"""

from __future__ import annotations

import odradek
from odradek.common.secret import private
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
        """Join the group and read these topics; a name that begins with ^ is a regular expression.

        Callbacks are called as `callback(consumer, partitions)` inside `poll()` and `consume()`. In
        `on_assign`, `assign()` with offsets sets where to start. Without `on_lost`, `on_revoke` is
        called for lost partitions.
        """
        carried_out(self._core.subscribe(self, topics, on_assign, on_revoke, on_lost))

    def unsubscribe(self) -> None:
        """Leave the group; calls `on_revoke`."""
        carried_out(self._core.unsubscribe())

    # Assignments

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions from their offsets; in `on_assign`, set the start offsets.

        A partition without an offset starts at the committed offset, or as `auto.offset.reset`
        says.
        """
        carried_out(self._core.assign(partitions))

    def unassign(self) -> None:
        """Drop all partitions; has no effect in a rebalance callback."""
        carried_out(self._core.unassign())

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too; in `on_assign`, set the start offsets."""
        carried_out(self._core.incremental_assign(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Drop these partitions; has no effect in `on_revoke`."""
        carried_out(self._core.incremental_unassign(partitions))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._core.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Set the position of a partition; raises `_UNKNOWN_PARTITION` if it isn't assigned."""
        carried_out(self._core.seek(partition))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last returned messages, or `OFFSET_INVALID`."""
        return self._core.position(partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop returning messages of these partitions until `resume()`."""
        self._core.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume fetching from these paused partitions."""
        self._core.resume(partitions)

    # Commits

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, these offsets, or the stored offsets.

        Returns None at once, and reports the result to `on_commit`; with `asynchronous=False` it
        waits and returns the partitions. Raises `KafkaException`: `_NO_OFFSET` if there is nothing
        to commit.
        """
        return carried_out(self._core.commit(message, offsets, asynchronous))

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets of processed messages, which later commits send.

        Needs `enable.auto.offset.store=false`. Raises `KafkaException`: `_INVALID_ARG` without that
        setting, `_UNKNOWN_PARTITION` for a partition that isn't assigned.
        """
        self._core.store_offsets(message, offsets)

    # Offsets

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; `OFFSET_INVALID` for a partition without one."""
        return carried_out(self._core.committed(partitions, timeout))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset, and the offset of the next message.

        With `cached` no request is sent, and unknown values are `OFFSET_INVALID`.
        """
        return carried_out(self._core.get_watermark_offsets(partition, timeout, cached))

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return each partition's first message at or after the time (ms) that is its `offset`.

        `OFFSET_END` for a partition without such a message.
        """
        return carried_out(self._core.offsets_for_times(partitions, timeout))

    # Group and cluster

    def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Return this consumer's membership, for `send_offsets_to_transaction()`."""
        return self._core.consumer_group_metadata()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics, or one topic; doesn't create topics."""
        return carried_out(self._core.list_topics(topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        return carried_out(self._core.cluster_id(timeout))

    @private
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next login on (PLAIN and SCRAM)."""
        self._core.set_sasl_credentials(username, password)
