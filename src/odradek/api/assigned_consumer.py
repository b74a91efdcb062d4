"""The assigning half of the consumer as users see it: partitions, positions, pauses.

In: partitions, offsets. Out: positions, lags. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.api.group_consumer import GroupConsumer
from odradek.clients.consumer.partition_arguments import one_partition, these_partitions
from odradek.clients.consumer.records import OffsetAndMetadata, OffsetAndTimestamp
from odradek.clients.consumer.subscription_state import EARLIEST, LATEST
from odradek.common.types import TopicPartition

Offset = int | OffsetAndMetadata | OffsetAndTimestamp


class AssignedConsumer(GroupConsumer):
    """What `Consumer` can do with what is assigned to it; not made directly."""

    def assign(
        self,
        partitions: Collection[TopicPartition] | Mapping[TopicPartition, Offset],
        *,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read these partitions from now on, and no others; those that stay keep their positions.

        Here and everywhere a pair of topic and number does as well as a `TopicPartition`. With a
        dict of offsets by partition each of them is read from there, as after `seek`.

        `until` gives, per partition, the first offset that isn't wanted: records end exactly
        there, and `position()` is at or behind it then, also across gaps of compaction and
        transactions. A partition without a position starts where `auto.offset.reset` says;
        `by_duration:P7D` is the first record of the last seven days by this machine's clock, or
        the end where there is none (KIP-1106). With a `group.id` it starts at what the group has
        committed, where it has.
        """
        self._calls.assign(partitions, until)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned."""
        return list(self._engine.subscription.partitions)

    def paused(self) -> list[TopicPartition]:
        """Those of them that `pause` holds back."""
        states = list(self._engine.subscription.partitions.values())
        return [state.partition for state in states if state.paused]

    def seek(self, tp: TopicPartition, offset: Offset) -> None:
        """Go on reading a partition at an offset. Whether it is in the log shows at `poll`.

        What `offsets_for_times` and `committed` give does as well as a number; its leader epoch
        then tells whether the log still has what stood before (KIP-320).
        """
        self._calls.seek(tp, offset)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on at the first offset that is there (None: all assigned); looked up by `poll`."""
        self._calls.reset(partitions, EARLIEST, "seek_to_beginning()")

    def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on behind the last record (None: all assigned); looked up by `poll`."""
        self._calls.reset(partitions, LATEST, "seek_to_end()")

    def seek_to_committed(
        self, partitions: Collection[TopicPartition] | None = None, timeout: float | None = None
    ) -> None:
        """Go back to what the group has committed (None: all assigned), and wait until it is known.

        For what was read in vain: after an aborted transaction, or when work on records failed.
        Where nothing is committed `auto.offset.reset` says where to go on. A commit of this
        consumer's own that is under way counts once the group has it: wait for it first.

        Raises `KafkaTimeoutError` after `timeout` seconds (default `default.api.timeout.ms`): then
        `poll` goes on looking, and hands out nothing of these partitions before it knows. Raises
        what `committed` raises, and `IllegalStateError` without a `group.id`.

        >>> try:
        ...     with producer.transaction():
        ...         producer.send_offsets_to_transaction(records, consumer.group_metadata())
        ... except AbortableTransactionError:
        ...     consumer.seek_to_committed()
        """
        self._run(self._calls.seek_to_committed(partitions, timeout))

    def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` will hand out.

        It moves when records are handed out, and by nothing else. Waits for a lookup where there is
        no position yet, at most `timeout` seconds (default `default.api.timeout.ms`).
        """
        known = self._calls.engine.subscription.position(one_partition(tp))
        return self._run(self._calls.position(tp, timeout)) if known is None else known

    def lag(self, tp: TopicPartition) -> int | None:
        """How far the position is from the end of the log: offsets that are still to be read.

        The end is the one that the last answer to a fetch told: the high watermark, and with
        `isolation.level=read_committed` the last stable offset. Asks nobody and never waits; None
        where there is no position yet, or nothing was fetched. Offsets of markers and of compacted
        records count, too. `end_offsets()` asks the brokers (KIP-695).
        """
        return self._engine.subscription.lag(one_partition(tp))

    def pause(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; give them one by one, or a list.

        May be called at any place, by signal handlers and listeners too: what a `poll` is about to
        hand out that was interrupted by it is handed out still.
        """
        self._calls.pause(these_partitions(partitions), paused=True)

    def resume(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again; may be called at any place, as `pause`."""
        self._calls.pause(these_partitions(partitions), paused=False)
