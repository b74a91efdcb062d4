"""confluent-kafka's error codes with their names, and texts for the local ones.

Out: `ErrorCodes`, which `KafkaError` inherits, and texts by code. Must not: say more about a
broker's code than Kafka's own table does (`common.errors.kafka`).
"""

from __future__ import annotations

from odradek.common.errors.kafka import ERRORS


class ErrorCodes:
    """Error codes as class attributes: those of brokers, and librdkafka's own, below -100."""

    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MSG = 2
    UNKNOWN_TOPIC_OR_PART = 3
    INVALID_MSG_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MSG_SIZE_TOO_LARGE = 10
    STALE_CTRL_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    _DESTROY_BROKER = -137
    _INVALID_DIFFERENT_RECORD = -138
    _LOG_TRUNCATION = -139
    _AUTO_OFFSET_RESET = -140
    _NOOP = -141
    _ASSIGNMENT_LOST = -142
    _APPLICATION = -143
    _FENCED = -144
    _NOT_CONFIGURED = -145
    _UNKNOWN_BROKER = -146
    _MAX_POLL_EXCEEDED = -147
    _GAPLESS_GUARANTEE = -148
    _INCONSISTENT = -149
    _FATAL = -150
    _PURGE_INFLIGHT = -151
    _PURGE_QUEUE = -152
    _RETRY = -153
    _INVALID_TYPE = -154
    _UNDERFLOW = -155
    _NOENT = -156
    _READ_ONLY = -157
    _PARTIAL = -158
    _VALUE_DESERIALIZATION = -159
    _KEY_DESERIALIZATION = -160
    _VALUE_SERIALIZATION = -161
    _KEY_SERIALIZATION = -162
    _INTR = -163
    _WAIT_CACHE = -164
    _UNSUPPORTED_FEATURE = -165
    _TIMED_OUT_QUEUE = -166
    _OUTDATED = -167
    _NO_OFFSET = -168
    _AUTHENTICATION = -169
    _NOT_IMPLEMENTED = -170
    _UNKNOWN_PROTOCOL = -171
    _STATE = -172
    _CONFLICT = -173
    _REVOKE_PARTITIONS = -174
    _ASSIGN_PARTITIONS = -175
    _EXISTING_SUBSCRIPTION = -176
    _PREV_IN_PROGRESS = -177
    _IN_PROGRESS = -178
    _UNKNOWN_GROUP = -179
    _WAIT_COORD = -180
    _SSL = -181
    _NODE_UPDATE = -182
    _ISR_INSUFF = -183
    _QUEUE_FULL = -184
    _TIMED_OUT = -185
    _INVALID_ARG = -186
    _ALL_BROKERS_DOWN = -187
    _UNKNOWN_TOPIC = -188
    _FS = -189
    _UNKNOWN_PARTITION = -190
    _PARTITION_EOF = -191
    _MSG_TIMED_OUT = -192
    _RESOLVE = -193
    _CRIT_SYS_RESOURCE = -194
    _TRANSPORT = -195
    _FAIL = -196
    _DESTROY = -197
    _BAD_COMPRESSION = -198
    _BAD_MSG = -199


NAMES: dict[int, str] = {code: name for name, code in vars(ErrorCodes).items() if name.isupper()}
"""Names by code."""

_WORDS: dict[str, str] = {
    "_DESTROY_BROKER": "broker connection was closed",
    "_INVALID_DIFFERENT_RECORD": "another record of the batch was rejected",
    "_LOG_TRUNCATION": "log was truncated below the position",
    "_AUTO_OFFSET_RESET": "no valid offset, and auto.offset.reset doesn't allow a reset",
    "_NOOP": "nothing to do",
    "_ASSIGNMENT_LOST": "assignment was lost",
    "_APPLICATION": "error of the application",
    "_FENCED": "fenced by a newer client with the same id",
    "_NOT_CONFIGURED": "feature isn't configured",
    "_UNKNOWN_BROKER": "unknown broker",
    "_MAX_POLL_EXCEEDED": "max.poll.interval.ms was exceeded",
    "_GAPLESS_GUARANTEE": "a message failed, and later ones would leave a gap",
    "_INCONSISTENT": "inconsistent state",
    "_FATAL": "client has failed",
    "_PURGE_INFLIGHT": "message was dropped while in flight",
    "_PURGE_QUEUE": "message was dropped before it was sent",
    "_RETRY": "operation must be retried",
    "_INVALID_TYPE": "invalid type",
    "_UNDERFLOW": "too few bytes",
    "_NOENT": "not found",
    "_READ_ONLY": "value is read-only",
    "_PARTIAL": "operation was only partly executed",
    "_VALUE_DESERIALIZATION": "value can't be deserialized",
    "_KEY_DESERIALIZATION": "key can't be deserialized",
    "_VALUE_SERIALIZATION": "value can't be serialized",
    "_KEY_SERIALIZATION": "key can't be serialized",
    "_INTR": "call was interrupted",
    "_WAIT_CACHE": "waiting for metadata",
    "_UNSUPPORTED_FEATURE": "feature isn't supported by the broker or this release",
    "_TIMED_OUT_QUEUE": "timed out before the request was sent",
    "_OUTDATED": "state is out of date",
    "_NO_OFFSET": "no offset",
    "_AUTHENTICATION": "broker rejected the credentials",
    "_NOT_IMPLEMENTED": "not implemented",
    "_UNKNOWN_PROTOCOL": "unknown protocol",
    "_STATE": "call isn't allowed in the current state",
    "_CONFLICT": "conflict with another setting or state",
    "_REVOKE_PARTITIONS": "partitions are being revoked",
    "_ASSIGN_PARTITIONS": "partitions are being assigned",
    "_EXISTING_SUBSCRIPTION": "conflict with the existing subscription",
    "_PREV_IN_PROGRESS": "a previous operation is in progress",
    "_IN_PROGRESS": "operation is in progress",
    "_UNKNOWN_GROUP": "unknown group",
    "_WAIT_COORD": "waiting for the coordinator",
    "_SSL": "TLS error",
    "_NODE_UPDATE": "broker's address has changed",
    "_ISR_INSUFF": "too few in-sync replicas",
    "_QUEUE_FULL": "queue is full",
    "_TIMED_OUT": "timed out",
    "_INVALID_ARG": "invalid argument or setting",
    "_ALL_BROKERS_DOWN": "no broker can be reached",
    "_UNKNOWN_TOPIC": "unknown topic",
    "_FS": "file system error",
    "_UNKNOWN_PARTITION": "unknown partition",
    "_PARTITION_EOF": "end of the partition was reached",
    "_MSG_TIMED_OUT": "message timed out",
    "_RESOLVE": "host name can't be resolved",
    "_CRIT_SYS_RESOURCE": "system resource is exhausted",
    "_TRANSPORT": "connection failed",
    "_FAIL": "error without a code",
    "_DESTROY": "client is closed",
    "_BAD_COMPRESSION": "compressed data can't be decompressed",
    "_BAD_MSG": "malformed message",
}


def name_of(code: int) -> str:
    """Return the name of a code, or "ERR_<code>?" for an unknown one."""
    return NAMES.get(code, f"ERR_{code}?")


def words_for(code: int) -> str:
    """Return the description of a code, used for errors without their own text."""
    if code == ErrorCodes.NO_ERROR:
        return "Success"
    name = name_of(code)
    if name in _WORDS:
        return f"Local: {_WORDS[name]}"
    if code in ERRORS:
        first = " ".join((ERRORS[code].__doc__ or "").split()).partition(". ")[0]
        return f"Broker: {first.removesuffix('.')}"
    return f"Err-{code}?"
