"""Handle admin requests for ACLs, SCRAM credentials, quotas and delegation tokens.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response. Simplified: ACLs, credentials, quotas and tokens are stored and returned, but have no
effect; the caller's permissions aren't checked. Must not know connections.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages import alter_client_quotas as aq
from odradek.protocol.messages import alter_user_scram_credentials as au
from odradek.protocol.messages import create_acls as ca
from odradek.protocol.messages import create_delegation_token as ct
from odradek.protocol.messages import delete_acls as da
from odradek.protocol.messages import describe_acls as ds
from odradek.protocol.messages import describe_client_quotas as dq
from odradek.protocol.messages import describe_delegation_token as dt
from odradek.protocol.messages import describe_user_scram_credentials as du
from odradek.protocol.messages import expire_delegation_token as et
from odradek.protocol.messages import renew_delegation_token as rt
from odradek.simulation.brokers.admin_state import TOKEN_LIFE, SimulatedToken, each
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DAY = 86400
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage",
          "controller_mutation_rate", "connection_creation_rate")  # fmt: skip

Acl = tuple[int, str, int, str, str, int, int]
"""Resource type, name, pattern type, principal, host, operation, permission."""


def create_acls(
    broker: BrokerState, request: ca.CreateAclsRequest, version: int, reply: Reply
) -> ca.CreateAclsResponse:
    """Create ACLs."""

    def create(a: ca.AclCreation) -> None:
        if ":" not in a.principal:
            raise errors.InvalidRequestError(f"Could not parse principal from `{a.principal}`")
        acl = (a.resource_type, a.resource_name, a.resource_pattern_type)
        broker.cluster.admin.acls[(*acl, a.principal, a.host, a.operation, a.permission_type)] = (
            None
        )

    return ca.CreateAclsResponse(
        results=each(
            request.creations, create, lambda _, code, why, __: ca.AclCreationResult(code, why)
        )
    )


def _meant(broker: BrokerState, f: Any) -> list[Acl]:
    def fits(acl: Acl) -> bool:
        kind, name, pattern, principal, host, operation, permission = acl
        if f.pattern_type_filter == MATCH:
            named = (
                f.resource_name_filter is None
                or (pattern == LITERAL and name in (f.resource_name_filter, "*"))
                or (pattern == PREFIXED and f.resource_name_filter.startswith(name))
            )
        else:
            named = f.resource_name_filter in (None, name)
            named = named and f.pattern_type_filter in (ANY, pattern)
        return (
            named
            and f.resource_type_filter in (ANY, kind)
            and f.principal_filter in (None, principal)
            and f.host_filter in (None, host)
            and f.operation in (ANY, operation)
            and f.permission_type in (ANY, permission)
        )

    return [acl for acl in broker.cluster.admin.acls if fits(acl)]


def describe_acls(
    broker: BrokerState, request: ds.DescribeAclsRequest, version: int, reply: Reply
) -> ds.DescribeAclsResponse:
    """Return the ACLs that match a filter, by resource."""
    resources: dict[tuple[int, str, int], list[ds.AclDescription]] = {}
    for acl in _meant(broker, request):
        resources.setdefault(acl[:3], []).append(ds.AclDescription(*acl[3:]))
    return ds.DescribeAclsResponse(
        error_message=None,
        resources=[ds.DescribeAclsResource(*key, acls) for key, acls in resources.items()],
    )


def delete_acls(
    broker: BrokerState, request: da.DeleteAclsRequest, version: int, reply: Reply
) -> da.DeleteAclsResponse:
    """Delete the ACLs that match filters."""

    def delete(f: da.DeleteAclsFilter) -> list[da.DeleteAclsMatchingAcl]:
        gone = _meant(broker, f)
        for acl in gone:
            broker.cluster.admin.acls.pop(acl, None)
        return [da.DeleteAclsMatchingAcl(0, None, *acl) for acl in gone]

    return da.DeleteAclsResponse(
        filter_results=each(
            request.filters,
            delete,
            lambda _, code, why, gone: da.DeleteAclsFilterResult(code, why, gone or []),
        )
    )


# SCRAM credentials


def describe_scram(
    broker: BrokerState,
    request: du.DescribeUserScramCredentialsRequest,
    version: int,
    reply: Reply,
) -> du.DescribeUserScramCredentialsResponse:
    """Return the mechanisms and iterations of users' credentials."""
    scram = broker.cluster.admin.scram
    users = [u.name for u in request.users] if request.users else sorted(scram)

    def told(user: str) -> list[du.CredentialInfo]:
        if user not in scram:
            raise errors.ResourceNotFoundError(
                f"Attempt to describe a user credential that does not exist: {user}"
            )
        return [du.CredentialInfo(m, entry[0]) for m, entry in sorted(scram[user].items())]

    return du.DescribeUserScramCredentialsResponse(
        error_message=None,
        results=each(
            users,
            told,
            lambda user, code, why, found: du.DescribeUserScramCredentialsResult(
                user, code, why, found or []
            ),
        ),
    )


def alter_scram(
    broker: BrokerState,
    request: au.AlterUserScramCredentialsRequest,
    version: int,
    reply: Reply,
) -> au.AlterUserScramCredentialsResponse:
    """Set and delete users' SCRAM credentials."""
    scram = broker.cluster.admin.scram
    named = Counter([d.name for d in request.deletions] + [u.name for u in request.upsertions])

    def alter(user: str) -> None:
        if named[user] > 1:
            raise errors.DuplicateResourceError(
                "A user credential cannot be altered twice in the same request"
            )
        for deletion in request.deletions:
            if deletion.name == user and scram.get(user, {}).pop(deletion.mechanism, None) is None:
                raise errors.ResourceNotFoundError(
                    "Attempt to delete a user credential that does not exist"
                )
        for upsertion in request.upsertions:
            if upsertion.name == user:
                if not LEAST_ITERATIONS <= upsertion.iterations <= MOST_ITERATIONS:
                    raise errors.UnacceptableCredentialError("Too few iterations")
                scram.setdefault(user, {})[upsertion.mechanism] = (
                    upsertion.iterations,
                    bytes(upsertion.salt),
                    bytes(upsertion.salted_password),
                )
        if not scram.get(user):
            scram.pop(user, None)

    return au.AlterUserScramCredentialsResponse(
        results=each(
            named, alter, lambda user, *r: au.AlterUserScramCredentialsResult(user, *r[:2])
        )
    )


# Quotas


def describe_quotas(
    broker: BrokerState, request: dq.DescribeClientQuotasRequest, version: int, reply: Reply
) -> dq.DescribeClientQuotasResponse:
    """Return the quotas of entities that match a filter."""

    def fits(entity: dict[str, str | None]) -> bool:
        kinds = {c.entity_type for c in request.components}
        if request.strict and set(entity) != kinds:
            return False
        for c in request.components:
            if c.entity_type not in entity:
                return False
            name = entity[c.entity_type]
            if (c.match_type == 0 and name != c.match) or (c.match_type == 1 and name is not None):
                return False
        return True

    return dq.DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            dq.EntryData(
                [dq.EntityData(*part) for part in entity],
                [dq.ValueData(*value) for value in values.items()],
            )
            for entity, values in broker.cluster.admin.quotas.items()
            if fits(dict(entity))
        ],
    )


def alter_quotas(
    broker: BrokerState, request: aq.AlterClientQuotasRequest, version: int, reply: Reply
) -> aq.AlterClientQuotasResponse:
    """Set and delete quotas of entities."""
    quotas = broker.cluster.admin.quotas

    def alter(entry: aq.AlterClientQuotasRequestEntryData) -> None:
        entity = tuple(sorted((e.entity_type, e.entity_name) for e in entry.entity))
        values = dict(quotas.get(entity, {}))
        for op in entry.ops:
            if op.key not in QUOTAS:
                raise errors.InvalidRequestError(f"Invalid configuration key {op.key}")
            if op.remove:
                values.pop(op.key, None)
            else:
                values[op.key] = op.value
        if request.validate_only:
            return
        quotas[entity] = values
        if not values:
            del quotas[entity]

    return aq.AlterClientQuotasResponse(
        entries=each(
            request.entries,
            alter,
            lambda e, code, why, _: aq.AlterClientQuotasResponseEntryData(
                code,
                why,
                [
                    aq.AlterClientQuotasResponseEntityData(p.entity_type, p.entity_name)
                    for p in e.entity
                ],
            ),
        )
    )


# Delegation tokens


def _now(broker: BrokerState) -> int:
    return int(broker.time.now * 1000)


def create_token(
    broker: BrokerState, request: ct.CreateDelegationTokenRequest, version: int, reply: Reply
) -> ct.CreateDelegationTokenResponse:
    """Create a token, owned by the user "admin" unless the request names another owner."""
    tokens, now = broker.cluster.admin.tokens, _now(broker)
    life = int(TOKEN_LIFE * 1000)
    if request.max_lifetime_ms >= 0:
        life = min(life, request.max_lifetime_ms)
    owner = (request.owner_principal_type or "User", request.owner_principal_name or "admin")
    token = SimulatedToken(
        f"token-{len(tokens)}",
        f"hmac-{len(tokens)}".encode(),
        owner,
        tuple((r.principal_type, r.principal_name) for r in request.renewers),
        now,
        now + min(life, DAY * 1000),
        now + life,
    )
    tokens.append(token)
    return ct.CreateDelegationTokenResponse(
        0, *owner, *(("User", "admin") if version >= 3 else ("", "")),
        token.issued, token.expires, token.at_most, token.token_id, token.hmac
    )  # fmt: skip


def _token(broker: BrokerState, hmac: bytes) -> SimulatedToken:
    for token in broker.cluster.admin.tokens:
        if token.hmac == hmac:
            return token
    raise errors.DelegationTokenNotFoundError("there is no such token")


def renew_token(
    broker: BrokerState, request: rt.RenewDelegationTokenRequest, version: int, reply: Reply
) -> rt.RenewDelegationTokenResponse:
    """Extend a token's lifetime."""
    try:
        token = _token(broker, bytes(request.hmac))
    except errors.DelegationTokenNotFoundError as error:
        return rt.RenewDelegationTokenResponse(error.code)
    period = DAY * 1000 if request.renew_period_ms < 0 else request.renew_period_ms
    until = min(token.at_most, _now(broker) + period)
    _replace(broker, token, until)
    return rt.RenewDelegationTokenResponse(0, until)


def expire_token(
    broker: BrokerState, request: et.ExpireDelegationTokenRequest, version: int, reply: Reply
) -> et.ExpireDelegationTokenResponse:
    """Let a token expire, at once or later."""
    try:
        token = _token(broker, bytes(request.hmac))
    except errors.DelegationTokenNotFoundError as error:
        return et.ExpireDelegationTokenResponse(error.code)
    if request.expiry_time_period_ms < 0:
        broker.cluster.admin.tokens.remove(token)
        return et.ExpireDelegationTokenResponse(0, _now(broker))
    until = min(token.at_most, _now(broker) + request.expiry_time_period_ms)
    _replace(broker, token, until)
    return et.ExpireDelegationTokenResponse(0, until)


def _replace(broker: BrokerState, token: SimulatedToken, expires: int) -> None:
    tokens = broker.cluster.admin.tokens
    tokens[tokens.index(token)] = replace(token, expires=expires)


def describe_tokens(
    broker: BrokerState, request: dt.DescribeDelegationTokenRequest, version: int, reply: Reply
) -> dt.DescribeDelegationTokenResponse:
    """Return the tokens of the requested owners, or all tokens."""
    wanted = None
    if request.owners is not None:
        wanted = {(o.principal_type, o.principal_name) for o in request.owners}
    return dt.DescribeDelegationTokenResponse(
        tokens=[
            dt.DescribedDelegationToken(
                *t.owner,
                *(("User", "admin") if version >= 3 else ("", "")),
                t.issued,
                t.expires,
                t.at_most,
                t.token_id,
                t.hmac,
                [dt.DescribedDelegationTokenRenewer(*r) for r in t.renewers],
            )
            for t in broker.cluster.admin.tokens
            if wanted is None or t.owner in wanted
        ]
    )


SECURITY_ADMIN_HANDLERS: dict[type[Message], Handler] = {
    aq.AlterClientQuotasRequest: alter_quotas,
    au.AlterUserScramCredentialsRequest: alter_scram,
    ca.CreateAclsRequest: create_acls,
    ct.CreateDelegationTokenRequest: create_token,
    da.DeleteAclsRequest: delete_acls,
    dq.DescribeClientQuotasRequest: describe_quotas,
    ds.DescribeAclsRequest: describe_acls,
    dt.DescribeDelegationTokenRequest: describe_tokens,
    du.DescribeUserScramCredentialsRequest: describe_scram,
    et.ExpireDelegationTokenRequest: expire_token,
    rt.RenewDelegationTokenRequest: renew_token,
}
SECURITY_ADMIN_REFUSALS: dict[str, Any] = {
    "AlterClientQuotas": lambda body, code: aq.AlterClientQuotasResponse(
        entries=[
            aq.AlterClientQuotasResponseEntryData(
                code,
                None,
                [
                    aq.AlterClientQuotasResponseEntityData(p.entity_type, p.entity_name)
                    for p in e.entity
                ],
            )
            for e in body.entries
        ]
    ),
    "AlterUserScramCredentials": lambda body, code: au.AlterUserScramCredentialsResponse(
        results=[
            au.AlterUserScramCredentialsResult(user, code, None)
            for user in dict.fromkeys(x.name for x in [*body.deletions, *body.upsertions])
        ]
    ),
    "CreateAcls": lambda body, code: ca.CreateAclsResponse(
        results=[ca.AclCreationResult(code) for _ in body.creations]
    ),
    "DeleteAcls": lambda body, code: da.DeleteAclsResponse(
        filter_results=[da.DeleteAclsFilterResult(code) for _ in body.filters]
    ),
}
"""Responses by API that repeat an error code for each item of the request."""
