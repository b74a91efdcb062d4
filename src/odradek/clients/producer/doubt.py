"""Which answers to Produce prove that nothing was appended; all others leave a batch in doubt.

In: an error code, or that there was no answer. Out: whether the attempt may have been appended
(R-PR-1). A leader checks rights, its leadership, the in-sync replicas, the records and the
sequence, in this order, and then appends: an error from before is a proof. With acks=all it then
waits for replicas, and errors of that wait prove nothing: it may lose the leadership (6), its disk
(56) or the topic (3, 100), replicas may go (20), the time may be up (7). Some of these codes are
used before the append as well, so they prove nothing. A proof says nothing of earlier attempts: the
leader looks for duplicates last. Must not: decide what is to be done.
"""

from __future__ import annotations

from odradek.clients.producer.batch import ProducerBatch
from odradek.common import kafka_errors as errors
from odradek.common.errors import BrokerError, KafkaError

_BEFORE_THE_APPEND: tuple[type[BrokerError], ...] = (
    # The request, or who sends it
    errors.InvalidTopicExceptionError,
    errors.InvalidRequiredAcksError,
    errors.TopicAuthorizationError,
    errors.ClusterAuthorizationError,
    errors.TransactionalIdAuthorizationError,
    errors.UnsupportedVersionError,
    errors.InvalidRequestError,
    errors.PolicyViolationError,
    # Where it is to be written
    errors.LeaderNotAvailableError,
    errors.NotEnoughReplicasError,
    # The records
    errors.CorruptMessageError,
    errors.MessageTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTimestampError,
    errors.UnsupportedForMessageFormatError,
    errors.UnsupportedCompressionTypeError,
    errors.InvalidRecordError,
    # The producer's id, epoch and sequence
    errors.OutOfOrderSequenceNumberError,
    errors.InvalidProducerEpochError,
    errors.UnknownProducerIdError,
    errors.ProducerFencedError,
    # Its transaction, which leaders ask the coordinator about first
    errors.InvalidTxnStateError,
    errors.InvalidProducerIdMappingError,
    errors.ConcurrentTransactionsError,
    errors.TransactionAbortableError,
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
)

PROOFS = frozenset(kind.code for kind in _BEFORE_THE_APPEND if kind.code is not None)
"""Codes that say: this attempt wasn't appended, and never will be."""


def leaves_doubt(code: int | None) -> bool:
    """Whether an attempt with this outcome (None: no answer) may have been appended."""
    return code not in PROOFS


def in_doubt(batch: ProducerBatch, refusal: KafkaError) -> KafkaError:
    """The same refusal; of a batch that may have been written nevertheless, it says so."""
    if not batch.doubtful:
        return refusal
    how = (
        "an earlier attempt wasn't acknowledged"
        if batch.recognised
        else "they were part of a larger batch that wasn't acknowledged, and the topic's "
        "max.message.bytes had become too low for it when it came again"
    )
    text = (
        f"{batch.count} records for {batch.partition} may have been written already: {how}. They "
        f"aren't sent again, so that nothing is written twice. The broker said: {refusal}"
    )
    made = type(refusal).__new__(type(refusal), text)  # not __init__, which may ask for others
    made.args = (text,)
    made.__dict__.update(refusal.__dict__)
    made.__cause__ = refusal.__cause__
    return made
