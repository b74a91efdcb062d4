"""Define SASL mechanisms in the engine: generators of tokens that open no sockets themselves.

In: the mechanism's settings. Out: the protocol that `authenticate` runs, and the helpers that
mechanisms share. A conversation is one authentication of one connection: it yields a token to send
and receives the broker's bytes, or yields a `WorkerCall`, a slow function that a worker thread
runs within the setup timeout, and receives its result. It returns when the broker has proved
itself, as far as the mechanism requires that, and raises `AuthenticationError`s. Must not: put a
secret into an error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from odradek.common.errors import AuthenticationError, ServerNotTrustedError
from odradek.common.secret import HIDDEN, Secret
from odradek.common.types import Address, Rng

MAX_CHALLENGE = 128 * 1024
"""Maximum size of one token from a broker; Kerberos tickets with many groups are the largest."""


class HiddenBytes(bytes):
    """A token or a key whose repr is hidden, because tracebacks may show local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class WorkerCall(NamedTuple):
    """A slow function that a worker thread runs; its error is raised in the generator."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


Conversation = Generator[bytes | WorkerCall, Any, None]


class Mechanism(Protocol):
    """A way to authenticate, with one client's credentials."""

    @property
    def name(self) -> str:
        """The mechanism's name, such as PLAIN or SCRAM-SHA-512."""

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Start an authentication of a connection, the first or a later one (KIP-368)."""


class Credentials(NamedTuple):
    """A user's name and password, which can be replaced while the client runs."""

    username: str
    password: Secret


MAX_ERROR_TEXT = 300
"""Maximum number of characters of a broker's text in an error."""
CUT = "\u2026"
"""Replaces the rest of a text that was cut."""


def cut(words: str) -> str:
    """Return a broker's text, cut to `MAX_ERROR_TEXT` characters."""
    return words if len(words) <= MAX_ERROR_TEXT else words[:MAX_ERROR_TEXT] + CUT


def unechoed(error: AuthenticationError, secret: Secret) -> AuthenticationError:
    """Redact the secret in a broker's refusal, if the broker's text repeats it."""
    hidden = without(error.what, secret)
    return error if hidden == error.what else type(error)(hidden, error.address)


def without(words: str, secret: Secret) -> str:
    """Return a broker's text without the secret, plain or encoded.

    If the text was cut within the secret, the part before the cut is removed as well.
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
