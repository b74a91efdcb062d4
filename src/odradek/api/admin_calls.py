"""Calls of an admin client for ACLs, users, quotas, tokens and transactions.

In: names, numbers and frozen values. Out: frozen values, errors that name their item. Must not:
decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.api.base import Client
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.lazy_imports import acls as acl_calls
from odradek.clients.admin.lazy_imports import transactions
from odradek.clients.admin.lazy_imports import users as user_calls
from odradek.common.notebooks.display import shown
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.clients.admin.acls import AclBinding, AclBindingFilter
    from odradek.clients.admin.admin_call import AdminCall
    from odradek.clients.admin.transactions import (
        AbortTransactionSpec,
        ActiveProducer,
        HangingTransaction,
        ProducerIdAndEpoch,
        TransactionDescription,
        TransactionListing,
    )
    from odradek.clients.admin.users import (
        ClientQuotaEntity,
        DelegationToken,
        ScramAlteration,
        ScramCredentialInfo,
    )

T = TypeVar("T")


class AdminCalls(Client[AdminEngine]):
    """Base class of `Admin`: ACLs, users, quotas, tokens and transactions."""

    def _ask(self, call: AdminCall[T], timeout: float | None) -> T:
        """Execute a call within its timeout."""
        return shown(self._call(lambda d: call.flow(self._engine, d), timeout, call.what))

    # ACLs

    def create_acls(self, acls: Sequence[AclBinding], timeout: float | None = None) -> None:
        """Create ACLs; existing ones are kept."""
        self._ask(acl_calls.create(acls), timeout)

    def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match a filter, or all, sorted.

        Raises `SecurityDisabledError` if the brokers have no authorizer.
        """
        return self._ask(acl_calls.describe(acl_filter), timeout)

    def delete_acls(
        self, filters: Sequence[AclBindingFilter], timeout: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete all ACLs that match filters; return the deleted ones by filter."""
        return self._ask(acl_calls.delete(filters), timeout)

    # Users

    def describe_user_scram_credentials(
        self, users: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return the SCRAM credentials of these users, or of all, without secrets (KIP-554).

        Raises `ResourceNotFoundError` for a user without SCRAM credentials.
        """
        return self._ask(user_calls.describe_scram(users), timeout)

    def alter_user_scram_credentials(
        self, alterations: Sequence[ScramAlteration], timeout: float | None = None
    ) -> None:
        """Set and delete SCRAM passwords of users (KIP-554).

        `alterations`: `UserScramCredentialUpsertion` or `UserScramCredentialDeletion`. Passwords
        are salted and hashed before they are sent. Raises `ResourceNotFoundError` for a credential
        that doesn't exist.
        """
        self._ask(user_calls.alter_scram(alterations, self._engine.rng), timeout)

    # Quotas

    def describe_client_quotas(
        self,
        entity: ClientQuotaEntity | None = None,
        timeout: float | None = None,
        *,
        strict: bool = False,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return the quotas of the entities that match `entity`, or of all (KIP-546).

        `strict` excludes entities that have more parts than `entity`. Quotas have Kafka's names:
        `producer_byte_rate` in bytes per second, `request_percentage` …
        """
        return self._ask(user_calls.describe_quotas(entity, strict), timeout)

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas by name; None deletes one. With `validate_only` they are only checked."""
        self._ask(user_calls.alter_quotas(changes, validate_only), timeout)

    # Delegation tokens (KIP-48)

    def create_delegation_token(
        self,
        renewers: Sequence[str] | str = (),
        timeout: float | None = None,
        *,
        max_lifetime: float | None = None,
        owner: str | None = None,
    ) -> DelegationToken:
        """Create a token for this client's user, or for another `owner` (KIP-373).

        Principals are written like "User:alice". `max_lifetime` is in seconds; None for the
        brokers' default. Raises `DelegationTokenAuthDisabledError` and
        `DelegationTokenRequestNotAllowedError`.
        """
        return self._ask(user_calls.create_token(renewers, max_lifetime, owner), timeout)

    def renew_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """Extend a token by `period` seconds; return its expiry in ms since the epoch.

        Raises `DelegationTokenNotFoundError`, `DelegationTokenExpiredError` and
        `DelegationTokenOwnerMismatchError`.
        """
        return self._ask(user_calls.renew_token(hmac, period), timeout)

    def expire_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """Expire a token in `period` seconds (None: now); return the expiry in ms since the epoch.

        Raises what `renew_delegation_token` raises.
        """
        return self._ask(user_calls.expire_token(hmac, period), timeout)

    def describe_delegation_tokens(
        self, owners: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of these owners ("User:alice"), or all that this client may see."""
        return self._ask(user_calls.describe_tokens(owners), timeout)

    # Producers and transactions (KIP-664)

    def describe_producers(
        self,
        partitions: Sequence[TopicPartition],
        timeout: float | None = None,
        *,
        broker: int | None = None,
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the recently active producers of partitions, as their leaders know them.

        With `broker`, that broker is asked; it may be a follower.
        """
        return self._ask(transactions.producers(partitions, broker), timeout)

    def describe_transactions(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the coordinators' descriptions of transactional ids.

        Raises `TransactionalIdNotFoundError`.
        """
        return self._ask(transactions.describe(ids), timeout)

    def list_transactions(
        self,
        timeout: float | None = None,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        running_longer_than: float | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return all transactional ids, sorted, or those that match every filter given.

        `running_longer_than` is in seconds (KIP-994); `pattern` is a regular expression for the id
        (KIP-1152).
        """
        return self._ask(
            transactions.listing(states, producer_ids, running_longer_than, pattern), timeout
        )

    def abort_transaction(self, spec: AbortTransactionSpec, timeout: float | None = None) -> None:
        """Abort a hanging transaction in one partition, without its coordinator.

        `find_hanging_transactions` finds such transactions.
        """
        self._ask(transactions.abort(spec), timeout)

    def fence_producers(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids and abort their open transactions (KIP-588)."""
        return self._ask(transactions.fence(ids), timeout)

    def find_hanging_transactions(
        self,
        topics: Sequence[str] | str | None = None,
        timeout: float | None = None,
        *,
        older_than: float = 900.0,
    ) -> list[HangingTransaction]:
        """Return open transactions that no coordinator knows, of these topics or of all.

        Consumers with `isolation.level=read_committed` can't read past them. Transactions written
        to within the last `older_than` seconds are excluded: use at least the brokers'
        `transaction.max.timeout.ms`.
        """
        now = self._host.wall_clock()
        return self._ask(transactions.hanging(topics, older_than, now), timeout)
