"""Methods of consumers that never block, sync and asyncio: assignments, positions, pauses.

In: partitions, offsets. Out: partitions, lags, known metadata. Must not: decide anything; the
engine does.
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
    from odradek.clients.traces import Traces

    class ArrowRows(Protocol):
        """A pyarrow RecordBatch or Table; pyarrow has no types."""

        @property
        def schema(self) -> Any: ...
        @property
        def column(self) -> Any: ...

    OffsetsByPartition: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]
    Offsets: TypeAlias = (
        OffsetsByPartition
        | ConsumerRecord[Any, Any]
        | Iterable[ConsumerRecord[Any, Any]]
        | ArrowRows
    )

Offset = int | OffsetAndMetadata | OffsetAndTimestamp


class RebalanceListener(Protocol):
    """Listener for `subscribe(listener=…)`, as in kafka-python and aiokafka."""

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> object:
        """Handle newly assigned partitions; called like `on_assigned` of `subscribe`."""

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> object:
        """Handle revoked or lost partitions; called like `on_revoked` of `subscribe`."""


class ConsumerState(Facade[ConsumerEngine]):
    """Base class of all consumers: the methods that never block; not instantiated directly."""

    _calls: ConsumerCalls

    def _traced_by(self, make: Callable[[ClientCalls[Any]], Traces]) -> None:
        """Report reads and commits to the traces that `make` creates."""
        self._calls.traced_by(make)

    def assign(
        self,
        partitions: Collection[TopicPartition] | Mapping[TopicPartition, Offset],
        *,
        until: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Read exactly these partitions from now on; already assigned ones keep their positions.

        Here and in all other methods a (topic, partition) pair may replace a `TopicPartition`. A
        dict of offsets by partition sets the position of each, as `seek` does, and raises the same
        errors.

        `until`: an end offset for each partition. Only records before it are returned, and a
        partition is finished once `position()` is at or after it, even if compaction or
        transactions left a gap there. If the end has a leader epoch (`OffsetAndMetadata`), leaders
        of an older epoch aren't read. Newer leaders are first checked for lost records (KIP-320):
        with `auto.offset.reset=none`, `poll` raises `LogTruncationError` for them.

        A partition without a position starts at the group's committed offset, if there is a
        `group.id` and an offset, else where `auto.offset.reset` says. `by_duration:P7D` means the
        first record of the last seven days by this machine's clock, or the end if there is none
        (KIP-1106).
        """
        self._calls.assign(partitions, until)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, for each of which `seek` and `pause` may be called.

        A partition that was lost and assigned again is only contained once the application has been
        notified: by `on_assigned`, or else by the next poll.
        """
        return self._engine.subscription.known()

    def paused(self) -> list[TopicPartition]:
        """Return the assigned partitions that are paused."""
        states = list(self._engine.subscription.partitions.values())
        return [state.partition for state in states if state.paused]

    def seek(self, tp: TopicPartition, offset: Offset) -> None:
        """Set the position of a partition; `poll` raises an error if the offset isn't in the log.

        `offset` may be a result of `offsets_for_times` or `committed`; its leader epoch then lets
        brokers detect that the log was truncated (KIP-320).

        At the end of a log, brokers delay the response to a fetch for up to `fetch.max.wait.ms`. If
        such a fetch is in flight, the consumer doesn't wait for it: it fetches the new position on
        a second connection.

        Raises `IllegalStateError` if the partition isn't assigned, or was lost and assigned again
        and the application hasn't been notified yet. `pause` and `resume` raise it in the same
        cases. Raises `TopicRecreatedError` if the topic was deleted and created again since the
        last poll, and the application hasn't been notified and hasn't asked for offsets of the
        topic since (`end_offsets`): the offset is one of the deleted topic.
        """
        self._calls.seek(tp, offset)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Set positions to the first offset (None: all assigned); `poll` looks it up."""
        self._calls.reset(partitions, EARLIEST, "seek_to_beginning()")

    def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Set positions to the end of the log (None: all assigned); `poll` looks it up."""
        self._calls.reset(partitions, LATEST, "seek_to_end()")

    @overload
    def lag(self) -> dict[TopicPartition, int | None]: ...

    @overload
    def lag(self, tp: TopicPartition) -> int | None: ...

    def lag(
        self, tp: TopicPartition | None = None
    ) -> int | dict[TopicPartition, int | None] | None:
        """Return the number of offsets between the position and the end of the log.

        The result is one number for `tp`, or without an argument a dict by assigned partition. The
        end is that of the last fetch response: the high watermark, or with
        `isolation.level=read_committed` the last stable offset. Sends no request and never blocks;
        None if there is no position or no fetch response yet. Offsets of transaction markers and
        compacted records are counted. To request the current end from the brokers, use
        `end_offsets()` (KIP-695).
        """
        subscription = self._engine.subscription
        return subscription.lags() if tp is None else subscription.lag(one_partition(tp))

    def high_watermarks(self) -> dict[TopicPartition, int | None]:
        """Return the high watermark of each assigned partition: the end of what consumers may read.

        The value is that of the last fetch response, or None before the first; sends no request and
        never blocks. With `isolation.level=read_committed` reading may end earlier, at the last
        stable offset, which `lag()` uses.
        """
        return self._engine.subscription.high_watermarks()

    def pause(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Stop returning records of these partitions, or a list of them, until `resume`.

        May be called anywhere, by signal handlers and listeners, too. If it interrupts a `poll`,
        records that this `poll` is about to return are still returned.
        """
        self._calls.pause(these_partitions(partitions), paused=True)

    def resume(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Return records of these partitions again; may be called anywhere, as `pause`."""
        self._calls.pause(these_partitions(partitions), paused=False)

    # The group

    def subscription(self) -> set[str]:
        """Return the subscribed topics, with those that a pattern matches now (classic groups)."""
        group = self._engine.group
        return set() if group is None else set(group.topics())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership, for `send_offsets_to_transaction` (KIP-447).

        After the member has lost its partitions, the result is the old membership until new
        partitions are announced, even if it has rejoined. Brokers then reject its offsets, since
        other members read these partitions.
        """
        self._calls.check_open()
        return self._calls.group("group_metadata()").metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Request a rebalance of the group (KIP-568); returns at once."""
        self._calls.enforce_rebalance(reason)

    # The client

    def wakeup(self) -> None:
        """Raise `WakeupError` in the call that waits for records, or else in the next such call.

        Affects `poll`, `poll_arrow`, `records`, `batches` and loops over the consumer; a loop over
        records ends before its next record. No record is lost, and other calls such as `commit()`
        and `close()` aren't interrupted. May be called from any thread and from signal handlers;
        has no effect on a closed consumer.

        >>> before = signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        """
        self._calls.wakeup()

    def bootstrap_hint(self) -> dict[str, Any]:
        """Return the known cluster metadata as plain data, from which another process can start."""
        return self._engine.bootstrap_hint() or {}
