"""Create, describe and delete access control lists.

In: arguments of a call. Out: `AdminCall`s. Texts are Kafka's names: TOPIC, READ, ALLOW, PREFIXED.
Must not: judge what an ACL allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.clients.admin.admin_arguments import some_of
from odradek.clients.admin.admin_call import AdminCall, by_any, one
from odradek.clients.batched_calls import ApiCall, ItemResult
from odradek.clients.descriptions import OPERATIONS
from odradek.common.arguments import choice, refusal, text
from odradek.protocol.messages import create_acls as c
from odradek.protocol.messages import delete_acls as x
from odradek.protocol.messages import describe_acls as d

ANY = "ANY"
RESOURCE_TYPES = (
    *("UNKNOWN", ANY, "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN"),
    "USER",
)
PATTERN_TYPES = ("UNKNOWN", ANY, "MATCH", "LITERAL", "PREFIXED")
PERMISSION_TYPES = ("UNKNOWN", ANY, "DENY", "ALLOW")


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One ACL: whether `principal` ("User:alice") may do `operation` on a resource.

    `resource_type`: TOPIC, GROUP, CLUSTER (with the name "kafka-cluster"), TRANSACTIONAL_ID,
    DELEGATION_TOKEN or USER. `pattern_type`: LITERAL (the name "*" then matches all resources), or
    PREFIXED.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission_type: str = "ALLOW"
    pattern_type: str = "LITERAL"
    host: str = "*"

    def __str__(self) -> str:
        return (
            f"{self.permission_type} {self.principal} {self.operation} on "
            f"{self.resource_type} {self.resource_name} ({self.pattern_type}) from {self.host}"
        )


@dataclass(frozen=True, slots=True, order=True)
class AclBindingFilter:
    """A filter of ACLs; None and "ANY" match everything.

    `pattern_type` MATCH selects all ACLs that apply to the named resource: literal, "*" and
    prefixed ones.
    """

    resource_type: str = ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: str = ANY
    permission_type: str = ANY
    pattern_type: str = ANY
    host: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.permission_type} {self.principal or ANY} {self.operation} on "
            f"{self.resource_type} {self.resource_name or ANY} ({self.pattern_type}) from "
            f"{self.host or ANY}"
        )


def create(acls: Sequence[AclBinding]) -> AdminCall[dict[AclBinding, None]]:
    """Create ACLs; existing ones are kept."""
    cure = "use AclBinding(resource_type, resource_name, principal, operation)"
    made = {acl: _creation(acl) for acl in some_of("acls", acls, AclBinding, cure)}
    asked: list[AclBinding] = []

    def body(left: list[AclBinding], _: int) -> c.CreateAclsRequest:
        asked[:] = left
        return c.CreateAclsRequest([made[acl] for acl in left])

    def read(answer: c.CreateAclsResponse) -> Iterator[ItemResult[AclBinding, None]]:
        for acl, result in zip(asked, answer.results, strict=False):
            yield acl, result.error_code, result.error_message, None

    question: ApiCall[AclBinding, c.CreateAclsResponse, None] = ApiCall(
        "the creation of ACLs", "ACL", body, c.CreateAclsResponse, read, right="ALTER", changes=True
    )
    return by_any(question, made)


def describe(acl_filter: AclBindingFilter | None) -> AdminCall[list[AclBinding]]:
    """Describe the ACLs that match a filter, sorted; all if it is None."""
    wanted = _filter("acl_filter", AclBindingFilter() if acl_filter is None else acl_filter)

    def read(answer: d.DescribeAclsResponse) -> Iterator[ItemResult[None, list[AclBinding]]]:
        found = [
            AclBinding(
                _word(RESOURCE_TYPES, r.resource_type),
                r.resource_name,
                a.principal,
                _word(OPERATIONS, a.operation),
                _word(PERMISSION_TYPES, a.permission_type),
                _word(PATTERN_TYPES, r.pattern_type),
                a.host,
            )
            for r in answer.resources
            for a in r.acls
        ]
        yield None, 0, None, sorted({*found})

    question: ApiCall[None, d.DescribeAclsResponse, list[AclBinding]] = ApiCall(
        "the description of ACLs",
        "",
        lambda *_: d.DescribeAclsRequest(*_fields(wanted)),
        d.DescribeAclsResponse,
        read,
        right="DESCRIBE",
    )
    return one(question)


def delete(
    filters: Sequence[AclBindingFilter],
) -> AdminCall[dict[AclBindingFilter, list[AclBinding]]]:
    """Delete all ACLs that match filters; return the deleted ones by filter."""
    cure = "give AclBindingFilter(resource_type, …)"
    given = some_of("filters", filters, AclBindingFilter, cure)
    fields = {f: _fields(_filter(f"filters[{i}]", f)) for i, f in enumerate(given)}
    asked: list[AclBindingFilter] = []

    def body(left: list[AclBindingFilter], _: int) -> x.DeleteAclsRequest:
        asked[:] = left
        return x.DeleteAclsRequest([x.DeleteAclsFilter(*fields[f]) for f in left])

    def read(
        answer: x.DeleteAclsResponse,
    ) -> Iterator[ItemResult[AclBindingFilter, list[AclBinding]]]:
        for wanted, result in zip(asked, answer.filter_results, strict=False):
            code, reason = result.error_code, result.error_message
            for acl in result.matching_acls:
                if acl.error_code and not code:
                    code, reason = acl.error_code, acl.error_message
            yield wanted, code, reason, sorted(_gone(acl) for acl in result.matching_acls)

    question: ApiCall[AclBindingFilter, x.DeleteAclsResponse, list[AclBinding]] = ApiCall(
        "the deletion of ACLs",
        "ACLs",
        body,
        x.DeleteAclsResponse,
        read,
        right="ALTER",
        changes=True,
    )
    return by_any(question, fields)


def _creation(acl: AclBinding) -> c.AclCreation:
    for name, value in (("resource_type", acl.resource_type), ("operation", acl.operation)):
        if value == ANY:
            raise refusal(f"{name} of an AclBinding", "one of Kafka's words", value)
    pattern = choice("pattern_type of an AclBinding", acl.pattern_type, ("LITERAL", "PREFIXED"))
    allowed = choice("permission_type of an AclBinding", acl.permission_type, ("ALLOW", "DENY"))
    return c.AclCreation(
        _number("resource_type", RESOURCE_TYPES, acl.resource_type),
        text("resource_name of an AclBinding", acl.resource_name),
        PATTERN_TYPES.index(pattern),
        text("principal of an AclBinding", acl.principal),
        text("host of an AclBinding", acl.host),
        _number("operation", OPERATIONS, acl.operation),
        PERMISSION_TYPES.index(allowed),
    )


def _filter(name: str, given: Any) -> AclBindingFilter:
    if not isinstance(given, AclBindingFilter):
        raise refusal(name, "an AclBindingFilter", given)
    for value in (given.resource_name, given.principal, given.host):
        if value is not None:
            text(name, value)
    return given


def _fields(f: AclBindingFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """Return the fields that the describe and the delete request share."""
    return (
        _number("resource_type", RESOURCE_TYPES, f.resource_type),
        f.resource_name,
        _number("pattern_type", PATTERN_TYPES, f.pattern_type),
        f.principal,
        f.host,
        _number("operation", OPERATIONS, f.operation),
        _number("permission_type", PERMISSION_TYPES, f.permission_type),
    )


def _gone(a: x.DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        _word(RESOURCE_TYPES, a.resource_type),
        a.resource_name,
        a.principal,
        _word(OPERATIONS, a.operation),
        _word(PERMISSION_TYPES, a.permission_type),
        _word(PATTERN_TYPES, a.pattern_type),
        a.host,
    )


def _number(name: str, words: Sequence[str], value: Any) -> int:
    return words.index(choice(f"{name} of an ACL", value, words[1:]))


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 <= number < len(words) else str(number)
