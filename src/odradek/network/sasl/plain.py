"""Authenticate with PLAIN (RFC 4616): name and password in clear text; use it with TLS only.

In: credentials. Out: one token. The broker receives the password.
"""

from __future__ import annotations

from odradek.common.errors import AuthenticationError, CredentialsRefusedError
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, Credentials, HiddenBytes, unechoed


class Plain:
    """The PLAIN mechanism of one client."""

    name = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    def use(self, credentials: Credentials) -> None:
        """Use these credentials from the next authentication on."""
        self.credentials = credentials

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Send one token; the broker's response contains no token."""
        credentials = self.credentials
        if "\0" in credentials.username or "\0" in credentials.password.reveal():
            raise CredentialsRefusedError(
                "PLAIN doesn't allow NUL characters in sasl.username or sasl.password"
            )
        # No local variable holds the token, because tracebacks may show local variables.
        try:
            # The broker's token is ignored: in PLAIN it has no meaning.
            yield _token(credentials)
        except AuthenticationError as error:
            refused = unechoed(error, credentials.password)
        else:
            return
        raise refused


def _token(credentials: Credentials) -> HiddenBytes:
    name, password = credentials.username, credentials.password.reveal()
    return HiddenBytes(f"\0{name}\0{password}".encode())
