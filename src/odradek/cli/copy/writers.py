"""Write records of a copy, together with its progress in the source.

In: Arrow batches, positions in the source. Out: records, and offsets of a group at the destination.
With transactions both are written or neither; without, records are written first, so a killed copy
duplicates the records of its last step. Must not: read the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.cli.copy.planning import CopyPlan, made_again
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import ConfigurationError, FatalTransactionError
from odradek.common.errors.kafka import InvalidProducerEpochError, ProducerFencedError
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.record_future import ArrowFuture

if TYPE_CHECKING:
    import pyarrow as pa

Positions = Mapping[int, int]
"""Next source offset to copy, by partition."""
FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""Errors of a producer whose transactional.id another producer has taken over."""


class CopyWriter(Protocol):
    """Writer of a copy, step by step."""

    def alone(self) -> AbstractContextManager[None]:
        """Return a context in which only this copy writes.

        It raises `ProducerFencedError` if another copy with the same name has started.
        """

    def progress(self, *, restart: bool) -> dict[int, int]:
        """Return the progress of earlier runs, or none if `restart` is set.

        With transactions, this aborts open transactions of earlier runs.
        """

    def write(self, batch: pa.RecordBatch) -> None:
        """Send records; begin a step if none is open."""

    def commit(self, positions: Positions) -> None:
        """End the step: commit its records and its progress."""

    def abort(self) -> None:
        """Abort the step."""


def kept(plan: CopyPlan, positions: Positions) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert positions in the source to the offsets that the copy's group commits."""
    return {
        plan.kept_at(partition): OffsetAndMetadata(offset, plan.mark)
        for partition, offset in positions.items()
    }


def known(plan: CopyPlan, found: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[int, int]:
    """Return a group's positions. Raises `ConfigurationError` if they belong to other topics."""
    positions = {}
    for partition in range(plan.partitions):
        one = found.get(plan.kept_at(partition))
        if one is None:
            continue
        if one.metadata != plan.mark:
            raise ConfigurationError(made_again(plan))
        positions[partition] = one.offset
    return positions


class TransactionalWriter:
    """Writer that copies exactly once: a step is a transaction of records and offsets."""

    def __init__(self, producer: Producer, plan: CopyPlan) -> None:
        self._producer, self._plan = producer, plan
        self._sent: list[ArrowFuture] | None = None
        """Futures of the open transaction; None without a transaction."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        try:
            yield
        except FatalTransactionError as error:
            if not isinstance(error, FENCED):
                raise
            raise ProducerFencedError(
                f"another copy with the same name ({self._plan.name}) is running, so this one "
                "can't write any more. If no other copy is running, a step took longer than "
                f"transaction.timeout.ms, and the coordinator has aborted it: {error}"
            ) from error

    def progress(self, *, restart: bool) -> dict[int, int]:
        self._producer.init_transactions()
        return (
            {} if restart else known(self._plan, self._producer.committed_offsets(self._plan.name))
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._begin().append(self._producer.send_arrow(self._plan.destination, batch))

    def _begin(self) -> list[ArrowFuture]:
        """Begin a transaction unless one is open."""
        if self._sent is None:
            self._producer.begin_transaction()
            self._sent = []
        return self._sent

    def commit(self, positions: Positions) -> None:
        self._begin()
        offsets = kept(self._plan, positions)
        self._producer.send_offsets_to_transaction(offsets, self._plan.name)
        self._producer.commit_transaction()
        self._sent = None

    def abort(self) -> None:
        if self._sent is not None:
            self._producer.abort_transaction()
            self._sent = None


class AtLeastOnceWriter:
    """Writer that copies at least once: offsets are committed after the records."""

    def __init__(self, producer: Producer, admin: Admin, plan: CopyPlan) -> None:
        self._producer, self._admin, self._plan = producer, admin, plan
        self._sent: list[ArrowFuture] = []

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing detects other copies, which duplicate records

    def progress(self, *, restart: bool) -> dict[int, int]:
        found = self._admin.list_group_offsets(self._plan.name)
        return {} if restart else known(self._plan, found.get(self._plan.name, {}))

    def write(self, batch: pa.RecordBatch) -> None:
        self._sent.append(self._producer.send_arrow(self._plan.destination, batch))

    def commit(self, positions: Positions) -> None:
        self._producer.flush()
        for future in self._sent:
            future.result(0)  # raises the error of a failed record
        self._sent = []
        self._admin.alter_group_offsets(self._plan.name, kept(self._plan, positions))

    def abort(self) -> None:
        """Forget records in flight, which may still be written but aren't counted."""
        self._sent = []
