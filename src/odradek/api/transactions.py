"""The transactional half of the producer, as users see it (KIP-98, KIP-447, KIP-890).

In: calls in the order that Java's have. Out: nothing, or an error that says what to do next.
Must not: decide anything; `clients/producer/transaction_manager` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.api.base import Client
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.options.habits import with_keywords
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.api.consumer_state import Offsets
    from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata


class Transactional(Client[ProducerEngine]):
    """Methods of a `Producer` with a `transactional.id`.

    Errors say what comes next, each as a class and as a property (KIP-1050):

    - `AbortableTransactionError` (`requires_abort`): call `abort_transaction()` and begin again;
    - `FatalTransactionError` (`fatal`): close this producer and create another one;
    - `KafkaTimeoutError` (`retriable`): make the same call again, which continues;
    - `IllegalStateError`: the call came at the wrong time and did nothing.

    The first two are instances of what happened, too: `except odradek.ProducerFencedError` works.
    """

    _calls: ProducerCalls

    def init_transactions(self, timeout: float | None = None) -> None:
        """Once, before all others: get the producer's id, and end what was left open under it.

        An open transaction of an earlier producer with this `transactional.id` is aborted, one
        whose commit had begun is committed; that producer can't write any more
        (`ProducerFencedError`). `timeout` in seconds, default `max.block.ms`; after
        `KafkaTimeoutError` call it again.

        Raises `TransactionalIdAuthorizationError` (it may be called again once that is
        mended), `FatalTransactionError`.
        """
        self._run(self._calls.init_transactions(timeout))

    def begin_transaction(self) -> None:
        """Begin: all records sent from here on belong to the transaction, in any thread or task.

        It costs no request. Raises `IllegalStateError` when one is open, or what ended the last.
        """
        self._run(self._calls.begin_transaction())

    @with_keywords
    def send_offsets_to_transaction(
        self, offsets: Offsets, group: ConsumerGroupMetadata | str, timeout: float | None = None
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
        `UnknownMemberIdError`: another member has these partitions now; and
        `TransactionAbortableError`: earlier offsets for a partition had no answer, and if they
        arrived late they would replace these ones. The same offsets may be sent again.
        """
        self._run(self._calls.send_offsets(offsets, group, timeout))

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets of all partitions; empty without any.

        It waits for open transactions that have sent offsets to the group (KIP-447). So who asks
        after `init_transactions()` learns how far the producer before it got, for certain.
        `timeout` in seconds, default `max.block.ms`. Raises `GroupAuthorizationError` (it needs
        DESCRIBE), `UnsupportedFeatureError` with brokers before Kafka 2.5.
        """
        return self._run(self._calls.committed_offsets(group, timeout))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Wait until all records of the transaction are written, then commit it.

        `timeout` in seconds, default `max.block.ms`. After `KafkaTimeoutError` the commit goes on:
        the same call again waits for its end, and no other is allowed before it. Raises
        `AbortableTransactionError` when a record couldn't be written: nothing is committed then.
        """
        self._run(self._calls.commit_transaction(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: consumers with isolation.level=read_committed never see its records.

        Records that weren't sent yet never are; their futures raise `TransactionAbortedError`.
        `timeout` in seconds, default `max.block.ms`; after `KafkaTimeoutError` the same call again
        waits for its end. Raises `FatalTransactionError`.
        """
        self._run(self._calls.abort_transaction(timeout))
