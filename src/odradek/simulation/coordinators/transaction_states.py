"""Define the state of one transactional id, and its transitions.

In: the present state and the content of a request. Out: the next state, to be written before it
takes effect, or the error that Kafka returns. Epochs grow when a producer is fenced, and with
KIP-890 (version 2) at the end of each transaction. Must not know brokers, logs or time, except by
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition

EXHAUSTED = 32766
"""Epoch at which a producer id is replaced by a new one: one more epoch is left, for fencing."""
KIP_890 = 2
"""First transaction.version in which each transaction has its own epoch."""


class State(Enum):
    """Kafka's states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """State of one transactional id, as the internal topic stores it."""

    transactional_id: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    """The previous epoch, with which the request that raised the epoch may be repeated; else -1."""
    previous_id: int = -1
    next_id: int = -1
    """The producer id that replaces this one once all markers of the transaction are written."""
    timeout: float = 60.0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started: float = -1.0

    @property
    def exhausted(self) -> bool:
        """Whether clients can't get another epoch of this producer id."""
        return self.epoch >= EXHAUSTED

    @property
    def commits(self) -> bool:
        """Whether the transaction that is being ended is committed."""
        return self.state is State.PREPARE_COMMIT


def check_producer(found: TransactionMetadata, producer_id: int, epoch: int) -> None:
    """Raise an error unless the request has the present producer id and epoch."""
    if found.producer_id != producer_id:
        raise errors.InvalidProducerIdMappingError(f"{found.transactional_id}: {producer_id}")
    if found.epoch != epoch:
        raise errors.ProducerFencedError(f"{found.transactional_id}: {epoch}, now {found.epoch}")
    if found.state in PREPARED:
        raise errors.ConcurrentTransactionsError(f"{found.transactional_id}: {found.state.value}")


def fenced(found: TransactionMetadata) -> TransactionMetadata:
    """Return the state that aborts the open transaction and fences the transaction's producer."""
    return replace(
        found, state=State.PREPARE_ABORT, epoch=found.epoch + 1, last_epoch=-1, next_id=-1
    )


def initialised(
    found: TransactionMetadata,
    timeout: float,
    expected: tuple[int, int] | None,
    new_id: Callable[[], int],
) -> TransactionMetadata:
    """Return the state after InitProducerId: with a new epoch, or the same one (KIP-360).

    If a transaction is open, the state that aborts it is returned: the coordinator writes that
    state, and the client retries.
    """
    if found.epoch >= 0 and expected is not None and not _may_go_on(found, *expected):
        raise errors.ProducerFencedError(f"{found.transactional_id}: {expected}")
    if found.state in PREPARED:
        raise errors.ConcurrentTransactionsError(f"{found.transactional_id}: {found.state.value}")
    if found.state is State.ONGOING:
        return fenced(found)
    fresh = replace(found, state=State.EMPTY, partitions=frozenset(), timeout=timeout, started=-1.0)
    if found.exhausted and (expected is None or expected[1] == found.epoch):
        return replace(
            fresh,
            producer_id=new_id(),
            previous_id=found.producer_id,
            epoch=0,
            last_epoch=found.epoch if expected is not None else -1,
        )
    if expected is None:
        return replace(fresh, epoch=found.epoch + 1, last_epoch=-1)
    if found.epoch < 0 or expected[1] == found.epoch:
        return replace(fresh, epoch=found.epoch + 1, last_epoch=found.epoch)
    if expected[1] == found.last_epoch:  # the response was lost: return the same epoch again
        return fresh
    raise errors.ProducerFencedError(f"{found.transactional_id}: {expected}, now {found.epoch}")


def _may_go_on(found: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    return producer_id == found.producer_id or (
        producer_id == found.previous_id and epoch >= EXHAUSTED
    )


def added(
    found: TransactionMetadata, partitions: Iterable[TopicPartition], now: float
) -> TransactionMetadata:
    """Return the state with these partitions added; the first addition begins the transaction."""
    begins = found.state is not State.ONGOING
    before = frozenset() if begins else found.partitions
    return replace(
        found,
        state=State.ONGOING,
        partitions=before | frozenset(partitions),
        started=now if begins else found.started,
    )


def ended(
    found: TransactionMetadata,
    producer_id: int,
    epoch: int,
    new_id: Callable[[], int],
    *,
    commit: bool,
    version: int,
) -> TransactionMetadata | None:
    """Return the state to write for EndTxn; None if the request is a duplicate."""
    if version >= KIP_890:
        return _ended_with_epoch(found, producer_id, epoch, new_id, commit=commit)
    if found.producer_id != producer_id:
        raise errors.InvalidProducerIdMappingError(f"{found.transactional_id}: {producer_id}")
    if found.epoch != epoch:
        raise errors.ProducerFencedError(f"{found.transactional_id}: {epoch}, now {found.epoch}")
    if found.state is State.ONGOING:
        return replace(found, state=_prepared(commit=commit))
    _check_again(found, commit=commit)
    return None


def _prepared(*, commit: bool) -> State:
    return State.PREPARE_COMMIT if commit else State.PREPARE_ABORT


def _check_again(found: TransactionMetadata, *, commit: bool) -> None:
    """Raise an error unless the request repeats the EndTxn that ended the transaction."""
    if found.state is _prepared(commit=commit):
        raise errors.ConcurrentTransactionsError(f"{found.transactional_id}: {found.state.value}")
    if found.state is not (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
        raise errors.InvalidTxnStateError(f"{found.transactional_id}: {found.state.value}")


def _ended_with_epoch(
    found: TransactionMetadata,
    producer_id: int,
    epoch: int,
    new_id: Callable[[], int],
    *,
    commit: bool,
) -> TransactionMetadata | None:
    rotated = found.previous_id == producer_id and epoch == EXHAUSTED and found.epoch == 0
    bumped = found.epoch == epoch + 1
    if found.producer_id != producer_id and not rotated:
        raise errors.InvalidProducerIdMappingError(f"{found.transactional_id}: {producer_id}")
    if found.state in PREPARED:
        valid = bumped
    elif found.state in COMPLETE:
        valid = bumped or rotated or found.epoch == epoch
    else:
        valid = found.epoch == epoch
    if not valid:
        raise errors.ProducerFencedError(f"{found.transactional_id}: {epoch}, now {found.epoch}")
    if found.state in PREPARED or (found.state in COMPLETE and (bumped or rotated)):
        _check_again(found, commit=commit)
        return None
    if found.state is not State.ONGOING and commit:
        raise errors.InvalidTxnStateError(f"{found.transactional_id}: {found.state.value}")
    return replace(  # without an open transaction, an empty one is aborted
        found,
        state=_prepared(commit=commit),
        epoch=found.epoch + 1,
        last_epoch=found.epoch,
        next_id=new_id() if found.exhausted else -1,
        partitions=found.partitions if found.state is State.ONGOING else frozenset(),
    )


def completed(found: TransactionMetadata) -> TransactionMetadata:
    """Return the state after all markers of the transaction were written."""
    state = State.COMPLETE_COMMIT if found.commits else State.COMPLETE_ABORT
    done = replace(found, state=state, partitions=frozenset(), next_id=-1)
    if found.next_id < 0:
        return done
    return replace(done, producer_id=found.next_id, previous_id=found.producer_id, epoch=0)
