"""Test which ACLs and filters the flags of kafka-acls select, and which flags are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.cli.acls.flags import AclFlags, bindings, filters, listing
from odradek.cli.console.properties import UsageError
from odradek.clients.admin.acls import AclBinding, AclBindingFilter

ALICE, BOB = "User:alice", "User:bob"


def flags(**given: Any) -> AclFlags:
    return AclFlags(**given)


def test_acls_are_created_for_each_combination_of_principal_operation_and_host() -> None:
    made = bindings(
        flags(
            topic=("a", "b"),
            allow_principal=(ALICE,),
            deny_principal=(BOB,),
            deny_host=("10.0.0.1", "10.0.0.2"),
            operation=("Read", "DescribeConfigs"),
            pattern="Prefixed",
        )
    )
    assert len(made) == len(set(made)) == 12
    assert made[0] == AclBinding("TOPIC", "a", ALICE, "READ", "ALLOW", "PREFIXED")
    assert AclBinding("TOPIC", "b", BOB, "DESCRIBE_CONFIGS", "DENY", "PREFIXED", "10.0.0.2") in made


def test_without_an_operation_an_acl_allows_all_operations() -> None:
    made = bindings(flags(cluster=True, user_principal=(BOB,), allow_principal=(ALICE,)))
    assert made == [
        AclBinding("USER", BOB, ALICE, "ALL"),
        AclBinding("CLUSTER", "kafka-cluster", ALICE, "ALL"),
    ]


def test_producer_and_consumer_flags_create_the_acls_that_they_need() -> None:
    made = bindings(
        flags(
            topic=("t",),
            group=("g",),
            transactional_id=("x",),
            allow_principal=(ALICE,),
            producer=True,
            consumer=True,
            idempotent=True,
        )
    )
    assert {(a.resource_type, a.resource_name, a.operation) for a in made} == {
        *(("TOPIC", "t", o) for o in ("WRITE", "DESCRIBE", "CREATE", "READ")),
        ("GROUP", "g", "READ"),
        *(("TRANSACTIONAL_ID", "x", o) for o in ("WRITE", "DESCRIBE")),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }
    assert len(made) == 8


def test_a_filter_matches_all_acls_of_a_resource_or_those_of_a_principal() -> None:
    assert filters(flags(topic=("t",), pattern="match")) == [
        AclBindingFilter("TOPIC", "t", pattern_type="MATCH")
    ]
    assert filters(flags(group=("g",), deny_principal=(BOB,), operation=("read",))) == [
        AclBindingFilter("GROUP", "g", BOB, "READ", "DENY", "LITERAL", "*")
    ]


def test_acls_are_listed_by_resource_and_principal() -> None:
    assert listing(flags(), ()) == [AclBindingFilter()]
    assert listing(flags(topic=("t",)), (ALICE, BOB)) == [
        AclBindingFilter("TOPIC", "t", who, pattern_type="LITERAL") for who in (ALICE, BOB)
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": ("t",)}, "no principal is given"),
        ({"allow_principal": (ALICE,)}, "no resource is given"),
        (
            {"allow_principal": ("alice",), "topic": ("t",)},
            "expected a principal such as User:alice",
        ),
        ({"allow_principal": (ALICE,), "topic": ("t",), "pattern": "any"}, "literal or prefixed"),
        ({"allow_principal": (ALICE,), "topic": ("t",), "pattern": "x"}, "unknown value 'x'"),
        (
            {"allow_principal": (ALICE,), "group": ("g",), "operation": ("write",)},
            "--operation WRITE: a GROUP supports READ",
        ),
        ({"allow_principal": (ALICE,), "producer": True}, "--producer needs --topic"),
        (
            {"allow_principal": (ALICE,), "consumer": True, "topic": ("t",)},
            "--consumer needs --group",
        ),
        (
            {"allow_principal": (ALICE,), "producer": True, "topic": ("t",), "operation": ("all",)},
            "--producer already implies the operations",
        ),
        (
            {"allow_principal": (ALICE,), "idempotent": True, "topic": ("t",)},
            "--idempotent needs --producer",
        ),
        ({"deny_host": ("h",), "allow_principal": (ALICE,), "topic": ("t",)}, "needs --deny-prin"),
        ({"cluster": True, "pattern": "prefixed", "allow_principal": (ALICE,)}, "must be literal"),
    ],
)
def test_contradictory_or_incomplete_flags_are_rejected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bindings(flags(**given))
