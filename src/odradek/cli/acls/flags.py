"""Translate the flags of Kafka's kafka-acls.sh to ACLs and filters.

In: the flags. Out: `AclBinding`s to create, `AclBindingFilter`s of existing ones. Contradictions
are usage errors. Must not: access a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import one_word
from odradek.clients.admin.acls import ANY, AclBinding, AclBindingFilter

LITERAL, PREFIXED, MATCH = "LITERAL", "PREFIXED", "MATCH"
CLUSTER_NAME = "kafka-cluster"
EVERY_HOST = "*"
ALL = "ALL"
SUPPORTED = {
    "TOPIC": (
        *("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS"),
        "ALTER_CONFIGS",
    ),
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        *("CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
        *("ALTER", "DESCRIBE"),
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}
"""Operations that brokers authorize, by resource type."""
OPERATIONS = (ALL, *dict.fromkeys(o for those in SUPPORTED.values() for o in those))

Resource = tuple[str, str, str]
"""Type, name and pattern type."""
Entry = tuple[str, str, str, str]
"""Permission, principal, host and operation."""


@dataclass(frozen=True, slots=True)
class AclFlags:
    """Values of the flags, as they were typed."""

    topic: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    transactional_id: tuple[str, ...] = ()
    delegation_token: tuple[str, ...] = ()
    user_principal: tuple[str, ...] = ()
    cluster: bool = False
    pattern: str = "literal"
    allow_principal: tuple[str, ...] = ()
    deny_principal: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    deny_host: tuple[str, ...] = ()
    operation: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def pattern_type(self) -> str:
        """Pattern type in Kafka's spelling."""
        kinds = (LITERAL, PREFIXED, MATCH, ANY)
        return one_word("--resource-pattern-type", self.pattern, kinds)

    def resources(self) -> list[Resource]:
        """Return the resources that the flags name."""
        pattern = self.pattern_type
        named = {
            "TOPIC": self.topic,
            "GROUP": self.group,
            "TRANSACTIONAL_ID": self.transactional_id,
            "DELEGATION_TOKEN": self.delegation_token,
            "USER": self.user_principal,
        }
        found = [(kind, name, pattern) for kind, names in named.items() for name in names]
        if self.cluster:
            if pattern == PREFIXED:
                refuse("--cluster: the pattern type of the cluster must be literal")
            found.append(("CLUSTER", CLUSTER_NAME, LITERAL))
        return list(dict.fromkeys(found))


def bindings(flags: AclFlags) -> list[AclBinding]:
    """Return the ACLs to create."""
    if flags.pattern_type not in (LITERAL, PREFIXED):
        refuse(f"--resource-pattern-type {flags.pattern}: must be literal or prefixed")
    if not (flags.allow_principal or flags.deny_principal):
        refuse("no principal is given: use --allow-principal or --deny-principal, as in User:alice")
    return [
        AclBinding(kind, name, who, operation, permission, pattern, host)
        for (kind, name, pattern), entries in _meant(flags).items()
        for permission, who, host, operation in entries
    ]


def filters(flags: AclFlags) -> list[AclBindingFilter]:
    """Return filters for the ACLs to delete: of resources, and of principals if given."""
    found = []
    for (kind, name, pattern), entries in _meant(flags).items():
        if not entries:
            found.append(AclBindingFilter(kind, name, pattern_type=pattern))
        found += [
            AclBindingFilter(kind, name, who, operation, permission, pattern, host)
            for permission, who, host, operation in entries
        ]
    return found


def listing(flags: AclFlags, principals: Iterable[str]) -> list[AclBindingFilter]:
    """Return filters for the ACLs to list, by resource (default: all) and principal."""
    wanted: list[tuple[str, str | None, str]] = [*flags.resources()] or [(ANY, None, ANY)]
    who: list[str | None] = [principal("--principal", p) for p in principals]
    return [
        AclBindingFilter(kind, name, p, pattern_type=pattern)
        for (kind, name, pattern), p in product(wanted, who or [None])
    ]


def _meant(flags: AclFlags) -> dict[Resource, list[Entry]]:
    """Return the allowed and denied operations by resource."""
    resources = flags.resources()
    if flags.idempotent and not flags.producer:
        refuse("--idempotent needs --producer")
    if flags.producer or flags.consumer:
        return _of_roles(flags, resources)
    if not resources:
        refuse(
            "no resource is given: use --topic, --group, --cluster, --transactional-id, "
            "--delegation-token or --user-principal"
        )
    operations = [one_word("--operation", o, OPERATIONS) for o in flags.operation] or [ALL]
    for kind, _, _ in resources:
        for operation in operations:
            if operation not in (ALL, *SUPPORTED[kind]):
                refuse(
                    f"--operation {operation}: a {kind} supports {', '.join(SUPPORTED[kind])}, ALL"
                )
    entries = list(_entries(flags, operations))
    return dict.fromkeys(resources, entries)


def _of_roles(flags: AclFlags, resources: list[Resource]) -> dict[Resource, list[Entry]]:
    """Return the operations that producers and consumers need, as in Kafka's tool."""
    role = "--producer" if flags.producer else "--consumer"
    if flags.operation or flags.deny_principal or flags.deny_host:
        refuse(f"{role} already implies the operations: leave out --operation and --deny-…")
    if not flags.topic:
        refuse(f"{role} needs --topic")
    if flags.consumer and not flags.group:
        refuse("--consumer needs --group")
    if flags.consumer and not flags.producer and (flags.cluster or flags.transactional_id):
        refuse("--consumer can't be given with --cluster or --transactional-id")
    needed: dict[str, list[str]] = {"TOPIC": [], "GROUP": [], "TRANSACTIONAL_ID": [], "CLUSTER": []}
    if flags.producer:
        needed["TOPIC"] += ["WRITE", "DESCRIBE", "CREATE"]
        needed["TRANSACTIONAL_ID"] += ["WRITE", "DESCRIBE"]
    if flags.consumer:
        needed["TOPIC"] += ["READ", "DESCRIBE"]
        needed["GROUP"] += ["READ"]
    if flags.idempotent:
        needed["CLUSTER"] += ["IDEMPOTENT_WRITE"]
        resources = [*resources, ("CLUSTER", CLUSTER_NAME, LITERAL)]
    return {
        resource: list(_entries(flags, dict.fromkeys(needed[resource[0]])))
        for resource in dict.fromkeys(resources)
        if needed.get(resource[0])
    }


def _entries(flags: AclFlags, operations: Iterable[str]) -> Iterator[Entry]:
    every = list(operations)
    for permission, flag, who, hosts in (
        ("ALLOW", "--allow-principal", flags.allow_principal, flags.allow_host),
        ("DENY", "--deny-principal", flags.deny_principal, flags.deny_host),
    ):
        if hosts and not who:
            refuse(f"{flag.replace('principal', 'host')} needs {flag}")
        for one, host, operation in product(who, hosts or (EVERY_HOST,), every):
            yield permission, principal(flag, one), host.strip(), operation


def principal(flag: str, given: str) -> str:
    """Check a principal such as User:alice; raises `UsageError`."""
    kind, colon, name = given.strip().partition(":")
    if not (kind and colon and name):
        refuse(f"{flag}: expected a principal such as User:{given or 'alice'}, not {given!r}")
    return f"{kind}:{name}"
