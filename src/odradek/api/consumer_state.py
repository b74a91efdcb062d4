"""What consumers do without waiting, sync and asyncio: assignments, positions, pauses.

In: partitions, offsets. Out: partitions, lags, what is known. Must not: decide anything; the engine
does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from odradek.api.base import Facade
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.partition_arguments import one_partition, these_partitions
from odradek.clients.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from odradek.clients.consumer.subscription_state import EARLIEST, LATEST
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.clients.traces import Traces

    OffsetsByPartition: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]
    Offsets: TypeAlias = (
        OffsetsByPartition | ConsumerRecord | Iterable[ConsumerRecord] | pa.RecordBatch | pa.Table
    )

Offset = int | OffsetAndMetadata | OffsetAndTimestamp


class RebalanceListener(Protocol):
    """An object for `subscribe(listener=…)`, as in kafka-python and aiokafka."""

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> object:
        """These were assigned in addition; called as `on_assigned` of `subscribe` is."""

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> object:
        """These are given back, or are lost; called as `on_revoked` of `subscribe` is."""


class ConsumerState(Facade[ConsumerEngine]):
    """What all consumers can do without waiting; not made directly."""

    _calls: ConsumerCalls

    def _traced_by(self, make: Callable[[ClientCalls[Any]], Traces]) -> None:
        """Have reads and commits told to what `make` makes, as `OpenTelemetryTraces` has it."""
        self._calls.traced_by(make)

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

        A fetch that is under way is of no use then, and at the end of a log brokers hold it for up
        to `fetch.max.wait.ms`. What is there is asked for beside it, on a second connection.

        Raises `IllegalStateError` if the partition isn't assigned, or was lost and assigned again
        and the application wasn't told yet (as `pause` and `resume` do).
        """
        self._calls.seek(tp, offset)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on at the first offset that is there (None: all assigned); looked up by `poll`."""
        self._calls.reset(partitions, EARLIEST, "seek_to_beginning()")

    def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on behind the last record (None: all assigned); looked up by `poll`."""
        self._calls.reset(partitions, LATEST, "seek_to_end()")

    @overload
    def lag(self) -> dict[TopicPartition, int | None]: ...

    @overload
    def lag(self, tp: TopicPartition) -> int | None: ...

    def lag(
        self, tp: TopicPartition | None = None
    ) -> int | dict[TopicPartition, int | None] | None:
        """How far the position is from the end of the log: offsets that are still to be read.

        Of one partition, or by partition of all that are assigned. The end is the one that the last
        answer to a fetch told: the high watermark, and with `isolation.level=read_committed` the
        last stable offset. Asks nobody and never waits; None where there is no position yet, or
        nothing was fetched. Offsets of markers and of compacted records count, too.
        `end_offsets()` asks the brokers (KIP-695).
        """
        subscription = self._engine.subscription
        return subscription.lags() if tp is None else subscription.lag(one_partition(tp))

    def high_watermarks(self) -> dict[TopicPartition, int | None]:
        """By assigned partition the end of what all its replicas have: nobody reads further.

        As the last answer to a fetch told it; asks nobody and never waits. None where nothing was
        fetched. With `isolation.level=read_committed` reading may end before it, at the last
        stable offset, and `lag()` counts up to there.
        """
        return self._engine.subscription.high_watermarks()

    def pause(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; give them one by one, or a list.

        May be called at any place, by signal handlers and listeners too: what a `poll` is about to
        hand out that was interrupted by it is handed out still.
        """
        self._calls.pause(these_partitions(partitions), paused=True)

    def resume(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again; may be called at any place, as `pause`."""
        self._calls.pause(these_partitions(partitions), paused=False)

    # The group

    def subscription(self) -> set[str]:
        """The subscribed topics; with a pattern of a classic group those that match now."""
        group = self._engine.group
        return set() if group is None else set(group.topics())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom it was handed what it has, for `send_offsets_to_transaction` (KIP-447).

        If the member has lost its partitions, this returns who it was before until new ones are
        announced, even if it has joined again: brokers refuse its offsets, as others read them.
        """
        self._calls.check_open()
        return self._calls.group("group_metadata()").metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group divide its partitions anew, soon (KIP-568); returns at once."""
        self._calls.enforce_rebalance(reason)

    # The client

    def wakeup(self) -> None:
        """End a call that waits for records: it raises `WakeupError`; if none does, the next one.

        For `poll`, `poll_arrow`, `records`, `batches` and loops over the consumer; a loop over
        records ends before its next one. Nothing is lost by it, and no other call is touched:
        `commit()` and `close()` do their work. Any thread may call it, a signal handler too; on a
        closed consumer it does nothing.

        >>> before = signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        """
        self._calls.wakeup()

    def bootstrap_hint(self) -> dict[str, Any]:
        """What is known of the cluster, as plain data: another process can start from it."""
        return self._engine.bootstrap_hint() or {}
