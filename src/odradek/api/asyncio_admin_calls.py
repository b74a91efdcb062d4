"""What an asyncio admin client does about rights, users, tokens and transactions.

In: names, numbers and frozen values. Out: frozen values, errors that say what they are about.
Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.api.asyncio_base import AsyncClient
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.families import acls as acl_calls
from odradek.clients.admin.families import transactions
from odradek.clients.admin.families import users as user_calls
from odradek.common.notebook import shown
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


class AsyncAdminCalls(AsyncClient[AdminEngine]):
    """Base of `AsyncAdmin`: calls about rights, users and transactions; not made directly."""

    async def _ask(self, call: AdminCall[T], timeout: float | None) -> T:
        """Carry out a call within its timeout."""
        return shown(await self._call(lambda d: call.flow(self._engine, d), timeout, call.what))

    # Rights

    async def create_acls(self, acls: Sequence[AclBinding], timeout: float | None = None) -> None:
        """Make ACLs; one that is there already stays as it is.

        As `Admin.create_acls`.
        """
        await self._ask(acl_calls.create(acls), timeout)

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, timeout: float | None = None
    ) -> list[AclBinding]:
        """The ACLs that a filter means, all without one; sorted.

        As `Admin.describe_acls`.
        """
        return await self._ask(acl_calls.describe(acl_filter), timeout)

    async def delete_acls(
        self, filters: Sequence[AclBindingFilter], timeout: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete all ACLs that filters mean; gives those that are gone, by filter.

        As `Admin.delete_acls`.
        """
        return await self._ask(acl_calls.delete(filters), timeout)

    # Users

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Which SCRAM credentials users have, all users without a name; no secret (KIP-554).

        As `Admin.describe_user_scram_credentials`.
        """
        return await self._ask(user_calls.describe_scram(users), timeout)

    async def alter_user_scram_credentials(
        self, alterations: Sequence[ScramAlteration], timeout: float | None = None
    ) -> None:
        """Set passwords (`UserScramCredentialUpsertion`) and take them away (`…Deletion`).

        As `Admin.alter_user_scram_credentials`.
        """
        await self._ask(user_calls.alter_scram(alterations, self._engine.rng), timeout)

    # Quotas

    async def describe_client_quotas(
        self,
        entity: ClientQuotaEntity | None = None,
        timeout: float | None = None,
        *,
        strict: bool = False,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas of those that `entity` means, all without one (KIP-546).

        As `Admin.describe_client_quotas`.
        """
        return await self._ask(user_calls.describe_quotas(entity, strict), timeout)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas by name; None takes one away. With `validate_only` they are only checked.

        As `Admin.alter_client_quotas`.
        """
        await self._ask(user_calls.alter_quotas(changes, validate_only), timeout)

    # Delegation tokens (KIP-48)

    async def create_delegation_token(
        self,
        renewers: Sequence[str] | str = (),
        timeout: float | None = None,
        *,
        max_lifetime: float | None = None,
        owner: str | None = None,
    ) -> DelegationToken:
        """Make a token for the user that this client logs in as, or for another `owner` (KIP-373).

        As `Admin.create_delegation_token`.
        """
        return await self._ask(user_calls.create_token(renewers, max_lifetime, owner), timeout)

    async def renew_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """Let a token hold for `period` seconds more; gives its end, milliseconds since the epoch.

        As `Admin.renew_delegation_token`.
        """
        return await self._ask(user_calls.renew_token(hmac, period), timeout)

    async def expire_delegation_token(
        self, hmac: bytes, timeout: float | None = None, *, period: float | None = None
    ) -> int:
        """End a token after `period` seconds, at once for None; gives when that is.

        As `Admin.expire_delegation_token`.
        """
        return await self._ask(user_calls.expire_token(hmac, period), timeout)

    async def describe_delegation_tokens(
        self, owners: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> list[DelegationToken]:
        """The tokens of these owners ("User:alice"), all that this client may see without any.

        As `Admin.describe_delegation_tokens`.
        """
        return await self._ask(user_calls.describe_tokens(owners), timeout)

    # Producers and transactions (KIP-664)

    async def describe_producers(
        self,
        partitions: Sequence[TopicPartition],
        timeout: float | None = None,
        *,
        broker: int | None = None,
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that wrote to partitions lately, as the leaders know them.

        As `Admin.describe_producers`.
        """
        return await self._ask(transactions.producers(partitions, broker), timeout)

    async def describe_transactions(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """What coordinators know of transactional ids.

        As `Admin.describe_transactions`.
        """
        return await self._ask(transactions.describe(ids), timeout)

    async def list_transactions(
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

        As `Admin.list_transactions`.
        """
        return await self._ask(
            transactions.listing(states, producer_ids, running_longer_than, pattern), timeout
        )

    async def abort_transaction(
        self, spec: AbortTransactionSpec, timeout: float | None = None
    ) -> None:
        """End a transaction in one partition by force, for one that hangs: its coordinator isn't
        asked. `find_hanging_transactions` gives such ones.

        As `Admin.abort_transaction`.
        """
        await self._ask(transactions.abort(spec), timeout)

    async def fence_producers(
        self, ids: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids: what they have open is aborted (KIP-588).

        As `Admin.fence_producers`.
        """
        return await self._ask(transactions.fence(ids), timeout)

    async def find_hanging_transactions(
        self,
        topics: Sequence[str] | str | None = None,
        timeout: float | None = None,
        *,
        older_than: float = 900.0,
    ) -> list[HangingTransaction]:
        """Open transactions that no coordinator knows any more, of these topics, or of all.

        As `Admin.find_hanging_transactions`.
        """
        now = self._host.wall_clock()
        return await self._ask(transactions.hanging(topics, older_than, now), timeout)
