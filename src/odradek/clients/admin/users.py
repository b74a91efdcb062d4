"""Change users' SCRAM passwords (KIP-554), quotas (KIP-546) and delegation tokens (KIP-48).

In: arguments of a call. Out: `AdminCall`s. A password only leaves this process salted and hashed;
neither passwords nor the HMACs of tokens are ever shown. Must not: log in with them.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from odradek.clients.admin.admin_arguments import keys, some_of
from odradek.clients.admin.admin_call import AdminCall, by_any, one
from odradek.clients.batched_calls import ApiCall, ItemResult, ItemResults, call_any
from odradek.common.arguments import (
    checked_timeout,
    choice,
    flag,
    is_bool,
    mapping,
    refusal,
    text,
    whole_number,
)
from odradek.common.errors import ConfigurationError
from odradek.common.errors.kafka import ResourceNotFoundError, error_for
from odradek.common.secret import Secret
from odradek.common.types import Rng
from odradek.network.flow import Flow, Wait
from odradek.network.sasl.scram import HASHES, salted_password
from odradek.protocol.messages import alter_client_quotas as aq
from odradek.protocol.messages import alter_user_scram_credentials as au
from odradek.protocol.messages import create_delegation_token as ct
from odradek.protocol.messages import describe_client_quotas as dq
from odradek.protocol.messages import describe_delegation_token as dt
from odradek.protocol.messages import describe_user_scram_credentials as du
from odradek.protocol.messages import expire_delegation_token as et
from odradek.protocol.messages import renew_delegation_token as rt

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
"""Minimum and maximum number of SCRAM iterations that Kafka accepts."""
SALT_BYTES = 20
EXACTLY, THE_DEFAULT, SPECIFIED = 0, 1, 2
BY_DEFAULT = -1
"""In a request for a new token: the broker's default lifetime; to expire a token: at once."""


# Passwords


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A credential of a user. `mechanism`: SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A SCRAM password to set. Without `salt` a random one is used."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = LEAST_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A SCRAM password to remove."""

    user: str
    mechanism: str


ScramAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


def describe_scram(
    users: Sequence[str] | str | None,
) -> AdminCall[dict[str, tuple[ScramCredentialInfo, ...]]]:
    """Describe the SCRAM credentials of these users, or of all if None, without secrets."""
    wanted = None if users is None else keys("users", users, "users' names")
    names = {number: name for name, number in MECHANISMS.items()}

    def read(
        answer: du.DescribeUserScramCredentialsResponse,
    ) -> Iterator[ItemResult[str, tuple[ScramCredentialInfo, ...]]]:
        for r in answer.results:
            found = tuple(
                ScramCredentialInfo(names.get(i.mechanism, str(i.mechanism)), i.iterations)
                for i in sorted(r.credential_infos, key=lambda i: i.mechanism)
            )
            yield r.user, r.error_code, r.error_message, found

    def question(
        read_of: Any, asked: list[str] | None
    ) -> ApiCall[Any, du.DescribeUserScramCredentialsResponse, Any]:
        return ApiCall(
            "the description of SCRAM credentials",
            "user",
            lambda left, _: du.DescribeUserScramCredentialsRequest(
                None if asked is None else [du.UserName(u) for u in left]
            ),
            du.DescribeUserScramCredentialsResponse,
            read_of,
            right="DESCRIBE",
        )

    if wanted is not None:
        return by_any(question(read, wanted), wanted)
    everybody: AdminCall[ItemResults[str, tuple[ScramCredentialInfo, ...]]] = one(
        question(lambda answer: [(None, 0, None, _outcome(read(answer)))], None)
    )
    return everybody.then(lambda outcome: outcome.settled())


def _outcome(said: Iterator[ItemResult[str, Any]]) -> ItemResults[str, Any]:
    found: ItemResults[str, Any] = ItemResults()
    for user, code, reason, value in said:
        if code:
            found.errors[user] = error_for(code, f"user {user}: {reason or ''}".rstrip(": "))
        else:
            found.results[user] = value
    return found


def alter_scram(alterations: Sequence[ScramAlteration], rng: Rng) -> AdminCall[dict[str, None]]:
    """Set and delete SCRAM passwords; results and errors are by user.

    After a failed change, later changes of the same user aren't sent.
    """
    kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
    cure = "use UserScramCredentialUpsertion(user, mechanism, password)"
    given: list[Any] = some_of("alterations", alterations, kinds, cure)
    asked_for: dict[str, list[au.ScramCredentialDeletion | _Unsalted]] = {}
    for alteration in given:
        user = text("user", alteration.user)
        mechanism = choice("mechanism", alteration.mechanism, MECHANISMS)
        if isinstance(alteration, UserScramCredentialDeletion):
            deletion = au.ScramCredentialDeletion(user, MECHANISMS[mechanism])
            asked_for.setdefault(user, []).append(deletion)
        else:
            asked_for.setdefault(user, []).append(_unsalted(alteration, rng))

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, None]]:
        changes: dict[str, list[ScramChange]] = {user: [] for user in asked_for}
        for user, those in asked_for.items():
            for one_of in those:
                changes[user].append((yield from _salted(engine, one_of, deadline)))
        found: ItemResults[str, None] = ItemResults(dict.fromkeys(changes))
        for turn in range(max(map(len, changes.values()), default=0)):
            # The controller accepts one change of each user per request.
            now = {u: c[turn] for u, c in changes.items() if turn < len(c) and u in found.results}
            asked = yield from call_any(engine.brokers, _altering(now), now, deadline)
            found.errors.update(asked.errors)
            for user in asked.errors:
                del found.results[user]
        return found.settled()

    return AdminCall("the change of SCRAM credentials", flow)


ScramChange = au.ScramCredentialDeletion | au.ScramCredentialUpsertion


def _altering(
    changes: Mapping[str, ScramChange],
) -> ApiCall[str, au.AlterUserScramCredentialsResponse, None]:
    def body(left: list[str], _: int) -> au.AlterUserScramCredentialsRequest:
        mine = [changes[user] for user in left]
        return au.AlterUserScramCredentialsRequest(
            [c for c in mine if isinstance(c, au.ScramCredentialDeletion)],
            [c for c in mine if isinstance(c, au.ScramCredentialUpsertion)],
        )

    return ApiCall(
        "the change of SCRAM credentials",
        "user",
        body,
        au.AlterUserScramCredentialsResponse,
        lambda answer: [(r.user, r.error_code, r.error_message, None) for r in answer.results],
        right="ALTER",
        already=(ResourceNotFoundError,),
        changes=True,
    )


class _Unsalted(NamedTuple):
    """A SCRAM password to set, not yet salted and hashed, which is expensive."""

    user: str
    mechanism: str
    password: Secret
    salt: bytes
    iterations: int


def _unsalted(given: UserScramCredentialUpsertion, rng: Rng) -> _Unsalted:
    password = Secret(text("password", given.password, private=True))
    if not password:
        raise ConfigurationError(f"the password of user {given.user!r} is empty")
    name = f"iterations of user {given.user!r}"
    iterations = whole_number(name, given.iterations, LEAST_ITERATIONS, MOST_ITERATIONS)
    salt = given.salt
    if salt is None:
        salt = bytes(int(rng.random() * 256) for _ in range(SALT_BYTES))
    return _Unsalted(given.user, given.mechanism, password, bytes(salt), iterations)


def _salted(
    engine: AdminEngine, change: au.ScramCredentialDeletion | _Unsalted, deadline: float
) -> Flow[ScramChange]:
    """Return the change with the salted password.

    Salting takes some milliseconds, so a worker thread does it: an event loop, and all other calls
    of this client, continue meanwhile.
    """
    if not isinstance(change, _Unsalted):
        return change
    user, mechanism, password, salt, iterations = change
    work = HASHES[mechanism], password, salt, iterations
    done = engine.call(salted_password, work, deadline=deadline, where="worker")
    while not done.done:
        yield Wait((done,))
    if isinstance(done.error, TimeoutError):
        raise engine.timeout("the change of SCRAM credentials (passwords are salted)", engine.now)
    salted = done.result()
    return au.ScramCredentialUpsertion(user, MECHANISMS[mechanism], iterations, salt, salted)


# Quotas


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """The entity that a quota limits: a user, a client id, both together, or an IP address.

    `ClientQuotaEntity.DEFAULT` instead of a name means all users, client ids or addresses that have
    no separate quota; in a filter, `ClientQuotaEntity.ANY` matches any name.
    """

    DEFAULT: ClassVar[str] = "<default>"
    ANY: ClassVar[str] = "<any>"

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


DEFAULT, ANY = ClientQuotaEntity.DEFAULT, ClientQuotaEntity.ANY
_ENTITY_TYPES = {"user": "user", "client-id": "client_id", "ip": "ip"}
Quotas = dict[str, float]


def describe_quotas(
    entity: ClientQuotaEntity | None, strict: bool
) -> AdminCall[dict[ClientQuotaEntity, Quotas]]:
    """Describe the quotas that match an entity, or all if None."""
    parts = [] if entity is None else _parts("entity", entity)
    only = flag("strict", strict)
    asked = []
    for kind, name in parts:
        if name == ANY:
            asked.append(dq.ComponentData(kind, SPECIFIED, None))
        elif name == DEFAULT:
            asked.append(dq.ComponentData(kind, THE_DEFAULT, None))
        else:
            asked.append(dq.ComponentData(kind, EXACTLY, name))
    question: ApiCall[None, dq.DescribeClientQuotasResponse, dict[ClientQuotaEntity, Quotas]] = (
        ApiCall(
            "the description of quotas",
            "",
            lambda *_: dq.DescribeClientQuotasRequest(asked, only),
            dq.DescribeClientQuotasResponse,
            lambda answer: [
                (
                    None,
                    0,
                    None,
                    {
                        _entity(e.entity): {v.key: v.value for v in e.values}
                        for e in answer.entries or ()
                    },
                )
            ],
            right="DESCRIBE_CONFIGS",
        )
    )
    return one(question)


def alter_quotas(
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]], validate_only: bool
) -> AdminCall[dict[ClientQuotaEntity, None]]:
    """Set quotas; the value None deletes a quota."""
    given = mapping("changes", changes, "a dict of quotas by ClientQuotaEntity")
    wanted = {
        at: aq.AlterClientQuotasRequestEntryData(
            [
                aq.AlterClientQuotasRequestEntityData(kind, None if name == DEFAULT else name)
                for kind, name in _parts("a key of changes", at)
            ],
            [
                _op(text("a quota's name", name), value)
                for name, value in mapping(f"quotas of {at}", quotas, "a dict of numbers").items()
            ],
        )
        for at, quotas in given.items()
    }
    only_checked = flag("validate_only", validate_only)
    question: ApiCall[ClientQuotaEntity, aq.AlterClientQuotasResponse, None] = ApiCall(
        "the change of quotas",
        "quotas of",
        lambda left, _: aq.AlterClientQuotasRequest([wanted[at] for at in left], only_checked),
        aq.AlterClientQuotasResponse,
        lambda answer: [
            (_entity(e.entity), e.error_code, e.error_message, None) for e in answer.entries
        ],
        right="ALTER_CONFIGS",
        changes=not only_checked,
    )
    return by_any(question, wanted)


def _parts(name: str, given: Any) -> list[tuple[str, str]]:
    if not isinstance(given, ClientQuotaEntity):
        raise refusal(name, "a ClientQuotaEntity", given, "use ClientQuotaEntity(user=…)")
    found = [(kind, getattr(given, field_)) for kind, field_ in _ENTITY_TYPES.items()]
    parts = [(kind, text(f"{kind} of {name}", value)) for kind, value in found if value is not None]
    if not parts:
        raise ConfigurationError(f"{name} is an empty ClientQuotaEntity: set user, client_id or ip")
    return parts


def _entity(parts: Sequence[Any]) -> ClientQuotaEntity:
    names = {
        _ENTITY_TYPES[p.entity_type]: ClientQuotaEntity.DEFAULT
        if p.entity_name is None
        else p.entity_name
        for p in parts
        if p.entity_type in _ENTITY_TYPES
    }
    return ClientQuotaEntity(**names)


def _op(name: str, value: Any) -> aq.OpData:
    if value is None:
        return aq.OpData(name, 0.0, True)
    if is_bool(value) or not hasattr(value, "__float__") or not math.isfinite(value):
        raise refusal(f"the quota {name}", "a number, or None to remove it", value)
    return aq.OpData(name, float(value), False)


# Delegation tokens


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Delegation token for SCRAM logins.

    Use its id as the user name, `password` as the password, and `tokenauth=true` in
    `sasl.jaas.config`. Principals are texts such as "User:alice"; times are in milliseconds since
    the epoch.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The HMAC in base64."""
        return b64encode(self.hmac).decode()


def create_token(
    renewers: Sequence[str] | str, max_lifetime: float | None, owner: str | None
) -> AdminCall[DelegationToken]:
    """Create a token for this client's user, or for another `owner` (KIP-373)."""
    who = keys("renewers", renewers, "principals")
    may_renew = [ct.CreatableRenewers(*_principal("renewers", p)) for p in who]
    life = _period("max_lifetime", max_lifetime)
    kind, name = (None, None) if owner is None else _principal("owner", owner)
    question: ApiCall[None, ct.CreateDelegationTokenResponse, DelegationToken] = ApiCall(
        "delegation token",
        "",
        lambda *_: ct.CreateDelegationTokenRequest(kind, name, may_renew, life),
        ct.CreateDelegationTokenResponse,
        lambda a: [
            (
                None,
                0,
                None,
                _token(a, a.issue_timestamp_ms, a.expiry_timestamp_ms, a.max_timestamp_ms, who),
            )
        ],
        right="CREATE_TOKENS",
        changes=True,
    )
    return one(question)


def renew_token(hmac: bytes, period: float | None) -> AdminCall[int]:
    """Extend a token's lifetime; return its expiry in milliseconds since the epoch."""
    token, longer = _hmac(hmac), _period("period", period)
    question: ApiCall[None, rt.RenewDelegationTokenResponse, int] = ApiCall(
        "the renewal of the delegation token",
        "",
        lambda *_: rt.RenewDelegationTokenRequest(token, longer),
        rt.RenewDelegationTokenResponse,
        lambda answer: [(None, 0, None, answer.expiry_timestamp_ms)],
        changes=True,
    )
    return one(question)


def expire_token(hmac: bytes, period: float | None) -> AdminCall[int]:
    """Expire a token after `period` seconds (None: at once); return the time of expiry."""
    token, later = _hmac(hmac), _period("period", period)
    question: ApiCall[None, et.ExpireDelegationTokenResponse, int] = ApiCall(
        "the expiry of the delegation token",
        "",
        lambda *_: et.ExpireDelegationTokenRequest(token, later),
        et.ExpireDelegationTokenResponse,
        lambda answer: [(None, 0, None, answer.expiry_timestamp_ms)],
        changes=True,
    )
    return one(question)


def describe_tokens(owners: Sequence[str] | str | None) -> AdminCall[list[DelegationToken]]:
    """Describe the tokens of these owners, or all that this client may see if None."""
    asked = None
    if owners is not None:
        who = keys("owners", owners, "principals")
        asked = [dt.DescribeDelegationTokenOwner(*_principal("owners", p)) for p in who]
    question: ApiCall[None, dt.DescribeDelegationTokenResponse, list[DelegationToken]] = ApiCall(
        "the description of delegation tokens",
        "",
        lambda *_: dt.DescribeDelegationTokenRequest(asked),
        dt.DescribeDelegationTokenResponse,
        lambda answer: [
            (
                None,
                0,
                None,
                [
                    _token(
                        t,
                        t.issue_timestamp,
                        t.expiry_timestamp,
                        t.max_timestamp,
                        [f"{r.principal_type}:{r.principal_name}" for r in t.renewers],
                    )
                    for t in answer.tokens
                ],
            )
        ],
        right="DESCRIBE_TOKENS",
    )
    return one(question)


def _token(
    t: Any, issued: int, expires: int, at_most: int, renewers: Sequence[str]
) -> DelegationToken:
    owner = f"{t.principal_type}:{t.principal_name}"
    requester = f"{t.token_requester_principal_type}:{t.token_requester_principal_name}"
    return DelegationToken(
        t.token_id,
        bytes(t.hmac),
        owner,
        owner if requester == ":" else requester,  # brokers before 3.3 don't send the requester
        tuple(renewers),
        issued,
        expires,
        at_most,
    )


def _principal(name: str, given: str) -> tuple[str, str]:
    kind, colon, who = text(name, given).partition(":")
    if not (kind and colon and who):
        raise ConfigurationError(f'{name}: {given!r} isn\'t a principal like "User:alice"')
    return kind, who


def _hmac(given: Any) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        raise refusal("hmac", "the bytes of a DelegationToken's hmac", type(given))
    return bytes(given)


def _period(name: str, seconds: float | None) -> int:
    return BY_DEFAULT if seconds is None else int(checked_timeout(seconds, name) * 1000)
