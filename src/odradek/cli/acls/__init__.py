"""`odradek acls`: create, list and delete ACLs, with the flags of Kafka's kafka-acls.

In: resources, principals, operations. Out: created, listed and deleted ACLs. Must not: evaluate
ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from odradek.cli.acls.flags import LITERAL, OPERATIONS, AclFlags, bindings, filters, listing
from odradek.cli.frame.commands import AdminRun, changes, destroys, reads
from odradek.cli.frame.completion import group_ids, topic_names
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.clients.admin.acls import AclBinding, AclBindingFilter

app = overview("ACLs: list, create, delete.")

Words = list[str] | None


def _many(*names: str, text: str, metavar: str = "NAME", **more: Any) -> typer.models.OptionInfo:
    help_ = f"{text}; may be repeated."
    option: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help_, **more)
    return option


Topic = Annotated[Words, _many(text="A topic; * means all", autocompletion=topic_names)]
Group = Annotated[Words, _many(text="A group; * means all", autocompletion=group_ids)]
TransactionalId = Annotated[Words, _many(text="A transactional id; * means all", metavar="ID")]
DelegationToken = Annotated[Words, _many(text="A delegation token, by its id", metavar="ID")]
UserPrincipal = Annotated[
    Words, _many(text="A user as a resource, such as User:alice", metavar="PRINCIPAL")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself, as a resource.")]
Allowed = Annotated[
    Words,
    _many(text="A principal to allow, such as User:alice; User:* means all", metavar="PRINCIPAL"),
]
Denied = Annotated[
    Words,
    _many(
        text="A principal to deny, overriding all that is allowed, such as User:alice",
        metavar="PRINCIPAL",
    ),
]
AllowedHost = Annotated[Words, _many(text="An address to allow (default: *, any)", metavar="IP")]
DeniedHost = Annotated[Words, _many(text="An address to deny (default: *, any)", metavar="IP")]
Operation = Annotated[
    Words, _many(text=f"An operation (default: All): {', '.join(OPERATIONS)}", metavar="OPERATION")
]
Pattern = Annotated[
    str,
    typer.Option(
        metavar="TYPE", help="literal: names are full names; prefixed: names are prefixes."
    ),
]
PatternToFind = Annotated[
    str,
    typer.Option(
        metavar="TYPE",
        help="Pattern type of the ACLs: literal, prefixed, any; or match, for all ACLs that apply "
        "to a resource of this name.",
    ),
]
Producer = Annotated[
    bool,
    typer.Option(
        "--producer",
        help="The operations that a producer needs: Write, Describe and Create on its topics, "
        "Write and Describe on its transactional ids.",
    ),
]
Consumer = Annotated[
    bool,
    typer.Option(
        "--consumer",
        help="The operations that a consumer needs: Read and Describe on its topics, Read on its "
        "group.",
    ),
]
Idempotent = Annotated[
    bool,
    typer.Option(
        "--idempotent", help="With --producer: also IdempotentWrite, for brokers before 2.8."
    ),
]


@reads(app, "list")
def list_(
    run: AdminRun,
    principal: Annotated[
        Words, _many(text="Only ACLs of this principal, such as User:alice", metavar="PRINCIPAL")
    ] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    resource_pattern_type: PatternToFind = LITERAL.lower(),
) -> Result:
    """List ACLs: all, or those of some resources and principals.

    Example: odradek acls list --topic flights --resource-pattern-type match
    """
    flags = _flags(locals())
    found: set[AclBinding] = set()
    for wanted in listing(flags, principal or ()):
        found |= set(run.admin.describe_acls(wanted, run.left()))
    acls = sorted(found)
    return Result({"acls": acls}, [_table(acls, "No ACLs found.")])


@changes(app)
def create(
    run: AdminRun,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHost = None,
    deny_host: DeniedHost = None,
    operation: Operation = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    resource_pattern_type: Pattern = LITERAL.lower(),
) -> Result:
    """Create ACLs, which allow or deny operations on resources to principals.

    Example: odradek acls create --allow-principal User:alice --operation read --topic flights
    """
    flags = _flags(locals())
    wanted = bindings(flags)
    there = set(run.admin.describe_acls(None, run.left()))
    new = [acl for acl in wanted if acl not in there]
    existed = [acl for acl in wanted if acl in there]
    known = [f"Already existed: {acl}." for acl in existed]
    if run.dry_run:
        document = {"dry_run": True, "would_create": new, "existed": existed}
        return Result(document, [*(f"Would create: {acl}." for acl in new), *known])
    made, failed = (
        run.each(lambda: run.admin.create_acls(new, run.left()), new) if new else ({}, {})
    )
    shown = [*(f"Created: {acl}." for acl in made), *known]
    return Result({"created": list(made), "existed": existed}, shown, failed)


@destroys(app)
def delete(
    run: AdminRun,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHost = None,
    deny_host: DeniedHost = None,
    operation: Operation = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    resource_pattern_type: PatternToFind = LITERAL.lower(),
) -> Result:
    """Delete ACLs of resources: those of some principals, or all.

    Example: odradek acls delete --topic flights --allow-principal User:alice --dry-run
    """
    flags = _flags(locals())
    meant = filters(flags)
    acls = sorted({acl for f in meant for acl in run.admin.describe_acls(f, run.left())})
    if run.dry_run:
        shown = [f"Would delete: {acl}." for acl in acls]
        document = {"dry_run": True, "would_delete": acls}
        return Result(document, shown or ["No ACLs found."])
    if not acls:
        return Result({"deleted": []}, ["No ACLs found."])
    run.confirm(f"delete {counted(len(acls), 'ACL')}: {_shortly(acls)}")
    # Delete exactly the ACLs that were shown, not those created meanwhile.
    exact = {_exactly(acl): acl for acl in acls}
    gone, failed = run.each(lambda: run.admin.delete_acls(list(exact), run.left()))
    deleted = sorted(exact[f] for f in gone)
    return Result({"deleted": deleted}, [f"Deleted: {acl}." for acl in deleted], failed)


def _flags(given: dict[str, Any]) -> AclFlags:
    """Collect the ACL flags among a command's arguments."""
    given["pattern"] = given["resource_pattern_type"]
    found = {field.name: given[field.name] for field in fields(AclFlags) if field.name in given}
    several = {n: tuple(v or ()) for n, v in found.items() if v is None or isinstance(v, list)}
    return AclFlags(**{**found, **several})


def _exactly(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.resource_type,
        acl.resource_name,
        acl.principal,
        acl.operation,
        acl.permission_type,
        acl.pattern_type,
        acl.host,
    )


def _shortly(acls: Sequence[AclBinding]) -> str:
    more = "; …" if len(acls) > 3 else ""
    return "; ".join(map(str, acls[:3])) + more


def _table(acls: Iterable[AclBinding], empty: str) -> ResultTable:
    heads = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    rows = [
        (
            *(a.resource_type, a.resource_name, a.pattern_type, a.principal, a.host),
            *(a.operation, a.permission_type),
        )
        for a in acls
    ]
    return ResultTable(heads, rows, empty)
