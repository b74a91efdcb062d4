"""Calls of an admin client about ACLs, users, quotas, tokens and transactions.

In: names, numbers and frozen values. Out: frozen values, errors that say what they are about.
Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.api.base import Client
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.families import acls as acl_calls
from odradek.clients.admin.families import transactions
from odradek.clients.admin.families import users as user_calls
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
    """Base of `Admin`: calls about rights, users and transactions; not made directly."""

    def _ask(self, call: AdminCall[T], timeout: float | None) -> T:
        """Carry out a call within its timeout."""
        return shown(self._call(lambda d: call.flow(self._engine, d), timeout, call.what))

    # Rights

    def create_acls(self, acls: Sequence[AclBinding], timeout: float | None = None) -> None:
        """Make ACLs; one that is there already stays as it is."""
        self._ask(acl_calls.create(acls), timeout)

    def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, timeout: float | None = None
    ) -> list[AclBinding]:
        """The ACLs that a filter means, all without one; sorted.

        Raises `SecurityDisabledError` where the brokers have no authorizer.
        """
        return self._ask(acl_calls.describe(acl_filter), timeout)

    def delete_acls(
        self, filters: Sequence[AclBindingFilter], timeout: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete all ACLs that filters mean; gives those that are gone, by filter."""
        return self._ask(acl_calls.delete(filters), timeout)

    # Users

    def describe_user_scram_credentials(
        self, users: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Which SCRAM credentials users have, all users without a name; no secret (KIP-554).

        Raises `ResourceNotFoundError` for a user without any.
        """
        return self._ask(user_calls.describe_scram(users), timeout)

    def alter_user_scram_credentials(
        self, alterations: Sequence[ScramAlteration], timeout: float | None = None
    ) -> None:
        """Set passwords (`UserScramCredentialUpsertion`) and take them away (`…Deletion`).

        Passwords leave this process salted and hashed only. Raises `ResourceNotFoundError` where
        there is nothing to take away.
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
        """The quotas of those that `entity` means, all without one (KIP-546).

        `strict` leaves out those that have another part beside the ones named. Quotas have Kafka's
        names: `producer_byte_rate` in bytes a second, `request_percentage` …
        """
        return self._ask(user_calls.describe_quotas(entity, strict), timeout)

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas by name; None takes one away. With `validate_only` they are only checked."""
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
        """Make a token for the user that this client logs in as, or for another `owner` (KIP-373).

        Principals are texts as "User:alice"; `max_lifetime` is in seconds, the brokers' for None.
        Raises `DelegationTokenAuthDisabledError`, `DelegationTokenRequestNotAllowedError`.
        """
        return self._ask(user_calls.create_token(renewers, max_lifetime, owner), timeout)

    def renew_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """Let a token hold for `period` seconds more; gives its end, milliseconds since the epoch.

        Raises `DelegationTokenNotFoundError`, `DelegationTokenExpiredError`,
        `DelegationTokenOwnerMismatchError`.
        """
        return self._ask(user_calls.renew_token(hmac, period), timeout)

    def expire_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """End a token after `period` seconds, at once for None; gives when that is.

        Raises as `renew_delegation_token` does.
        """
        return self._ask(user_calls.expire_token(hmac, period), timeout)

    def describe_delegation_tokens(
        self, owners: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> list[DelegationToken]:
        """The tokens of these owners ("User:alice"), all that this client may see without any."""
        return self._ask(user_calls.describe_tokens(owners), timeout)

    # Producers and transactions (KIP-664)

    def describe_producers(
        self,
        partitions: Sequence[TopicPartition],
        timeout: float | None = None,
        *,
        broker: int | None = None,
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that wrote to partitions lately, as the leaders know them.

        With `broker` that one is asked, which may be a follower.
        """
        return self._ask(transactions.producers(partitions, broker), timeout)

    def describe_transactions(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """What coordinators know of transactional ids.

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
        """All transactional ids, sorted; in these states and of these producers, where some are
        given, open for so many seconds (KIP-994), with an id that matches (KIP-1152).
        """
        return self._ask(
            transactions.listing(states, producer_ids, running_longer_than, pattern), timeout
        )

    def abort_transaction(self, spec: AbortTransactionSpec, timeout: float | None = None) -> None:
        """End a transaction in one partition by force, for one that hangs: its coordinator isn't
        asked. `find_hanging_transactions` gives such ones.
        """
        self._ask(transactions.abort(spec), timeout)

    def fence_producers(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids: what they have open is aborted (KIP-588)."""
        return self._ask(transactions.fence(ids), timeout)

    def find_hanging_transactions(
        self,
        topics: Sequence[str] | str | None = None,
        timeout: float | None = None,
        *,
        older_than: float = 900.0,
    ) -> list[HangingTransaction]:
        """Open transactions that no coordinator knows any more, of these topics, or of all.

        Readers of committed records wait for those for ever. One that wrote within `older_than`
        seconds isn't counted: give no less than the brokers' `transaction.max.timeout.ms`.
        """
        now = self._host.wall_clock()
        return self._ask(transactions.hanging(topics, older_than, now), timeout)
