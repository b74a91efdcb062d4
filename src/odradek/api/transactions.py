"""The transactional half of the producer, as users see it (KIP-98, KIP-447, KIP-890).

In: calls in the order that Java's have. Out: nothing, or an error that says what to do next.
Must not: decide anything; `clients/producer/transaction_manager` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from odradek.api.base import Client
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.habits import with_keywords
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.caller import block

if TYPE_CHECKING:
    from odradek.api.group_consumer import Offsets
    from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata


class Transactional(Client[ProducerEngine]):
    """What `Producer` can do when `transactional.id` is given.

    Errors say what comes next, each as a class and as a property (KIP-1050):

    - `AbortableTransactionError` (`requires_abort`): call `abort_transaction()` and begin anew;
    - `FatalTransactionError` (`fatal`): close this producer; a new one may go on;
    - `KafkaTimeoutError` (`retriable`): make the same call again, it goes on where it was;
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
        """Begin: all records sent from here on belong to the transaction, on whatever thread.

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
        `UnknownMemberIdError`: another member has these partitions now.
        """
        self._run(self._calls.send_offsets(offsets, group, timeout))

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, of all partitions; empty where it has nothing.

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
        """Abort: nobody who reads with isolation.level=read_committed sees its records.

        Records that weren't sent yet never are; their futures raise `TransactionAbortedError`.
        `timeout` in seconds, default `max.block.ms`; after `KafkaTimeoutError` the same call again
        waits for its end. Raises `FatalTransactionError`.
        """
        self._run(self._calls.abort_transaction(timeout))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction; commit it at the end, or abort it when the body raises.

        What the body raised comes out again, with a note where the abort failed. A commit that
        fails for good (`AbortableTransactionError`) is followed by an abort, so that the next
        transaction can begin; one that takes too long (`KafkaTimeoutError`) goes on:
        `commit_transaction()` waits for it. A Ctrl-C anywhere in the block aborts as well; one that
        comes amid the commit, which can't be taken back, comes out when that has ended. Where the
        abort ran out of time (`max.block.ms`), the next block waits for its end before it begins.

        >>> with producer.transaction():
        ...     future = producer.send("flights", value=b"12")
        ...     producer.send_offsets_to_transaction(records, consumer.group_metadata())
        """
        yield from block(
            self,
            lambda: self._run(self._calls.before_block(self)),
            lambda error: self._run(self._calls.end_block(self, error)),
        )
