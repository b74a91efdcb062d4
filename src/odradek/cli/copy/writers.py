"""The writing half of a copy: records, and with them how far the source is copied.

In: Arrow batches, positions of the source. Out: records and offsets of a group at the destination.
Transactional, both are there or neither; else records first, and after a kill those of the last
step come twice. Must not: read the source.
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
"""By partition the next offset of the source to copy."""
FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""What a coordinator says to one whose transactional.id another producer has taken, new or old."""


class CopyWriter(Protocol):
    """What writes, step by step."""

    def alone(self) -> AbstractContextManager[None]:
        """While it is entered this copy writes. Raises `ProducerFencedError` where another one with
        the same name has begun to.
        """

    def progress(self, *, restart: bool) -> dict[int, int]:
        """What earlier runs have copied (of no interest after a restart); ends what one of them
        left open.
        """

    def write(self, batch: pa.RecordBatch) -> None:
        """Send records; begins a step where none is open."""

    def commit(self, positions: Positions) -> None:
        """End the step: all of it is there, and how far it goes is known."""

    def abort(self) -> None:
        """Give the step up."""


def kept(plan: CopyPlan, positions: Positions) -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions as the group has them."""
    return {
        plan.kept_at(partition): OffsetAndMetadata(offset, plan.mark)
        for partition, offset in positions.items()
    }


def known(plan: CopyPlan, found: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[int, int]:
    """The positions that a group has. Raises `ConfigurationError` where they are other topics'."""
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
    """Exactly once: a step is a transaction that has the offsets, too."""

    def __init__(self, producer: Producer, plan: CopyPlan) -> None:
        self._producer, self._plan = producer, plan
        self._sent: list[ArrowFuture] | None = None
        """Of the open transaction; None while there is none."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        try:
            yield
        except FatalTransactionError as error:
            if not isinstance(error, FENCED):
                raise
            raise ProducerFencedError(
                f"another copy with the same name ({self._plan.name}) is running, so this one "
                "can't write any more; if there is none, a step took longer than "
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
        """Begin a transaction unless one is open; `abort` ends one without records as well."""
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
    """At least once: the offsets follow when the records are there."""

    def __init__(self, producer: Producer, admin: Admin, plan: CopyPlan) -> None:
        self._producer, self._admin, self._plan = producer, admin, plan
        self._sent: list[ArrowFuture] = []

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()  # two of them double records, and nobody notices

    def progress(self, *, restart: bool) -> dict[int, int]:
        found = self._admin.list_group_offsets(self._plan.name)
        return {} if restart else known(self._plan, found.get(self._plan.name, {}))

    def write(self, batch: pa.RecordBatch) -> None:
        self._sent.append(self._producer.send_arrow(self._plan.destination, batch))

    def commit(self, positions: Positions) -> None:
        self._producer.flush()
        for future in self._sent:
            future.result(0)  # raises what one of its records has
        self._sent = []
        self._admin.alter_group_offsets(self._plan.name, kept(self._plan, positions))

    def abort(self) -> None:
        """What is on its way may still be written; it isn't counted."""
        self._sent = []
