"""confluent-kafka's calls for ACLs and passwords of users.

In: ACLs, filters, users. Out: futures. Must not: evaluate ACLs, or show a password.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from odradek.compat.confluent_kafka.admin.acl_values import (
    AclBinding,
    AclBindingFilter,
    acl_of,
    our_acl,
    our_filter,
)
from odradek.compat.confluent_kafka.admin.futures import AdminCalls
from odradek.compat.confluent_kafka.admin.topic_calls import some_of
from odradek.compat.confluent_kafka.admin.user_values import (
    UserScramCredentialAlteration,
    UserScramCredentialsDescription,
    acceptable,
    credentials_of,
    our_alteration,
    user_name,
)


class SecurityCalls(AdminCalls):
    """Base class of `AdminClient`: calls for ACLs and users."""

    def create_acls(
        self, acls: list[AclBinding], *, request_timeout: float | None = None
    ) -> dict[AclBinding, Future[None]]:
        """Create ACLs; return a future for each. Raises `ValueError` for duplicates."""
        return self._each(
            _different(acls, AclBinding),
            self._seconds(request_timeout),
            lambda admin, left, these: admin.create_acls(these, left()),
            ours=our_acl,
        )

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[list[AclBinding]]:
        """List the ACLs that match a filter."""
        if not isinstance(acl_binding_filter, AclBindingFilter):
            raise TypeError("Expected an AclBindingFilter object")
        wanted = our_filter(acl_binding_filter)
        return self._one(
            self._seconds(request_timeout),
            lambda admin, left: [acl_of(one) for one in admin.describe_acls(wanted, left())],
        )

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], *, request_timeout: float | None = None
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Delete the ACLs that match filters; returns a future for each, with the deleted ACLs."""
        return self._each(
            _different(acl_binding_filters, AclBindingFilter),
            self._seconds(request_timeout),
            lambda admin, left, these: admin.delete_acls(these, left()),
            ours=our_filter,
            made=lambda _, found: [acl_of(one) for one in found],
        )

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float | None = None
    ) -> (
        Future[dict[str, UserScramCredentialsDescription]]
        | dict[str, Future[UserScramCredentialsDescription]]
    ):
        """Describe SCRAM credentials; returns a future for each user, or one if `users` is None."""
        seconds = self._seconds(request_timeout)
        if users is None:
            return self._one(
                seconds,
                lambda admin, left: {
                    user: credentials_of(user, found)
                    for user, found in admin.describe_user_scram_credentials(None, left()).items()
                },
            )
        if not isinstance(users, list):
            raise TypeError("Expected input to be list of String")
        return self._each(
            [user_name(user) for user in users],
            seconds,
            lambda admin, left, these: admin.describe_user_scram_credentials(these, left()),
            made=credentials_of,
        )

    def alter_user_scram_credentials(
        self,
        alterations: list[UserScramCredentialAlteration],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Set and delete passwords; returns a future for each user."""
        if not isinstance(alterations, list):
            raise TypeError("Expected input to be list")
        if not alterations:
            raise ValueError("Expected at least one alteration")
        wanted = [our_alteration(one) for one in alterations]
        return self._each(
            dict.fromkeys(one.user for one in wanted),
            self._seconds(request_timeout),
            lambda admin, left, these: admin.alter_user_scram_credentials(
                [one for one in wanted if one.user in these], left()
            ),
            ours=lambda user: acceptable(user, wanted),
        )


def _different(given: Any, kind: type[Any]) -> list[Any]:
    if given is None:
        raise TypeError(f"expected a list of {kind.__name__}, not None")
    found = some_of(given, kind)
    if len(set(found)) < len(found):
        raise ValueError(f"duplicate {kind.__name__} objects not allowed")
    return found
