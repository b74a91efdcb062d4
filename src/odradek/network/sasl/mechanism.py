"""Define the interface of SASL mechanisms: generators of tokens that open no sockets.

In: the mechanism's settings. Out: the interface that `authenticate` uses, and functions that
mechanisms share. A conversation is a generator for one authentication of one connection. It yields
a token to send and is sent the broker's bytes, or yields a `WorkerCall`, a slow function that a
worker thread runs within the setup timeout, and is sent its result. It returns once the broker has
proved its identity, if the mechanism requires that, or raises an `AuthenticationError`. Must not:
put a secret into an error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from odradek.common.errors import AuthenticationError, ServerNotTrustedError
from odradek.common.secret import HIDDEN, Secret
from odradek.common.types import Address, Rng

MAX_CHALLENGE = 128 * 1024
"""Maximum size in bytes of a broker's token; Kerberos tickets with many groups are largest."""


class HiddenBytes(bytes):
    """A token or key whose repr hides it, because tracebacks may show local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class WorkerCall(NamedTuple):
    """A slow function that a worker thread runs; the generator gets its result or its error."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


Conversation = Generator[bytes | WorkerCall, Any, None]


class Mechanism(Protocol):
    """A SASL mechanism with one client's credentials."""

    @property
    def name(self) -> str:
        """The mechanism's name, such as PLAIN or SCRAM-SHA-512."""

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Return the generator of tokens for a first or later authentication (KIP-368)."""


class Credentials(NamedTuple):
    """A user's name and password, which can be replaced while the client runs."""

    username: str
    password: Secret


MAX_ERROR_TEXT = 300
"""Maximum number of characters of a broker's text in an error."""
CUT = "\u2026"
"""Replacement for the removed end of a text."""


def cut(words: str) -> str:
    """Return a broker's text, cut to `MAX_ERROR_TEXT` characters."""
    return words if len(words) <= MAX_ERROR_TEXT else words[:MAX_ERROR_TEXT] + CUT


def unechoed(error: AuthenticationError, secret: Secret) -> AuthenticationError:
    """Redact the secret in a broker's refusal, if the broker's text repeats it."""
    hidden = without(error.what, secret)
    return error if hidden == error.what else type(error)(hidden, error.address)


def without(words: str, secret: Secret) -> str:
    """Return a broker's text without the secret, plain or encoded.

    If the text was cut within the secret, the start of the secret is removed as well.
    """
    text = secret.reveal()
    if not text:
        return words
    # Imported here, because most clients don't need it.
    from base64 import b64encode

    from odradek.common.secret_redaction import MIN_ENCODED_LENGTH, plain_forms, redact_secret

    words = redact_secret(words, secret)
    if not words.endswith(CUT):
        return words
    kept = words.removesuffix(CUT)
    for form in (text, *sorted(plain_forms(text)), b64encode(text.encode()).decode()):
        for count in range(
            min(len(form), len(kept)), 0 if form == text else MIN_ENCODED_LENGTH - 1, -1
        ):
            if kept.endswith(form[:count]):
                return kept[:-count] + HIDDEN + CUT
    return words


def expect_nothing(mechanism: str, challenge: bytes) -> None:
    """Raise if a broker that accepted the credentials sends another token."""
    if challenge:
        raise ServerNotTrustedError(
            f"the broker sent {len(challenge)} bytes where {mechanism} expects none"
        )
