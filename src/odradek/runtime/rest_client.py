"""Call servers with equal content, such as schema registries, with JSON over HTTP.

Each call ends at its deadline. In: URLs, a method, a path, a body. Out: a status code and JSON, or
`NoAnswerError` with each server's error. The server that answered last is asked first, then the
others at once. After a round of all servers, the call waits for a backoff (KIP-580), and for each
server's `Retry-After`. The caller decides which responses are final. Must not: follow a redirect or
use the environment's proxies (`http_deadlines`), or put a credential into a text.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import re
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Timer
from typing import Any

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import KafkaError
from odradek.common.outage import Spacing, number
from odradek.common.secret import Secret
from odradek.common.secret_redaction import redact_secret
from odradek.common.shared_deadline import effective_deadline
from odradek.runtime.credentials.allowed_sources import shown
from odradek.runtime.credentials.http_deadlines import ExchangeDeadline, opener
from odradek.runtime.resolver import Resolver
from odradek.runtime.system_clock import SystemClock

logger = logging.getLogger("odradek")
LOGGED_S = 3.0
"""Seconds for which a call retries before a WARNING is logged."""
LONGEST_ANSWER = 32 << 20
"""Maximum size of a response in bytes."""
MAX_ERROR_TEXT = 300
"""Maximum number of characters of a server's text in an error."""
RETRIED = frozenset((408, 425, 429))
"""HTTP status codes below 500 after which a call continues with other servers, then retries."""
PARSED = 4096
"""Number of characters of an HTML response from which the text for an error is taken."""
UNEXPECTED_RESPONSE_S = 5.0
"""Seconds for which a call retries if all responses are unexpected, as from another server.

A proxy may send such responses while its server restarts, or the URL may be wrong.
"""
STEADY_GAP_S = 1.0
"""Seconds from a server's response to the next request in which it may have restarted."""
_TAGS = re.compile(r"<(?:style|script)\b[^>]{0,999}>[^<]*|<[^<>]{0,999}>", re.IGNORECASE)


class NoAnswerError(KafkaError):
    """No server returned a usable response; the text contains the result of each server."""

    lasting = False
    """Whether a retry won't help, because a certificate isn't trusted."""


class NoCredentialsError(KafkaError):
    """The function that returns the credentials failed; its error is the cause."""


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """A server's HTTP response."""

    place: str
    """The server's URL, without secret parts."""
    status: int
    body: Any
    """The parsed JSON; None if it isn't JSON."""
    words: str = ""
    """Beginning of a response that isn't JSON, without HTML tags."""
    retry_after: float = 0.0
    """Seconds after which the server accepts another request."""

    @property
    def passes(self) -> bool:
        """Whether the server's problem may be temporary, so that the request is retried."""
        return self.status in RETRIED or self.status >= 500


@dataclass(frozen=True, slots=True)
class RestLimits:
    """Timeouts of calls, in seconds."""

    call: float
    """Timeout of a call with all its attempts and waits."""
    attempt: float
    """Timeout of one request to one server."""


@dataclass(slots=True)
class _Round:
    """Results, none of them final, of one attempt with each server."""

    later: dict[str, float]
    """Earliest time of the next request, by URL; all rounds of a call share this dict."""
    said: list[str] = field(default_factory=list)
    rejections: list[RestAnswer] = field(default_factory=list)
    last: RestAnswer | None = None
    credentials: NoCredentialsError | None = None
    lasting: bool = True
    """Whether a retry won't help, according to all results."""
    strange: bool = True
    """Whether all servers sent unexpected responses, so that none has a temporary problem."""


class RestServers:
    """Servers with equal content; any thread may call `call`."""

    def __init__(
        self,
        urls: Sequence[str],
        headers: Callable[[], Mapping[str, Secret]],
        tls: Callable[[], ssl.SSLContext],
        limits: RestLimits,
        backoff: ExponentialBackoff,
        content_type: str,
        final: Callable[[RestAnswer], bool] = lambda answer: not answer.passes,
    ) -> None:
        """Set `headers`, which returns the authentication headers of each request.

        `headers` may raise `NoCredentialsError`. `final` returns whether a response is the call's
        result: no other server is asked.
        """
        self._urls = list(urls)
        self._headers = headers
        self._tls = tls
        self._no_tls = ssl.SSLContext(
            ssl.PROTOCOL_TLS_CLIENT
        )  # http needs no files, unlike `tls()`
        self._limits = limits
        self._backoff = backoff
        self._type = content_type
        self._final = final
        self._rng = random.Random()
        self._clock = SystemClock()
        self._resolver = Resolver()
        self._log = _WaitLog(self._clock)
        self._answering: dict[str, tuple[float, float]] = {}
        """By URL: times of the first response since a failure or gap, and of the last response."""

    def call(
        self, method: str, path: str, body: object = None, *, everywhere: bool = False
    ) -> RestAnswer:
        """Retry until a server sends a final response, or the call times out.

        On a timeout, the last response is returned. With `everywhere`, a rejection is only final if
        all servers reject the call; a rejection other than 404 is preferred as result. Calls within
        `share_deadline` share the first call's deadline. Raises `NoAnswerError`; or
        `NoCredentialsError` if there are still no credentials at the deadline.
        """
        self._log.last = "; ".join(f"no response from {shown(url)} yet" for url in self._urls)
        timer = Timer(LOGGED_S, self._log.waits, (self._clock.now(),))
        timer.daemon = True
        try:
            with suppress(RuntimeError):  # no thread can be started at exit
                timer.start()
            found = self._answer(method, path, body, everywhere)
        finally:
            timer.cancel()
        if self._final(found):
            self._log.answered()
        return found

    def _answer(self, method: str, path: str, body: object, everywhere: bool) -> RestAnswer:
        data = None if body is None else json.dumps(body).encode()
        began = self._clock.now()
        deadline, failures = self.deadline(), 0
        last: RestAnswer | None = None
        words: list[str] = []
        later: dict[str, float] = {}
        while True:
            now = _Round(later)
            for url in list(self._urls):
                if later.get(url, 0.0) > self._clock.now():
                    now.lasting = now.strange = False
                    continue
                later.pop(url, None)
                found = self._tried(now, url, method, path, data, deadline)
                if found is not None and not (everywhere and found.status >= 300):
                    self._prefer(url)
                    return found
                if found is not None:
                    now.rejections.append(found)
            if len(now.rejections) == len(self._urls):
                return min(now.rejections, key=lambda one: one.status == 404)
            last = now.last or last
            over = self._clock.now() >= deadline
            if not (over and words):  # the deadline may have cut this round short
                words = now.said
            self._log.last = str(now.credentials or "; ".join(now.said) or self._log.last)
            first = min(later.get(url, 0.0) for url in self._urls) - self._clock.now()
            wait = max(self._backoff.delay(failures, self._rng), first)
            failures += 1
            end = min(deadline, began + UNEXPECTED_RESPONSE_S) if now.strange else deadline
            if now.lasting or self._clock.now() + wait >= end:
                if now.credentials is not None:
                    raise now.credentials
                if last is not None:
                    return last
                raise NoAnswerError("; ".join(words) + f" ({number(failures, 'attempt')})")
            self._clock.pause(wait)

    def _tried(
        self, now: _Round, url: str, method: str, path: str, data: bytes | None, deadline: float
    ) -> RestAnswer | None:
        """Return a server's response if it is final; otherwise note it for this round."""
        began = self._clock.now()
        try:
            found = self._asked(url, method, path, data, deadline)
        except NoCredentialsError as error:
            now.credentials, now.lasting, now.strange = error, False, False
            return None
        except NoAnswerError as error:
            self._answering.pop(url, None)
            now.said.append(str(error))
            now.lasting, now.strange = now.lasting and error.lasting, False
            return None
        if self._final(found):
            if found.status in (200, 404):  # a proxy may send other codes
                at = self._clock.now()
                first, last = self._answering.get(url, (at, at))
                self._answering[url] = first if began - last <= STEADY_GAP_S else at, at
            return found
        self._answering.pop(url, None)
        now.said.append(f"{found.place} sent HTTP status {found.status}")
        now.last, now.lasting = found, False
        now.later[url] = self._clock.now() + found.retry_after
        now.strange = now.strange and not found.passes
        return None

    def deadline(self) -> float:
        """Return when a call that starts now has to end, on the system's clock."""
        return effective_deadline(self._clock.now() + self._limits.call)

    def are_steady(self, seconds: float) -> bool:
        """Return whether all servers have answered for `seconds` without a failure or long gap."""
        now, none = self._clock.now(), (0.0, float("-inf"))
        times = [self._answering.get(url, none) for url in list(self._urls)]
        return all(now - last <= STEADY_GAP_S and now - first >= seconds for first, last in times)

    def forget_answers(self) -> None:
        """Forget past responses, so that `are_steady` counts from now on."""
        self._answering.clear()

    def half_way(self, seconds: float, deadline: float) -> float:
        """Return when a wait of `seconds` ends; it takes at most half of the time left."""
        now = self._clock.now()
        return now + max(0.0, min(seconds, (deadline - now) / 2))

    def pause_towards(self, end: float, most: float) -> bool:
        """Sleep for `most` seconds at most before another call; return whether `end` is reached."""
        self._clock.pause(max(0.0, min(most, end - self._clock.now())))
        return self._clock.now() >= end

    def _prefer(self, url: str) -> None:
        if self._urls[0] != url:
            self._urls = [url, *(one for one in self._urls if one != url)]

    def _asked(
        self, url: str, method: str, path: str, data: bytes | None, deadline: float
    ) -> RestAnswer:
        """Return one server's response, whatever its status code."""
        place, secrets = shown(url), self._headers()
        request = urllib.request.Request(  # noqa: S310 - `opener` knows http and https only
            url + path, data, method=method
        )
        request.add_header("Accept", f"{self._type}, application/json")
        request.add_header("Content-Type", self._type)
        request.add_header("User-Agent", "odradek")
        for name, value in secrets.items():
            request.add_unredirected_header(name, value.reveal())
        until = ExchangeDeadline(
            self._clock, min(deadline, self._clock.now() + self._limits.attempt)
        )
        try:
            context = self._tls() if url.startswith("https") else self._no_tls
            try:
                with opener(context, until, self._resolver).open(request) as answer:
                    return _answer(answer, place, answer.status, ())
            except urllib.error.HTTPError as error:
                with error:
                    return _answer(error, place, error.code, secrets.values())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            failure = _failure(error, place)
        # Raised outside `except`, because variables in urllib's frames contain the header.
        raise failure


class _WaitLog:
    """Log messages that calls wait for servers, at growing intervals, or that servers answer.

    It has no lock: in the worst case, a line is logged twice.
    """

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._spacing = Spacing()
        self._since: float | None = None
        """Start of the first call since the last response whose wait was logged."""
        self.last = ""
        """Text with the results of the last attempts."""

    def waits(self, began: float) -> None:
        """Log that a call has waited since the time `began`."""
        now = self._clock.now()
        self._since = began if self._since is None else self._since
        if self._spacing.allows(now):
            logger.warning(
                "schema registry: no usable response for %.0f s: %s; the call is retried until "
                "default.api.timeout.ms",
                now - self._since,
                self.last,
            )

    def answered(self) -> None:
        """Log that the servers answer again, if a waiting call was logged."""
        since, self._since = self._since, None
        if since is not None:
            logger.warning("schema registry: answers again after %.0f s", self._clock.now() - since)


def _answer(answer: Any, place: str, status: int, secrets: Any) -> RestAnswer:
    """Read the body up to a limit; redact credentials that an error response repeats."""
    pieces, size = [], 0
    while piece := answer.read1(65536):
        pieces.append(piece)
        size += len(piece)
        if size > LONGEST_ANSWER:
            raise NoAnswerError(f"{place} sent more than {LONGEST_ANSWER} bytes")
    text = b"".join(pieces).decode("utf-8", "replace")
    later = _seconds(answer.headers.get("Retry-After"))
    # Search the parsed JSON, because a secret's characters may be escaped in the text.
    forms = [form for secret in secrets for form in _forms(secret)]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        words = " ".join(_TAGS.sub(" ", text[:PARSED]).split())
        return RestAnswer(place, status, None, _without(words, forms)[:MAX_ERROR_TEXT], later)
    if isinstance(found, dict):
        found = {name: _without(value, forms) for name, value in found.items()}
    return RestAnswer(place, status, found, "", later)


def _seconds(given: str | None) -> float:
    """Convert a `Retry-After` header (seconds or a date) to seconds; 0 if it is invalid."""
    if given is None:
        return 0.0
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        return max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _without(value: Any, secrets: list[Secret]) -> Any:
    """Return a str with secrets redacted; return other values unchanged."""
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = redact_secret(value, secret)
    return value


def _forms(header: Secret) -> list[Secret]:
    """Return the secret parts of a header, which a server may repeat: credential and password."""
    credential = Secret(header.reveal().rpartition(" ")[2])
    found = [credential]
    with suppress(ValueError):
        found.append(Secret(b64decode(credential.reveal()).decode().partition(":")[2]))
    return found


def _failure(error: Exception, place: str) -> NoAnswerError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, http.client.HTTPException):  # its text is the server's
        return NoAnswerError(f"{place} didn't send a valid HTTP response ({type(reason).__name__})")
    if isinstance(reason, ssl.SSLError):
        words = getattr(reason, "verify_message", "") or reason.reason or str(reason)
        failed = NoAnswerError(f"{place}: TLS failed: {words}")
        failed.lasting = True
        return failed
    if isinstance(reason, TimeoutError):
        return NoAnswerError(f"{place} didn't respond in time")
    return NoAnswerError(
        f"{place} can't be reached: {(str(reason) or 'unknown reason')[:MAX_ERROR_TEXT]}"
    )
