"""Run a producer's transaction calls in its caller (KIP-98, KIP-447, KIP-890).

In: calls in the order of Java's client. Out: generators that run in the caller. Must not: know
the rules of transactions; `clients/producer/transaction_manager` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.clients.bootstrap_timeout import BLOCK_TIMEOUT
from odradek.clients.caller_flow import CallerFlow, Do
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.producer.producer_engine import TRANSACTION_END, ProducerEngine
from odradek.common.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    first_use,
)
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow

if TYPE_CHECKING:
    from odradek.clients.consumer.records import OffsetAndMetadata
    from odradek.clients.producer.transaction_manager import TransactionManager
    from odradek.clients.producer.transaction_state import PreparedTransaction


class TransactionClient(Protocol):
    """The producer object of the user, whose methods subclasses and mocks may replace."""

    def begin_transaction(self) -> object:
        """Carry out `TransactionCalls.begin_transaction`."""

    def commit_transaction(self, timeout: float | None = None) -> object:
        """Carry out `TransactionCalls.commit_transaction`."""

    def abort_transaction(self, timeout: float | None = None) -> object:
        """Carry out `TransactionCalls.abort_transaction`."""


class TransactionCalls(ClientCalls[ProducerEngine]):
    """Calls of a producer for its transactions."""

    _owes_end = False
    """Whether the next `with` block has to end the transaction of an earlier, interrupted one.

    It is set before a block begins its transaction, and cleared after the commit or abort, so that
    an interruption anywhere in between leaves it set.
    """
    _by_block = False
    """Whether a `with` block begins the next transaction."""

    @property
    def transactions(self) -> TransactionManager:
        """The transaction manager; raises an error without a transactional.id."""
        self.check_open()
        if self.engine.transactions is None:
            raise IllegalStateError("this producer has no transactions: set transactional.id")
        return self.engine.transactions

    def init_transactions(self, timeout: float | None) -> CallerFlow[None]:
        """Get the producer id, and end a transaction that an earlier producer left open."""
        return self._finish("init_transactions", self.transactions.initialize, timeout)

    def begin_transaction(self) -> CallerFlow[None]:
        """Begin a transaction, which contains all records sent from now on."""
        manager = self.transactions
        self._owes_end, self._by_block = self._by_block, False
        try:
            yield from self.call(lambda _: manager.begin(), None, "begin_transaction()")
        except KafkaError:
            self._owes_end = False  # no transaction was begun by this block
            raise

    def send_offsets(self, offsets: Any, group: Any, timeout: float | None) -> CallerFlow[None]:
        """Commit a consumer's offsets with the transaction."""
        manager = self.transactions
        with first_use():
            from odradek.clients.consumer.group.commit_arguments import (
                group_to_send_to,
                offsets_to_commit,
            )
            from odradek.clients.producer.offset_topics import OffsetTopics

        wanted = offsets_to_commit(offsets, "send_offsets_to_transaction()")
        member = group_to_send_to(group)
        topics = OffsetTopics.of(
            self.engine.metadata, wanted, group, read=not isinstance(offsets, Mapping)
        )
        send = partial(manager.send_offsets, wanted, member, topics=topics)
        what = "the response to send_offsets_to_transaction()"
        call, traces = self.call(send, timeout, what, BLOCK_TIMEOUT), self.engine.traces
        if traces is None:
            return call
        return traces.settled(call, wanted, member.group_id, operation="send_offsets")

    def committed_offsets(
        self, group: str, timeout: float | None
    ) -> CallerFlow[dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of a group, for all partitions."""
        with first_use():
            from odradek.clients.consumer.group.commit_arguments import group_id
            from odradek.clients.producer.group_offsets import group_offsets

        name = group_id(group)
        ask, what = (
            partial(group_offsets, self.engine.brokers, name),
            f"committed offsets of group {name!r}",
        )
        return self.call(ask, timeout, what, BLOCK_TIMEOUT)

    def commit_transaction(self, timeout: float | None) -> CallerFlow[None]:
        """Wait until all records of the transaction are written, then commit it."""
        return self._finish("commit_transaction", self.transactions.commit, timeout)

    def abort_transaction(self, timeout: float | None) -> CallerFlow[None]:
        """Abort the transaction: consumers of committed records never see its records."""
        return self._finish("abort_transaction", self.transactions.abort, timeout)

    def prepare_transaction(self, timeout: float | None) -> CallerFlow[PreparedTransaction]:
        """Wait for all records of the transaction, which another process will end."""
        manager = self.transactions
        return self.call(
            lambda _: manager.prepare(), timeout, "the records of the transaction", BLOCK_TIMEOUT
        )

    def use_transactional_id(self, transactional_id: str) -> CallerFlow[None]:
        """Use another transactional id from now on, and leave a prepared transaction open."""
        manager = self.transactions
        return self.call(lambda _: manager.use(transactional_id), None, "the transactional id")

    def _finish(
        self, name: str, call: Callable[[float], Flow[None]], timeout: float | None
    ) -> CallerFlow[None]:
        return self.call(call, timeout, f"{TRANSACTION_END} {name}()", BLOCK_TIMEOUT)

    # Blocks

    def before_block(self, client: TransactionClient) -> CallerFlow[None]:
        """End the transaction of an earlier block whose own end timed out or was interrupted.

        A program that only uses blocks can't end that transaction itself, and each later block
        would be refused. If the earlier commit has failed, its error is raised here.
        """
        if self._owes_end and not self.closed and not self.host.cut_off:
            yield from self._end_earlier(client)
        self._by_block = True

    def _end_earlier(self, client: TransactionClient) -> CallerFlow[None]:
        name = yield from self._what_is_left(None)
        if name:
            try:
                yield Do(getattr(client, name))
            except IllegalStateError:
                # Ignored if the interrupted call has ended the transaction in the meantime.
                if (yield from self._what_is_left(None)):
                    raise
        self._owes_end = False

    def end_block(self, client: TransactionClient, error: BaseException | None) -> CallerFlow[None]:
        """End a `with` block: commit, or abort if its body or the commit has raised `error`."""
        if error is None:
            try:
                yield Do(client.commit_transaction)
            except KafkaTimeoutError:
                self._owes_end = False  # the error tells users to call commit_transaction() again
                raise
            self._owes_end = False
            return
        worse = yield from self._give_up(client, error)
        if isinstance(error, AbortableTransactionError) and isinstance(
            worse, FatalTransactionError
        ):  # the abort shows that the producer is fenced
            try:
                raise worse from error
            finally:
                # avoid a reference cycle between the errors and this frame
                del worse, error

    def end_transaction(
        self, timeout: float, deadline: float, client: TransactionClient
    ) -> CallerFlow[None]:
        """Wait at close for a running commit; otherwise abort an open transaction.

        If that fails, the coordinator aborts it after transaction.timeout.ms.
        """
        manager = self.transactions
        with suppress(KafkaError):
            if self._committing:
                yield Do(partial(client.commit_transaction, timeout))
        with suppress(KafkaError):
            if manager.open:
                left = max(0.0, deadline - (yield START))
                yield Do(partial(client.abort_transaction, left))

    def _give_up(
        self, client: TransactionClient, error: BaseException
    ) -> CallerFlow[KafkaError | None]:
        """Abort because of an error, unless no transaction is open; return the error of the abort.

        A commit that was started can't be revoked. If a Ctrl-C or a cancellation interrupted the
        commit, this method waits for its end, because the next transaction would be refused until
        then; a second interruption ends the wait.
        """
        if self.closed or self.host.cut_off:
            return None
        self._owes_end = True
        name, worse = yield from self._ended(client, error)
        if name == "commit_transaction":
            if worse is None:
                error.add_note("Its commit had begun, so the transaction is committed.")
            elif isinstance(worse, AbortableTransactionError):
                _, worse = yield from self._ended(client, error)
        if worse is None:
            self._owes_end = False
        return worse

    def _ended(
        self, client: TransactionClient, error: BaseException
    ) -> CallerFlow[tuple[str, KafkaError | None]]:
        """Call the method that ends the open transaction; return its name and its error."""
        name = ""
        try:
            # Runs in the engine's step, after the effects of an interrupted call.
            name = yield from self._what_is_left(error)
            if name:
                yield Do(getattr(client, name))
        except KafkaError as another:
            error.add_note(
                f"{name or 'abort_transaction'}() failed: {type(another).__name__}: {another}"
            )
            return name, another
        return name, None

    def _what_is_left(self, error: BaseException | None) -> CallerFlow[str]:
        return self.call(lambda _: self._unended(error), None, "transaction's state")

    def _unended(self, error: BaseException | None) -> Flow[str]:
        """Return the name of the call that ends the open transaction; empty without one."""
        yield START
        manager = self.engine.transactions
        if manager is None or not (manager.open or manager.pending is not None):
            return ""
        if not self._committing:
            return "abort_transaction"
        # A commit that timed out continues, and its error says so.
        return "" if isinstance(error, KafkaError) else "commit_transaction"

    @property
    def _committing(self) -> bool:
        manager = self.engine.transactions
        pending = None if manager is None else manager.pending
        return pending is not None and pending.name == "commit_transaction"
