"""Enumerations with confluent-kafka's names and numbers: resources, patterns, operations.

In: nothing. Out: enumerations, and Odradek's names for their members. Must not: contain a member
that no request can express.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

from odradek.compat.confluent_kafka.model import OrderedEnum

E = TypeVar("E", bound=Enum)


class ResourceType(OrderedEnum):
    """Type of a resource; in ACLs, BROKER means the cluster."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ResourcePatternType(OrderedEnum):
    """Whether an ACL names its resources literally or by a prefix, and the same for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(OrderedEnum):
    """Operation of an ACL."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermissionType(OrderedEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AlterConfigOpType(Enum):
    """Kind of change of an option."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(Enum):
    """Source of an option's value."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class ScramMechanism(OrderedEnum):
    """SCRAM mechanism, which determines the hash function of a password."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


def as_member(value: Any, kind: type[E]) -> E:
    """Convert a member, its name (in any case) or its number to the member."""
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            raise ValueError(f'Unknown value "{value}": should be a {kind.__name__}') from None
    if isinstance(value, int):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f'Unknown value "{value}": should be a {kind.__name__}')
    return value


def known_as(word: str, kind: type[E]) -> E:
    """Return the member with Odradek's name, or UNKNOWN if confluent-kafka has none."""
    return kind.__members__.get(word, kind["UNKNOWN"])


def operations(given: Iterable[Any] | None) -> list[AclOperation] | None:
    """Convert permitted operations; None if there are none or they weren't requested."""
    return sorted(as_member(one, AclOperation) for one in given) if given else None


def operations_of(words: Iterable[str] | None) -> list[AclOperation] | None:
    """Convert Odradek's names of permitted operations to members."""
    return operations([known_as(w, AclOperation) for w in words]) if words else None
