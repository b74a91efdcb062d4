"""Transactions that one process prepares and another one ends, for Spark's sink.

In: a producer, whose connections are used, and transactions of other producers. Out: how each of
them ended. Must not: decide how a transaction ends, or be exported: brokers abort a prepared
transaction after its timeout, which the caller has to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from odradek.clients.admin.coordinators import KnownCoordinators
from odradek.clients.admin.lazy_imports import group_offsets, transactions
from odradek.clients.producer.group_offsets import group_offsets as offsets_of
from odradek.clients.producer.transaction_state import ONGOING, PreparedTransaction

if TYPE_CHECKING:
    from odradek.api.producer import Producer
    from odradek.clients.admin.admin_call import AdminCall
    from odradek.clients.admin.admin_engine import AdminEngine
    from odradek.clients.admin.transactions import ProducerIdAndEpoch, TransactionDescription
    from odradek.clients.consumer.records import OffsetAndMetadata
    from odradek.clients.producer.transaction_manager import TransactionManager
    from odradek.common.errors import KafkaError
    from odradek.common.types import TopicPartition

T = TypeVar("T")


class PreparedTransactions:
    """Calls to coordinators of transactions and groups, through the connections of a producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.brokers = producer._engine.brokers  # noqa: SLF001 - both are of this package
        self.coordinators = KnownCoordinators(self.brokers)

    @property
    def _manager(self) -> TransactionManager:
        return self._producer._calls.transactions  # noqa: SLF001

    def prepare(self, timeout: float) -> PreparedTransaction:
        """Wait for the records of the producer's transaction; return how others can end it.

        Afterwards leave the transaction open: call `use`, or close the producer with `close(0)`.
        """
        calls = self._producer._calls  # noqa: SLF001
        return self._producer._run(calls.prepare_transaction(timeout))  # noqa: SLF001

    def use(self, transactional_id: str) -> None:
        """Change the transactional id of the producer, which keeps its connections.

        Call `init_transactions` next. An open transaction must be prepared, and stays open.
        """
        calls = self._producer._calls  # noqa: SLF001
        self._producer._run(calls.use_transactional_id(transactional_id))  # noqa: SLF001

    @property
    def identity(self) -> PreparedTransaction:
        """The producer's own id and epoch."""
        manager = self._manager
        return PreparedTransaction(manager.transactional_id, *manager.current, manager.version_2)

    def coordinator_of(self, group: str) -> int | None:
        """Return the broker that has accepted the producer's offsets for a group.

        Returns None if the coordinator isn't known any more.
        """
        return self._manager.requests.group(group).broker

    def offsets_there(
        self, group: str, timeout: float, *, stable: bool
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group from the broker of `coordinator_of`.

        That broker is looked for again if it can't answer. `stable`: wait for open transactions.
        """
        at = self._manager.requests.group(group)
        ask = partial(offsets_of, self.brokers, group, at=at, stable=stable)
        return self._producer._call(ask, timeout, f"the offsets of group {group!r}")  # noqa: SLF001

    def end(
        self, those: Sequence[PreparedTransaction], timeout: float, *, committed: bool
    ) -> dict[str, KafkaError | None]:
        """Commit or abort transactions; return by id None, or why it wasn't open any more."""
        return self._ask(transactions.end(those, committed=committed), timeout)

    def describe(self, ids: Sequence[str], timeout: float) -> dict[str, TransactionDescription]:
        """Describe transactional ids; raises `UnsupportedVersionError` before Kafka 3.0."""
        return self._ask(transactions.describe(ids), timeout)

    def ongoing(self, prefix: str, timeout: float) -> list[str]:
        """Return the transactional ids with this prefix whose transactions are open.

        Raises `UnsupportedVersionError` before Kafka 3.0.
        """
        found = self._ask(transactions.listing([ONGOING], [], None, None), timeout)
        ids = [one.transactional_id for one in found]
        return [name for name in ids if name.startswith(prefix)]

    def fence(self, ids: Sequence[str], timeout: float) -> dict[str, ProducerIdAndEpoch]:
        """Abort the open transactions of these transactional ids, and fence their producers."""
        return self._ask(transactions.fence(ids), timeout)

    def offsets(
        self, groups: Sequence[str], timeout: float
    ) -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of groups, without waiting for open transactions."""
        return self._ask(group_offsets.listing(groups, False), timeout)

    def _ask(self, call: AdminCall[T], timeout: float) -> T:
        engine = cast("AdminEngine", self)  # the calls need only brokers and coordinators
        return self._producer._call(lambda d: call.flow(engine, d), timeout, call.what)  # noqa: SLF001
