"""The errors of aiokafka, by its names and with its numbers.

In: what `translation` makes of this package's errors. Out: classes to catch. An error's `__cause__`
is the one of this package, whose text says what happened and what to do. Must not: know when they
are raised.
"""

from __future__ import annotations

from typing import Any

from odradek.common.kafka_errors import ERRORS


class KafkaError(RuntimeError):
    """Above all errors of clients and brokers."""

    retriable = False
    invalid_metadata = False
    """What the client believes of the cluster is out of date."""

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


class IllegalStateError(KafkaError):
    """The call doesn't fit what was done before."""


class IllegalArgumentError(KafkaError):
    """An argument can't be used."""


class NoBrokersAvailable(KafkaError):  # noqa: N818 - their name
    """No broker can be reached."""

    retriable = invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """A broker isn't connected yet."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """What a broker sent doesn't follow the protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """An answer belongs to no request; never raised here."""

    retriable = True


class Cancelled(KafkaError):  # noqa: N818 - their name
    """A request was given up; never raised here."""

    retriable = True


class TooManyInFlightRequests(KafkaError):  # noqa: N818 - their name
    """Too many requests are under way; never raised here."""

    retriable = True


class StaleMetadata(KafkaError):  # noqa: N818 - their name
    """The cluster isn't as it was known; never raised here."""

    retriable = invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):  # noqa: N818 - their name
    """Metadata without brokers; never raised here."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):  # noqa: N818 - their name
    """A broker is older than all that is known; never raised here."""


class IncompatibleBrokerVersion(KafkaError):  # noqa: N818 - their name
    """A broker can't do what the call needs."""


class CommitFailedError(KafkaError):
    """The group refused a commit: others have the partitions now."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(args or ("others have the partitions now",)))


class AuthenticationMethodNotSupported(KafkaError):  # noqa: N818 - their name
    """The broker doesn't do this SASL mechanism."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


class KafkaUnavailableError(KafkaError):
    """No broker is available; never raised here."""


class KafkaTimeoutError(KafkaError):
    """A call's time is up."""


class KafkaConnectionError(KafkaError):
    """No connection came about, or it went away."""

    retriable = invalid_metadata = True


class UnsupportedCodecError(KafkaError):
    """Records are compressed in a way that can't be read."""


class KafkaConfigurationError(KafkaError):
    """A setting can't be used."""


class QuotaViolationError(KafkaError):
    """A quota was exceeded; never raised here."""


class ConsumerStoppedError(Exception):
    """The consumer was stopped; calls that wait for records end with it, too."""


class IllegalOperation(Exception):  # noqa: N818 - their name
    """The settings don't allow this call, as a commit without a `group_id`."""


class NoOffsetForPartitionError(KafkaError):
    """There is no position, and auto_offset_reset is none."""


class RecordTooLargeError(KafkaError):
    """A record is larger than a fetch may bring."""


class ProducerClosed(KafkaError):  # noqa: N818 - their name
    """The producer was stopped."""


class ProducerFenced(KafkaError):  # noqa: N818 - their name
    """A newer producer has this `transactional_id`, or a transaction took too long."""

    def __init__(
        self,
        msg: str = "a newer producer uses this transactional_id, or the transaction took longer "
        "than transaction_timeout_ms",
    ) -> None:
        super().__init__(msg)


class BrokerResponseError(KafkaError):
    """A broker answered with an error's number."""

    errno: int
    message: str
    """Kafka's name of it."""
    description: str = ""
    """What Kafka's documents say of it."""

    def __init_subclass__(cls) -> None:
        known = ERRORS.get(cls.errno)
        cls.description = " ".join((known.__doc__ or "").split()) if known else "no error"

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class NoError(BrokerResponseError):
    """Kafka's error 0, NO_ERROR."""

    errno, message = 0, "NO_ERROR"


class UnknownError(BrokerResponseError):
    """Kafka's error -1, UNKNOWN."""

    errno, message = -1, "UNKNOWN"


class OffsetOutOfRangeError(BrokerResponseError):
    """Kafka's error 1, OFFSET_OUT_OF_RANGE."""

    errno, message = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecordException(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 2, CORRUPT_MESSAGE."""

    errno, message = 2, "CORRUPT_MESSAGE"


class UnknownTopicOrPartitionError(BrokerResponseError):
    """Kafka's error 3, UNKNOWN_TOPIC_OR_PARTITION."""

    errno, message = 3, "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    """Kafka's error 4, INVALID_FETCH_SIZE."""

    errno, message = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(BrokerResponseError):
    """Kafka's error 5, LEADER_NOT_AVAILABLE."""

    errno, message = 5, "LEADER_NOT_AVAILABLE"
    retriable = invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    """Kafka's error 6, NOT_LEADER_FOR_PARTITION."""

    errno, message = 6, "NOT_LEADER_FOR_PARTITION"
    retriable = invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    """Kafka's error 7, REQUEST_TIMED_OUT."""

    errno, message = 7, "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    """Kafka's error 8, BROKER_NOT_AVAILABLE."""

    errno, message = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(BrokerResponseError):
    """Kafka's error 9, REPLICA_NOT_AVAILABLE."""

    errno, message = 9, "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    """Kafka's error 10, MESSAGE_SIZE_TOO_LARGE."""

    errno, message = 10, "MESSAGE_SIZE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    """Kafka's error 11, STALE_CONTROLLER_EPOCH."""

    errno, message = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    """Kafka's error 12, OFFSET_METADATA_TOO_LARGE."""

    errno, message = 12, "OFFSET_METADATA_TOO_LARGE"


class StaleLeaderEpochCodeError(BrokerResponseError):
    """Kafka's error 13, STALE_LEADER_EPOCH_CODE."""

    errno, message = 13, "STALE_LEADER_EPOCH_CODE"


class GroupLoadInProgressError(BrokerResponseError):
    """Kafka's error 14, COORDINATOR_LOAD_IN_PROGRESS."""

    errno, message = 14, "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    """Kafka's error 15, COORDINATOR_NOT_AVAILABLE."""

    errno, message = 15, "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinatorForGroupError(BrokerResponseError):
    """Kafka's error 16, NOT_COORDINATOR."""

    errno, message = 16, "NOT_COORDINATOR"
    retriable = True


class InvalidTopicError(BrokerResponseError):
    """Kafka's error 17, INVALID_TOPIC."""

    errno, message = 17, "INVALID_TOPIC"


class RecordListTooLargeError(BrokerResponseError):
    """Kafka's error 18, RECORD_LIST_TOO_LARGE."""

    errno, message = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(BrokerResponseError):
    """Kafka's error 19, NOT_ENOUGH_REPLICAS."""

    errno, message = 19, "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    """Kafka's error 20, NOT_ENOUGH_REPLICAS_AFTER_APPEND."""

    errno, message = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcksError(BrokerResponseError):
    """Kafka's error 21, INVALID_REQUIRED_ACKS."""

    errno, message = 21, "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    """Kafka's error 22, ILLEGAL_GENERATION."""

    errno, message = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    """Kafka's error 23, INCONSISTENT_GROUP_PROTOCOL."""

    errno, message = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    """Kafka's error 24, INVALID_GROUP_ID."""

    errno, message = 24, "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    """Kafka's error 25, UNKNOWN_MEMBER_ID."""

    errno, message = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    """Kafka's error 26, INVALID_SESSION_TIMEOUT."""

    errno, message = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    """Kafka's error 27, REBALANCE_IN_PROGRESS."""

    errno, message = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """Kafka's error 28, INVALID_COMMIT_OFFSET_SIZE."""

    errno, message = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(BrokerResponseError):
    """Kafka's error 29, TOPIC_AUTHORIZATION_FAILED."""

    errno, message = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(BrokerResponseError):
    """Kafka's error 30, GROUP_AUTHORIZATION_FAILED."""

    errno, message = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(BrokerResponseError):
    """Kafka's error 31, CLUSTER_AUTHORIZATION_FAILED."""

    errno, message = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    """Kafka's error 32, INVALID_TIMESTAMP."""

    errno, message = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(BrokerResponseError):
    """Kafka's error 33, UNSUPPORTED_SASL_MECHANISM."""

    errno, message = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(BrokerResponseError):
    """Kafka's error 34, ILLEGAL_SASL_STATE."""

    errno, message = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    """Kafka's error 35, UNSUPPORTED_VERSION."""

    errno, message = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    """Kafka's error 36, TOPIC_ALREADY_EXISTS."""

    errno, message = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    """Kafka's error 37, INVALID_PARTITIONS."""

    errno, message = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    """Kafka's error 38, INVALID_REPLICATION_FACTOR."""

    errno, message = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    """Kafka's error 39, INVALID_REPLICATION_ASSIGNMENT."""

    errno, message = 39, "INVALID_REPLICATION_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    """Kafka's error 40, INVALID_CONFIG."""

    errno, message = 40, "INVALID_CONFIG"


class NotControllerError(BrokerResponseError):
    """Kafka's error 41, NOT_CONTROLLER."""

    errno, message = 41, "NOT_CONTROLLER"
    retriable = True


class InvalidRequestError(BrokerResponseError):
    """Kafka's error 42, INVALID_REQUEST."""

    errno, message = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """Kafka's error 43, UNSUPPORTED_FOR_MESSAGE_FORMAT."""

    errno, message = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    """Kafka's error 44, POLICY_VIOLATION."""

    errno, message = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 45, OUT_OF_ORDER_SEQUENCE_NUMBER."""

    errno, message = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 46, DUPLICATE_SEQUENCE_NUMBER."""

    errno, message = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 47, INVALID_PRODUCER_EPOCH."""

    errno, message = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 48, INVALID_TXN_STATE."""

    errno, message = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMapping(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 49, INVALID_PRODUCER_ID_MAPPING."""

    errno, message = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 50, INVALID_TRANSACTION_TIMEOUT."""

    errno, message = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 51, CONCURRENT_TRANSACTIONS."""

    errno, message = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 52, TRANSACTION_COORDINATOR_FENCED."""

    errno, message = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""

    errno, message = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 54, SECURITY_DISABLED."""

    errno, message = 54, "SECURITY_DISABLED"


class OperationNotAttempted(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 55, OPERATION_NOT_ATTEMPTED."""

    errno, message = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(BrokerResponseError):
    """Kafka's error 56, KAFKA_STORAGE_ERROR."""

    errno, message = 56, "KAFKA_STORAGE_ERROR"
    retriable = invalid_metadata = True


class LogDirNotFound(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 57, LOG_DIR_NOT_FOUND."""

    errno, message = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 58, SASL_AUTHENTICATION_FAILED."""

    errno, message = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 59, UNKNOWN_PRODUCER_ID."""

    errno, message = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 60, REASSIGNMENT_IN_PROGRESS."""

    errno, message = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 61, DELEGATION_TOKEN_AUTH_DISABLED."""

    errno, message = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 62, DELEGATION_TOKEN_NOT_FOUND."""

    errno, message = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 63, DELEGATION_TOKEN_OWNER_MISMATCH."""

    errno, message = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""

    errno, message = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 65, DELEGATION_TOKEN_AUTHORIZATION_FAILED."""

    errno, message = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 66, DELEGATION_TOKEN_EXPIRED."""

    errno, message = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 67, INVALID_PRINCIPAL_TYPE."""

    errno, message = 67, "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 68, NON_EMPTY_GROUP."""

    errno, message = 68, "NON_EMPTY_GROUP"


class GroupIdNotFound(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 69, GROUP_ID_NOT_FOUND."""

    errno, message = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 70, FETCH_SESSION_ID_NOT_FOUND."""

    errno, message = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 71, INVALID_FETCH_SESSION_EPOCH."""

    errno, message = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 72, LISTENER_NOT_FOUND."""

    errno, message = 72, "LISTENER_NOT_FOUND"


class MemberIdRequired(BrokerResponseError):  # noqa: N818 - their name
    """Kafka's error 79, MEMBER_ID_REQUIRED."""

    errno, message = 79, "MEMBER_ID_REQUIRED"


# Names that were theirs before.
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
"""From Kafka's number to its class."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of a number; `UnknownError` where aiokafka has none."""
    return kafka_errors.get(error_code, UnknownError)


__all__ = [
    "AuthenticationFailedError",
    "AuthenticationMethodNotSupported",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "Cancelled",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConsumerStoppedError",
    "CorrelationIdError",
    "CorruptRecordException",
    "GroupAuthorizationFailedError",
    "GroupCoordinatorNotAvailableError",
    "GroupLoadInProgressError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "InconsistentGroupProtocolError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigurationError",
    "InvalidFetchRequestError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaTimeoutError",
    "KafkaUnavailableError",
    "LeaderNotAvailableError",
    "MessageSizeTooLargeError",
    "NoBrokersAvailable",
    "NoError",
    "NoOffsetForPartitionError",
    "NodeNotReadyError",
    "NotControllerError",
    "NotCoordinatorForGroupError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderForPartitionError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "PolicyViolationError",
    "ProducerClosed",
    "RebalanceInProgressError",
    "RecordListTooLargeError",
    "RecordTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "StaleControllerEpochError",
    "StaleLeaderEpochCodeError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "UnknownError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnrecognizedBrokerVersion",
    "UnsupportedCodecError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
]
