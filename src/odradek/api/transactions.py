"""The transactional half of the producer, as users see it (KIP-98, KIP-447, KIP-890).

In: calls in the order that Java's have. Out: nothing, or an error that says what to do next.
Must not: decide anything; `clients/producer/transaction_manager` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from odradek.api.base import Client
from odradek.clients.consumer.group.commit_arguments import (
    group_id,
    group_to_send_to,
    offsets_to_commit,
)
from odradek.clients.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
)
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
)
from odradek.common.habits import with_keywords
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.clients.producer.transaction_manager import TransactionManager


class Transactional(Client[ProducerEngine]):
    """What `Producer` can do when `transactional.id` is given.

    Errors say what comes next, each as a class and as a property (KIP-1050):

    - `AbortableTransactionError` (`requires_abort`): call `abort_transaction()` and begin anew;
    - `FatalTransactionError` (`fatal`): close this producer; a new one may go on;
    - `KafkaTimeoutError` (`retriable`): make the same call again, it goes on where it was;
    - `IllegalStateError`: the call came at the wrong time and did nothing.

    The first two are instances of what happened, too: `except odradek.ProducerFencedError` works.
    """

    def init_transactions(self, timeout: float | None = None) -> None:
        """Once, before all others: get the producer's id, and end what was left open under it.

        An open transaction of an earlier producer with this `transactional.id` is aborted, one
        whose commit had begun is committed; that producer can't write any more
        (`ProducerFencedError`). `timeout` in seconds, default `max.block.ms`; after
        `KafkaTimeoutError` call it again.

        Raises `TransactionalIdAuthorizationError` (it may be called again once that is
        mended), `FatalTransactionError`.
        """
        self._finish("init_transactions", self._transactions.initialize, timeout)

    def begin_transaction(self) -> None:
        """Begin: all records sent from here on belong to the transaction, on whatever thread.

        It costs no request. Raises `IllegalStateError` when one is open, or what ended the last.
        """
        manager = self._transactions
        self._call(lambda _: manager.begin(), None, "begin_transaction()")

    @with_keywords
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
        | ConsumerRecord
        | Iterable[ConsumerRecord]
        | pa.RecordBatch
        | pa.Table,
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's offsets with the transaction: both, or neither.

        `offsets`: of each partition the next record to read, so the last one's offset and one. Or
        what was worked on, as `consumer.commit()` takes it: a record or records, or Arrow data with
        the columns `topic`, `partition` and `offset`; then what is behind the last of each
        partition.
        `group`: what `consumer.group_metadata()` says; with it the offsets of a member that was
        replaced are refused (KIP-447). A group's id alone makes no such check.
        `timeout` in seconds, default `max.block.ms`; after `KafkaTimeoutError` call it again, or
        abort. Raises `AbortableTransactionError`, among them `IllegalGenerationError` and
        `UnknownMemberIdError`: another member has these partitions now.
        """
        manager = self._transactions
        wanted = offsets_to_commit(offsets, "send_offsets_to_transaction()")
        member = group_to_send_to(group)
        self._call(
            lambda deadline: manager.send_offsets(wanted, member, deadline),
            timeout,
            "answer to send_offsets_to_transaction()",
            "max.block.ms",
        )

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, of all partitions; empty where it has nothing.

        It waits for open transactions that have sent offsets to the group (KIP-447). So who asks
        after `init_transactions()` learns how far the producer before it got, for certain.
        `timeout` in seconds, default `max.block.ms`. Raises `GroupAuthorizationError` (it needs
        DESCRIBE), `UnsupportedFeatureError` with brokers before Kafka 2.5.
        """
        from odradek.clients.producer.group_offsets import group_offsets

        name = group_id(group)
        return self._call(
            lambda deadline: group_offsets(self._engine, name, deadline),
            timeout,
            f"committed offsets of group {name!r}",
            "max.block.ms",
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Wait until all records of the transaction are written, then commit it.

        `timeout` in seconds, default `max.block.ms`. After `KafkaTimeoutError` the commit goes on:
        the same call again waits for its end, and no other is allowed before it. Raises
        `AbortableTransactionError` when a record couldn't be written: nothing is committed then.
        """
        self._finish("commit_transaction", self._transactions.commit, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: nobody who reads with isolation.level=read_committed sees its records.

        Records that weren't sent yet never are; their futures raise `TransactionAbortedError`.
        `timeout` in seconds, default `max.block.ms`; after `KafkaTimeoutError` the same call again
        waits for its end. Raises `FatalTransactionError`.
        """
        self._finish("abort_transaction", self._transactions.abort, timeout)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction; commit it at the end, or abort it when the body raises.

        What the body raised comes out again, with a note where the abort failed. A commit that
        fails for good (`AbortableTransactionError`) is followed by an abort, so that the next
        transaction can begin; one that takes too long (`KafkaTimeoutError`) goes on:
        `commit_transaction()` waits for it.

        >>> with producer.transaction():  # doctest: +SKIP
        ...     producer.send("totals", value=b"12")
        ...     producer.send_offsets_to_transaction(records, consumer.group_metadata())
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._give_up(error)
            raise
        try:
            self.commit_transaction()
        except AbortableTransactionError as error:
            worse = self._give_up(error)
            if isinstance(worse, FatalTransactionError):  # fenced, as the coordinator says at last
                raise worse from error
            raise

    # Inside

    @property
    def _transactions(self) -> TransactionManager:
        self._calls.check_open()
        if self._engine.transactions is None:
            raise IllegalStateError("this producer has no transactions: transactional.id isn't set")
        return self._engine.transactions

    def _finish(
        self, name: str, call: Callable[[float], Flow[None]], timeout: float | None
    ) -> None:
        self._call(call, timeout, f"end of {name}()", "max.block.ms")

    def _end_transaction(self, timeout: float) -> None:
        """At close: wait for a commit that goes on; abort what is open otherwise.

        Where that fails the coordinator aborts it, after transaction.timeout.ms.
        """
        manager = self._transactions
        deadline = self._host.now() + timeout
        with suppress(KafkaError):
            if manager.pending is not None and manager.pending.name == "commit_transaction":
                self.commit_transaction(timeout)
        with suppress(KafkaError):
            if manager.open:
                self.abort_transaction(max(0.0, deadline - self._host.now()))

    def _give_up(self, error: BaseException) -> KafkaError | None:
        """Abort because of an error, unless there is nothing left to abort; say what failed."""
        if not self._closed and self._transactions.open:
            try:
                self.abort_transaction()
            except KafkaError as another:
                error.add_note(f"abort_transaction() failed: {type(another).__name__}: {another}")
                return another
        return None
