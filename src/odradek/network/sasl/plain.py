"""PLAIN (RFC 4616): the name and the password as they are; use it with TLS only.

In: credentials. Out: one token. Must not: be asked to hide anything from the broker.
"""

from __future__ import annotations

from odradek.common.errors import CredentialsRefusedError
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, Credentials, expect_nothing


class Plain:
    """The mechanism of one client."""

    name = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """One token; the broker's answer has none."""
        credentials = self.credentials
        parts = ["", credentials.username, credentials.password.reveal()]
        if any("\0" in part for part in parts):
            raise CredentialsRefusedError(
                "PLAIN can't carry a zero character in sasl.username or sasl.password"
            )
        token = "\0".join(parts).encode()
        del parts
        expect_nothing(self.name, (yield token))
