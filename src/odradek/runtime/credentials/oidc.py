"""Fetch tokens from an OAuth 2 / OpenID Connect server, or from a file.

The grants are client credentials (KIP-768) and JWT bearer (KIP-1139). In: a configuration; `fetch`
runs in a worker thread, because it blocks. Out: a `Token`, or a `TokenError` with the server's
error. All attempts together end before the connection's setup timeout, so that the error is the
server's and not "no answer in time". Must not: continue after that time (`http_deadlines` ensures
it), or put a secret or token into a text, or into a local variable that a traceback shows.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus, unquote_plus, urlencode

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import TokenError
from odradek.common.secret import Secret
from odradek.common.secret_redaction import redact_secret
from odradek.common.types import Rng
from odradek.network.sasl.oauthbearer import Token, end_of_jwt
from odradek.runtime.credentials.allowed_sources import shown
from odradek.runtime.credentials.http_deadlines import ExchangeDeadline, opener
from odradek.runtime.resolver import Resolver
from odradek.runtime.system_clock import SystemClock

LONGEST_ANSWER = 1 << 20
"""Maximum size of a token server's response in bytes."""
MAX_ERROR_TEXT = 300
"""Maximum number of characters of the server's text in an error."""
RETRIED = frozenset((408, 425, 429))
"""HTTP status codes below 500 after which the request is retried; all 5xx are retried, too."""
CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class TokenTimeouts:
    """Timeouts for requests to a token server, in seconds."""

    budget: float
    """Seconds for all attempts and the waits between them."""
    connect: float | None = None
    """`sasl.login.connect.timeout.ms`; None: the rest of the budget."""
    read: float | None = None
    """`sasl.login.read.timeout.ms`, which limits one wait for bytes; None: as above."""


class TryAgain(Exception):  # noqa: N818 - never leaves this module
    """Error of an attempt that failed for a reason that may be temporary."""

    def __init__(self, error: TokenError) -> None:
        super().__init__(str(error))
        self.error = error


class TokenServer:
    """One token endpoint; any thread may call `post`."""

    def __init__(
        self,
        url: str,
        limits: TokenTimeouts,
        backoff: ExponentialBackoff,
        rng: Rng,
        tls: Callable[[], ssl.SSLContext],
        clock: SystemClock | None = None,
    ) -> None:
        self._url = url
        self.place = shown(url)
        self._limits = limits
        self._backoff = backoff
        self._rng = rng
        self._tls = tls
        self._clock = clock or SystemClock()
        self._resolver = Resolver()

    def post(
        self, form: Callable[[], Mapping[str, str]], authorization: Secret | None
    ) -> dict[str, Any]:
        """Send requests until one succeeds or the time is over; return the response's JSON."""
        deadline = self._clock.now() + self._limits.budget
        failures = 0
        while True:
            try:
                return self._attempt(form, authorization, deadline)
            except TryAgain as again:
                failed = again.error
            wait = self._backoff.delay(failures, self._rng)
            failures += 1
            if self._clock.now() + wait >= deadline:
                what, cause = failed.what, failed.__cause__
                if failures > 1:
                    what += f" ({failures} attempts in {self._limits.budget:.0f} s)"
                raise TokenError(what, cure=failed.cure) from cause
            self._clock.pause(wait)

    def _attempt(
        self, form: Callable[[], Mapping[str, str]], authorization: Secret | None, deadline: float
    ) -> dict[str, Any]:
        sent = Secret(urlencode(form()))
        request = urllib.request.Request(  # noqa: S310 - `opener` knows http and https only
            self._url, sent.reveal().encode("ascii"), method="POST"
        )
        request.add_header("Accept", "application/json")
        request.add_header("Cache-Control", "no-cache")
        request.add_header("User-Agent", "odradek")
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization.reveal())
        until = ExchangeDeadline(self._clock, deadline, self._limits.connect, self._limits.read)
        try:
            with opener(self._tls(), until, self._resolver).open(request) as answer:
                body = self._body(answer)
        except urllib.error.HTTPError as error:
            with error:
                failure = self._refusal(error, _secrets_of(sent, authorization))
        except (OSError, http.client.HTTPException) as error:
            failure = self._failure(error)
        else:
            return self._json(body)
        # Raise outside `except`, and causes without tracebacks, because variables in urllib's
        # frames contain the header with the secret.
        raise failure

    def _body(self, answer: Any) -> Secret:
        """Read the response up to the maximum size."""
        pieces, size = [], 0
        while piece := answer.read1(65536):
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST_ANSWER:
                pieces.clear()
                raise TokenError(f"{self.place} sent more than {LONGEST_ANSWER} bytes")
        return Secret(b"".join(pieces).decode("utf-8", "replace"))

    def _json(self, body: Secret) -> dict[str, Any]:
        try:
            found = json.loads(body.reveal())
        except (ValueError, RecursionError):  # its text would show the response
            found = None
        if isinstance(found, dict):
            return found
        raise TokenError(
            f"{self.place} sent {len(body.reveal())} characters that aren't a JSON object",
            cure="Check that sasl.oauthbearer.token.endpoint.url is the token endpoint.",
        )

    def _refusal(self, error: urllib.error.HTTPError, secrets: Iterable[Secret]) -> Exception:
        said, code = _said(error, secrets), error.code
        what = f"{self.place} sent HTTP status {code}" + (f": {said}" if said else "")
        if code in RETRIED or code >= 500:
            refused = TokenError(what, cure="The token server failed; ask its operator.")
            return TryAgain(refused)
        # Raise without the cause, whose text is the server's (R-IN-3) and may repeat the header
        # with this client's secret.
        return TokenError(what, cure=_cure(code, said))

    def _failure(self, error: Exception) -> Exception:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        cause = (reason if isinstance(reason, BaseException) else error).with_traceback(None)
        if isinstance(cause, http.client.HTTPException):  # its text is the server's
            failed = TokenError(
                f"{self.place} didn't send a valid HTTP response ({type(cause).__name__})",
                cure="Check that sasl.oauthbearer.token.endpoint.url is the token endpoint.",
            )
            return TryAgain(failed)
        if isinstance(reason, ssl.SSLError):
            words = getattr(reason, "verify_message", "") or reason.reason or str(reason)
            failed = TokenError(
                f"{self.place}: TLS failed: {words}",
                cure="Set the certificate of the authority that signed the server's certificate "
                "in https.ca.location, and use a host name from that certificate.",
            )
            failed.__cause__ = cause
            return failed
        if isinstance(reason, TimeoutError):
            words = "no response in time"
        else:
            words = str(reason) or type(reason).__name__
        failed = TokenError(
            f"{self.place} can't be reached: {words[:MAX_ERROR_TEXT]}",
            cure="Check sasl.oauthbearer.token.endpoint.url and the network (firewalls; the "
            "proxy variables of the environment aren't used).",
        )
        failed.__cause__ = cause
        return TryAgain(failed)


def _secrets_of(form: Secret, authorization: Secret | None) -> list[Secret]:
    """Return the secrets of a request, which a server may repeat: assertion, header, password."""
    found = [Secret(one) for one in parse_qs(form.reveal()).get("assertion", [])]
    if authorization is not None:
        _, _, encoded = authorization.reveal().partition(" ")
        found.append(Secret(encoded))
        with suppress(ValueError):
            found.append(Secret(b64decode(encoded).decode().partition(":")[2]))
            found.append(Secret(unquote_plus(found[-1].reveal())))
    return found


def _said(error: urllib.error.HTTPError, secrets: Iterable[Secret]) -> str:
    """Return `error` and `error_description` (RFC 6749, 5.2) of a response, without secrets."""
    try:
        found = json.loads(error.read(65536))
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return ""
    if not isinstance(found, dict):
        return ""
    code = found.get("error") or found.get("errorCode")
    words = found.get("error_description") or found.get("errorSummary")
    said = ": ".join(part for part in (code, words) if isinstance(part, str))
    for secret in secrets:
        said = redact_secret(said, secret)
    return "".join(c if c.isprintable() else " " for c in said[:MAX_ERROR_TEXT])


def _cure(code: int, said: str) -> str:
    if "invalid_scope" in said:
        return "Check sasl.oauthbearer.scope."
    if "invalid_grant" in said:
        return "Check the assertion: its key, issuer, subject, audience and times."
    if code in (401, 403) or "client" in said:
        return (
            "Check sasl.oauthbearer.client.credentials.client.id and .client.secret, and that "
            "the server allows this grant for the client."
        )
    if 300 <= code < 400:
        return "Set sasl.oauthbearer.token.endpoint.url to the URL that the server redirects to."
    return "Check sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.scope."


def basic(client_id: str, secret: Secret, *, url_encode: bool) -> Secret:
    """Return the Authorization header (RFC 7617), with parts URL-encoded as in RFC 6749 or not."""
    pair = (client_id, secret.reveal())
    if url_encode:
        pair = (quote_plus(pair[0]), quote_plus(pair[1]))
    return Secret("Basic " + b64encode(":".join(pair).encode()).decode())


def token_of(answer: Mapping[str, Any], place: str, now: float) -> Token:
    """Return the token of a server's response.

    The expiry is calculated from `expires_in`, which doesn't depend on this machine's clock;
    without that field, it is the expiry in the JWT.
    """
    text = answer.get("access_token") or answer.get("id_token")
    if not isinstance(text, str) or not text.strip():
        names = ", ".join(sorted(str(name)[:40] for name in answer)[:10]) or "nothing"
        del answer
        raise TokenError(
            f"{place} sent no access_token (its response contains: {names})",
            cure="Check that sasl.oauthbearer.token.endpoint.url is the token endpoint.",
        )
    token = Secret(text.strip())
    del text
    left = answer.get("expires_in")
    if isinstance(left, str) and left.isascii() and left.isdecimal() and len(left) < 12:
        left = int(left)
    if isinstance(left, int | float) and not isinstance(left, bool) and abs(left) < 1e11:
        return Token(token, now + left)
    return Token(token, end_of_jwt(token.reveal()))


def from_file(path: Path) -> Token:
    """Read a token from a file that another program renews (KIP-768)."""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(
            f"the token file {path} can't be read: {getattr(error, 'strerror', None) or error}",
            cure="Check sasl.oauthbearer.token.endpoint.url.",
        ) from error
    token = Secret(text)
    del text
    if not token:
        raise TokenError(f"the token file {path} is empty")
    return Token(token, end_of_jwt(token.reveal()))
