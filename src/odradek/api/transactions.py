"""Transaction methods of the producer (KIP-98, KIP-447, KIP-890).

In: calls in the order of Java's. Out: nothing, or an error that says what to do next. Must not:
decide anything; `clients/producer/transaction_manager` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.api.base import Client
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.options.migration_hints import with_keywords
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.api.consumer_state import Offsets
    from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata


class Transactional(Client[ProducerEngine]):
    """Base class of `Producer`: the methods for transactions; not instantiated directly.

    The class of an error, or its property, says what to do next (KIP-1050):

    - `AbortableTransactionError` (`requires_abort`): call `abort_transaction()` and begin again;
    - `FatalTransactionError` (`fatal`): close this producer and create another one;
    - `KafkaTimeoutError` (`retriable`): make the same call again, which continues;
    - `IllegalStateError`: the call wasn't allowed in this state and had no effect.

    Errors of the first two classes are also instances of their cause, so `except
    odradek.ProducerFencedError` works.
    """

    _calls: ProducerCalls

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get the producer id, and finish an open transaction of this `transactional.id`.

        Call it once, before all other methods for transactions. An open transaction of an earlier
        producer with this
        `transactional.id` is aborted, or committed if its commit had begun. The earlier producer is
        fenced (`ProducerFencedError`). `timeout` in seconds, default `max.block.ms`; after
        `KafkaTimeoutError` call it again.

        Raises `TransactionalIdAuthorizationError` (call it again once the ACL is fixed) and
        `FatalTransactionError`.
        """
        self._run(self._calls.init_transactions(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on, in any thread or task, belong to it.

        Sends no request. Raises `IllegalStateError` if a transaction is open, or the error that
        ended the last one.
        """
        self._run(self._calls.begin_transaction())

    @with_keywords
    def send_offsets_to_transaction(
        self, offsets: Offsets, group: ConsumerGroupMetadata | str, timeout: float | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction: both, or neither.

        `offsets`: a dict of the next offset to read by partition. Or the records that were
        processed, as for `consumer.commit()`: a record, a list of records, or Arrow data with the
        columns `topic`, `partition` and `offset`; then the offset after the last record of each
        partition is sent.
        `group`: the result of `consumer.group_metadata()`, with which brokers reject offsets of a
        member that has been replaced (KIP-447); or a group id, without this check.
        `timeout`: in seconds, default `max.block.ms`; after `KafkaTimeoutError` call it again, or
        abort.

        Raises `AbortableTransactionError` if the offsets can't be committed with this transaction.
        If another member has these partitions now, the error is also an `IllegalGenerationError` or
        `UnknownMemberIdError`. If an earlier call for the same partitions got no response, its
        offsets could still overwrite these, and the error is also a `TransactionAbortableError`.
        The same offsets may be sent again.
        """
        self._run(self._calls.send_offsets(offsets, group, timeout))

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets of all partitions; empty if there are none.

        Waits for open transactions that have sent offsets to the group (KIP-447), so after
        `init_transactions()` the result shows how far the previous producer got. `timeout` in
        seconds, default `max.block.ms`. Raises `GroupAuthorizationError` without the DESCRIBE ACL,
        and `UnsupportedFeatureError` with brokers before Kafka 2.5.
        """
        return self._run(self._calls.committed_offsets(group, timeout))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Wait until all records of the transaction are written, then commit it.

        `timeout` in seconds, default `max.block.ms`. After `KafkaTimeoutError` the commit
        continues: the same call again waits for it, and no other call is allowed before. Raises
        `AbortableTransactionError` if a record couldn't be written; nothing is committed then.
        """
        self._run(self._calls.commit_transaction(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: `read_committed` consumers never see its records.

        Records that weren't sent yet are dropped; their futures raise `TransactionAbortedError`.
        `timeout` in seconds, default `max.block.ms`; after `KafkaTimeoutError` the same call again
        waits for the abort. Raises `FatalTransactionError`.
        """
        self._run(self._calls.abort_transaction(timeout))
