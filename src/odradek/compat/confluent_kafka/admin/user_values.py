"""confluent-kafka's SCRAM credentials of users.

In: values, or Odradek's credentials. Out: confluent-kafka's objects, and changes for Odradek's
admin client. Must not: show a password.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import ScramMechanism, known_as

LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
"""Range of iterations that brokers accept (KIP-554)."""
_WORDS = {mechanism: mechanism.name.replace("_", "-") for mechanism in ScramMechanism}


class ScramCredentialInfo:
    """Mechanism and iterations of a password."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription:
    """Credentials of a user."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


class UserScramCredentialAlteration:
    """Change of a user's credentials; not instantiated directly."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Password to set, as bytes in UTF-8. Without a `salt` a random one is used."""

    def __init__(
        self,
        user: str,
        scram_credential_info: ScramCredentialInfo,
        password: bytes,
        salt: bytes | None = None,
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Password to delete."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism


def credentials_of(
    user: str, found: Iterable[odradek.admin.ScramCredentialInfo]
) -> UserScramCredentialsDescription:
    """Convert a user's credentials to confluent-kafka's."""
    infos = [
        ScramCredentialInfo(known_as(i.mechanism.replace("-", "_"), ScramMechanism), i.iterations)
        for i in found
    ]
    return UserScramCredentialsDescription(user, infos)


def user_name(user: Any) -> str:
    """Check a user's name; raises `TypeError` and `ValueError`."""
    if not isinstance(user, str):
        raise TypeError(f"'user' must be a string, not {type(user).__name__}")
    if not user:
        raise ValueError("'user' cannot be empty")
    return user


OurAlteration = (
    odradek.admin.UserScramCredentialUpsertion | odradek.admin.UserScramCredentialDeletion
)


def acceptable(user: str, alterations: Iterable[OurAlteration]) -> str:
    """Check the number of iterations as brokers do, with their error."""
    for one in alterations:
        if one.user != user or isinstance(one, odradek.admin.UserScramCredentialDeletion):
            continue
        if not LEAST_ITERATIONS <= one.iterations <= MOST_ITERATIONS:
            raise odradek.errors.UnacceptableCredentialError(
                f"user {user}: {one.iterations} iterations, expected {LEAST_ITERATIONS} "
                f"to {MOST_ITERATIONS}"
            )
    return user


def our_alteration(given: Any) -> OurAlteration:
    """Convert a change for Odradek's admin client; raises `TypeError` and `ValueError`."""
    if not isinstance(given, UserScramCredentialAlteration):
        raise TypeError(
            "Expected each element of list to be subclass of UserScramCredentialAlteration"
        )
    user = user_name(given.user)
    if isinstance(given, UserScramCredentialDeletion):
        return odradek.admin.UserScramCredentialDeletion(user, _word(given.mechanism))
    if not isinstance(given, UserScramCredentialUpsertion):
        raise TypeError(
            "Expected each element of list 'alterations' to be either a "
            "UserScramCredentialUpsertion or a UserScramCredentialDeletion"
        )
    salt, info = given.salt, given.scram_credential_info
    if not isinstance(given.password, bytes):
        raise TypeError("'password' must be bytes")
    if not given.password:
        raise ValueError("'password' cannot be empty")
    if salt is not None and not isinstance(salt, bytes):
        raise TypeError("'salt' must be bytes")
    if salt is not None and not salt:
        raise ValueError("'salt' can be None but cannot be empty")
    if not isinstance(info, ScramCredentialInfo):
        raise TypeError("Expected credential_info to be ScramCredentialInfo Type")
    if info.iterations < 1:
        raise ValueError("Iterations should be positive")
    try:
        password = given.password.decode()
    except UnicodeDecodeError:  # a chained error would contain the password
        password = ""
    if not password:
        raise ValueError("'password' must be UTF-8, as SCRAM asks for (RFC 5802)")
    return odradek.admin.UserScramCredentialUpsertion(
        user, _word(info.mechanism), password, info.iterations, salt
    )


def _word(mechanism: Any) -> str:
    if not isinstance(mechanism, ScramMechanism):
        raise TypeError("Expected the mechanism to be ScramMechanism Type")
    return _WORDS[mechanism]
