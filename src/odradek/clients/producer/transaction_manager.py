"""Manage the transactions of one producer: its state, its id and epoch, its calls.

In: the producer's transaction calls, partitions that the sender will write to, errors of its
batches. Out: whether and under which id the sender may send; results of the calls. Requests are in
`transaction_requests`, states in `transaction_state`, the meaning of errors in
`transaction_errors`. The cluster decides the protocol (KIP-890). With transaction.version 2 leaders
add partitions by themselves, and the response to EndTxn contains the next epoch. Before version 2,
a request adds partitions, and a new epoch follows only a transaction that left something in doubt
(KIP-360): a batch, or an attempt of a request to a coordinator without a response (R-TX-1). Must
not: let a record into a transaction that it wasn't sent in, or commit one that lacks a record.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Never, TypeVar

from odradek.clients.any_broker import Brokers
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer import transaction_errors as errors
from odradek.clients.producer.batch import ProducerBatch, all_over
from odradek.clients.producer.batch_timeouts import BatchTimeouts
from odradek.clients.producer.offset_topics import OffsetTopics
from odradek.clients.producer.producer_id import NO_IDENTITY, quick_backoff
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.transaction_requests import (
    WITHOUT_EPOCHS,
    TransactionRequests,
    UnwantedError,
)
from odradek.clients.producer.transaction_state import (
    OPEN,
    Begun,
    PreparedTransaction,
    TransactionEvent,
    TransactionState,
    move,
)
from odradek.common.config import Config
from odradek.common.errors import (
    AbortableTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from odradek.common.errors.kafka import InvalidProducerIdMappingError, InvalidTxnStateError
from odradek.common.types import TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.network.network_client import NetworkClient

T = TypeVar("T")
_S, _E = TransactionState, TransactionEvent

FEATURE = "transaction.version"
PRODUCE_BEFORE_VERSION_2 = 11
"""Newest version of Produce before leaders add partitions to the transaction by themselves."""

_WHY_NOT = {
    _S.UNINITIALIZED: "call init_transactions() first, once",
    _S.INITIALIZING: "init_transactions() is still running",
    _S.READY: "no transaction is open: call begin_transaction() first",
    _S.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    _S.COMMITTING_TRANSACTION: "the transaction is being committed",
    _S.ABORTING_TRANSACTION: "the transaction is being aborted",
}


class Pending:
    """A call that timed out and continues; repeating the call waits for its end."""

    __slots__ = ("done", "left", "name")

    def __init__(self, name: str, done: Completion[None]) -> None:
        self.name = name
        self.done = done
        self.left = ""
        """Text on why the caller stopped waiting; empty while a caller waits."""


class TransactionManager:
    """Transactions of one producer; also the source of ids and epochs for its sender."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        network: NetworkClient,
        metadata: Metadata,
        brokers: Brokers,
        accumulator: RecordAccumulator,
        incomplete: Callable[[], Sequence[ProducerBatch]],
        batch_done: Signal,
        timeouts: BatchTimeouts,
        acknowledged_as: Callable[[], tuple[int, int]],
    ) -> None:
        """Set the functions that return the state of batches.

        `incomplete` returns the batches without an outcome; `batch_done` is notified of each
        outcome; `acknowledged_as` returns the id and epoch of the last acknowledged batch.
        """
        self._acknowledged_as = acknowledged_as
        self._engine = engine
        self._network = network
        self._metadata = metadata
        self._brokers = brokers
        self._accumulator = accumulator
        self._incomplete = incomplete
        self._batch_done = batch_done
        self._timeouts = timeouts
        self.transactional_id: str = config["transactional.id"]
        self.changed = Signal()
        self._timeout: float = config["transaction.timeout.ms"]
        self._quick = quick_backoff(config)
        self.requests = self._new_requests()
        self.idempotent = True
        self.state = _S.UNINITIALIZED
        self.current = NO_IDENTITY
        self.bumps = 0
        self.error: KafkaError | None = None
        """Reason for the state ABORTABLE_ERROR or FATAL_ERROR."""
        self.dropping: KafkaError | None = None
        self.abandons = False
        self.version_2 = False
        self.pending: Pending | None = None
        self._asking = 0
        """Number of the open transaction's requests without a response."""
        self._adding = False
        self._new: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._begun = Begun.NO
        self._needs_epoch = False
        self._missing_offsets: set[tuple[str, TopicPartition]] = set()
        """Groups and partitions whose offsets may be missing, because their call hasn't succeeded.

        A commit without them is refused: the transaction's input would be read again.
        """
        self._forgotten = False
        """Whether the coordinator no longer knows this producer id: no EndTxn is sent then."""
        self._refuse(_WHY_NOT[_S.UNINITIALIZED])

    def _new_requests(self) -> TransactionRequests:
        return TransactionRequests(
            self._brokers, self._quick, self.transactional_id, self._timeout, self.changed
        )

    # Calls of the sender

    @property
    def newest_produce(self) -> int | None:
        return None if self.version_2 else PRODUCE_BEFORE_VERSION_2

    def usable(self) -> bool:
        """Return whether batches can be sent, because a transaction is open."""
        return self.state in OPEN

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether a partition may be written to; add it to the transaction if necessary."""
        if partition in self._added:
            return True
        if not self._filling():
            return False
        if self.version_2:
            self._added.add(partition)
            self._perhaps_begun()
            return True
        self._new[partition] = None
        if not self._adding:
            self._adding = True
            self._engine.start(self._add_partitions())
        return False

    def go_on(self, identity: tuple[int, int], *, ended: bool) -> tuple[int, int] | None:
        """Return the id and epoch, which all partitions share; None once the epoch has ended."""
        return None if ended and identity == self.current else self.current

    def begin_above(self, epoch: int) -> bool:
        return False  # the coordinator assigns epochs

    def _filling(self) -> bool:
        """Return whether records are still written, i.e. the transaction isn't being aborted."""
        return self.state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION)

    def _perhaps_begun(self) -> None:
        """Note that the coordinator may have begun the transaction, because of a sent request."""
        if self._begun is Begun.NO:
            self._begun = Begun.PERHAPS

    def request_bump(self, why: str) -> None:
        """Use a new epoch for the next transaction: a batch is in doubt, or left a gap (R-PR-1)."""
        if not self._needs_epoch:
            self._needs_epoch = True
            self._engine.events.emit(
                self._engine.now, "retry", what="producer epoch", error=why, attempt=self.bumps + 1
            )

    def failed(self, error: KafkaError) -> None:
        """Prevent a commit, because a batch of the transaction wasn't written."""
        if self._engine.ended is not None:
            return
        if isinstance(error, errors.FATAL_FOR_BATCHES):
            self._break(errors.fatal(error))
        elif self._filling():
            # As in Java, the next transaction gets a new epoch even if the batch wasn't written.
            self.request_bump(f"{type(error).__name__}: {error}")
            self._fail(errors.abortable(error))

    # Calls that continue after their timeout

    def initialize(self, deadline: float) -> Flow[None]:
        """Get an id and epoch; the coordinator aborts an open transaction of this id."""
        return self._lasting("init_transactions", self._initialize, deadline)

    def commit(self, deadline: float) -> Flow[None]:
        """Wait until all records have an outcome, then commit the transaction."""
        return self._lasting("commit_transaction", self._commit, deadline)

    def abort(self, deadline: float) -> Flow[None]:
        """Drop unsent records, wait for the sent ones, then abort the transaction."""
        return self._lasting("abort_transaction", self._abort, deadline)

    def begin(self) -> Flow[None]:
        """Open a transaction, without any request."""
        yield START
        self._check("begin_transaction", _S.READY)
        self._move(_E.BEGIN)
        self._accumulator.refuse(None)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: float,
        *,
        topics: OffsetTopics | None = None,
    ) -> Flow[None]:
        """Commit offsets together with the transaction's records (KIP-447).

        `topics` are the topics of the offsets, as the caller knew them.
        """
        yield START
        self._check("send_offsets_to_transaction", _S.IN_TRANSACTION)
        if not offsets:
            return
        requests, newest = self.requests, None if self.version_2 else WITHOUT_EPOCHS
        self._perhaps_begun()
        sent = {(group.group_id, partition) for partition in offsets}
        self._missing_offsets |= sent
        if not self.version_2:
            adding = requests.add_offsets(self.current, group.group_id, deadline)
            yield from self._asked(adding)
            self._begun = Begun.YES
        topics = topics or OffsetTopics.of(self._metadata, offsets, group)
        committing = requests.commit_offsets(
            self.current, offsets, group, deadline, newest=newest, topics=topics
        )
        yield from self._asked(committing)
        self._begun = Begun.YES
        self._missing_offsets -= sent

    def prepare(self) -> Flow[PreparedTransaction]:
        """Wait for all records; return the identity with which another process can end it.

        After that, the caller must not end the transaction, but call `use` or `close(0)`.
        """
        yield START
        self._check("prepare", _S.IN_TRANSACTION)
        self._accumulator.close_all()
        yield from self._settle()
        return PreparedTransaction(self.transactional_id, *self.current, self.version_2)

    def use(self, transactional_id: str) -> Flow[None]:
        """Use a transactional id from now on, with the same connections; call initialize() next.

        An open transaction must be prepared; another process ends it.
        """
        yield START
        self._check("use", _S.UNINITIALIZED, _S.READY, _S.IN_TRANSACTION)
        if self._incomplete() or self._asking or self._adding or self._missing_offsets:
            raise IllegalStateError("the transaction isn't prepared: its requests are unanswered")
        self._move(_E.LEFT)
        self.transactional_id, self.current = transactional_id, NO_IDENTITY
        self.requests = self._new_requests()
        self._forget()
        self._refuse(_WHY_NOT[self.state])

    @property
    def open(self) -> bool:
        """Whether a transaction was begun and hasn't ended."""
        return self.state in OPEN

    def _lasting(self, name: str, flow: Callable[[], Flow[None]], deadline: float) -> Flow[None]:
        now = yield START
        if self.pending is None or self.pending.name != name:
            self._check_pending(name)
            self.pending = Pending(name, self._engine.start(flow()))
        pending = self.pending
        pending.left = ""
        try:
            yield from self._end_of(pending, now, deadline)
        except GeneratorExit:
            pending.left = "was cancelled or interrupted"
            raise
        if self.pending is pending:
            self.pending = None
        pending.done.result()

    def _end_of(self, pending: Pending, now: float, deadline: float) -> Flow[None]:
        name = pending.name
        while not pending.done.done:
            if now >= deadline:
                pending.left = "timed out"
                said, _ = self._timeouts.refusals(self._incomplete(), now)
                attempts = [*self.requests.attempts, *said]
                error = self._brokers.timeout(f"the end of {name}()", now, attempts)
                error.add_note(
                    f"{name}() continues in the background until the producer is closed; call it "
                    "again to wait for its result."
                )
                raise error
            now = yield Wait((pending.done,), deadline)

    def _check_pending(self, name: str) -> None:
        """Raise if a call other than `name` timed out or was interrupted, and hasn't ended."""
        pending = self.pending
        if pending is None:
            return
        if pending.done.done and pending.done.error is not None:
            self.pending = None  # the transaction's state shows the failure
            return
        if not pending.left:
            what = "is still running: wait for it first"
        elif pending.done.done:
            what = f"{pending.left} and has finished since: call it again to get its result"
        else:
            what = f"{pending.left} and is still running: call it again to get its result"
        raise IllegalStateError(f"{name}() can't be called now: {pending.name}() {what}")

    # Generators that carry out the calls

    def _initialize(self) -> Flow[None]:
        yield START
        self._check("init_transactions", _S.UNINITIALIZED)
        self._move(_E.INITIALIZE)
        yield from self._obtain(NO_IDENTITY)
        self._ready()

    def _obtain(self, identity: tuple[int, int]) -> Flow[None]:
        """Obtain the next id and epoch: a first one, or the one after `identity`."""
        try:
            self.current = yield from self.requests.init_producer_id(identity, math.inf)
        except KafkaError as error:
            if self._engine.ended is not None:
                raise
            if isinstance(error, errors.FENCED):
                late = errors.MAYBE_OWN_REQUEST if self.requests.unanswered else ""
                self._broken(errors.fenced(self.transactional_id, error, late))
            if identity != NO_IDENTITY or not isinstance(error, errors.REFUSALS):
                self._broken(errors.fatal(error))
            self._move(_E.REFUSED)  # the application may retry after a permission was added
            raise
        self.bumps += identity != NO_IDENTITY
        self.version_2 = self._speaks_version_2()

    def _commit(self) -> Flow[None]:
        yield START
        self._check("commit_transaction", _S.IN_TRANSACTION)
        if self._missing_offsets:
            named = ", ".join(sorted(f"{p} for group {g!r}" for g, p in self._missing_offsets))
            raise IllegalStateError(
                "the offsets of this transaction may be missing: send_offsets_to_transaction() "
                f"ended without an answer ({named}); call it again with the same offsets, or call "
                "abort_transaction()"
            )
        self._move(_E.COMMIT)
        self._refuse(_WHY_NOT[self.state])
        self._accumulator.close_all()
        yield from self._settle()
        yield from self._end(committed=True)

    def _abort(self) -> Flow[None]:
        yield START
        self._check("abort_transaction", _S.IN_TRANSACTION, _S.ABORTABLE_ERROR)
        cause = self.error
        self._move(_E.ABORT)
        self._drop(cause)
        # KIP-890: from version 2 on the abort fences requests in flight. With older versions, all
        # requests have to end first, or they might be executed after the abort.
        self.abandons = self.version_2
        yield from self._settle()
        try:
            yield from self._end(committed=False)
        except AbortableTransactionError as error:
            if self.state is _S.ABORTING_TRANSACTION:  # allow another abort
                self.error = error
                self._move(_E.FAILED)
            raise

    def _settle(self) -> Flow[None]:
        """Wait until no request of the transaction is in flight; raise if it can't be committed."""
        pending = deque(self._incomplete())
        while True:
            if self.state in (_S.ABORTABLE_ERROR, _S.FATAL_ERROR):
                self._raise()
            if all_over(pending) and not self._asking and not self._adding:
                return
            yield Wait((self._batch_done, self.changed))

    def _end(self, *, committed: bool) -> Flow[None]:
        """End the transaction at the coordinator, and obtain the next epoch."""
        written = self._acknowledged_as() == self.current
        if self.version_2 and written:  # each transaction has its own epoch, so it has begun
            self._begun = Begun.YES
        before, upgraded = self.current, not self.version_2 and self._speaks_version_2()
        newest = None if self.version_2 else WITHOUT_EPOCHS
        # Under version 2 an abort is allowed without any write, and always results in a new epoch.
        wanted = self._begun is not Begun.NO or (self.version_2 and self._needs_epoch)
        if wanted and not self._forgotten:
            ending = self.requests.end(self.current, math.inf, committed=committed, newest=newest)
            forgiving = self._forgiving(ending, committed=committed)
            following = yield from self._asked(forgiving, commit=committed)
            self.current = following or self.current
        if self.current == before and (late := self.requests.unanswered):
            # R-TX-1, KAFKA-17754: without a new epoch, the lost request might be executed late, in
            # the next transaction. That is so even if a retry was answered.
            self.request_bump(f"{late}: no response to an attempt")
        unsure = self._needs_epoch or self._begun is Begun.PERHAPS
        if self.current == before and (unsure or upgraded):
            if self.requests.can_bump:
                self._move(_E.INITIALIZE)
                try:
                    yield from self._obtain(self.current)
                except KafkaError:
                    if not committed or self.error is None:
                        raise
                    return  # the commit has succeeded, and the next call raises this error
            elif self._needs_epoch:
                self._break(errors.no_new_epoch(self.transactional_id))
                if not committed:
                    self._raise()
                return  # the commit has succeeded, and the next call raises this error
        self.version_2 = self._speaks_version_2()
        self._ready()

    def _forgiving(
        self, flow: Flow[tuple[int, int] | None], *, committed: bool
    ) -> Flow[tuple[int, int] | None]:
        """Wait for EndTxn; ignore errors of an abort if the transaction may not have begun.

        Under version 2, the coordinator may still be ending the previous transaction, and only
        accept its epoch. The next InitProducerId shows whether this producer is fenced.
        """
        perhaps = self._begun is Begun.PERHAPS and not committed
        try:
            return (yield from flow)
        except KafkaError as error:
            fenced = self.version_2 and isinstance(error, errors.FENCED)
            if perhaps and (fenced or isinstance(error, InvalidTxnStateError)):
                return None
            raise

    def _ready(self) -> None:
        """Forget the last transaction, and allow the next one."""
        self._move(_E.INITIALIZED if self.state is _S.INITIALIZING else _E.ENDED)
        self._forget()
        self._refuse(_WHY_NOT[_S.READY])

    def _forget(self) -> None:
        """Forget all data of the last transaction."""
        self._new.clear()
        self._added.clear()
        self._begun = Begun.NO
        self._missing_offsets.clear()
        self.requests.forget()
        self._needs_epoch = self._forgotten = self.abandons = False
        self.error = self.dropping = None

    def _add_partitions(self) -> Flow[None]:
        yield START
        try:
            while self._new and self._filling():
                wanted = list(self._new)
                self._perhaps_begun()
                adding = self.requests.add_partitions(self.current, wanted, self._filling)
                yield from self._asked(adding)
                self._begun = Begun.YES
                self._added.update(wanted)
                for partition in wanted:
                    self._new.pop(partition, None)
        except (KafkaError, UnwantedError):
            return  # `_asked` has changed the state, so the batches are dropped
        finally:
            self._adding = False
            self.changed.notify()

    # Errors

    def _asked(self, flow: Flow[T], *, commit: bool = False) -> Flow[T]:
        """Wait for a response; raise errors as fatal or abortable ones, and set the state."""
        self._asking += 1
        try:
            return (yield from flow)
        except KafkaTimeoutError:
            raise  # the request may still be executed
        except KafkaError as error:
            if self._engine.ended is not None:
                raise
            doubt = errors.MAYBE_COMMITTED if commit and self.requests.in_doubt else ""
            if isinstance(error, errors.FENCED):
                self._broken(errors.fenced(self.transactional_id, error, doubt))
            if isinstance(error, InvalidTxnStateError):
                self._broken(errors.nothing_open(self.transactional_id, error, doubt))
            if doubt and isinstance(error, errors.NEW_EPOCH):
                # Not abortable: the records may be committed.
                self._broken(errors.fatal(type(error)(f"{error}{doubt}")))
            if not isinstance(error, errors.ABORTABLE_ERRORS):
                self._broken(errors.fatal(error))
            failure = errors.abortable(error)
            self._fail(failure)
            raise failure from None
        finally:
            self._asking -= 1
            self.changed.notify()

    def _fail(self, error: KafkaError) -> None:
        """Allow only an abort of the open transaction; ignore further errors until then."""
        if isinstance(error, errors.NEW_EPOCH):
            self._forgotten = isinstance(error, InvalidProducerIdMappingError)
            self.request_bump(f"{type(error).__name__}: {error}")
        if self._filling():
            self.error = error
            self._move(_E.FAILED)
            self._drop(error)

    def _broken(self, error: KafkaError) -> Never:
        self._break(error)
        raise error

    def _break(self, error: KafkaError) -> None:
        """Set the fatal error, with which every later call and every batch fails."""
        if self.state is not _S.FATAL_ERROR:
            self.error = error
            self._move(_E.BROKEN)
            self._drop(error)
            self.abandons = True
            self.dropping = error

    def _drop(self, cause: KafkaError | None) -> None:
        """Refuse further records, and let batches without a sequence fail."""
        why = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
        self.dropping = TransactionAbortedError(f"the record's transaction was aborted{why}")
        self.dropping.__cause__ = cause
        self._refuse(cause or _WHY_NOT[self.state])
        self._accumulator.close_all()

    def _refuse(self, why: KafkaError | str) -> None:
        """Let `send` raise this error from now on, unless the client has ended."""
        if self._engine.ended is None:
            if isinstance(why, str):
                why = IllegalStateError(f"a record can't be sent now: {why}")
            self._accumulator.refuse(why)

    def _check(self, name: str, *states: TransactionState) -> None:
        if self.pending is not None and self.pending.name != name:
            self._check_pending(name)
        if self.state in states:
            return
        self._raise()
        known = name == "init_transactions" and self.state is not _S.INITIALIZING
        why = "it has already been called" if known else _WHY_NOT[self.state]
        raise IllegalStateError(f"{name}() can't be called now: {why}")

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # raised by every call: drop its traceback

    def _move(self, event: TransactionEvent) -> None:
        self.state = move(self.state, event)
        self._engine.events.emit(
            self._engine.now,
            "transaction",
            what=self.transactional_id,
            state=self.state.value,
            event=event.value,
            why=None if self.error is None else f"{type(self.error).__name__}: {self.error}",
        )
        self.changed.notify()

    def _speaks_version_2(self) -> bool:
        return self._network.feature_level(FEATURE) >= 2
