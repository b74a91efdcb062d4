"""Authenticate with OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a token from another service.

In: a function that returns tokens; it runs in a worker thread within the setup timeout, so it may
contact a server. Out: one message with the token and its extensions. A token is reused until most
of its lifetime is over (sasl.login.refresh.*), and until it expires if no new token is available.
Must not: read more of a token than its expiry, or put a token into an error.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from odradek.common.errors import (
    AuthenticationError,
    CredentialsRefusedError,
    KafkaError,
    TokenError,
    TokenExpiredError,
)
from odradek.common.secret import Secret
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import (
    Conversation,
    HiddenBytes,
    WorkerCall,
    cut,
    unechoed,
    without,
)

_TOKEN = re.compile(r"[-_.+/a-zA-Z0-9=~]+")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
MILLISECONDS = 1e11
"""Smallest expiry that is read as milliseconds (Java's `lifetimeMs`), not as seconds.

In seconds, it would be in the year 5138.
"""
LONGEST_TOKEN = 512 * 1024
"""Maximum length of a token in characters.

Brokers accept a message of 512 KiB (sasl.server.max.receive.size).
"""


@dataclass(frozen=True, slots=True)
class Token:
    """One token, its expiry (seconds since the epoch, None: unknown) and its extensions."""

    value: Secret
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refresh:
    """The options `sasl.login.refresh.*`, in seconds or as shares of a token's lifetime."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0

    def due(self, got_at: float, expires_at: float, rng: Rng) -> float:
        """Return when to request a new token: by default after 80 to 85 % of the lifetime."""
        life = expires_at - got_at
        due = got_at + life * (self.factor + self.jitter * rng.random())
        if self.min_period + self.buffer <= life:
            due = min(max(due, got_at + self.min_period), expires_at - self.buffer)
        return min(due, expires_at)


class Oauthbearer:
    """The OAUTHBEARER mechanism of one client, with its current token."""

    name = "OAUTHBEARER"

    def __init__(
        self,
        fetch: Callable[[], object],
        wall_clock: Callable[[], float],
        *,
        extensions: Mapping[str, str] | None = None,
        refresh: Refresh | None = None,
    ) -> None:
        self._fetch = fetch
        self._wall_clock = wall_clock
        self._extensions = dict(extensions or {})
        self._refresh = refresh or Refresh()
        self._token: Token | None = None
        self._due = -math.inf
        self._newest: Token | None = None
        """The token that the function returned last; the engine may not have received it yet."""

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Send the token; if the broker refuses it, acknowledge that (RFC 7628) and raise."""
        token = self._token
        if token is None or self._wall_clock() >= self._due:
            try:
                token = yield from self.renewal(rng)
            except Exception as error:
                token = self._instead(error)
        try:
            answer: bytes = yield self._message(token)
        except AuthenticationError as error:
            refused = unechoed(error, token.value)
            answer = b""
        else:
            if not answer:
                return
            refused = self._refused(token, answer)
        self._token = None  # don't send a rejected token again
        if answer:
            with suppress(AuthenticationError):  # the broker repeats its refusal
                yield b"\x01"
        raise refused

    def renewal_in(self) -> float | None:
        """Return the seconds until a newer token is due; None if the token's expiry is unknown."""
        if self._token is None or self._token.expires_at is None:
            return None
        return max(0.0, self._due - self._wall_clock())

    def renewal(self, rng: Rng) -> Generator[bytes | WorkerCall, Any, Token]:
        """Fetch a newer token."""
        return self._take(read_token((yield WorkerCall(self._fetched, (self._newest,)))), rng)

    def _refused(self, token: Token, answer: bytes) -> AuthenticationError:
        said = _status(answer, token.value)
        kind = TokenExpiredError if "expired" in said.lower() else CredentialsRefusedError
        return kind(
            f"the broker refused the token: {said}",
            cure="Check issuer, audience and scope of the token, and the machines' clocks.",
        )

    def _fetched(self, known: Token | None) -> Token:
        """Return a newer token than `known`; runs in a worker thread.

        If a thread of another connection, which started at the same time, has already fetched a
        newer token than `known`, return that token.
        """
        newest = self._newest
        if newest is None or newest is known:
            newest = self._newest = read_token(self._fetch())
        return newest

    def _take(self, token: Token, rng: Rng) -> Token:
        now = self._wall_clock()
        if token.expires_at is not None and token.expires_at <= now:
            late = now - token.expires_at
            text = f"the token function returned a token that expired {late:.0f} s ago"
            raise TokenExpiredError(text)
        end = token.expires_at
        self._token = token
        self._due = -math.inf if end is None else self._refresh.due(now, end, rng)
        return token

    def _instead(self, error: Exception) -> Token:
        """Return the current token if it hasn't expired; otherwise raise an error that says why."""
        token = self._token
        if token is not None and (token.expires_at or -math.inf) > self._wall_clock():
            return token
        if isinstance(error, KafkaError):
            raise error
        if isinstance(error, TimeoutError):
            raise TokenError("the token function didn't return before the timeout") from error
        raise TokenError(f"the token function raised {type(error).__name__}") from error

    def _message(self, token: Token) -> bytes:
        extensions = {**self._extensions, **token.extensions}
        for key, value in extensions.items():
            if not _KEY.fullmatch(key) or key == "auth" or not _VALUE.fullmatch(value):
                raise TokenError(f"invalid SASL extension {key!r}")
        pairs = "".join(f"{key}={value}\x01" for key, value in extensions.items())
        text = f"n,,\x01auth=Bearer {token.value.reveal()}\x01{pairs}\x01"
        return HiddenBytes(text.encode())


def read_token(given: object) -> Token:
    """Convert the result of a user's function to a `Token`.

    The function returns a `Token`; a string; a tuple (token, expiry in epoch seconds[, principal[,
    extensions]]) as librdkafka's callbacks return it; or an object with `token()`, as in
    kafka-python. Errors are raised without the inner frames, whose local variables would show the
    token.
    """
    try:
        return _read(given)
    except TokenError as error:
        wrong = error.with_traceback(None)
    del given
    raise wrong


def _read(given: object) -> Token:
    method = getattr(given, "token", None)
    if callable(method):
        given = method()
    expires_at: float | None = None
    extensions: Mapping[str, str] = {}
    if isinstance(given, Token):
        _check(given.value.reveal())
        return given
    if isinstance(given, tuple | list) and 1 <= len(given) <= 4:
        given, *rest = given
        expires_at = _end(rest[0]) if rest else None
        extensions = rest[2] if len(rest) > 2 and isinstance(rest[2], Mapping) else {}
    if isinstance(given, Secret):
        given = given.reveal()
    if isinstance(given, bytes):
        given = given.decode("latin-1")
    if not isinstance(given, str):
        raise TokenError(f"the token function returned {type(given).__name__}, not a token")
    _check(given)
    if expires_at is None:
        expires_at = end_of_jwt(given)
    return Token(Secret(given), expires_at, dict(extensions))


def _check(text: str) -> None:
    if not text or len(text) > LONGEST_TOKEN or not _TOKEN.fullmatch(text):
        raise TokenError(
            f"the token function returned {len(text)} characters that aren't a valid token"
            if text
            else "the token function returned an empty token"
        )


def _end(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenError(f"the token function returned {type(value).__name__} as the expiry time")
    return float(value) / 1000.0 if value >= MILLISECONDS else float(value)


def end_of_jwt(token: str) -> float | None:
    """Return the claim `exp` of a JWT; None if the token has no such claim or isn't a JWT."""
    parts = token.split(".")
    if len(parts) not in (3, 5):
        return None
    try:
        claims: Any = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end = claims["exp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    usable = isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end)
    return float(end) if usable else None


def _status(answer: bytes, token: Secret) -> str:
    """Return the text of a broker's refusal (JSON or other) without the token."""

    def shown(said: object) -> str:
        return without(cut(str(said)), token)

    text = shown(answer.decode("utf-8", "replace"))
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return repr(text)
    if isinstance(said, dict) and said.get("status"):
        status = shown(said["status"])
        scope = f" (scope {shown(said['scope'])!r} is required)" if said.get("scope") else ""
        return f"{status}{scope}"
    return repr(text)
