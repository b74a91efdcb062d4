"""Distinguish a coordinator's final errors from incidental ones of a single response.

In: an error that isn't retriable. Out: whether a retry can succeed. It can't if a permission is
missing, a protocol isn't supported, or another instance has the name: these need an action first.
All other errors (UNKNOWN_SERVER_ERROR, codes of later releases) concern one broker at one moment:
Java's classic consumer reports them to the caller once and joins again, and so does this client
with any protocol. Must not: decide how often to retry, or which caller is notified.
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
"""Errors that remain until the client's configuration or its permissions change."""


def is_refusal(error: KafkaError) -> bool:
    """Return whether an error can't be retried, because it remains until a user acts."""
    if isinstance(error, BrokerError):
        return isinstance(error, REFUSALS)
    return not (error.retriable or isinstance(error, MalformedMessageError))
