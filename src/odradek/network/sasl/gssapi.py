"""Authenticate with GSSAPI and Kerberos (RFC 4752): tickets, and mutual authentication.

In: a function that creates a security context for a broker. All its steps may contact a key
distribution centre, so they run in a worker thread. Out: the context's tokens, then the answer that
refuses a security layer: Kafka supports no such layer, TLS encrypts. Must not: depend on the
library that implements the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.common.errors import ServerNotTrustedError, TokenError
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, WorkerCall, expect_nothing

NO_LAYER = 1
"""The bit that means "no security layer" (RFC 4752, section 3.3)."""
MOST_STEPS = 10
"""Maximum number of calls of `SecurityContext.step`; Kerberos needs two."""


class SecurityContext(Protocol):
    """This client's side of a mutual authentication; its methods raise `AuthenticationError`s."""

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""

    def step(self, token: bytes | None) -> bytes | None:
        """Process the broker's token (None at first); return the next token to send, if any."""

    def unwrap(self, message: bytes) -> bytes:
        """Verify the integrity of a message from the broker; return the message's content."""

    def wrap(self, message: bytes) -> bytes:
        """Wrap a message with integrity protection, without encrypting it."""


class Gssapi:
    """The GSSAPI mechanism of one client."""

    name = "GSSAPI"

    def __init__(self, new_context: Callable[[Address], SecurityContext]) -> None:
        self._new_context = new_context

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Exchange the context's tokens, then refuse a security layer."""
        heard: bytes | None = None
        try:
            context: SecurityContext = yield WorkerCall(self._new_context, (address,))
            for _ in range(MOST_STEPS):
                token: bytes | None = yield WorkerCall(context.step, (heard,))
                heard = yield token or b""
                if context.complete:
                    break
            else:
                raise ServerNotTrustedError(f"Kerberos didn't finish in {MOST_STEPS} steps")
        except TimeoutError as error:
            raise TokenError(
                "the Kerberos key distribution centre (KDC) didn't answer",
                cure="Check that the KDC of krb5.conf can be reached.",
            ) from error
        offer = context.unwrap(heard or b"")
        if len(offer) != 4:
            raise ServerNotTrustedError(
                f"the broker's list of security layers has {len(offer)} bytes instead of 4"
            )
        if not offer[0] & NO_LAYER:
            raise ServerNotTrustedError(
                "the broker requires a SASL security layer, which Kafka's protocol doesn't have"
            )
        # The answer contains neither a buffer size nor an authorization identity.
        expect_nothing(self.name, (yield context.wrap(bytes((NO_LAYER, 0, 0, 0)))))
