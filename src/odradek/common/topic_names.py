"""Check topic names as brokers do.

In: a text. Out: whether it can be a topic name, or an error that says why not. Must not: ask a
cluster.
"""

from __future__ import annotations

from odradek.common.errors.kafka import InvalidTopicExceptionError

KAFKAS_OWN = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Kafka's internal topics (`Topic.INTERNAL_TOPICS`)."""
LONGEST = 249
RULE = "a topic name has 1 to 249 letters (a to z, A to Z), digits, dots, dashes and underscores"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ALLOWED = f"{_LETTERS}{_LETTERS.upper()}0123456789._-"


def is_topic_name(name: str) -> bool:
    """Return whether brokers accept this topic name (`Topic.validate` in Kafka)."""
    try:
        check_topic(name)
    except InvalidTopicExceptionError:
        return False
    return True


def check_topic(name: str) -> None:
    """Raise for a topic name that no broker accepts.

    Without this check, a name that can't be encoded would make each metadata refresh, which
    requests all topics in use, fail for all callers.
    """
    if not 0 < len(name) <= LONGEST or name in (".", "..") or name.strip(_ALLOWED):
        raise _refused(name)


def check_sendable(name: str) -> None:
    """Raise only for topic names that can't be encoded.

    For another invalid name, the broker returns an error for this topic, and executes the rest of
    the call.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= LONGEST:
        raise _refused(name)


def _refused(name: str) -> InvalidTopicExceptionError:
    return InvalidTopicExceptionError(f"{name!r:.120} isn't a valid topic name: {RULE}")
