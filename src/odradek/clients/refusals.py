"""Which errors of a coordinator are its last word, and which are a mishap of this one answer.

In: an error that isn't retriable. Out: whether asking again is of any use. A right that is missing,
a protocol that isn't spoken, a name that another instance took: whoever is told that has to act
first. All else, UNKNOWN_SERVER_ERROR and codes of later releases above all, says something about
one broker at one moment: Java's classic consumer tells the caller once and joins again, and so it
is done here, whatever the protocol. Must not: decide how often, or who is told.
"""

from __future__ import annotations

from odradek.common import kafka_errors as errors
from odradek.common.errors import AuthorizationError, BrokerError, KafkaError, MalformedMessageError

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
    """Whether it stands until somebody acts; errors of this side's own making do."""
    if isinstance(error, BrokerError):
        return isinstance(error, REFUSALS)
    return not (error.retriable or isinstance(error, MalformedMessageError))
