"""SCRAM credentials of users, as confluent-kafka has them.

In: parts, or credentials of ours. Out: its objects, and changes for our admin client. Must not:
show a password.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import ScramMechanism, known_as

LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
"""What brokers take (KIP-554)."""
_WORDS = {mechanism: mechanism.name.replace("_", "-") for mechanism in ScramMechanism}


class ScramCredentialInfo:
    """How a password is hashed, and how often."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription:
    """A user's credentials."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


class UserScramCredentialAlteration:
    """A change of a user's credentials; not made directly."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A password to be set, as bytes of UTF-8. Without a `salt` one is drawn."""

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
    """A password to be taken away."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism


def credentials_of(
    user: str, found: Iterable[odradek.ScramCredentialInfo]
) -> UserScramCredentialsDescription:
    """A user's credentials as theirs."""
    infos = [
        ScramCredentialInfo(known_as(i.mechanism.replace("-", "_"), ScramMechanism), i.iterations)
        for i in found
    ]
    return UserScramCredentialsDescription(user, infos)


def user_name(user: Any) -> str:
    """A user's name; raises `TypeError`, `ValueError`."""
    if not isinstance(user, str):
        raise TypeError(f"'user' must be a string, not {type(user).__name__}")
    if not user:
        raise ValueError("'user' cannot be empty")
    return user


OurAlteration = odradek.UserScramCredentialUpsertion | odradek.UserScramCredentialDeletion


def acceptable(user: str, alterations: Iterable[OurAlteration]) -> str:
    """A user whose passwords are hashed as often as brokers want it; raises as they do."""
    for one in alterations:
        if one.user != user or isinstance(one, odradek.UserScramCredentialDeletion):
            continue
        if not LEAST_ITERATIONS <= one.iterations <= MOST_ITERATIONS:
            raise odradek.UnacceptableCredentialError(
                f"user {user}: {one.iterations} iterations; {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are taken"
            )
    return user


def our_alteration(given: Any) -> OurAlteration:
    """A change as our admin client takes it; raises `TypeError`, `ValueError`."""
    if not isinstance(given, UserScramCredentialAlteration):
        raise TypeError(
            "Expected each element of list to be subclass of UserScramCredentialAlteration"
        )
    user = user_name(given.user)
    if isinstance(given, UserScramCredentialDeletion):
        return odradek.UserScramCredentialDeletion(user, _word(given.mechanism))
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
    except UnicodeDecodeError:  # it mustn't be seen in a chain of errors
        password = ""
    if not password:
        raise ValueError("'password' must be UTF-8, as SCRAM asks for (RFC 5802)")
    return odradek.UserScramCredentialUpsertion(
        user, _word(info.mechanism), password, info.iterations, salt
    )


def _word(mechanism: Any) -> str:
    if not isinstance(mechanism, ScramMechanism):
        raise TypeError("Expected the mechanism to be ScramMechanism Type")
    return _WORDS[mechanism]
