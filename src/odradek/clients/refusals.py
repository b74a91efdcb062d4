"""Which errors of a coordinator are its last word, and which are a mishap of this one answer.

In: an error that isn't retriable. Out: whether asking again is of any use. It isn't if a right is
missing, a protocol isn't spoken, or another instance has the name: somebody has to act first. All
other errors (UNKNOWN_SERVER_ERROR, codes of later releases) say something about one broker at one
moment: Java's classic consumer tells the caller once and joins again, and so do we with any
protocol. Must not: decide how often, or who is told.
"""

from __future__ import annotations

from odradek.common.errors import AuthorizationError, BrokerError, KafkaError, MalformedMessageError
from odradek.common.errors import kafka as errors

REFUSALS = (
    AuthorizationError,
    errors.FencedInstanceIdError,
    errors.GroupIdNotFoundError,
    errors.GroupMaxSizeReachedError,
    errors.IllegalSaslStateError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidGroupIdError,
    errors.InvalidRegularExpressionError,
    errors.InvalidRequestError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTopicExceptionError,
    errors.InvalidTransactionTimeoutError,
    errors.SaslAuthenticationFailedError,
    errors.SecurityDisabledError,
    errors.TransactionalIdNotFoundError,
    errors.UnreleasedInstanceIdError,
    errors.UnsupportedAssignorError,
    errors.UnsupportedSaslMechanismError,
    errors.UnsupportedVersionError,
)
"""Codes that say something about who asks: nothing changes until somebody changes it."""


def is_refusal(error: KafkaError) -> bool:
    """Whether it lasts until somebody acts; errors that this client makes itself do."""
    if isinstance(error, BrokerError):
        return isinstance(error, REFUSALS)
    return not (error.retriable or isinstance(error, MalformedMessageError))
