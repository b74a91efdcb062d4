"""aiokafka's errors, with their names and numbers.

The `__cause__` of an error is Odradek's error, whose text says what happened and what to do.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors.kafka import ERRORS


class KafkaError(RuntimeError):
    """Base of all errors of clients and brokers."""

    retriable = False
    invalid_metadata = False
    """Whether the client's metadata is out of date."""

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


class IllegalStateError(KafkaError):
    """The call isn't allowed in the client's current state."""


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class NoBrokersAvailable(KafkaError):
    """No broker can be reached."""

    retriable = invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """A broker isn't connected yet."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """A broker's response violates the protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """A response belongs to no request; Odradek never raises this error."""

    retriable = True


class Cancelled(KafkaError):
    """A request was cancelled; Odradek never raises this error."""

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """Too many requests are in flight; Odradek never raises this error."""

    retriable = True


class StaleMetadata(KafkaError):
    """Metadata is out of date; Odradek never raises this error."""

    retriable = invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """Metadata contains no brokers; Odradek never raises this error."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    """A broker is older than all known versions; Odradek never raises this error."""


class IncompatibleBrokerVersion(KafkaError):
    """A broker doesn't support the call."""


class CommitFailedError(KafkaError):
    """The group rejected a commit: the partitions were assigned to other members."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(args or ("the partitions were assigned to other members",)))


class AuthenticationMethodNotSupported(KafkaError):
    """The broker doesn't support this SASL mechanism."""


class AuthenticationFailedError(KafkaError):
    """The broker rejected the credentials."""


class KafkaUnavailableError(KafkaError):
    """No broker is available; Odradek never raises this error."""


class KafkaTimeoutError(KafkaError):
    """A call timed out."""


class KafkaConnectionError(KafkaError):
    """A connection failed or was closed."""

    retriable = invalid_metadata = True


class UnsupportedCodecError(KafkaError):
    """The compression of records isn't supported."""


class KafkaConfigurationError(KafkaError):
    """A setting is invalid."""


class QuotaViolationError(KafkaError):
    """A quota was exceeded; Odradek never raises this error."""


class ConsumerStoppedError(Exception):
    """The consumer was stopped, maybe while a call waited for records."""


class IllegalOperation(Exception):
    """The settings don't allow this call, for example a commit without a `group_id`."""


class NoOffsetForPartitionError(KafkaError):
    """There is no position, and `auto_offset_reset` is "none"."""


class RecordTooLargeError(KafkaError):
    """A record is larger than the fetch limit."""


class ProducerClosed(KafkaError):
    """The producer was stopped."""


class ProducerFenced(KafkaError):
    """A newer producer uses this `transactional_id`, or a transaction timed out."""

    def __init__(
        self,
        msg: str = "a newer producer uses this transactional_id, or the transaction took longer "
        "than transaction_timeout_ms",
    ) -> None:
        super().__init__(msg)


class BrokerResponseError(KafkaError):
    """A broker returned an error number."""

    errno: int
    message: str
    """Kafka's name of the error."""
    description: str = ""
    """Description in Kafka's documentation."""

    def __init_subclass__(
        cls,
        errno: int | None = None,
        message: str | None = None,
        *,
        retriable: bool = False,
        invalid_metadata: bool = False,
    ) -> None:
        """Set the class's attributes; `message` defaults to Kafka's name."""
        if errno is None:  # the program has defined this subclass
            return
        known = ERRORS.get(errno)
        cls.errno, cls.message = errno, message or (known.name if known else "")
        cls.description = " ".join((known.__doc__ or "").split()) if known else "no error"
        cls.retriable, cls.invalid_metadata = retriable, invalid_metadata
        cls.__doc__ = f"Kafka error {errno}, {cls.message}."

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


# fmt: off
class NoError(BrokerResponseError, errno=0, message="NO_ERROR"): ...
class UnknownError(BrokerResponseError, errno=-1, message="UNKNOWN"): ...
class OffsetOutOfRangeError(BrokerResponseError, errno=1): ...
class CorruptRecordException(BrokerResponseError, errno=2): ...
class UnknownTopicOrPartitionError(
    BrokerResponseError, errno=3, retriable=True, invalid_metadata=True
): ...
class InvalidFetchRequestError(BrokerResponseError, errno=4): ...
class LeaderNotAvailableError(
    BrokerResponseError, errno=5, retriable=True, invalid_metadata=True
): ...
class NotLeaderForPartitionError(
    BrokerResponseError,
    errno=6,
    message="NOT_LEADER_FOR_PARTITION",
    retriable=True,
    invalid_metadata=True,
): ...
class RequestTimedOutError(BrokerResponseError, errno=7, retriable=True): ...
class BrokerNotAvailableError(BrokerResponseError, errno=8): ...
class ReplicaNotAvailableError(BrokerResponseError, errno=9): ...
class MessageSizeTooLargeError(BrokerResponseError, errno=10, message="MESSAGE_SIZE_TOO_LARGE"): ...
class StaleControllerEpochError(BrokerResponseError, errno=11): ...
class OffsetMetadataTooLargeError(BrokerResponseError, errno=12): ...
class StaleLeaderEpochCodeError(
    BrokerResponseError, errno=13, message="STALE_LEADER_EPOCH_CODE"
): ...
class GroupLoadInProgressError(BrokerResponseError, errno=14, retriable=True): ...
class GroupCoordinatorNotAvailableError(BrokerResponseError, errno=15, retriable=True): ...
class NotCoordinatorForGroupError(BrokerResponseError, errno=16, retriable=True): ...
class InvalidTopicError(BrokerResponseError, errno=17, message="INVALID_TOPIC"): ...
class RecordListTooLargeError(BrokerResponseError, errno=18): ...
class NotEnoughReplicasError(BrokerResponseError, errno=19, retriable=True): ...
class NotEnoughReplicasAfterAppendError(BrokerResponseError, errno=20, retriable=True): ...
class InvalidRequiredAcksError(BrokerResponseError, errno=21): ...
class IllegalGenerationError(BrokerResponseError, errno=22): ...
class InconsistentGroupProtocolError(BrokerResponseError, errno=23): ...
class InvalidGroupIdError(BrokerResponseError, errno=24): ...
class UnknownMemberIdError(BrokerResponseError, errno=25): ...
class InvalidSessionTimeoutError(BrokerResponseError, errno=26): ...
class RebalanceInProgressError(BrokerResponseError, errno=27): ...
class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28): ...
class TopicAuthorizationFailedError(BrokerResponseError, errno=29): ...
class GroupAuthorizationFailedError(BrokerResponseError, errno=30): ...
class ClusterAuthorizationFailedError(BrokerResponseError, errno=31): ...
class InvalidTimestampError(BrokerResponseError, errno=32): ...
class UnsupportedSaslMechanismError(BrokerResponseError, errno=33): ...
class IllegalSaslStateError(BrokerResponseError, errno=34): ...
class UnsupportedVersionError(BrokerResponseError, errno=35): ...
class TopicAlreadyExistsError(BrokerResponseError, errno=36): ...
class InvalidPartitionsError(BrokerResponseError, errno=37): ...
class InvalidReplicationFactorError(BrokerResponseError, errno=38): ...
class InvalidReplicationAssignmentError(
    BrokerResponseError, errno=39, message="INVALID_REPLICATION_ASSIGNMENT"
): ...
class InvalidConfigurationError(BrokerResponseError, errno=40): ...
class NotControllerError(BrokerResponseError, errno=41, retriable=True): ...
class InvalidRequestError(BrokerResponseError, errno=42): ...
class UnsupportedForMessageFormatError(BrokerResponseError, errno=43): ...
class PolicyViolationError(BrokerResponseError, errno=44): ...
class OutOfOrderSequenceNumber(BrokerResponseError, errno=45): ...
class DuplicateSequenceNumber(BrokerResponseError, errno=46): ...
class InvalidProducerEpoch(BrokerResponseError, errno=47): ...
class InvalidTxnState(BrokerResponseError, errno=48): ...
class InvalidProducerIdMapping(BrokerResponseError, errno=49): ...
class InvalidTransactionTimeout(BrokerResponseError, errno=50): ...
class ConcurrentTransactions(BrokerResponseError, errno=51): ...
class TransactionCoordinatorFenced(BrokerResponseError, errno=52): ...
class TransactionalIdAuthorizationFailed(BrokerResponseError, errno=53): ...
class SecurityDisabled(BrokerResponseError, errno=54): ...
class OperationNotAttempted(BrokerResponseError, errno=55): ...
class KafkaStorageError(BrokerResponseError, errno=56, retriable=True, invalid_metadata=True): ...
class LogDirNotFound(BrokerResponseError, errno=57): ...
class SaslAuthenticationFailed(BrokerResponseError, errno=58): ...
class UnknownProducerId(BrokerResponseError, errno=59): ...
class ReassignmentInProgress(BrokerResponseError, errno=60): ...
class DelegationTokenAuthDisabled(BrokerResponseError, errno=61): ...
class DelegationTokenNotFound(BrokerResponseError, errno=62): ...
class DelegationTokenOwnerMismatch(BrokerResponseError, errno=63): ...
class DelegationTokenRequestNotAllowed(BrokerResponseError, errno=64): ...
class DelegationTokenAuthorizationFailed(BrokerResponseError, errno=65): ...
class DelegationTokenExpired(BrokerResponseError, errno=66): ...
class InvalidPrincipalType(BrokerResponseError, errno=67): ...
class NonEmptyGroup(BrokerResponseError, errno=68): ...
class GroupIdNotFound(BrokerResponseError, errno=69): ...
class FetchSessionIdNotFound(BrokerResponseError, errno=70): ...
class InvalidFetchSessionEpoch(BrokerResponseError, errno=71): ...
class ListenerNotFound(BrokerResponseError, errno=72): ...
class MemberIdRequired(BrokerResponseError, errno=79): ...
# fmt: on

# Former names of errors in aiokafka.
InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError

kafka_errors: dict[int, type[BrokerResponseError]] = {
    found.errno: found
    for found in list(vars().values())
    if isinstance(found, type)
    and issubclass(found, BrokerResponseError)
    and found is not BrokerResponseError
}
"""Error classes by Kafka's error code."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class for an error code; `UnknownError` if aiokafka has none."""
    return kafka_errors.get(error_code, UnknownError)


# fmt: off
__all__ = [
    "AuthenticationFailedError", "AuthenticationMethodNotSupported", "BrokerNotAvailableError",
    "BrokerResponseError", "Cancelled", "ClusterAuthorizationFailedError", "CommitFailedError",
    "ConsumerStoppedError", "CorrelationIdError", "CorruptRecordException",
    "GroupAuthorizationFailedError", "GroupCoordinatorNotAvailableError",
    "GroupLoadInProgressError", "IllegalArgumentError", "IllegalGenerationError",
    "IllegalSaslStateError", "IllegalStateError", "IncompatibleBrokerVersion",
    "InconsistentGroupProtocolError", "InvalidCommitOffsetSizeError", "InvalidConfigurationError",
    "InvalidFetchRequestError", "InvalidGroupIdError", "InvalidPartitionsError",
    "InvalidReplicationAssignmentError", "InvalidReplicationFactorError", "InvalidRequestError",
    "InvalidRequiredAcksError", "InvalidSessionTimeoutError", "InvalidTimestampError",
    "InvalidTopicError", "KafkaConnectionError", "KafkaError", "KafkaProtocolError",
    "KafkaTimeoutError", "KafkaUnavailableError", "LeaderNotAvailableError",
    "MessageSizeTooLargeError", "NoBrokersAvailable", "NoError", "NoOffsetForPartitionError",
    "NodeNotReadyError", "NotControllerError", "NotCoordinatorForGroupError",
    "NotEnoughReplicasAfterAppendError", "NotEnoughReplicasError", "NotLeaderForPartitionError",
    "OffsetMetadataTooLargeError", "OffsetOutOfRangeError", "PolicyViolationError",
    "ProducerClosed", "RebalanceInProgressError", "RecordListTooLargeError", "RecordTooLargeError",
    "ReplicaNotAvailableError", "RequestTimedOutError", "StaleControllerEpochError",
    "StaleLeaderEpochCodeError", "StaleMetadata", "TooManyInFlightRequests",
    "TopicAlreadyExistsError", "TopicAuthorizationFailedError", "UnknownError",
    "UnknownMemberIdError", "UnknownTopicOrPartitionError", "UnrecognizedBrokerVersion",
    "UnsupportedCodecError", "UnsupportedForMessageFormatError", "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
]
# fmt: on
