"""ACLs of confluent-kafka, and filters for them.

In: values, or Odradek's ACLs. Out: objects that are compared and hashed by their attributes. Must
not: evaluate ACLs.
"""

from __future__ import annotations

from enum import Enum
from functools import total_ordering
from typing import Any, ClassVar

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import (
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    as_member,
    known_as,
)

_ENUMERATIONS: dict[str, type[Enum]] = {
    "restype": ResourceType,
    "resource_pattern_type": ResourcePatternType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
}
_TEXTS = ("name", "principal", "host")


@total_ordering
class AclBinding:
    """ACL that allows or denies an operation on resources to a principal from a host.

    Enumerations may be given as members, names or numbers. Raises `ValueError` and `TypeError`.
    """

    restype: ResourceType
    resource_pattern_type: ResourcePatternType
    operation: AclOperation
    permission_type: AclPermissionType
    _may_be_none: ClassVar[tuple[str, ...]] = ()
    _forbidden: ClassVar[frozenset[str]] = frozenset(("ANY", "MATCH"))

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        given: dict[str, Any] = {
            "restype": restype,
            "name": name,
            "resource_pattern_type": resource_pattern_type,
            "principal": principal,
            "host": host,
            "operation": operation,
            "permission_type": permission_type,
        }
        for part, value in given.items():
            if value is None and part not in self._may_be_none:
                raise ValueError(f"Expected {part} to be not None")
            if value is not None and part in _TEXTS and not isinstance(value, str):
                raise TypeError(f"Expected {part} to be a string")
        for part, kind in _ENUMERATIONS.items():
            member = as_member(given[part], kind)
            if member.name in self._forbidden:
                raise ValueError(f"Cannot use enum {part}, value {member.name} in this class")
            setattr(self, part, member)
            setattr(self, f"{part}_int", member.value)
        self.name, self.principal, self.host = name, principal, host

    def _parts(self) -> tuple[Any, ...]:
        return (
            *(self.restype, self.name, self.resource_pattern_type, self.principal, self.host),
            *(self.operation, self.permission_type),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._parts()))})"

    def __hash__(self) -> int:
        return hash(self._parts())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AclBinding):
            return NotImplemented
        return self._parts() == other._parts()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, AclBinding):
            return NotImplemented
        return self._parts() < other._parts()


class AclBindingFilter(AclBinding):
    """Filter for ACLs: None and ANY match anything, MATCH all ACLs that apply to a resource."""

    _may_be_none = _TEXTS
    _forbidden = frozenset(("UNKNOWN",))


def our_acl(acl: AclBinding) -> odradek.admin.AclBinding:
    """Convert an ACL for Odradek's admin client, which creates it."""
    return odradek.admin.AclBinding(
        _our_resource(acl.restype),
        acl.name or "",
        acl.principal or "",
        acl.operation.name,
        acl.permission_type.name,
        acl.resource_pattern_type.name,
        acl.host or "",
    )


def our_filter(given: AclBindingFilter) -> odradek.admin.AclBindingFilter:
    """Convert a filter for Odradek's admin client."""
    return odradek.admin.AclBindingFilter(
        _our_resource(given.restype),
        given.name,
        given.principal,
        given.operation.name,
        given.permission_type.name,
        given.resource_pattern_type.name,
        given.host,
    )


def acl_of(found: odradek.admin.AclBinding) -> AclBinding:
    """Convert Odradek's ACL; values that confluent-kafka doesn't know become UNKNOWN."""
    kind = "BROKER" if found.resource_type == "CLUSTER" else found.resource_type
    return AclBinding(
        known_as(kind, ResourceType),
        found.resource_name,
        known_as(found.pattern_type, ResourcePatternType),
        found.principal,
        found.host,
        known_as(found.operation, AclOperation),
        known_as(found.permission_type, AclPermissionType),
    )


def _our_resource(kind: ResourceType) -> str:
    return "CLUSTER" if kind is ResourceType.BROKER else kind.name
